import contextlib
import io
import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
import unittest
import xml.etree.ElementTree as ElementTree
from unittest import mock

from ci.farm import run_tests


class RunTestsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = directory.name
        self.out = os.path.join(self.directory, "out")
        self.tests = []
        os.makedirs(os.path.join(self.directory, run_tests.RUNFILES, "ws"))
        self.addCleanup(mock.patch.stopall)
        mock.patch.object(run_tests, "HERE", self.directory).start()
        mock.patch.dict(run_tests.SECONDS, short=2).start()
        mock.patch.object(run_tests.signal, "signal").start()

    def add(self, name, script, shards=1, **more):
        path = os.path.join(self.directory, run_tests.RUNFILES, "ws", name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n" + script)
        os.chmod(path, stat.S_IRWXU)
        self.tests.append(dict({"label": "//p:" + name, "program": "ws/" + name, "args": [], "env": {}, "gpus": 0,
                                "shards": shards, "timeout": "short", "exclusive": False}, **more))  # fmt: skip

    def run_main(self, *flags):
        with open(os.path.join(self.directory, "tests.json"), "w", encoding="utf-8") as f:
            json.dump({"workspace": "ws", "tests": self.tests}, f)
        out = io.StringIO()
        status = run_tests.main(["--out=" + self.out, "--jobs=4", *flags], out)
        records = {}
        if os.path.exists(os.path.join(self.out, "results.jsonl")):
            with open(os.path.join(self.out, "results.jsonl"), encoding="utf-8") as f:
                for line in f:
                    record = json.loads(line)
                    records[record["label"].split(":")[1], record["shard"]] = record
        return status, out.getvalue(), records

    def xml_of(self, record):
        return ElementTree.parse(os.path.join(self.out, record["directory"], "test.xml")).getroot()

    def test_each_way_to_end(self):
        self.add("passes", "echo fine\n")
        self.add("fails", "echo 'why <not>'; exit 7\n")
        self.add("sleeps", "sleep 30\n")
        self.add("is_killed", "kill -9 $$\n")
        self.add("says_so", "echo \"<testsuites><testcase><failure/></testcase></testsuites>\" > $XML_OUTPUT_FILE\n")
        self.add("half", "echo '<testsuites><testcase>' > $XML_OUTPUT_FILE\n")
        self.add("missing", "", program="ws/nowhere")
        status, out, records = self.run_main()
        self.assertEqual({name: r["status"] for (name, _), r in records.items()}, {
            "passes": "passed", "fails": "failed", "sleeps": "timeout", "is_killed": "killed", "says_so": "failed",
            "half": "failed", "missing": "failed",
        })  # fmt: skip
        self.assertEqual(status, 3)
        self.assertTrue(out.endswith("1 passed, 0 skipped, 6 failed, 0 not run\n"), out)
        for (name, _), record in records.items():
            failures = sum(1 for _ in self.xml_of(record).iter("failure"))
            self.assertEqual(failures, record["status"] != "passed", name)
        self.assertIn("why <not>", "".join(self.xml_of(records["fails", 0]).itertext()))

    def test_tests_get_what_bazel_gives_them(self):
        names = "TEST_SRCDIR RUNFILES_DIR TEST_WORKSPACE TEST_TARGET TEST_TMPDIR TEST_UNDECLARED_OUTPUTS_DIR MINE"
        self.add("shows", "pwd; for n in %s; do eval echo $n=\\$$n; done; echo \"$@\"; touch $TEST_TMPDIR/x\n" % names,
                 args=["--a", "b c"], env={"MINE": "yes"})  # fmt: skip
        _, _, records = self.run_main()
        with open(os.path.join(self.out, records["shows", 0]["directory"], "test.log"), encoding="utf-8") as f:
            log = f.read()
        self.assertTrue(log.startswith(os.path.realpath(os.path.join(self.directory, run_tests.RUNFILES, "ws")) + "\n"))
        for expected in ("TEST_WORKSPACE=ws", "TEST_TARGET=//p:shows", "MINE=yes", "--a b c"):
            self.assertIn(expected, log)
        temporary = log.split("TEST_TMPDIR=")[1].split()[0]
        self.assertFalse(os.path.exists(temporary))

    def test_a_test_that_knows_no_shards_fails(self):
        self.add("knows", 'touch "$TEST_SHARD_STATUS_FILE"; echo $TEST_SHARD_INDEX of $TEST_TOTAL_SHARDS\n', shards=2)
        self.add("ignores", "exit 0\n", shards=2)
        _, _, records = self.run_main()
        self.assertEqual({key: r["status"] for key, r in records.items()}, {
            ("knows", 0): "passed", ("knows", 1): "passed", ("ignores", 0): "failed", ("ignores", 1): "failed",
        })  # fmt: skip

    def test_what_a_test_leaves_running_is_ended(self):
        marker = os.path.join(self.directory, "left")
        self.add("leaves", "(sleep 2; touch %s) &\n" % marker)
        self.run_main()
        time.sleep(2.5)
        self.assertFalse(os.path.exists(marker))

    def order_of(self, *flags):
        """The names of the tests in the order in which they begin."""
        status, out, records = self.run_main("--jobs=1", *flags)
        self.assertEqual(status, 0, out)
        return [name for name, _ in sorted(records, key=lambda key: records[key]["began"])]

    def test_exclusive_tests_come_last_and_long_ones_first(self):
        self.add("alone", "exit 0\n", exclusive=True)
        self.add("fast", "exit 0\n")
        self.add("slow", "sleep 0.1\n")
        self.add("timed", "exit 0\n", timeout="moderate")
        self.assertEqual(self.order_of(), ["timed", "fast", "slow", "alone"])
        past, self.out = self.out, self.out + "2"
        self.assertEqual(self.order_of("--after=" + past), ["timed", "slow", "fast", "alone"])

    def test_a_past_run_that_cannot_be_read_is_an_error(self):
        self.add("a", "exit 0\n")
        for text in (None, '{"label": "//p:a"}\n', "half\n"):
            if text:
                with open(os.path.join(self.directory, "results.jsonl"), "w", encoding="utf-8") as f:
                    f.write(text)
            with contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(self.run_main("--after=" + self.directory)[0], 2)
            self.assertIn("--after: %s/results.jsonl: has no results: " % self.directory, errors.getvalue())
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual(self.run_main("--after=" + self.directory, "--items=x")[0], 2)
        self.assertIn("--after: tests of --items keep their order", errors.getvalue())

    def test_only_items_that_are_asked_for(self):
        self.add("a", 'touch "$TEST_SHARD_STATUS_FILE"\n', shards=3)
        self.add("b", "exit 0\n")
        items = os.path.join(self.directory, "items.json")
        with open(items, "w", encoding="utf-8") as f:
            f.write('[["//p:a", 1], ["//p:b", 0]]')
        status, _, records = self.run_main("--items=" + items)
        self.assertEqual((status, sorted(records)), (0, [("a", 1), ("b", 0)]))

    def run_on_gpus(self, *answers):
        with open(os.path.join(self.directory, "gpu_slot.py"), "w", encoding="utf-8") as f:
            f.write("import os, sys\nprint('gpu_slot: GPU-1, shared, after 0.5 s', flush=True)\n"
                    "os.execv(sys.argv[1], sys.argv[1:])\n")  # fmt: skip
        with mock.patch.object(run_tests, "gpus_here", side_effect=answers):
            return self.run_main("--jobs=1")

    def test_a_lost_gpu_ends_the_runner(self):
        for answers in ([["GPU-1"], []], [["GPU-1", "GPU-2"], ["GPU-1"]], [[]]):
            self.out += "x"
            self.tests = []
            self.add("passes", "exit 0\n", gpus=1)  # perhaps without its GPU
            self.add("later", "exit 0\n", gpus=1)
            status, out, records = self.run_on_gpus(*answers)
            self.assertEqual((status, records), (4, {}), answers)
            self.assertIn("2 not run", out)
            self.assertFalse(os.path.exists(os.path.join(self.out, "ended.json")))

    def test_a_gpu_test_without_a_case_that_ran_is_skipped(self):
        xml = "echo '<testsuites><testcase><skipped/></testcase>%s</testsuites>' > $XML_OUTPUT_FILE\n"
        self.add("all", xml % "", gpus=1)
        self.add("some", xml % "<testcase/>", gpus=1)
        status, out, records = self.run_on_gpus(["GPU-1"], ["GPU-1"], ["GPU-1"])
        self.assertEqual({name: r["status"] for (name, _), r in records.items()}, {"all": "skipped", "some": "passed"})
        self.assertEqual(status, 0)
        self.assertIn("1 passed, 1 skipped, 0 failed, 0 not run", out)

    def test_any_log_gives_whole_xml(self):
        self.add("prints", r"printf 'a\000\033\357\277\277\355\240\200\377b<'" + "\n")
        status, _, records = self.run_main()
        self.assertEqual(status, 0)
        self.assertTrue("".join(self.xml_of(records["prints", 0]).itertext()).endswith("b<"))

    def test_tests_end_with_a_runner_that_is_killed(self):
        marker = os.path.join(self.directory, "lives")
        self.add("long", "touch %s.began; sleep 2; touch %s\n" % (marker, marker), timeout="long")
        with open(os.path.join(self.directory, "tests.json"), "w", encoding="utf-8") as f:
            json.dump({"workspace": "ws", "tests": self.tests}, f)
        shutil.copy(run_tests.__file__, self.directory)
        runner = subprocess.Popen([sys.executable, os.path.join(self.directory, "run_tests.py"), "--out=" + self.out],
                                  stdout=subprocess.DEVNULL)  # fmt: skip
        while not os.path.exists(marker + ".began"):
            time.sleep(0.02)
        runner.kill()
        runner.wait()
        time.sleep(2.5)
        self.assertFalse(os.path.exists(marker))

    def test_gpu_lines_say_how_busy_each_was(self):
        def record(gpu, began, seconds, waited):
            return {"gpus": [gpu], "began": began, "seconds": seconds, "waited": waited}

        records = [record("A", 0, 10, 0), record("A", 0, 10, 0), record("B", 2, 6, 2), record("B", 8, 2, 0)]
        self.assertEqual(run_tests.gpu_lines(records, 10.0), [
            "A: 2 tests, busy 100 % of 10.0 s, 2.0 tests at a time",
            "B: 2 tests, busy 60 % of 10.0 s, 1.0 tests at a time",
        ])  # fmt: skip

    def test_bad_input_runs_nothing(self):
        self.add("a", "exit 0\n")
        items = os.path.join(self.directory, "items.json")
        for text, message in [("{", "is not a JSON list"), ('[["//p:b", 0]]', "//p:b: is not in this bundle"),
                              ('[["//p:a", 1]]', "//p:a: has no shard 1")]:  # fmt: skip
            with open(items, "w", encoding="utf-8") as f:
                f.write(text)
            with mock.patch("sys.stderr", new_callable=io.StringIO) as err:
                self.assertEqual(self.run_main("--items=" + items)[0], 2)
            self.assertIn(message, err.getvalue())
        with mock.patch("sys.stderr", new_callable=io.StringIO) as err:
            self.assertEqual(self.run_main("//p:c")[0], 2)
            self.assertEqual(self.run_main("--jobs=0")[0], 2)
            self.assertEqual(self.run_main()[0], 0)
            self.assertEqual(self.run_main()[0], 2)  # results are there
        self.assertIn("has results already", err.getvalue())


if __name__ == "__main__":
    unittest.main()
