import io
import json
import os
import random
import tempfile
import unittest

from ci.farm import plan


def test(label, capability=90, gpus=1, shards=1, timeout="moderate", named=0):
    return plan.Test(label, capability, named, gpus, shards, timeout)


def pool(name, capability, runners=1, gpus=1):
    return plan.Pool(name, capability, runners, gpus)


class MakePlanTest(unittest.TestCase):
    def labels(self, made, pool_name):
        return sorted(i.label for r in made.runners if r.pool.name == pool_name for i in r.items)

    def test_each_test_goes_to_runners_of_its_capability(self):
        made = plan.make_plan([test("//a", 80), test("//a", 90), test("//b", 90)], [pool("a", 80), pool("h", 90)], {})
        self.assertEqual(self.labels(made, "a"), ["//a"])
        self.assertEqual(self.labels(made, "h"), ["//a", "//b"])

    def test_a_test_for_two_gpus_needs_a_runner_that_has_them(self):
        made = plan.make_plan([test("//one"), test("//two", gpus=2)], [pool("s", 90, 5), pool("l", 90, gpus=2)], {})
        self.assertIn("//two", self.labels(made, "l"))

    def test_every_shard_of_every_test_is_there_once(self):
        random_ = random.Random(1)
        tests = [
            test("//t%d" % i, random_.choice([80, 89, 90]), shards=random_.randint(1, 4))
            for i in range(300)
        ]
        made = plan.make_plan(tests, [pool("a", 80, 3), pool("b", 89, 2), pool("c", 90, 4)], {})
        items = sorted((i.label, i.shard) for r in made.runners for i in r.items)
        self.assertEqual(items, sorted((t.label, s) for t in tests for s in range(t.shards)))

    def test_within_a_tenth_of_what_no_plan_can_beat(self):
        for seed in range(100):
            random_ = random.Random(seed)
            tests = [test("//t%d" % i, random_.choice([80, 90])) for i in range(120)]
            seconds = {t.label: random_.lognormvariate(2, 1) for t in tests}
            made = plan.make_plan(tests, [pool("a", 80, 3), pool("b", 90, 4)], seconds)
            self.assertLessEqual(made.seconds, 1.1 * made.least_seconds, seed)

    def test_the_order_of_tests_does_not_matter(self):
        tests = [test("//t%d" % i, 80 if i % 3 else 90) for i in range(40)]
        pools = [pool("a", 80, 2), pool("b", 90, 2)]
        expected = plan.make_plan(tests, pools, {}).to_json()
        for seed in range(5):
            random.Random(seed).shuffle(tests)
            self.assertEqual(plan.make_plan(tests, pools, {}).to_json(), expected)

    def test_a_long_test_bounds_the_plan(self):
        made = plan.make_plan([test("//long"), test("//short")], [pool("a", 90, 4)], {"//long": 500})
        self.assertEqual(made.seconds, 500)
        self.assertEqual(made.least_seconds, 500)

    def test_without_tests_nothing_takes_time(self):
        self.assertEqual(plan.make_plan([], [pool("a", 90)], {}).seconds, 0)


def of_bundle(label, named=0, gpus=1, shards=1, timeout="moderate"):
    """As in tests.json."""
    env = {"ATTNLAB_COMPUTE_CAPABILITY": str(named)} if named else {}
    return {"label": label, "gpus": gpus, "shards": shards, "timeout": timeout, "env": env}


def manifest(*tests, others=()):
    return {"platform": "//ci:linux_sm_90", "workspace": "ws", "tests": list(tests), "others": list(others)}


class TestsOfBundlesTest(unittest.TestCase):
    def test_a_test_for_a_capability_runs_on_that_or_the_least_later_one(self):
        a, b, h = pool("a", 80), pool("b", 89), pool("h", 90)
        manifests = {c: manifest(of_bundle("//t_sm_80", 80, shards=4 if c == 80 else 1)) for c in (80, 89, 90)}
        # With as many shards as it has there.
        for pools, capability, shards in (([h, b, a], 80, 4), ([h, b], 89, 1), ([h], 90, 1)):
            tests, unplaced = plan.tests_of(manifests, pools)
            self.assertEqual((tests, unplaced), ([test("//t_sm_80", capability, shards=shards, named=80)], []))

    def test_other_tests_run_on_each_capability(self):
        manifests = {80: manifest(of_bundle("//t")), 90: manifest(of_bundle("//t"), of_bundle("//u"))}
        tests, unplaced = plan.tests_of(manifests, [pool("a", 80), pool("h", 90)])
        self.assertEqual(tests, [test("//t", 80), test("//t", 90), test("//u", 90)])
        self.assertEqual(unplaced, [])

    def test_what_nobody_can_run_is_said(self):
        manifests = {80: manifest(of_bundle("//t", gpus=2), others=["//t_sm_90"]), 100: manifest(of_bundle("//u"))}
        tests, unplaced = plan.tests_of(manifests, [pool("a", 80)])
        self.assertEqual(tests, [])
        self.assertEqual(unplaced, [
            ("//t_sm_90", "no bundle is for its GPU"), ("//t", "no runner has 2 GPUs"),
            ("//u", "no runner has compute capability 10.0"),
        ])  # fmt: skip

    def test_a_damaged_manifest_is_an_error(self):
        good = manifest(of_bundle("//t"))
        self.assertEqual(plan.parse_manifest(json.dumps(good), "f", 90), good)
        for bad in ("{", "[]", '{"tests": [{}]}', json.dumps(dict(good, others=[7])),
                    json.dumps(manifest(of_bundle("//t", timeout="never")))):  # fmt: skip
            with self.assertRaisesRegex(plan.PlanError, "^f: is not the tests.json of a bundle", msg=bad):
                plan.parse_manifest(bad, "f", 90)
        for bad, capability, said in [(manifest(), 90, "f: has no tests"),
                                      (good, 80, "f: is for //ci:linux_sm_90, not for 80")]:  # fmt: skip
            with self.assertRaisesRegex(plan.PlanError, said):
                plan.parse_manifest(json.dumps(bad), "f", capability)
        with self.assertRaisesRegex(plan.PlanError, r"^f: shards: 0 is not a number in \[1"):
            plan.parse_manifest(json.dumps(manifest(of_bundle("//t", shards=0))), "f", 90)


class GithubTest(unittest.TestCase):
    def test_the_matrix_has_each_item_once_at_runners_of_its_capability(self):
        tests = [test("//t%d" % i, 80 if i % 2 else 90, shards=1 + i % 3) for i in range(20)]
        made = plan.make_plan(tests, [pool("a", 80, 2), pool("h", 90), pool("idle", 120)], {})
        matrix = json.loads(json.dumps(plan.github_matrix(made)))
        self.assertEqual([entry["runner"] for entry in matrix["include"]], ["a-0", "a-1", "h-0"])
        items = []
        for entry in matrix["include"]:
            capability = 90 if entry["runner"] == "h-0" else 80
            self.assertEqual(entry["labels"], ["self-hosted", "linux", "x64", "gpu", "sm%d" % capability])
            self.assertEqual(entry["bundle"], "bundle_sm%d" % capability)
            items += json.loads(entry["items"])
        self.assertEqual(sorted(items), sorted([t.label, s] for t in tests for s in range(t.shards)))


class InputsTest(unittest.TestCase):
    def test_seconds_of_build_events(self):
        def event(label, shard, attempt, millis, status="PASSED"):
            identity = {"label": label, "shard": shard, "attempt": attempt}
            result = {"status": status, "testAttemptDurationMillis": str(millis)}
            return json.dumps({"id": {"testResult": identity}, "testResult": result})

        lines = [
            event("//a", 1, 1, 2000),
            event("//a", 2, 1, 9000, "FAILED"),
            event("//a", 2, 2, 3000),
            event("//b", 0, 1, 7000, "NO_STATUS"),
            '{"id": {"progress": {}}}',
            '{"id": {"testRes',
        ]
        self.assertEqual(plan.seconds_of_events(lines), {"//a": 5.0})

    def test_an_inventory(self):
        text = '{"pools": [{"name": "h", "capability": 90, "runners": 2}]}'
        self.assertEqual(plan.parse_pools(text, "f"), [pool("h", 90, 2)])

    def test_errors_of_an_inventory_name_field_and_value(self):
        def entry(**fields):
            return json.dumps({"pools": [dict({"name": "h", "capability": 90, "runners": 1}, **fields)]})

        for text, message in [
            ("", "f: is not JSON: Expecting value: line 1"),
            ("[]", 'f: is not of the form {"pools": [...]}'),
            ('{"pools": {}}', "f: is not of the form"),
            ('{"pools": [], "pool": []}', "f: is not of the form"),
            ('{"pools": [7]}', "f: pools[0]: 7 is not an object"),
            (entry(name="A b"), "f: pools[0]: name: 'A b' is not of a-z, 0-9"),
            (entry(capability=91), "f: pools[0]: capability: 91 is not one of 75, 80"),
            (entry(runners=0), "f: pools[0]: runners: 0 is not a number in [1, 10000]"),
            (entry(runners=True), "f: pools[0]: runners: True is not a number"),
            (entry(gpus="2"), "f: pools[0]: gpus: '2' is not a number in [1, 64]"),
            (entry(gpu=1), "f: pools[0]: gpu: is not one of name, capability, runners, gpus, slurm"),
            (json.dumps({"pools": [{"name": "h", "capability": 90, "runners": 1}] * 2}),
             "f: pools[1]: name: 'h' is another pool's"),
        ]:
            with self.assertRaises(plan.PlanError, msg=text) as raised:
                plan.parse_pools(text, "f")
            self.assertIn(message, str(raised.exception))


class MainTest(unittest.TestCase):
    POOLS = '{"pools": [{"name": "h", "capability": 90, "runners": 2}, {"name": "a", "capability": 80, "runners": 1}]}'

    def run_main(self, inventory, *flags, tests=manifest(of_bundle("//t_sm_90", 90, shards=3), of_bundle("//u"))):
        with tempfile.TemporaryDirectory() as directory:
            path, bundle = (os.path.join(directory, name) for name in ("runners.json", "tests.json"))
            for name, text in ((path, inventory), (bundle, json.dumps(tests))):
                with open(name, "w", encoding="utf-8") as f:
                    f.write(text)
            out, err, to = io.StringIO(), io.StringIO(), os.path.join(directory, "plan.json")
            status = plan.main(["--runners=" + path, "--json=" + to, "--tests=90=" + bundle, *flags], out, err)
            made = None
            if os.path.exists(to):
                with open(to, encoding="utf-8") as f:
                    made = json.load(f)
            return status, out.getvalue(), err.getvalue(), made

    def test_a_plan_is_printed_and_written(self):
        status, out, err, made = self.run_main(self.POOLS)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("h-1", out)
        self.assertEqual(sum(len(r["tests"]) for r in made["runners"]), 4)

    def test_the_bundles_that_runners_need(self):
        self.assertEqual(self.run_main(self.POOLS, "--bundles")[:2], (0, "//ci:bundle_sm80 //ci:bundle_sm90\n"))

    def test_github_gets_one_line(self):
        with tempfile.TemporaryDirectory() as directory:
            output = os.path.join(directory, "output")
            with open(output, "w", encoding="utf-8") as f:
                f.write("of_before=1\n")
            self.assertEqual(self.run_main(self.POOLS, "--github=" + output)[0], 0)
            with open(output, encoding="utf-8") as f:
                lines = f.read().splitlines()
        self.assertEqual([line.split("=")[0] for line in lines], ["of_before", "matrix"])
        self.assertEqual(len(json.loads(lines[1].split("=", 1)[1])["include"]), 2)

    def test_tests_without_a_runner_are_said_and_fail(self):
        status, out, _, made = self.run_main('{"pools": []}')
        self.assertEqual(status, 1)
        self.assertIn("not run: //t_sm_90: no runner has compute capability 9.0", out)
        self.assertEqual(len(made["unplaced"]), 2)

    def test_bad_input_writes_nothing(self):
        status, out, err, made = self.run_main("{}")
        self.assertEqual((status, out, made), (2, "", None))
        self.assertRegex(err, r"^plan.py: .*runners.json: is not of the form")
        for flag, said in [("--events=/nowhere", "/nowhere"), ("--tests=90", "--tests: '90' is not of the form"),
                           ("--tests=91=x", "--tests: '91=x' is not of the form")]:  # fmt: skip
            status, _, err, _ = self.run_main('{"pools": []}', flag)
            self.assertEqual(status, 2)
            self.assertIn(said, err)


if __name__ == "__main__":
    unittest.main()
