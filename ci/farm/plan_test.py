import io
import json
import os
import random
import tempfile
import unittest

from ci.farm import plan


def test(label, capability=0, gpus=1, shards=1, size="medium"):
    return plan.Test(label, capability, gpus, shards, size)


def pool(name, capability, runners=1, gpus=1):
    return plan.Pool(name, capability, runners, gpus)


class MakePlanTest(unittest.TestCase):
    def labels(self, made, pool_name):
        return sorted(i.label for r in made.runners if r.pool.name == pool_name for i in r.items)

    def test_each_test_goes_to_its_capability_or_the_least_later_one(self):
        tests = [test("//a", 75), test("//b", 80), test("//c", 86), test("//d", 90), test("//e", 100)]
        made = plan.make_plan(tests, [pool("ampere", 80), pool("hopper", 90)], {})
        self.assertEqual(self.labels(made, "ampere"), ["//a", "//b"])
        self.assertEqual(self.labels(made, "hopper"), ["//c", "//d"])
        self.assertEqual(
            [(t.label, why) for t, why in made.unplaced],
            [("//e", "no runner has compute capability 10.0 or later")],
        )

    def test_a_test_for_two_gpus_needs_a_runner_that_has_them(self):
        tests = [test("//one"), test("//two", gpus=2), test("//four", gpus=4)]
        made = plan.make_plan(tests, [pool("small", 90, 5), pool("large", 80, gpus=2)], {})
        self.assertIn("//two", self.labels(made, "large"))
        self.assertEqual([(t.label, why) for t, why in made.unplaced], [("//four", "no runner has 4 GPUs")])

    def test_every_shard_of_every_test_is_there_once(self):
        random_ = random.Random(1)
        tests = [
            test("//t%d" % i, random_.choice([0, 75, 80, 86, 90]), shards=random_.randint(1, 4))
            for i in range(300)
        ]
        made = plan.make_plan(tests, [pool("a", 80, 3), pool("b", 89, 2), pool("c", 90, 4)], {})
        items = sorted((i.label, i.shard) for r in made.runners for i in r.items)
        self.assertEqual(items, sorted((t.label, s) for t in tests for s in range(t.shards)))

    def test_within_a_tenth_of_what_no_plan_can_beat(self):
        for seed in range(100):
            random_ = random.Random(seed)
            tests = [test("//t%d" % i, random_.choice([0, 80, 90])) for i in range(120)]
            seconds = {t.label: random_.lognormvariate(2, 1) for t in tests}
            made = plan.make_plan(tests, [pool("a", 80, 3), pool("b", 90, 4)], seconds)
            self.assertLessEqual(made.seconds, 1.1 * made.least_seconds, seed)

    def test_the_order_of_tests_does_not_matter(self):
        tests = [test("//t%d" % i, 80 if i % 3 else 0) for i in range(40)]
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


QUERY = """<?xml version="1.1" encoding="UTF-8" standalone="no"?>
<query version="2">
  <rule class="program_test" name="//b:t_sm_90">
    <list name="tags"><string value="gpu"/><string value="sm_90"/></list>
    <dict name="exec_properties">
      <pair><string value="gpus"/><string value="2"/></pair>
      <pair><string value="gpu"/><string value="sm_75"/></pair>
    </dict>
    <string name="size" value="large"/>
    <int name="shard_count" value="3"/>
  </rule>
  <rule class="program_test" name="//a:t">
    <list name="tags"><string value="gpu"/></list>
    <int configurable="yes" name="shard_count"/>
  </rule>
  <rule class="cc_test" name="//a:cpu"><list name="tags"/></rule>
</query>
"""


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
    def test_tests_of_a_query(self):
        self.assertEqual(
            plan.parse_tests(QUERY), [test("//a:t"), test("//b:t_sm_90", 90, 2, 3, "large")]
        )
        with self.assertRaisesRegex(plan.PlanError, "^tests: is not the XML of bazel query"):
            plan.parse_tests("Loading: 0 packages")

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
            ("", 'f: is not JSON of the form {"pools": [...]}'),
            ("[]", "f: is not JSON of the form"),
            ('{"pools": {}}', "f: is not JSON of the form"),
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
    def run_main(self, inventory, query, *flags):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "runners.json")
            with open(path, "w", encoding="utf-8") as f:
                f.write(inventory)
            out, err, to = io.StringIO(), io.StringIO(), os.path.join(directory, "plan.json")
            status = plan.main(
                ["--runners=" + path, "--json=" + to, *flags], io.StringIO(query), out, err
            )
            made = None
            if os.path.exists(to):
                with open(to, encoding="utf-8") as f:
                    made = json.load(f)
            return status, out.getvalue(), err.getvalue(), made

    def test_a_plan_is_printed_and_written(self):
        inventory = '{"pools": [{"name": "h", "capability": 90, "runners": 2, "gpus": 2}]}'
        status, out, err, made = self.run_main(inventory, QUERY)
        self.assertEqual((status, err), (0, ""))
        self.assertIn("h-1", out)
        self.assertEqual(sum(len(r["tests"]) for r in made["runners"]), 4)

    def test_github_gets_one_line_per_output(self):
        inventory = '{"pools": [{"name": "h", "capability": 90, "runners": 2, "gpus": 2}]}'
        with tempfile.TemporaryDirectory() as directory:
            output = os.path.join(directory, "output")
            with open(output, "w", encoding="utf-8") as f:
                f.write("of_before=1\n")
            self.assertEqual(self.run_main(inventory, QUERY, "--github=" + output)[0], 0)
            with open(output, encoding="utf-8") as f:
                lines = f.read().splitlines()
        self.assertEqual([line.split("=")[0] for line in lines], ["of_before", "matrix", "bundles"])
        self.assertEqual(len(json.loads(lines[1].split("=", 1)[1])["include"]), 2)
        self.assertEqual(lines[2], "bundles=//ci:bundle_sm90")

    def test_tests_without_a_runner_are_said_and_fail(self):
        status, out, _, made = self.run_main('{"pools": []}', QUERY)
        self.assertEqual(status, 1)
        self.assertIn("not run: //b:t_sm_90: no runner has 2 GPUs", out)
        self.assertEqual(len(made["unplaced"]), 2)

    def test_bad_input_writes_nothing(self):
        status, out, err, made = self.run_main("{}", QUERY)
        self.assertEqual((status, out, made), (2, "", None))
        self.assertRegex(err, r"^plan.py: .*runners.json: is not JSON of the form")
        status, _, err, _ = self.run_main('{"pools": []}', QUERY, "--events=/nowhere")
        self.assertEqual(status, 2)
        self.assertIn("/nowhere", err)


if __name__ == "__main__":
    unittest.main()
