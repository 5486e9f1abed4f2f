import collections
import io
import json
import os
import random
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest
from unittest import mock

import support  # of //tools/python/tests: reports skipped cases as skipped

from ci.farm import engines
from ci.farm import farm
from ci.farm import plan

HERE = os.path.dirname(os.path.abspath(__file__))
BUNDLE = os.path.join(HERE, "cpu_bundle.tar.gz")
SMALL_BUNDLE = os.path.join(HERE, "small_cpu_bundle.tar.gz")
FAULTY = os.path.join(HERE, "faulty_runner.py")


class FarmTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.TemporaryDirectory()
        cls.bundle = farm.unpack_once(BUNDLE, cls.shared.name)

    @classmethod
    def tearDownClass(cls):
        cls.shared.cleanup()

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = directory.name

    def farm(self, shards, runners, fault_of=lambda batch: None, patience=60.0, attempts=3):
        """A farm of simulated runners. fault_of(batch): how its runner goes wrong."""
        # Fewer shards than a test has: the others are left out.
        pools = [plan.Pool("simulated", 90, runners, 1)]
        tests = plan.tests_of(farm.manifests_of({90: self.bundle}), pools)[0]
        tests = [test._replace(shards=min(50, shards)) for test in tests][: max(1, shards // 50)]

        def wrap(batch):
            fault = fault_of(batch)
            return [FAULTY, fault] + batch.command() if fault else batch.command()

        made = farm.Farm(tests, pools, {90: self.bundle}, {}, engines.Local(1, wrap), self.out,
                         attempts, patience, say=lambda line: None)  # fmt: skip
        self.addCleanup(made.journal.close)
        return made

    def run_farm(self, made):
        made.resume()
        made.run(poll=0.02)
        return made.results()["items"]

    def check(self, items, count):
        self.assertEqual(len({(i["label"], i["shard"]) for i in items}), count)
        self.assertEqual(collections.Counter(i["status"] for i in items), {"passed": count})

    def test_all_pass_where_nothing_goes_wrong(self):
        items = self.run_farm(self.farm(12, 2))
        self.check(items, 12)
        self.assertTrue(all(len(i["attempts"]) == 1 for i in items))
        self.assertEqual({i["attempts"][0]["runner"] for i in items}, {"simulated-0", "simulated-1"})

    def test_what_a_runner_leaves_undone_is_done_elsewhere(self):
        for fault, status in [("dies", "died"), ("gpu", "died"), ("late", "not begun"), ("truncates", "corrupt"),
                              ("forges", "corrupt"), ("swaps", "corrupt"), ("oom", "killed")]:  # fmt: skip
            with self.subTest(fault), tempfile.TemporaryDirectory() as self.out:
                made = self.farm(12, 2, lambda batch: fault if batch.number == 0 else None)
                items = self.run_farm(made)
                self.check(items, 12)
                again = [i for i in items if len(i["attempts"]) > 1]
                self.assertTrue(again)
                for item in again:
                    first, second = item["attempts"]
                    self.assertEqual(first["runner"], "simulated-0")
                    self.assertIn(first["status"], (status, "not begun"))
                    self.assertEqual((second["runner"], second["status"]), ("simulated-1", "passed"))
                if fault != "late":
                    self.assertIn(status, {i["attempts"][0]["status"] for i in again})

    def test_a_runner_that_hangs_is_ended(self):
        items = self.run_farm(self.farm(12, 2, lambda b: "hangs" if b.number == 0 else None, patience=8.0))
        self.check(items, 12)
        self.assertIn("hung", {a["status"] for i in items for a in i["attempts"]})

    def test_two_coordinators_do_not_share_a_run(self):
        self.farm(12, 2)
        with self.assertRaisesRegex(plan.PlanError, "another farm.py uses it"):
            self.farm(12, 2)

    def test_tokens_stay_in_the_environment(self):
        token = "token-of-this-test"
        with mock.patch.dict(os.environ, GITHUB_TOKEN=token):
            made = self.farm(12, 2)
            self.check(self.run_farm(made), 12)
            made.report(os.path.join(self.out, "history.jsonl"))
        paths = [os.path.join(where, name) for where, _, names in os.walk(self.out) for name in names]
        self.assertGreater(len(paths), 24)
        for path in paths:
            with open(path, "rb") as f:
                self.assertNotIn(token.encode(), f.read(), path)

    def test_a_lost_gpu_is_said(self):
        items = self.run_farm(self.farm(12, 2, lambda b: "gpu" if b.number == 0 else None))
        self.assertIn("stopped: GPUs were lost: there were 1, 0 answer",
                      {a["why"] for i in items for a in i["attempts"]})  # fmt: skip

    def test_what_all_runners_lose_is_lost_in_the_end(self):
        items = self.run_farm(self.farm(12, 3, lambda b: "late"))
        self.assertEqual(collections.Counter(i["status"] for i in items), {"lost": 12})
        self.assertEqual({a["status"] for i in items for a in i["attempts"]}, {"not begun"})

    def test_a_test_that_kills_its_runners_is_lost_alone(self):
        kills = ("//ci/farm:cpu_0", 90, 3)
        items = self.run_farm(self.farm(12, 6, lambda b: "kills" if kills in b.items else None))
        self.assertEqual([i["shard"] for i in items if i["status"] == "lost"], [3])
        self.assertEqual(collections.Counter(i["status"] for i in items), {"passed": 11, "lost": 1})

    def test_a_run_goes_on_only_with_the_same_bundles_and_runners(self):
        made = self.farm(12, 2)
        self.check(self.run_farm(made), 12)
        made.journal.close()
        again = self.farm(12, 2)
        self.check(self.run_farm(again), 12)  # without running anything
        again.journal.close()
        other = self.farm(12, 3)
        with self.assertRaisesRegex(plan.PlanError, "is the run of other bundles or runners"):
            other.resume()

    def test_half_a_line_of_the_journal_is_cut_off(self):
        made = self.farm(12, 2)
        made.resume()
        made.step()
        for batch in made.active.values():
            made.engine.cancel(batch)
        made.journal.close()
        path = os.path.join(self.out, "journal.jsonl")
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for end in (len(text) - 5, len(text.splitlines()[0]) // 2):
            with open(path, "w", encoding="utf-8") as f:
                f.write(text[:end])
            made = self.farm(12, 2)
            self.check(self.run_farm(made), 12)
            made.journal.close()
            with open(path, encoding="utf-8") as f:
                self.assertTrue(all(map(json.loads, f)))
        with open(path, "a", encoding="utf-8") as f:
            f.write("not JSON\n")
        with self.assertRaisesRegex(plan.PlanError, "journal.jsonl: is damaged"):
            self.farm(12, 2).resume()

    def test_a_sick_runner_gets_nothing_more(self):
        made = self.farm(12, 2, lambda b: "late" if b.runner == "simulated-0" else None)
        self.check(self.run_farm(made), 12)
        with open(os.path.join(self.out, "journal.jsonl"), encoding="utf-8") as f:
            begun = [json.loads(line).get("runner") for line in f]
        self.assertLessEqual(begun.count("simulated-0"), farm.MOST_LOST_BATCHES)

    def test_1000_shards_on_50_runners_of_which_a_tenth_fail(self):
        faults = ("dies", "gpu", "late", "truncates", "forges", "swaps", "oom", "hangs")

        def fault_of(batch):
            random_ = random.Random(batch.number)
            return random_.choice(faults) if random_.random() < 0.1 else None

        items = self.run_farm(self.farm(1000, 50, fault_of, patience=20.0))
        self.check(items, 1000)
        self.assertGreater(sum(len(i["attempts"]) > 1 for i in items), 20)

    def test_a_coordinator_that_is_killed_goes_on_where_it_was(self):
        inventory = os.path.join(self.out, "runners.json")
        with open(inventory, "w", encoding="utf-8") as f:
            json.dump({"pools": [{"name": "simulated", "capability": 90, "runners": 3}]}, f)
        out = os.path.join(self.out, "run")
        command = [sys.executable, "-c",
                   "import sys; from ci.farm import farm; sys.exit(farm.main(sys.argv[1:]))", "--runners=" + inventory,
                   "--bundle=90=" + SMALL_BUNDLE, "--out=" + out, "--jobs=1"]  # fmt: skip
        env = dict(os.environ, PYTHONPATH=":".join(sys.path))
        for _ in range(3):
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=env)
            time.sleep(2)
            process.kill()
            process.wait()
        done = subprocess.run(command, stdout=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertIn("102 passed, 0 skipped, 0 flaky, 0 failed, 0 lost", done.stdout)
        with open(os.path.join(out, "results.json"), encoding="utf-8") as f:
            items = json.load(f)["items"]
        self.check(items, 102)
        self.assertTrue(all(len(i["attempts"]) == 1 for i in items))
        # Once more: nothing runs, and the history has one line of this run.
        history = os.path.join(self.out, "history.jsonl")
        for _ in range(2):
            done = subprocess.run(command + ["--history=" + history], stdout=subprocess.PIPE, env=env)
            self.assertEqual(done.returncode, 0)
        with open(history, encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 0)  # it was reported before
        with open(inventory, "w", encoding="utf-8") as f:
            json.dump({"pools": [{"name": "simulated", "capability": 90, "runners": 2}]}, f)
        done = subprocess.run(command, stderr=subprocess.PIPE, universal_newlines=True, env=env)
        self.assertEqual(done.returncode, 2)
        self.assertIn("is the run of other bundles or runners", done.stderr)


class SilentSlurmTest(unittest.TestCase):
    def programs(self):
        """A directory of programs, and a function that puts a script there."""
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        path = mock.patch.dict(os.environ, PATH=directory.name + ":" + os.environ["PATH"])
        path.start()
        self.addCleanup(path.stop)

        def program(name, script):
            where = os.path.join(directory.name, name)
            with open(where, "w", encoding="utf-8") as f:
                f.write("#!/bin/sh\n" + script)
            os.chmod(where, 0o755)

        return directory.name, program

    def test_nodes_are_avoided_unless_there_are_no_others(self):
        directory, program = self.programs()
        program("sbatch", """echo "$*" >> '%s/asked'
            case "$*" in *--exclude=a0,a1*) echo no such nodes >&2; exit 1;; esac; echo 7
            """ % directory)
        batches = [engines.Batch(i, plan.Pool("p", 90, 3, 1), "r", "", [], directory) for i in range(3)]
        for batch, avoid in zip(batches, ((), ("a0",), ("a0", "a1"))):
            batch.avoid = avoid
        engine = engines.Slurm()
        engine.name(batches)
        engine.start(batches)
        self.assertEqual([batch.handle["job"] for batch in batches], ["7_0"] * 3)
        with open(os.path.join(directory, "asked"), encoding="utf-8") as f:
            asked = [[w for w in line.split() if w.startswith("--exclude")] for line in f]
        self.assertEqual(asked, [[], ["--exclude=a0"], ["--exclude=a0,a1"], []])

    def test_a_pool_keeps_the_nodes_that_it_excludes_itself(self):
        own = ["--gres=gpu:1", "--exclude=b[0-3]"]
        self.assertEqual(engines.excluding(own, ()), own)
        self.assertEqual(engines.excluding(own, ("a0", "a1")), ["--gres=gpu:1", "--exclude=b[0-3],a0,a1"])
        self.assertEqual(engines.excluding([], ("a0",)), ["--exclude=a0"])
        for own in (["-x", "b1", "-q", "x"], ["-q", "x", "-xb1"], ["--exclude", "b1", "-q", "x"]):
            self.assertEqual(engines.excluding(own, ("a0",)), ["-q", "x", "--exclude=b1,a0"])

    def test_jobs_run_on_while_the_controller_starts_anew(self):
        directory, program = self.programs()
        queue = os.path.join(directory, "queue")
        program("squeue", "exec cat '%s'\n" % queue)
        said = []
        engine = engines.Slurm(said.append)
        batches = [engines.Batch(i, None, "r", "", [], "") for i in range(2)]
        for i, batch in enumerate(batches):
            batch.handle = {"job": "7_%d" % i}
        self.assertEqual([engine.running(batches), engine.running(batches)], [batches, batches])
        self.assertEqual(len(said), 1)
        with open(queue, "w", encoding="utf-8") as f:
            f.write("7_1 RUNNING\n")
        self.assertEqual(engine.running(batches), batches[1:])
        os.remove(queue)
        engine.patience = -1
        with self.assertRaisesRegex(OSError, "squeue: .*queue"):
            engine.running(batches)

    def test_nothing_is_lost_while_sbatch_fails(self):
        directory, program = self.programs()
        program("sbatch", "echo no controller >&2; exit 1\n")
        program("squeue", "echo 7_0 RUNNING of something else\n")
        out = os.path.join(directory, "out")
        test = plan.Test("//t", 90, 0, 0, 1, "short")
        for mocked in (("START_AGAIN", 0.0), ("START_PATIENCE", 0.0)):
            patch = mock.patch.object(farm, *mocked)
            patch.start()
            self.addCleanup(patch.stop)
        said = []
        made = farm.Farm([test], [plan.Pool("p", 90, 2, 1)], {90: ""}, {}, engines.Slurm(), out, say=said.append)
        made.resume()
        with self.assertRaisesRegex(OSError, "sbatch: no controller"):
            made.run(poll=0)
        made.journal.close()
        self.assertEqual(made.attempts, {("//t", 90, 0): []})
        self.assertIn("p-0: not started: sbatch: no controller; 0 of 1 have a result", said)
        # Submitted, but the coordinator is killed before it knows.
        program("sbatch", "kill -9 $PPID\n")
        if os.fork() == 0:
            made = farm.Farm([test], [plan.Pool("p", 90, 2, 1)], {90: ""}, {}, engines.Slurm(), out, say=said.append)
            made.resume()
            made.step()
        os.wait()
        program("squeue", 'case "$*" in *--name=attnlab-*) echo 9_0;; esac\n')
        made = farm.Farm([test], [plan.Pool("p", 90, 2, 1)], {90: ""}, {}, engines.Slurm(), out, say=said.append)
        self.addCleanup(made.journal.close)
        made.resume()
        self.assertEqual([batch.handle["job"] for batch in made.active.values()], ["9_0"])


class FailingTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.out = directory.name

    def attempts(self, *statuses):
        made = farm.Farm([plan.Test("//t", 90, 0, 0, 1, "short")], [plan.Pool("p", 90, 9, 1)], {90: ""}, {},
                         engines.Local(), self.out)  # fmt: skip
        made.journal.close()
        made.attempts["//t", 90, 0] = [farm.Attempt("p-0", s, "", None, 0, "") for s in statuses]
        return made.results()["items"][0]["status"]

    def test_what_attempts_make_of_a_test(self):
        self.assertEqual(self.attempts("passed"), "passed")
        self.assertEqual(self.attempts("died", "passed"), "passed")
        self.assertEqual(self.attempts("failed", "passed"), "flaky")
        self.assertEqual(self.attempts("timeout", "failed"), "failed")
        self.assertEqual(self.attempts("died", "failed", "failed"), "failed")
        self.assertEqual(self.attempts("died", "hung", "corrupt"), "lost")
        self.assertEqual(self.attempts("not begun", "skipped"), "skipped")
        self.assertEqual(self.attempts(), "lost")


class RecordTest(unittest.TestCase):
    def test_a_record_must_be_what_its_files_say(self):
        with tempfile.TemporaryDirectory() as directory:
            batch = engines.Batch(0, plan.Pool("p", 90, 1, 1), "p-0", "", [("//t", 90, 0)], directory)
            where = os.path.join(batch.out, "tests", "t", "0")
            os.makedirs(where)

            def check(xml, **changes):
                for name, text in (("test.log", "log"), ("test.xml", xml)):
                    with open(os.path.join(where, name), "w", encoding="utf-8") as f:
                        f.write(text)
                record = {"label": "//t", "shard": 0, "status": "passed", "directory": "tests/t/0",
                          "began": 9.0, "waited": 0, "seconds": 1.0, "gpus": [],
                          "log_sha256": farm.digest(where + "/test.log"),
                          "xml_sha256": farm.digest(where + "/test.xml")}  # fmt: skip
                return farm.check_record(dict(record, **changes), batch)

            good = "<testsuites><testcase/></testsuites>"
            self.assertEqual(check(good), ("//t", 90, 0))
            for xml, changes in [("<testsuites><testcase><failure/></testcase></testsuites>", {}),
                                 ("<testsuites><testcase><error/></testcase></testsuites>", {}), ("<testsuites>", {}),
                                 (good, {"label": "//u"}), (good, {"shard": 1}), (good, {"status": "fine"}),
                                 (good, {"directory": "../.."}), (good, {"directory": 7}),
                                 (good, {"directory": "tests/u/0"}), (good, {"seconds": "1"}), (good, {"began": float("inf")}),
                                 (good, {"waited": float("nan")}),
                                 (good, {"gpus": [7]}), (good, {"shard": []}), (good, {"log_sha256": ""}),
                                 ('<?xml version="1.0" encoding="no-such"?>' + good, {})]:  # fmt: skip
                with self.assertRaises(farm.Lost, msg=(xml, changes)):
                    check(xml, **changes)

    def test_of_two_results_of_a_test_neither_counts(self):
        with tempfile.TemporaryDirectory() as directory:
            batch = engines.Batch(0, plan.Pool("p", 90, 1, 1), "p-0", "", [("//t", 90, 0), ("//u", 90, 0)], directory)
            where = os.path.join(batch.out, "tests", "t", "0")
            os.makedirs(where)
            for name, text in (("test.log", ""), ("test.xml", "<testsuites/>")):
                with open(os.path.join(where, name), "w", encoding="utf-8") as f:
                    f.write(text)
            record = {"label": "//t", "shard": 0, "directory": "tests/t/0", "began": 9, "waited": 0, "seconds": 1,
                      "gpus": [], "log_sha256": farm.digest(where + "/test.log"), "xml_sha256": farm.digest(where + "/test.xml")}
            with open(os.path.join(batch.out, "results.jsonl"), "w", encoding="utf-8") as f:
                for status in ("failed", "passed"):
                    f.write(json.dumps(dict(record, status=status)) + "\n")
            found = farm.collect(batch, ("died", ""), "")
            self.assertEqual({key[0]: attempt.status for key, attempt in found.items()},
                             {"//t": "corrupt", "//u": "not begun"})  # fmt: skip
            with open(os.path.join(batch.out, "ended.json"), "w", encoding="utf-8") as f:
                f.write('{"results_sha256": "another"}')
            self.assertEqual({a.status for a in farm.collect(batch, ("not done", ""), "").values()}, {"corrupt"})


class UnpackTest(unittest.TestCase):
    def unpack(self, *members):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "b.tar.gz")
            with tarfile.open(path, "w:gz") as tar:
                for member in members:
                    tar.addfile(member, io.BytesIO(b"x" * member.size))
            farm.unpack(path, os.path.join(directory, "to"))
            return sorted(os.listdir(os.path.join(directory, "to", "tests")))

    def member(self, name, kind=tarfile.REGTYPE, link=""):
        info = tarfile.TarInfo(name)
        info.type, info.linkname, info.size = kind, link, 1 if kind == tarfile.REGTYPE else 0
        return info

    def test_nothing_leaves_the_directory(self):
        self.assertEqual(self.unpack(self.member("tests/a"), self.member("tests/b", tarfile.LNKTYPE, "tests/a")),
                         ["a", "b"])  # fmt: skip
        for bad in [self.member("/tests/a"), self.member("tests/../../a"), self.member("other/a"),
                    self.member("tests/l", tarfile.SYMTYPE, "/etc"), self.member("tests/d", tarfile.CHRTYPE),
                    self.member("tests/l", tarfile.LNKTYPE, "/etc/passwd"),
                    self.member("tests/l", tarfile.LNKTYPE, "tests/../../x")]:  # fmt: skip
            with self.assertRaises(plan.PlanError, msg=bad.name):
                self.unpack(bad)

    def test_a_damaged_archive_is_an_error(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "b.tar.gz")
            with open(BUNDLE, "rb") as f, open(path, "wb") as to:
                to.write(f.read()[:100000])
            with self.assertRaisesRegex(plan.PlanError, "b.tar.gz"):
                farm.unpack_once(path, directory)


if __name__ == "__main__":
    support.main()
