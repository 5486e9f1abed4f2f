"""Engines start a runner (run_tests.py of a bundle) somewhere, say whether it still runs, and end it.

    name(batches)       sets each one's name, by which find() knows it
    start(batches)      sets each one's handle, which is JSON: another process may go on with it. Without a
                        handle it was not started, and `why` says why not
    find(batch)         the handle of a batch that was perhaps started; None if it was not, or has ended
    running(batches)    those that wait or run
    waits(batch)        whether, at the last running(), it had not begun
    log(batch)          the file with what its runner printed
    cancel(batch)       ends it
    end_of(batch)       (what the engine knows of its end, the machine it ran on); "" where it knows nothing
"""

import collections
import hashlib
import os
import shlex
import signal
import subprocess
import sys
import time


class Batch:
    """Some tests on their way to one runner. `directory` gets items.json and, in out/, the results."""

    def __init__(self, number, pool, runner, bundle, items, directory):
        self.number, self.pool, self.runner, self.bundle = number, pool, runner, bundle
        self.items, self.directory = items, directory
        self.name = self.handle = None
        self.why = ""
        self.avoid = ()  # machines where its tests went wrong

    @property
    def out(self):
        return os.path.join(self.directory, "out")

    def command(self):
        return [os.path.join(self.bundle, "tests", "run_tests.py"), "--out=" + self.out,
                "--items=" + os.path.join(self.directory, "items.json")]  # fmt: skip


def _began(pid):
    """When a process began, in the kernel's ticks: tells it from a later one with its number. None: it ended."""
    try:
        with open("/proc/%d/stat" % pid, encoding="ascii", errors="replace") as f:
            fields = f.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Local:
    """Processes of this machine: one runner with all its GPUs, or many that are simulated."""

    def __init__(self, jobs=None, wrap=None):
        self.jobs = jobs  # tests at a time of a runner
        self.wrap = wrap or (lambda batch: batch.command())
        self._children = {}

    def name(self, batches):
        pass

    def find(self, batch):
        """By its command line, which no other process has."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open("/proc/%s/cmdline" % pid, "rb") as f:
                    words = f.read().split(b"\0")
            except OSError:
                continue
            if ("--out=" + batch.out).encode() in words and _began(int(pid)) is not None:
                found.append((_began(int(pid)), int(pid)))
        return {"pid": min(found)[1], "began": min(found)[0]} if found else None

    def start(self, batches):
        for batch in batches:
            command = [sys.executable] + self.wrap(batch) + (["--jobs=%d" % self.jobs] if self.jobs else [])
            with open(self.log(batch), "wb") as log:
                child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                         stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
            self._children[child.pid] = child
            batch.handle = {"pid": child.pid, "began": _began(child.pid)}

    def _runs(self, batch):
        pid = batch.handle["pid"]
        if pid in self._children and self._children[pid].poll() is not None:
            return False
        return batch.handle["began"] is not None and _began(pid) == batch.handle["began"]

    def running(self, batches):
        return [batch for batch in batches if self._runs(batch)]

    def waits(self, batch):
        return False

    def log(self, batch):
        return os.path.join(batch.directory, "log")

    def end_of(self, batch):
        return "", ""

    def cancel(self, batch):
        """Tests have process groups of their own: the runner ends them or, if it cannot, they end with it."""
        for number, seconds in ((signal.SIGCONT, 0), (signal.SIGTERM, 5), (signal.SIGKILL, 5)):
            deadline = time.monotonic() + seconds
            try:
                if self._runs(batch):
                    os.kill(batch.handle["pid"], number)
            except ProcessLookupError:
                return
            while self._runs(batch) and time.monotonic() < deadline:
                time.sleep(0.02)


class Refused(OSError):
    """A program of Slurm has answered, with an error."""


def excluding(options, nodes):
    """Options of sbatch that also exclude these nodes. sbatch obeys the last --exclude only."""
    if not nodes:
        return list(options)
    others, own, left = [], [], list(options)
    while left:
        option = left.pop(0)
        if option in ("-x", "--exclude") and left:
            own.append(left.pop(0))
        elif option.startswith("--exclude="):
            own.append(option[len("--exclude=") :])
        elif option.startswith("-x") and len(option) > 2:
            own.append(option[2:])
        else:
            others.append(option)
    return others + ["--exclude=" + ",".join(own + list(nodes))]


class Slurm:
    """A job array per pool, and one more for each set of nodes to avoid. A pool's `slurm` are options for sbatch,
    such as ["--gres=gpu:1"]."""

    # Of this process's environment, jobs get no more: tokens stay here.
    EXPORT = "--export=PATH,HOME,USER,LANG,LD_LIBRARY_PATH,CUDA_HOME,ATTNLAB_COMMIT"

    def __init__(self, say=lambda line: None, patience=600.0):
        self.say, self.patience = say, patience
        self._states = {}
        self._silent_since = None

    def _run(self, *command):
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  universal_newlines=True, timeout=120)  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise OSError("%s: no answer within %d s" % (command[0], error.timeout)) from None
        if done.returncode != 0:
            raise Refused("%s: %s" % (command[0], done.stderr.strip() or "exit status %d" % done.returncode))
        return done.stdout

    def _arrays(self, batches):
        arrays = collections.OrderedDict()
        for batch in batches:
            arrays.setdefault((batch.pool.name, batch.avoid), []).append(batch)
        return arrays

    def name(self, batches):
        """The name of the job array, of a batch that no other run has; and the place in it."""
        for some in self._arrays(batches).values():
            unique = hashlib.sha256(some[0].directory.encode()).hexdigest()[:16]
            for i, batch in enumerate(some):
                batch.name = ["attnlab-" + unique, i, os.path.join(some[0].directory, "log.%d" % i)]

    def find(self, batch):
        name, i, log = batch.name
        for line in self._run("squeue", "--noheader", "--array", "--name=" + name, "--format=%i").split():
            if line.endswith("_%d" % i):
                return {"job": line, "log": log}
        return None

    def start(self, batches):
        for (pool, avoid), some in self._arrays(batches).items():
            cases = ["%d) exec %s ;;" % (i, " ".join(map(shlex.quote, batch.command())))
                     for i, batch in enumerate(some)]  # fmt: skip
            directory = some[0].directory
            script = os.path.join(directory, "array.sh")
            with open(script, "w", encoding="utf-8") as f:
                f.write("\n".join(["#!/bin/sh", 'case "$SLURM_ARRAY_TASK_ID" in'] + cases + ["esac", ""]))
            command = ["sbatch", "--parsable", "--job-name=" + some[0].name[0], "--no-requeue", self.EXPORT,
                       "--array=0-%d" % (len(some) - 1), "--open-mode=truncate",
                       "--output=" + os.path.join(directory, "log.%a")]  # fmt: skip
            options = some[0].pool.slurm
            try:
                try:
                    job = self._run(*command, *excluding(options, avoid), script)
                except Refused:
                    if not avoid:
                        raise
                    job = self._run(*command, *options, script)  # there may be no other nodes
            except OSError as error:
                for batch in some:
                    batch.why = str(error)
                continue
            job = job.strip().split(";")[0]
            self.say("%s: job array %s of %d" % (pool, job, len(some)))
            for batch in some:
                batch.handle = {"job": "%s_%d" % (job, batch.name[1]), "log": batch.name[2]}

    def running(self, batches):
        if not batches:
            return []
        try:
            lines = self._run("squeue", "--noheader", "--array", "--format=%i %T").splitlines()
        except OSError as error:
            # The controller may start anew. Jobs run on meanwhile.
            if self._silent_since is None:
                self._silent_since = time.monotonic()
                self.say(str(error))
            if time.monotonic() - self._silent_since > self.patience:
                raise
            return list(batches)
        self._silent_since = None
        self._states = dict(line.split() for line in lines if len(line.split()) == 2)
        return [batch for batch in batches if batch.handle["job"] in self._states]

    def waits(self, batch):
        if self._silent_since is not None:
            return True  # perhaps
        return self._states.get(batch.handle["job"]) in ("PENDING", "CONFIGURING")

    def log(self, batch):
        return batch.handle["log"]

    def end_of(self, batch):
        """Slurm forgets a job after some minutes."""
        try:
            words = self._run("scontrol", "show", "job", "--oneliner", batch.handle["job"]).split()
        except OSError:
            return "", ""
        said = dict(word.split("=", 1) for word in words if "=" in word)
        state, reason = said.get("JobState", ""), said.get("Reason", "None")
        return state + (", " + reason if reason != "None" else ""), said.get("NodeList", "").replace("(null)", "")

    def cancel(self, batch):
        try:
            self._run("scancel", batch.handle["job"])
        except OSError as error:
            self.say("%s: %s" % (batch.handle["job"], error))
        deadline = time.monotonic() + 60
        while self.running([batch]) and time.monotonic() < deadline:
            time.sleep(0.5)
