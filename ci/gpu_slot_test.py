"""gpu_slot gives each test GPUs of its own, or a place on one. nvidia-smi is a fake script here,
and the tests are shell commands."""

import os
import signal
import stat
import subprocess
import tempfile
import time
import unittest
from unittest import mock

from ci import gpu_slot

SLOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_slot.py")

# Prints files of its directory that list the GPUs, and those in use.
NVIDIA_SMI = """#!/bin/sh
case $1 in
  --query-gpu=uuid,compute_cap,memory.used,memory.total) cat "$(dirname "$0")/gpus" ;;
  --query-compute-apps=gpu_uuid) cat "$(dirname "$0")/apps" ;;
  *) exit 2 ;;
esac
"""

TWO = ["GPU-aaaa", "GPU-bbbb"]


class GpuSlotTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(scratch.cleanup)
        self.directory = scratch.name
        self.locks = self.path("locks")
        self.write("nvidia-smi", NVIDIA_SMI)
        os.chmod(self.path("nvidia-smi"), 0o755)
        self.machine(["%s, 9.0, 0" % uuid for uuid in TWO])
        self.started = []
        self.addCleanup(self.end_all)

    def path(self, name):
        return os.path.join(self.directory, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(self.path(name), encoding="utf-8") as file:
            return file.read()

    def machine(self, gpus, apps=()):
        """GPUs with memory for one test each."""
        self.write("gpus", "".join(line + ", 4096\n" for line in gpus))
        self.write("apps", "".join(line + "\n" for line in apps))

    def start(self, script, **env):
        """Starts a shell command under gpu_slot."""
        environment = {
            "PATH": self.directory + ":/usr/bin:/bin",
            "ATTNLAB_GPU_LOCKS": self.locks,
            "ATTNLAB_GPUS": "1",
        }
        environment.update(env)
        process = subprocess.Popen([SLOT, "/bin/sh", "-c", "cd %s; %s" % (self.directory, script)],
                                   env={k: v for k, v in environment.items() if v is not None},
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   universal_newlines=True)
        self.started.append(process)
        return process

    def end_all(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def run_one(self, script="echo $CUDA_VISIBLE_DEVICES", **env):
        process = self.start(script, **env)
        out, err = process.communicate(timeout=60)
        return process.returncode, out.strip(), err

    def hold(self, name, **env):
        """Starts a test that runs until release(name), and waits until it is running."""
        process = self.start(self.holding(name), **env)
        return process, self.wait_for(name)

    @staticmethod
    def holding(name):
        return ("echo $CUDA_VISIBLE_DEVICES >%s.tmp; mv %s.tmp %s; "
                "while [ ! -e %s.end ]; do sleep 0.02; done" % ((name,) * 4))

    def wait_in_vain(self, script="echo $CUDA_VISIBLE_DEVICES", **env):
        """Starts a test and checks that it has to wait."""
        process = self.start(script, **env)
        deadline = time.monotonic() + 60
        while os.path.join(self.locks, "queue") not in self.open_files(process):
            self.assertLess(time.monotonic(), deadline, "is not in the queue")
            time.sleep(0.02)
        time.sleep(0.3)
        self.assertIsNone(process.poll())
        return process

    @staticmethod
    def open_files(process):
        directory = "/proc/%d/fd" % process.pid
        files = set()
        for name in os.listdir(directory):
            try:
                files.add(os.readlink(os.path.join(directory, name)))
            except OSError:  # closed meanwhile
                pass
        return files

    def wait_for(self, name, seconds=60):
        deadline = time.monotonic() + seconds
        while not os.path.exists(self.path(name)):
            self.assertLess(time.monotonic(), deadline, name)
            time.sleep(0.02)
        return self.read(name).strip()

    def release(self, name):
        self.write(name + ".end", "")

    def test_a_test_without_gpus_starts_at_once_and_sees_none(self):
        self.write("nvidia-smi", "#!/bin/sh\ntouch \"$(dirname \"$0\")/asked\"\n")
        for gpus in (None, "", "0"):
            for visible in (None, "1"):
                code, out, err = self.run_one("echo \"${CUDA_VISIBLE_DEVICES-unset}\"", ATTNLAB_GPUS=gpus,
                                              CUDA_VISIBLE_DEVICES=visible)
                self.assertEqual((code, out, err), (0, "", ""))
        self.assertFalse(os.path.exists(self.path("asked")))
        self.assertFalse(os.path.exists(self.locks))

    def test_says_which_gpu_and_how_long(self):
        code, out, err = self.run_one()
        self.assertEqual((code, out), (0, "GPU-aaaa"))
        self.assertRegex(err, r"^gpu_slot: GPU-aaaa after \d+\.\d s\n$")

    def test_exit_codes_and_signals_are_those_of_the_test(self):
        self.assertEqual(self.run_one("exit 7")[0], 7)
        self.assertEqual(self.run_one("kill -SEGV $$")[0], -signal.SIGSEGV)
        process, _ = self.hold("a")
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=60), -signal.SIGTERM)
        # Python ignores SIGPIPE, but the test must not.
        self.assertEqual(self.run_one("kill -PIPE $$")[0], -signal.SIGPIPE)

    def test_arguments_arrive_as_they_are(self):
        done = subprocess.run([SLOT, "/usr/bin/printf", "%s|", "a b", "", "*", "$x"], check=True,
                              stdout=subprocess.PIPE, universal_newlines=True,
                              env={"PATH": self.directory + ":/usr/bin:/bin"})
        self.assertEqual(done.stdout, "a b||*|$x|")

    def test_a_script_that_does_not_say_what_runs_it(self):
        self.write("bare", 'echo "$1" "$CUDA_VISIBLE_DEVICES"\n')
        os.chmod(self.path("bare"), 0o755)
        done = subprocess.run([SLOT, self.path("bare"), "a b"], stdout=subprocess.PIPE, timeout=60,
                              env={"PATH": self.directory + ":/usr/bin:/bin", "ATTNLAB_GPUS": "1",
                                   "ATTNLAB_GPU_LOCKS": self.locks},
                              check=True, universal_newlines=True)
        self.assertEqual(done.stdout, "a b GPU-aaaa\n")

    def test_three_tests_on_two_gpus(self):
        _, first = self.hold("a")
        _, second = self.hold("b")
        self.assertEqual(sorted([first, second]), TWO)
        third = self.wait_in_vain()
        self.release("b")
        out, err = third.communicate(timeout=60)
        self.assertEqual(out.strip(), second)
        self.assertGreaterEqual(float(err.split()[-2]), 0, err)  # "GPU-bbbb after 0.5 s"

    def test_each_gpu_has_one_test_at_a_time(self):
        # mkdir fails if another test on the same GPU is between its mkdir and its rmdir.
        script = "mkdir $CUDA_VISIBLE_DEVICES || exit 1; sleep 0.05; rmdir $CUDA_VISIBLE_DEVICES"
        tests = [self.start(script) for _ in range(12)]
        for test in tests:
            _, err = test.communicate(timeout=60)
            self.assertEqual(test.returncode, 0, err)

    def test_prefers_a_gpu_that_nobody_uses(self):
        self.machine(["GPU-aaaa, 9.0, 5", "GPU-bbbb, 9.0, 5"], apps=["GPU-aaaa", "GPU-aaaa"])
        self.assertEqual(self.run_one()[1], "GPU-bbbb")
        # Processes that a container does not see still use memory.
        self.machine(["GPU-aaaa, 9.0, 70000", "GPU-bbbb, 9.0, 5"])
        self.assertEqual(self.run_one()[1], "GPU-bbbb")
        # A GPU in use is better than none.
        self.hold("b")
        self.assertEqual(self.run_one()[1], "GPU-aaaa")

    def test_a_holder_that_is_killed_holds_nothing(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        process, _ = self.hold("a")
        waiting = self.wait_in_vain()
        process.kill()
        self.assertEqual(waiting.communicate(timeout=60)[0].strip(), "GPU-aaaa")

    def test_one_that_is_ended_while_it_waits_leaves_the_queue(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        self.hold("a")
        for number in (signal.SIGTERM, signal.SIGINT):
            waiting = self.wait_in_vain("echo ran")
            waiting.send_signal(number)
            self.assertEqual(waiting.communicate(timeout=60), ("", ""))
            self.assertEqual(waiting.returncode, -number)
        self.release("a")
        self.assertEqual(self.run_one()[1], "GPU-aaaa")

    def test_several_gpus(self):
        _, first = self.hold("a")
        both = self.wait_in_vain(ATTNLAB_GPUS="2")
        # The test waits for the first GPU, and later tests wait behind it.
        later = self.wait_in_vain()
        self.assertIsNone(both.poll())
        self.release("a")
        out = both.communicate(timeout=60)[0].strip()
        self.assertEqual(sorted(out.split(",")), TWO)
        self.assertIn(first, out)
        self.assertIn(later.communicate(timeout=60)[0].strip(), TWO)

    def share(self, name, number=2, **env):
        return self.hold(name, ATTNLAB_TESTS_PER_GPU=str(number), **env)

    def test_as_many_share_a_gpu_as_may_and_one_more_waits(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        for name in "abc":
            self.assertEqual(self.share(name, 3)[1], "GPU-aaaa")
        fourth = self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="3")
        self.release("b")
        out, err = fourth.communicate(timeout=60)
        self.assertEqual(out.strip(), "GPU-aaaa")
        self.assertRegex(err, r"^gpu_slot: GPU-aaaa, shared, after \d+\.\d s\n$")

    def test_many_share_and_no_more_than_may(self):
        # At most two tests run at a time, so each can make one of two directories.
        script = ("for k in 1 2; do mkdir $CUDA_VISIBLE_DEVICES.$k 2>>err && break; done || exit 1; "
                  "sleep 0.05; rmdir $CUDA_VISIBLE_DEVICES.$k")
        tests = [self.start(script, ATTNLAB_TESTS_PER_GPU="2") for _ in range(16)]
        for test in tests:
            _, err = test.communicate(timeout=60)
            self.assertEqual(test.returncode, 0, err)

    def test_an_exclusive_test_waits_for_all_that_share_and_keeps_others_out(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        self.share("a", 4)
        self.share("b", 4)
        alone = self.wait_in_vain(self.holding("alone"), ATTNLAB_TESTS_PER_GPU="4", ATTNLAB_GPU_EXCLUSIVE="1")
        # Places are free, but the other test was first.
        later = self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="4")
        self.release("a")
        time.sleep(0.3)
        self.assertFalse(os.path.exists(self.path("alone")))
        self.release("b")
        self.assertEqual(self.wait_for("alone"), "GPU-aaaa")
        time.sleep(0.3)
        self.assertIsNone(later.poll())
        self.release("alone")
        self.assertEqual(later.communicate(timeout=60)[0].strip(), "GPU-aaaa")
        self.assertRegex(alone.communicate(timeout=60)[1], r"^gpu_slot: GPU-aaaa after \d+\.\d s\n$")

    def test_callers_with_different_numbers(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        self.share("a", 2)
        self.share("b", 2)
        self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="2").kill()
        self.share("c", 3)
        alone = self.wait_in_vain()
        for name in "abc":
            self.release(name)
        self.assertEqual(alone.communicate(timeout=60)[0].strip(), "GPU-aaaa")
        self.hold("d")
        self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="3")

    def test_two_gpus_fill_evenly(self):
        # One GPU has far less memory in use, but this counts less.
        self.machine(["GPU-aaaa, 9.0, 0", "GPU-bbbb, 9.0, 70000"], apps=["GPU-bbbb"])
        gpus = [self.share(name, 3)[1] for name in "abcd"]
        self.assertEqual(gpus, TWO + TWO)
        self.release("a")
        self.release("c")
        for process in (self.started[0], self.started[2]):
            process.wait(timeout=60)
        self.assertEqual([self.share(name, 3)[1] for name in "ef"], ["GPU-aaaa", "GPU-aaaa"])

    def test_an_exclusive_test_takes_the_gpu_that_none_share(self):
        self.assertEqual(self.share("a")[1], "GPU-aaaa")
        self.assertEqual(self.share("b", ATTNLAB_GPU_EXCLUSIVE="1")[1], "GPU-bbbb")
        self.assertEqual(self.share("c")[1], "GPU-aaaa")

    def test_several_gpus_that_are_shared_are_distinct(self):
        for name in "ab":
            _, gpus = self.share(name, ATTNLAB_GPUS="2")
            self.assertEqual(sorted(gpus.split(",")), TWO)
        self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="2").kill()

    def test_one_that_shares_and_is_killed_gives_its_place_back(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        process, _ = self.share("a")
        self.share("b")
        waiting = self.wait_in_vain(ATTNLAB_TESTS_PER_GPU="2")
        process.kill()
        self.assertEqual(waiting.communicate(timeout=60)[0].strip(), "GPU-aaaa")

    def test_capability(self):
        self.machine(["GPU-aaaa, 7.5, 0", "GPU-bbbb, 9.0, 0"])
        self.assertEqual(self.run_one(ATTNLAB_COMPUTE_CAPABILITY="80")[1], "GPU-bbbb")
        self.assertEqual(self.run_one(ATTNLAB_COMPUTE_CAPABILITY="75")[1], "GPU-aaaa")
        code, out, err = self.run_one(ATTNLAB_COMPUTE_CAPABILITY="100")
        self.assertEqual((code, out), (1, ""))
        self.assertEqual(err, "gpu_slot: needs 1 GPU(s) of compute capability 10.0 or later; "
                              "of the 2 here, 0 qualify\n")

    def test_visible_devices_of_the_caller(self):
        for visible in ("1", "GPU-bbbb", "GPU-bb"):
            self.assertEqual(self.run_one(CUDA_VISIBLE_DEVICES=visible)[1], "GPU-bbbb")
        code, _, err = self.run_one(CUDA_VISIBLE_DEVICES="1", ATTNLAB_GPUS="2")
        self.assertEqual(code, 1)
        self.assertIn("needs 2 GPU(s); of the 2 here, 1 qualify", err)

    def test_bad_input(self):
        for bad in ("x", "-1", "1.5"):
            code, _, err = self.run_one(ATTNLAB_GPUS=bad)
            self.assertEqual((code, err), (1, "gpu_slot: ATTNLAB_GPUS: \"%s\" is not a number of GPUs\n" % bad))
        for bad in ("x", "0", "-1", "1.5", "65", "8 tests"):
            code, _, err = self.run_one(ATTNLAB_TESTS_PER_GPU=bad)
            self.assertEqual((code, err), (1, "gpu_slot: ATTNLAB_TESTS_PER_GPU: \"%s\" is not a number of tests "
                                              "from 1 to 64\n" % bad))
        code, _, err = self.run_one(ATTNLAB_GPU_EXCLUSIVE="yes")
        self.assertEqual((code, err), (1, "gpu_slot: ATTNLAB_GPU_EXCLUSIVE: \"yes\" is neither 0 nor 1\n"))
        for unset in ("", None):
            self.assertEqual(self.run_one(ATTNLAB_TESTS_PER_GPU=unset, ATTNLAB_GPU_EXCLUSIVE=unset)[0], 0)
        done = subprocess.run([SLOT, self.path("nothing")], check=False, stderr=subprocess.PIPE,
                              universal_newlines=True, env={"PATH": self.directory + ":/usr/bin:/bin"})
        self.assertEqual(done.returncode, 127)
        self.assertIn("No such file", done.stderr)
        self.assertEqual(subprocess.run([SLOT], check=False, stderr=subprocess.DEVNULL,
                                        env={"PATH": "/usr/bin:/bin"}).returncode, 2)

    def test_a_machine_that_does_not_tell(self):
        os.remove(self.path("nvidia-smi"))
        if os.path.exists("/proc/driver/nvidia/gpus") or os.path.exists("/usr/bin/nvidia-smi"):
            self.skipTest("this machine does tell")
        code, out, err = self.run_one("echo ran")
        self.assertEqual((code, out), (0, "ran"))
        self.assertIn("the test runs without its own GPU", err)

    def test_gpus_of_the_kernel_module(self):
        for n, uuid in enumerate(TWO):
            os.makedirs(self.path("gpus_of_driver/0000:0%d:00.0" % n))
            self.write("gpus_of_driver/0000:0%d:00.0/information" % n,
                       "Model: \t\t NVIDIA H200\nGPU UUID: \t %s\n" % uuid)
        gpus = gpu_slot.gpus_of_driver(self.path("gpus_of_driver"))
        self.assertEqual([gpu.uuid for gpu in gpus], TWO)
        # GPUs of unknown capability remain candidates.
        self.assertEqual(len(gpu_slot.candidates(gpus, None, 90)), 2)
        self.assertEqual(gpu_slot.gpus_of_driver(self.path("nowhere")), [])

    def test_rows_of_nvidia_smi(self):
        gpus = gpu_slot.parse_gpus([["GPU-aaaa", "12.0", "17", "9000"],
                                     ["GPU-bbbb", "[N/A]", "[N/A]", "[N/A]"]])
        self.assertEqual([(g.index, g.uuid, g.capability, g.memory, g.total) for g in gpus],
                         [(0, "GPU-aaaa", 120, 17, 9000), (1, "GPU-bbbb", None, 0, 0)])

    def test_how_many_share_follows_from_memory_and_processors(self):
        with mock.patch.object(gpu_slot, "processors", return_value=16):
            for total, places in ((0, 1), (4000, 1), (15360, 3), (143771, 16)):
                self.assertEqual(gpu_slot.Gpu(0, "GPU-aaaa", 90, 0, total).places(), places)
        self.write("gpus", "GPU-aaaa, 9.0, 0, 9000\n")
        if gpu_slot.processors() < 2:
            self.skipTest("one processor")
        for name in "ab":
            self.assertEqual(self.hold(name)[1], "GPU-aaaa")
        self.wait_in_vain().kill()
        self.wait_in_vain(ATTNLAB_GPU_EXCLUSIVE="1").kill()

    def test_one_cache_of_compiled_ptx(self):
        script = "echo $CUDA_CACHE_PATH $CUDA_CACHE_MAXSIZE"
        path = gpu_slot.PTX_CACHE % os.getuid()
        self.assertEqual(self.run_one(script)[1], "%s %d" % (path, gpu_slot.PTX_CACHE_BYTES))
        self.assertEqual(stat.S_IMODE(os.stat(path).st_mode), 0o700)
        self.assertEqual(self.run_one(script, CUDA_CACHE_PATH="/else")[1], "/else")
        with mock.patch.object(gpu_slot, "PTX_CACHE", self.path("ptx-%d")), mock.patch.dict(os.environ):
            os.environ.pop("CUDA_CACHE_PATH", None)
            os.symlink(self.directory, gpu_slot.PTX_CACHE % os.getuid())
            gpu_slot.share_ptx()
            self.assertNotIn("CUDA_CACHE_PATH", os.environ)

    def test_the_locks_are_for_every_user(self):
        umask = os.umask(0o077)
        self.addCleanup(os.umask, umask)
        self.assertEqual(self.run_one()[0], 0)
        self.assertEqual(stat.S_IMODE(os.stat(self.locks).st_mode), 0o1777)
        for name in ("queue", "GPU-aaaa"):
            mode = stat.S_IMODE(os.stat(os.path.join(self.locks, name)).st_mode)
            self.assertEqual(mode, 0o644)

    def test_a_link_is_no_lock(self):
        os.mkdir(self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), self.locks)
        code, _, err = self.run_one()
        self.assertEqual(code, 1)
        self.assertIn("ATTNLAB_GPU_LOCKS: ", err)
        os.remove(self.locks)
        os.mkdir(self.locks)
        os.symlink(self.path("victim"), os.path.join(self.locks, "GPU-aaaa"))
        code, _, err = self.run_one()
        self.assertEqual(code, 1)
        self.assertIn("lock GPU-aaaa: ", err)
        self.assertFalse(os.path.exists(self.path("victim")))

    def test_a_lock_that_is_removed_is_made_again(self):
        self.machine(["GPU-aaaa, 9.0, 0"])
        self.assertEqual(self.run_one()[0], 0)
        os.remove(os.path.join(self.locks, "GPU-aaaa"))
        self.assertEqual(self.run_one()[1], "GPU-aaaa")


if __name__ == "__main__":
    unittest.main()
