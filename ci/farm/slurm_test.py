"""The farm on a real Slurm: its daemons, started on this machine with four nodes that say they have a GPU.

Skipped where Debian's slurmctld, slurmd and munge are missing.
"""

import collections
import getpass
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import support  # of //tools/python/tests: reports skipped cases as skipped

from ci.farm import engines
from ci.farm import farm
from ci.farm import plan

HERE = os.path.dirname(os.path.abspath(__file__))
BUNDLE = os.path.join(HERE, "small_cpu_bundle.tar.gz")
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")

CONF = """\
ClusterName=farm
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmctldPidFile={dir}/slurmctld.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdPidFile={dir}/slurmd.%n.pid
SlurmdLogFile={dir}/slurmd.%n.log
SlurmdSpoolDir={dir}/spool.%n
StateSaveLocation={dir}/state
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={dir}/munge/socket
CredType=cred/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
KillWait=2
NodeName=a0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1 Gres=gpu:1 Feature=sm80
NodeName=a1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1 Gres=gpu:1 Feature=sm80
NodeName=h0 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[3]} CPUs=1 Gres=gpu:1 Feature=sm90
NodeName=h1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[4]} CPUs=1 Gres=gpu:1 Feature=sm90
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NODES = ("a0", "a1", "h0", "h1")


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


class Cluster:
    def __init__(self):
        self.directory = tempfile.mkdtemp(prefix="slurm.", dir="/tmp")  # sockets have short names
        self.daemons = []

    def begin(self):
        d = self.directory
        os.makedirs(d + "/munge", 0o711)
        os.makedirs(d + "/state")
        with open(d + "/munge/key", "wb") as f:
            os.fchmod(f.fileno(), 0o400)
            f.write(os.urandom(1024))
        with open(d + "/slurm.conf", "w", encoding="ascii") as f:
            f.write(CONF.format(dir=d, host=socket.gethostname().split(".")[0], user=getpass.getuser(),
                                ports=free_ports(5)))  # fmt: skip
        with open(d + "/gres.conf", "w", encoding="ascii") as f:
            f.writelines("NodeName=%s Name=gpu Count=1 File=/dev/null\n" % node for node in NODES)
        with open(d + "/cgroup.conf", "w", encoding="ascii") as f:
            f.write("CgroupAutomount=no\n")
        os.environ["SLURM_CONF"] = d + "/slurm.conf"
        self.start("munged", "--force", "--foreground", "--key-file=%s/munge/key" % d, "--socket=%s/munge/socket" % d,
                   "--pid-file=%s/munge/pid" % d, "--log-file=%s/munge/log" % d, "--seed-file=%s/munge/seed" % d)  # fmt: skip
        self.wait_until(lambda: os.path.exists(d + "/munge/socket"))
        self.start("slurmctld", "-D", "-i")
        for node in NODES:
            os.makedirs("%s/spool.%s" % (d, node))
            self.start("slurmd", "-D", "-N", node)
        self.wait_until(lambda: self.output("sinfo", "-h", "-N", "-o", "%t").split() == ["idle"] * len(NODES))

    def start(self, *command):
        with open("%s/output.%d" % (self.directory, len(self.daemons)), "wb") as output:
            self.daemons.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))

    def output(self, *command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
        return done.stdout

    def wait_until(self, condition):
        deadline = time.monotonic() + 60
        while not condition():
            if time.monotonic() > deadline:
                logs = [self.output("tail", "-n", "20", "%s/output.%d" % (self.directory, i)) for i in range(6)]
                raise AssertionError("Slurm does not start:\n" + "\n".join(logs))
            time.sleep(0.2)

    def stop(self):
        self.output("scancel", "--user=" + getpass.getuser())
        for daemon in reversed(self.daemons):
            daemon.terminate()
        for daemon in self.daemons:
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def process_of(batch_directory):
    """The process that runs a batch, once there is one."""
    while True:
        for name in os.listdir("/proc"):
            try:
                with open("/proc/%s/cmdline" % name, "rb") as f:
                    words = f.read().split(b"\0")
                if ("--items=%s/items.json" % batch_directory).encode() in words:
                    return int(name)
            except OSError:
                continue
        time.sleep(0.05)


@unittest.skipUnless(all(shutil.which(p, path=os.environ["PATH"] + ":/usr/sbin:/sbin") for p in PROGRAMS),
                     "no slurmctld, slurmd or munge")  # fmt: skip
class SlurmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        os.environ["PATH"] += ":/usr/sbin:/sbin"
        cls.cluster = Cluster()
        cls.addClassCleanup(cls.cluster.stop)
        cls.cluster.begin()

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = directory.name

    def farm(self, patience=60.0):
        bundle = farm.unpack_once(BUNDLE, os.path.join(self.out, "bundles"))
        pools = [plan.Pool("ampere", 80, 2, 1, ("--gres=gpu:1", "--constraint=sm80")),
                 plan.Pool("hopper", 90, 2, 1, ("--gres=gpu:1", "--constraint=sm90"))]  # fmt: skip
        # One for each kind of GPU.
        tests = plan.tests_of(farm.manifests_of({90: bundle}), pools)[0]
        tests[0] = tests[0]._replace(capability=80)
        made = farm.Farm(tests, pools, {80: bundle, 90: bundle}, {}, engines.Slurm(), self.out,
                         patience=patience, say=lambda line: None)  # fmt: skip
        self.addCleanup(made.journal.close)
        return made

    def check(self, items):
        self.assertEqual(collections.Counter(i["status"] for i in items), {"passed": 102})
        for item in items:
            if item["label"] == "//ci/farm:cpu_0":
                self.assertEqual({a["runner"].split("-")[0] for a in item["attempts"]}, {"ampere"})

    def test_shards_run_as_job_arrays_on_the_nodes_of_their_capability(self):
        made = self.farm()
        made.run()
        self.check(made.results()["items"])
        jobs = [batch.name for batch in os.scandir(os.path.join(self.out, "batches"))]
        self.assertEqual(len(jobs), 4)

    def test_what_a_killed_or_a_stopped_runner_leaves_is_done_elsewhere(self):
        made = self.farm(patience=25.0)  # with 10, a loaded machine had not begun a batch yet
        first, second = (os.path.join(self.out, "batches", "%05d" % i) for i in (0, 3))

        def harm():
            os.kill(process_of(first), signal.SIGKILL)
            os.kill(process_of(second), signal.SIGSTOP)

        thread = threading.Thread(target=harm, daemon=True)
        thread.start()
        made.run()
        thread.join(10)
        items = made.results()["items"]
        self.check(items)
        # What Slurm knows of it; and another node.
        lost = [i["attempts"] for i in items if len(i["attempts"]) > 1]
        self.assertEqual({tried[0]["machine"] != tried[1]["machine"] for tried in lost}, {True}, lost)
        self.assertLessEqual({a["machine"] for tried in lost for a in tried}, set(NODES))
        self.assertTrue(any("(FAILED" in tried[0]["why"] for tried in lost), lost)
        with open(os.path.join(self.out, "journal.jsonl"), encoding="utf-8") as f:
            ends = {event["why"][0] for event in map(json.loads, f) if "end" in event}
        self.assertLessEqual({"died", "hung"}, ends)


if __name__ == "__main__":
    support.main()
