"""Divides the tests of bundles among runners, by compute capability and by how long tests took before.

    ./bazelw build //ci:bundle_sm80 //ci:bundle_sm90
    python3 ci/farm/plan.py --runners=ci/farm/runners.json --json=plan.json \
        --tests=80=bazel-bin/ci/farm/bundle_sm80.tests.json --tests=90=bazel-bin/ci/farm/bundle_sm90.tests.json

Prints what each runner gets. --events are files of `bazel test --build_event_json_file`. --json writes the
plan, which is the same for every engine that runs it, and for the same inputs always the same.

A test for one capability goes to runners of that capability or, if there is none, of the least later one.
Other tests run once on each capability. Tests that no runner can take are listed, and the exit status is 1.
A test with several shards is divided like several tests. A runner is taken to run one after the other.
--bundles only prints which bundles the runners need. --github adds the plan to the outputs of a step of
GitHub Actions (.github/workflows/gpu.yml).
"""

import argparse
import collections
import json
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "python"))

import whole_file  # noqa: E402  also in a checkout

# The same numbers as GPUS in ci/gpu.bzl.
CAPABILITIES = (75, 80, 86, 89, 90, 100, 120)

# Seconds of a test that never ran, by Bazel's timeout.
SECONDS_OF_TIMEOUT = {"short": 10, "moderate": 60, "long": 300, "eternal": 900}

# `runners` machines with `gpus` GPUs each.
# `slurm`: options for sbatch.
Pool = collections.namedtuple("Pool", "name capability runners gpus slurm", defaults=((),))
# `capability`: of the bundle that it is in, and of the runners. `named`: for which it has code; 0: that.
Test = collections.namedtuple("Test", "label capability named gpus shards timeout")
Item = collections.namedtuple("Item", "label capability shard shards seconds")


class PlanError(ValueError):
    """Bad input. The message names where it comes from, the value and what is wanted."""


class Runner:
    def __init__(self, pool, index):
        self.pool, self.index = pool, index
        self.items, self.seconds = [], 0.0

    @property
    def name(self):
        return "%s-%d" % (self.pool.name, self.index)

    def add(self, item):
        self.items.append(item)
        self.seconds += item.seconds

    def give(self, item, other):
        self.items.remove(item)
        self.seconds -= item.seconds
        other.add(item)


class Plan:
    def __init__(self, runners, unplaced, least_seconds):
        self.runners = runners
        self.unplaced = unplaced  # [(label, why)]
        self.least_seconds = least_seconds  # no plan takes less

    @property
    def seconds(self):
        return max([r.seconds for r in self.runners], default=0.0)

    def to_json(self):
        return {
            "seconds": round(self.seconds, 3),
            "least_seconds": round(self.least_seconds, 3),
            "runners": [
                {
                    "name": r.name,
                    "pool": r.pool.name,
                    "capability": r.pool.capability,
                    "seconds": round(r.seconds, 3),
                    "tests": [item._asdict() for item in r.items],
                }
                for r in self.runners
            ],
            "unplaced": [{"label": label, "why": why} for label, why in self.unplaced],
        }


def _count(where, field, value, least=1, most=10000):
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError("%s: %s: %r is not a number in [%d, %d]" % (where, field, value, least, most))
    return value


def parse_pools(text, where):
    """The pools of an inventory: {"pools": [{"name", "capability", "runners", "gpus" [1], "slurm" [[]]}]}."""
    try:
        inventory = json.loads(text)
    except ValueError as error:
        raise PlanError("%s: is not JSON: %s" % (where, error)) from None
    if not isinstance(inventory, dict) or set(inventory) != {"pools"} or not isinstance(inventory["pools"], list):
        raise PlanError('%s: is not of the form {"pools": [...]}' % where)
    entries = inventory["pools"]
    pools = []
    for i, entry in enumerate(entries):
        here = "%s: pools[%d]" % (where, i)
        if not isinstance(entry, dict):
            raise PlanError("%s: %r is not an object" % (here, entry))
        unknown = sorted(set(entry) - set(Pool._fields))
        if unknown:
            raise PlanError("%s: %s: is not one of %s" % (here, unknown[0], ", ".join(Pool._fields)))
        name = entry.get("name")
        if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
            raise PlanError("%s: name: %r is not of a-z, 0-9, - and _" % (here, name))
        if name in [pool.name for pool in pools]:
            raise PlanError("%s: name: %r is another pool's" % (here, name))
        capability = entry.get("capability")
        if capability not in CAPABILITIES:
            known = ", ".join(map(str, CAPABILITIES))
            raise PlanError("%s: capability: %r is not one of %s" % (here, capability, known))
        runners = _count(here, "runners", entry.get("runners"))
        gpus = _count(here, "gpus", entry.get("gpus", 1), most=64)
        slurm = entry.get("slurm", [])
        if not isinstance(slurm, list) or not all(isinstance(x, str) and x.startswith("--") for x in slurm):
            raise PlanError('%s: slurm: %r is not a list of options such as "--gres=gpu:1"' % (here, slurm))
        pools.append(Pool(name, capability, runners, gpus, tuple(slurm)))
    return pools


def parse_manifest(text, where, capability):
    """The tests.json of a bundle for that capability. One without a platform is for all."""
    try:
        manifest = json.loads(text)
        if manifest["platform"] not in ("", "//ci:linux_sm_%d" % capability):
            raise PlanError("%s: is for %s, not for %d" % (where, manifest["platform"], capability))
        if not manifest["tests"]:
            raise PlanError("%s: has no tests" % where)
        for test in manifest["tests"]:
            int(test["env"].get("ATTNLAB_COMPUTE_CAPABILITY", 0))
            test["label"], SECONDS_OF_TIMEOUT[test["timeout"]]
            _count(where, "gpus", test["gpus"], least=0)
            _count(where, "shards", test["shards"])
        if not all(isinstance(label, str) for label in manifest["others"]):
            raise TypeError
    except PlanError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise PlanError("%s: is not the tests.json of a bundle: %r" % (where, error)) from None
    return manifest


def tests_of(manifests, pools):
    """([Test], [(label, why)] of those that no pool can run), from {capability: manifest of its bundle}.

    A test for one capability runs on that or, if there is none, the least later one. Other tests are built
    for each GPU, and run on each."""
    built = collections.defaultdict(dict)  # label: {capability: test}
    labels = set()
    for capability, manifest in manifests.items():
        labels.update(manifest["others"])
        for test in manifest["tests"]:
            built[test["label"]][capability] = test
    tests, unplaced = [], [(label, "no bundle is for its GPU") for label in sorted(labels - set(built))]
    for label, of in sorted(built.items()):
        wide = lambda capability: max([p.gpus for p in pools if p.capability == capability], default=0)
        able = [c for c in sorted(of) if wide(c) >= max(1, of[c]["gpus"])]
        if not able:
            if any(map(wide, of)):
                why = "%d GPUs" % of[min(of)]["gpus"]
            else:
                why = "compute capability " + " or ".join("%.1f" % (c / 10) for c in sorted(of))
            unplaced.append((label, "no runner has " + why))
            continue
        named = int(of[able[0]]["env"].get("ATTNLAB_COMPUTE_CAPABILITY", 0))
        for capability in able[:1] if named else able:
            test = of[capability]
            tests.append(Test(label, capability, named, test["gpus"], test["shards"], test["timeout"]))
    return tests, unplaced


def seconds_of_events(lines):
    """{label: seconds of all its shards} of one run; of several attempts, the last one's."""
    shards = {}
    for line in lines:
        if not line.strip():
            continue
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a run that was interrupted
        identity = event.get("id", {}).get("testResult")
        result = event.get("testResult")
        if not identity or not result or result.get("status") not in ("PASSED", "FAILED", "FLAKY"):
            continue
        millis = int(result.get("testAttemptDurationMillis", 0))
        shards[identity["label"], identity.get("shard", 0)] = millis / 1000
    seconds = collections.defaultdict(float)
    for (label, _), of_shard in shards.items():
        seconds[label] += of_shard
    return dict(seconds)


def pools_for(test, pools):
    """The pools that may run the test."""
    return [pool for pool in pools if pool.capability == test.capability and pool.gpus >= test.gpus]


def _relieve_fullest(runners, allowed):
    """Moves an item from the fullest runner to another one, or exchanges two, if both then have less than
    it had. Returns whether there were such items. allowed(item): names of pools."""
    fullest = max(runners, key=lambda r: r.seconds)
    best, change = fullest.seconds * (1 - 1e-9), None
    for other in runners:
        for mine in fullest.items:
            if other is fullest or other.pool.name not in allowed(mine):
                continue
            for theirs in [None] + other.items:
                if theirs and fullest.pool.name not in allowed(theirs):
                    continue
                moved = mine.seconds - (theirs.seconds if theirs else 0)
                after = max(fullest.seconds - moved, other.seconds + moved)
                if after < best:
                    best, change = after, (other, mine, theirs)
    if change is None:
        return False
    other, mine, theirs = change
    fullest.give(mine, other)
    if theirs:
        other.give(theirs, fullest)
    return True


def _divide(work, pools, order):
    """Each item, in this order, to the runner that has least so far; then better where moving or
    exchanging items makes it so."""
    runners = [Runner(pool, i) for pool in pools for i in range(pool.runners)]
    for names, item in sorted(work, key=order):
        min((r for r in runners if r.pool.name in names), key=lambda r: r.seconds).add(item)
    names_of = {item: names for names, item in work}
    for _ in range(len(work)):
        if not _relieve_fullest(runners, names_of.__getitem__):
            break
    return runners


def make_plan(tests, pools, seconds, unplaced=()):
    """`seconds`: of tests that ran before, by label or by (label, capability). Of `unplaced`, the plan only
    says that they are."""
    work = []
    for test in tests:
        names = frozenset(pool.name for pool in pools_for(test, pools))
        usual = seconds.get(test.label, SECONDS_OF_TIMEOUT[test.timeout])
        total = seconds.get((test.label, test.capability), usual)
        for shard in range(test.shards):
            work.append((names, Item(test.label, test.capability, shard, test.shards, total / test.shards)))
    # Longest first; and so that tests which only some runners can take come before all others. Either
    # may be the better one.
    longest = lambda x: (-x[1].seconds, len(x[0]), x[1].label, x[1].capability, x[1].shard)
    plans = [_divide(work, pools, longest), _divide(work, pools, lambda x: (len(x[0]), longest(x)))]
    runners = min(plans, key=lambda runners: max([r.seconds for r in runners], default=0))
    # Those that may run on some pools take at least their total divided by the runners there.
    least = max([item.seconds for _, item in work], default=0.0)
    for names in {names for names, _ in work}:
        total = sum(item.seconds for others, item in work if others <= names)
        least = max(least, total / sum(pool.runners for pool in pools if pool.name in names))
    return Plan(runners, sorted(unplaced), least)


def github_matrix(plan):
    """The matrix of a job of GitHub Actions: a runner each, by the labels that it registered with."""
    return {
        "include": [
            {
                "runner": r.name,
                "labels": ["self-hosted", "linux", "x64", "gpu", "sm%d" % r.pool.capability],
                "bundle": "bundle_sm%d" % r.pool.capability,
                "items": json.dumps([[item.label, item.shard] for item in r.items]),
            }
            for r in plan.runners
            if r.items
        ]
    }


def table(plan):
    lines = ["%-20s %6s %9s" % ("runner", "tests", "seconds")]
    for r in plan.runners:
        lines.append("%-20s %6d %9.1f" % (r.name, len(r.items), r.seconds))
    lines.append("%.1f s; no plan takes less than %.1f s" % (plan.seconds, plan.least_seconds))
    lines += ["not run: %s: %s" % (label, why) for label, why in plan.unplaced]
    return "\n".join(lines)


def read(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read()
    except (OSError, UnicodeDecodeError) as error:
        raise PlanError("%s: %s" % (path, error)) from None


def capability_of(flag, name):
    """(capability, value) of a flag such as 90=FILE."""
    capability, _, value = flag.partition("=")
    if not capability.isdigit() or int(capability) not in CAPABILITIES or not value:
        known = ", ".join(map(str, CAPABILITIES))
        raise PlanError("%s: %r is not of the form CAPABILITY=FILE; capabilities are %s" % (name, flag, known))
    return int(capability), value


def main(argv, out, err):
    parser = argparse.ArgumentParser(prog="plan.py", description=__doc__.splitlines()[0])
    parser.add_argument("--runners", required=True, help="the inventory, a JSON file")
    parser.add_argument("--tests", action="append", default=[], help="CAPABILITY=FILE: the tests.json of a bundle")
    parser.add_argument("--bundles", action="store_true", help="only print the bundles that the runners need")
    parser.add_argument("--events", action="append", default=[], help="build events of a past run")
    parser.add_argument("--json", help="where the plan is written")
    parser.add_argument("--github", help="a file to which matrix=... is added: $GITHUB_OUTPUT")
    flags = parser.parse_args(argv)
    try:
        pools = parse_pools(read(flags.runners), flags.runners)
        if flags.bundles:
            print(" ".join(sorted({"//ci:bundle_sm%d" % pool.capability for pool in pools})), file=out)
            return 0
        manifests = {}
        for flag in flags.tests:
            capability, path = capability_of(flag, "--tests")
            manifests[capability] = parse_manifest(read(path), path, capability)
        seconds = {}
        for path in flags.events:
            seconds.update(seconds_of_events(read(path).splitlines()))
        tests, unplaced = tests_of(manifests, pools)
        plan = make_plan(tests, pools, seconds, unplaced)
        if flags.json:
            with whole_file.replacing(flags.json) as f:
                f.write(json.dumps(plan.to_json(), indent=1) + "\n")
        if flags.github:
            with open(flags.github, "a", encoding="utf-8") as f:
                f.write("matrix=%s\n" % json.dumps(github_matrix(plan)))
    except (PlanError, OSError) as error:
        print("plan.py: %s" % error, file=err)
        return 2
    print(table(plan), file=out)
    return 1 if plan.unplaced else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], sys.stdout, sys.stderr))
