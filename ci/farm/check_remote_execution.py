"""Bazel's remote execution with a real server: BuildGrid, and workers of three pools on this machine.

    python3 ci/farm/check_remote_execution.py

Starts PostgreSQL, BuildGrid (from PyPI) and five workers, then runs //ci/farm:remote_tests under
--config=farm. Each of those tests fails if the pool `cpu` did not build it, or another pool than its own runs
it; then it runs conformance tests of the CPU kernel, which were built before. One worker is killed while it
works; others have to do its work. A second run has to come from the shared cache. CI
runs this, as root or not; Debian's postgresql and python3-venv have to be there.
"""

import contextlib
import glob
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PREBUILT = os.path.join(ROOT, "ci", "farm", "prebuilt")
PACKAGES = ["buildgrid==0.4.4", "psycopg2-binary==2.9.10"]
WORKERS = {
    "cpu-0": ["pool=cpu"],
    "cpu-1": ["pool=cpu"],
    "cpu-2": ["pool=cpu"],
    "ampere-0": ["gpu=sm_80", "gpus=1"],
    "hopper-0": ["gpu=sm_90", "gpus=1"],
}

CONFIGURATION = """\
server:
  - !channel
    address: "127.0.0.1:{port}"
    insecure-mode: true
authorization:
  method: none
monitoring:
  enabled: false
connections:
  - !sql-connection &sql
    connection-string: {database}
storages:
  - !lru-storage &cas
    size: 1024M
caches:
  - !lru-action-cache &cache
    storage: *cas
    max-cached-refs: 4096
    allow-updates: true
    cache-failed-actions: false
schedulers:
  - !sql-scheduler &scheduler
    sql: *sql
    action-cache: *cache
    storage: *cas
    property-set: !dynamic-property-set
      match-property-keys: [pool, gpu, gpus]
      wildcard-property-keys: []
    bot-session-keepalive-timeout: 10
    assigners:
      - !priority-age-assigner
        count: 1
        interval: 0.1
instances:
  - name: ""
    services:
      - !action-cache
        cache: *cache
      - !execution
        scheduler: *scheduler
      - !cas
        storage: *cas
      - !bytestream
        storage: *cas
      - !bots
        scheduler: *scheduler
thread-pool-size: 50
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(port, process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        with socket.socket() as s:
            if s.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    with open(log, encoding="utf-8", errors="replace") as f:
        sys.exit("check_remote_execution: %s does not start:\n%s" % (process.args[0], f.read()[-3000:]))


class Farm(contextlib.ExitStack):
    def __init__(self, directory):
        super().__init__()
        self.directory = directory
        self.port = free_port()

    def start(self, name, command, prefix=()):
        log = os.path.join(self.directory, name + ".log")
        with open(log, "wb") as output:
            process = subprocess.Popen([*prefix, *command], stdin=subprocess.DEVNULL, stdout=output,
                                       stderr=subprocess.STDOUT, cwd=self.directory)  # fmt: skip
        self.callback(process.wait)
        self.callback(process.terminate)
        return process, log

    def database(self):
        programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))
        if not programs:
            sys.exit("check_remote_execution: postgresql is not installed")
        where = os.path.join(self.directory, "postgresql")
        os.mkdir(where)
        prefix = []
        if os.geteuid() == 0:  # which PostgreSQL refuses
            shutil.chown(where, "postgres", "postgres")
            prefix = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]
        port = free_port()
        data = where + "/data"
        subprocess.run([*prefix, programs[-1] + "/initdb", "-D", data, "-A", "trust", "-U", "bgd"], check=True,
                       stdout=subprocess.DEVNULL, cwd="/")  # fmt: skip
        command = [programs[-1] + "/postgres", "-D", data, "-k", where, "-c", "listen_addresses=127.0.0.1",
                   "-p", str(port)]  # fmt: skip
        wait_for(port, *self.start("postgres", command, prefix))
        return "postgresql+psycopg2://bgd@127.0.0.1:%d/postgres" % port

    def begin(self):
        python = os.path.join(self.directory, "venv", "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", os.path.join(self.directory, "venv")], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run(pip + PACKAGES, check=True)
        bgd = os.path.join(os.path.dirname(python), "bgd")
        database = self.database()
        deadline = time.monotonic() + 30
        while subprocess.run([bgd, "migrate", "apply", database], stdout=subprocess.DEVNULL).returncode != 0:
            if time.monotonic() > deadline:
                sys.exit("check_remote_execution: the database cannot be set up")
            time.sleep(1)
        path = os.path.join(self.directory, "buildgrid.yml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(CONFIGURATION.format(port=self.port, database=database))
        wait_for(self.port, *self.start("buildgrid", [bgd, "server", "start", path, "-v"]))
        worker = os.path.join(ROOT, "ci", "farm", "rbe_worker.py")
        return {name: self.start(name, [python, worker, "127.0.0.1:%d" % self.port, name, *properties])[0]
                for name, properties in WORKERS.items()}  # fmt: skip

    def prebuild(self):
        """Building the tests once more, by these workers, would take minutes."""
        subprocess.run(["./bazelw", "build", "--noshow_progress", "--ui_event_filters=-info",
                        "//ci/farm:small_cpu_bundle"], cwd=ROOT, check=True)  # fmt: skip
        built = subprocess.run(["./bazelw", "info", "bazel-bin"], cwd=ROOT, check=True, stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, universal_newlines=True).stdout.strip()  # fmt: skip
        self.callback(shutil.rmtree, PREBUILT, ignore_errors=True)
        os.makedirs(PREBUILT, exist_ok=True)
        archive = os.path.join(PREBUILT, "bundle.tar.gz")
        shutil.copyfile(os.path.join(built, "ci", "farm", "small_cpu_bundle.tar.gz"), archive)

    def bazel(self, *words):
        flags = "--output_base=%s/bazel --max_idle_secs=15" % self.directory
        command = ["./bazelw", *words]
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ, BAZELW_FLAGS=flags), timeout=600,
                              stdout=subprocess.PIPE, universal_newlines=True)  # fmt: skip
        print(done.stdout, end="", flush=True)
        if done.returncode != 0:
            sys.exit("check_remote_execution: %s failed" % " ".join(command))
        return done.stdout

    def test(self):
        return self.bazel("test", "--config=farm", "--remote_executor=grpc://127.0.0.1:%d" % self.port,
                          "--noshow_progress", "--ui_event_filters=-info,-warning", "--symlink_prefix=/",
                          "//ci/farm:remote_tests")  # fmt: skip


def kill_one_that_works(processes, killed):
    while not killed.is_set():
        for process in processes:
            for path in glob.glob("/proc/%d/task/*/children" % process.pid):
                with contextlib.suppress(OSError), open(path, encoding="ascii") as f:
                    if f.read().strip():
                        process.kill()
                        killed.set()
                        return
        time.sleep(0.01)


def main():
    with tempfile.TemporaryDirectory(prefix="remote.", dir="/tmp") as directory:
        os.chmod(directory, 0o755)
        with Farm(directory) as farm:
            farm.prebuild()
            workers = farm.begin()
            killed = threading.Event()
            cpu = [process for name, process in workers.items() if name.startswith("cpu-")]
            threading.Thread(target=kill_one_that_works, args=(cpu, killed), daemon=True).start()
            farm.test()
            if not killed.is_set():
                sys.exit("check_remote_execution: no worker was killed")
            farm.bazel("clean", "--noshow_progress", "--ui_event_filters=-info")
            again = farm.test()
            farm.bazel("shutdown")
        subprocess.run(["chmod", "-R", "u+w", directory], check=False)
        cached = again.count("(cached) PASSED")
        if cached < 4:
            sys.exit("check_remote_execution: %d of 4 tests came from the shared cache" % cached)
    print("check_remote_execution: 4 tests ran on the workers of their pools, though one was killed, "
          "and again from the cache")  # fmt: skip


if __name__ == "__main__":
    main()
