"""Runs the tests of bundles on many runners, until each has a result:

    ./bazelw build //ci:bundle_sm80 //ci:bundle_sm90
    ./bazelw run //ci/farm -- --runners=ci/farm/runners.json --out=run1 --engine=slurm \
        --bundle=80=bazel-bin/ci/farm/bundle_sm80.tar.gz --bundle=90=bazel-bin/ci/farm/bundle_sm90.tar.gz

plan.py says which runner gets which tests. A test that fails runs once more on another runner: if it
passes there, it is flaky. What a runner leaves undone, because it dies, hangs, loses its GPU or leaves
results that are not whole, goes to another one; after --attempts of them the test is lost, with what is
known. Nothing counts as passed whose log and test.xml are not those that the runner recorded.

--out gets index.html, junit.xml and results.json, and keeps all that happened. If this program is killed, the same command goes on where it was.
Exit status: 0 all passed, 1 some have no runner, 2 bad input, 3 some failed or are lost.
"""

import argparse
import collections
import fcntl
import json
import os
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree
import zlib

import whole_file  # of //tools/python

from ci.farm import engines
from ci.farm import plan
from ci.farm import report
from ci.farm.run_tests import digest, has_failure

LOST = ("died", "hung", "killed", "corrupt", "not done")
MOST_LOST_BATCHES = 2  # in a row; then a runner gets nothing more

Attempt = collections.namedtuple("Attempt", "runner status why record batch")


class Lost(Exception):
    """Why a record of results cannot be trusted."""


def write(path, text):
    with whole_file.replacing(path) as f:
        f.write(text)


def unpack(archive, directory):
    """Unpacks a bundle. Files and links lie below `directory`, or it is an error."""
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                for name in [member.name] + ([member.linkname] if member.islnk() else []):
                    if os.path.isabs(name) or ".." in name.split("/") or not name.startswith("tests/"):
                        raise plan.PlanError("%s: %s: is not below tests/" % (archive, name))
                if not (member.isreg() or member.islnk()):
                    raise plan.PlanError("%s: %s: is neither a file nor a hard link" % (archive, member.name))
                member.mode &= 0o755
                tar.extract(member, directory, set_attrs=True, numeric_owner=False)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise plan.PlanError("%s: is no whole bundle: %s" % (archive, str(error).split("\n")[0])) from None


def unpack_once(archive, parent):
    """The directory of an unpacked bundle, named after what is in the archive."""
    try:
        directory = os.path.join(parent, digest(archive)[:16])
    except OSError as error:
        raise plan.PlanError("%s: %s" % (archive, error)) from None
    if not os.path.isdir(directory):
        part = "%s.part.%d" % (directory, os.getpid())
        unpack(archive, part)
        os.rename(part, directory)
    return directory


def tests_of(bundles):
    """What plan.py knows of tests, from {capability: directory of a bundle}."""
    found, capabilities = {}, collections.defaultdict(set)
    for capability, directory in sorted(bundles.items()):
        path = os.path.join(directory, "tests", "tests.json")
        try:
            with open(path, encoding="utf-8") as f:
                for test in json.load(f)["tests"]:
                    named = int(test["env"].get("ATTNLAB_COMPUTE_CAPABILITY", 0))
                    found[test["label"]] = (named, test)
                    capabilities[test["label"]].add(capability)
        except (OSError, ValueError, KeyError) as error:
            raise plan.PlanError("%s: %s" % (path, error)) from None
    sizes = {"short": "small", "moderate": "medium", "long": "large", "eternal": "enormous"}
    return [plan.Test(label, named, test["gpus"], test["shards"], sizes[test["timeout"]],
                      frozenset(capabilities[label])) for label, (named, test) in sorted(found.items())]  # fmt: skip


def check_record(record, batch):
    """Of one line of results.jsonl: raises Lost if it is not what a runner wrote of a test of this batch."""
    try:
        key = (record["label"], record["shard"])
        directory = os.path.join(batch.out, record["directory"])
        if key not in batch.items:
            raise Lost("%s %s: was not to run" % key)
        if record["status"] not in ("passed", "failed", "timeout", "killed"):
            raise Lost("%s %s: its status is %r" % (key + (record["status"],)))
        if not os.path.realpath(directory).startswith(os.path.realpath(batch.out) + os.sep):
            raise Lost("%s %s: its directory is %r" % (key + (record["directory"],)))
        for name in ("log", "xml"):
            if digest(os.path.join(directory, "test." + name)) != record[name + "_sha256"]:
                raise Lost("%s %s: test.%s is not the one that was recorded" % (key + (name,)))
        root = ElementTree.parse(os.path.join(directory, "test.xml")).getroot()
        if record["status"] == "passed" and has_failure(root):
            raise Lost("%s %s: passed, but its test.xml has failures" % key)
    except (OSError, KeyError, TypeError, ValueError, ElementTree.ParseError) as error:
        raise Lost("a record is not whole: %r" % error) from None
    return key


def collect(batch, why):
    """{key: Attempt} of all items of a batch that has ended. `why`: what is known of the others."""
    attempts, corrupt = {}, ""
    try:
        with open(os.path.join(batch.out, "results.jsonl"), encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
    except OSError:
        lines = []
    for line in lines:
        try:
            record = json.loads(line)
            key = check_record(record, batch)
        except (ValueError, Lost) as error:
            corrupt = corrupt or str(error)
            continue
        status = record["status"]
        said = "the test was killed; memory may have run out" if status == "killed" else ""
        attempts[key] = Attempt(batch.runner, status, said, record, batch.number)
    status = "corrupt" if corrupt else why[0]
    for key in batch.items:
        attempts.setdefault(key, Attempt(batch.runner, status, corrupt or why[1], None, batch.number))
    return attempts


class Farm:
    def __init__(self, tests, pools, bundles, seconds, engine, out, attempts=3, patience=60.0, say=print):
        self.tests = {test.label: test for test in tests}
        self.pools_for = {test.label: plan.pools_for(test, pools)[0] for test in tests}
        self.bundles, self.engine, self.out = bundles, engine, out
        self.most, self.patience, self.say = attempts, patience, say
        self.plan = plan.make_plan(tests, pools, seconds)
        self.pool_of = {runner.name: runner.pool for runner in self.plan.runners}
        self.wanted = {runner.name: [(i.label, i.shard) for i in runner.items] for runner in self.plan.runners}
        self.attempts = {key: [] for keys in self.wanted.values() for key in keys}
        self.pending = []  # to run once more
        self.active = {}  # runner: Batch
        self.lost_in_row = collections.Counter()
        self.next_batch = 0
        self.seen = {}  # runner: (what `alive` said, since when)
        os.makedirs(os.path.join(out, "batches"), exist_ok=True)
        self.journal = open(os.path.join(out, "journal.jsonl"), "a+", encoding="utf-8")
        try:
            fcntl.flock(self.journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.journal.close()
            raise plan.PlanError("%s: another farm.py uses it" % out) from None

    def _note(self, **event):
        self.journal.write(json.dumps(event) + "\n")
        self.journal.flush()
        os.fsync(self.journal.fileno())

    def _batch(self, number, runner, items):
        pool = self.pool_of[runner]
        directory = os.path.join(self.out, "batches", "%05d" % number)
        return engines.Batch(number, pool, runner, self.bundles[pool.capability], items, directory)

    def resume(self):
        """Reads the journal of a run that was killed. Batches that still run are waited for."""
        self.journal.seek(0)
        begun = {}
        for line in self.journal.read().splitlines():
            try:
                event = json.loads(line)
            except ValueError:
                continue  # the last line of a killed run; its batch never began, or has no handle
            if "begin" in event:
                items = [tuple(item) for item in event["items"]]
                if event["runner"] not in self.pool_of or any(key not in self.attempts for key in items):
                    raise plan.PlanError("%s: is the run of other tests or runners" % self.out)
                batch = self._batch(event["begin"], event["runner"], items)
                begun[batch.number] = batch
                self.next_batch = max(self.next_batch, batch.number + 1)
                for key in items:
                    for queue in (self.pending, self.wanted[batch.runner]):
                        if key in queue:
                            queue.remove(key)
            elif "handle" in event:
                begun[event["of"]].handle = event["handle"]
            elif "end" in event:
                self._take(begun.pop(event["end"]), tuple(event["why"]))
        for batch in begun.values():
            if batch.handle is None:
                self._end(batch, ("died", "the coordinator was killed before it had started the runner"))
            else:
                self.active[batch.runner] = batch

    def _take(self, batch, why):
        """Counts the results of a batch that has ended."""
        lost = 0
        for key, attempt in collect(batch, why).items():
            tried = self.attempts[key]
            tried.append(attempt)
            if attempt.status == "passed":
                continue
            is_lost = attempt.status in LOST
            lost += is_lost
            failures = sum(a.status not in LOST for a in tried)
            if (is_lost and len(tried) < self.most) or (not is_lost and failures < 2):
                self.pending.append(key)
        self.lost_in_row[batch.runner] = self.lost_in_row[batch.runner] + 1 if lost else 0

    def _end(self, batch, why):
        self._note(end=batch.number, why=why)
        self._take(batch, why)
        if why[0] != "not done":
            self.say("%s: %s%s" % (batch.runner, why[0], why[1] and ": " + why[1]))

    def _hangs(self, batch):
        """Whether a runner that has begun has not said for some time that it lives."""
        if self.engine.waits(batch):
            return False
        try:
            with open(os.path.join(batch.out, "alive"), encoding="utf-8") as f:
                said = f.read()
        except OSError:
            said = None
        last, since = self.seen.get(batch.number, (said, time.monotonic()))
        if said != last:
            since = time.monotonic()
        self.seen[batch.number] = said, since
        return time.monotonic() - since > self.patience

    def _collect_ended(self):
        running = self.engine.running(list(self.active.values()))
        for runner, batch in list(self.active.items()):
            if batch not in running:
                del self.active[runner]
                if os.path.exists(os.path.join(batch.out, "ended.json")):
                    self._end(batch, ("not done", "the runner left it out"))
                else:
                    self._end(batch, ("died", self._last_words(batch)))
            elif self._hangs(batch):
                self.engine.cancel(batch)
                del self.active[runner]
                self._end(batch, ("hung", "no sign of life for %.0f s" % self.patience))

    def _last_words(self, batch):
        try:
            with open(os.path.join(batch.directory, "log"), encoding="utf-8", errors="replace") as f:
                lines = [line for line in f.read().splitlines() if line.startswith("run_tests: ")]
            return lines[-1][len("run_tests: "):] if lines else "it ended before its tests"
        except OSError:
            return "it ended before its tests"

    def _healthy(self, runner):
        return self.lost_in_row[runner] < MOST_LOST_BATCHES

    def _may_run(self, key, runner):
        return self.pool_of[runner] in self.pools_for[key[0]]

    def _next_items(self, idle):
        """{runner: items} for runners that have nothing to do."""
        given = {runner: self.wanted[runner] for runner in idle if self.wanted[runner]}
        for runner in given:
            self.wanted[runner] = []
        # What sick runners had not begun yet.
        for runner in self.wanted:
            if not self._healthy(runner):
                self.pending += self.wanted[runner]
                self.wanted[runner] = []
        free = [runner for runner in idle if runner not in given]
        for key in list(self.pending):
            tried = {attempt.runner for attempt in self.attempts[key]}
            able = [r for r in self.pool_of if self._healthy(r) and self._may_run(key, r)]
            fresh = [r for r in able if r not in tried] or able
            here = [r for r in fresh if r in free]
            if here:
                self.pending.remove(key)
                least = min(here, key=lambda r: len(given.get(r, [])))
                given.setdefault(least, []).append(key)
            elif not able:
                self.pending.remove(key)  # lost: nobody is left
        return given

    def step(self):
        """Looks after all runners once. Returns whether there is more to do."""
        self._collect_ended()
        idle = [r for r in self.pool_of if r not in self.active and self._healthy(r)]
        batches = []
        for runner, items in self._next_items(idle).items():
            batch = self._batch(self.next_batch, runner, items)
            self.next_batch += 1
            os.makedirs(batch.directory, exist_ok=True)
            write(os.path.join(batch.directory, "items.json"), json.dumps(items))
            self._note(begin=batch.number, runner=runner, items=items)
            batches.append(batch)
        if batches:
            self.engine.start(batches)
        for batch in batches:
            self._note(of=batch.number, handle=batch.handle)
            self.active[batch.runner] = batch
        return bool(self.active or self.pending)

    def run(self, poll=0.5):
        while self.step():
            time.sleep(poll)

    def results(self):
        """Each item once, with all attempts."""
        items = []
        for (label, shard), tried in sorted(self.attempts.items()):
            statuses = [a.status for a in tried]
            if "passed" in statuses:
                status = "flaky" if any(s in ("failed", "timeout") for s in statuses) else "passed"
            elif "failed" in statuses or "timeout" in statuses:
                status = "failed"
            else:
                status = "lost"
            items.append({
                "label": label, "shard": shard, "shards": self.tests[label].shards, "status": status,
                "attempts": [self._of(a) for a in tried],
            })  # fmt: skip
        return {"items": items, "unplaced": [{"label": t.label, "why": why} for t, why in self.plan.unplaced]}

    def _of(self, attempt):
        about = {"runner": attempt.runner, "capability": self.pool_of[attempt.runner].capability,
                 "status": attempt.status, "why": attempt.why}  # fmt: skip
        if attempt.record:
            directory = os.path.join("batches", "%05d" % attempt.batch, "out", attempt.record["directory"])
            about.update(seconds=attempt.record["seconds"], gpus=attempt.record["gpus"], directory=directory)
        return about


def write_results(results, out, history):
    """results.json, junit.xml and index.html in `out`, and a line more in the file `history`, if any."""
    past = plan.read(history).splitlines() if history and os.path.exists(history) else []
    for name, text in (("results.json", json.dumps(results, indent=1) + "\n"), ("junit.xml", report.junit(results, out)),
                       ("index.html", report.page(results, out, past))):  # fmt: skip
        write(os.path.join(out, name), text)
    if history:
        lines = past + [report.history_line(results, int(time.time()), out).rstrip("\n")]
        write(history, "\n".join(lines) + "\n")


def parse_bundles(flags, parent):
    bundles = {}
    for flag in flags:
        capability, _, archive = flag.partition("=")
        if not capability.isdigit() or int(capability) not in plan.CAPABILITIES or not archive:
            raise plan.PlanError("--bundle: %r is not of the form 90=ARCHIVE" % flag)
        bundles[int(capability)] = unpack_once(archive, parent)
    return bundles


def main(argv, out=sys.stdout, err=sys.stderr):
    parser = argparse.ArgumentParser(prog="farm.py", description=__doc__.splitlines()[0])
    parser.add_argument("--runners", required=True, help="the inventory, a JSON file")
    parser.add_argument("--bundle", action="append", required=True, help="CAPABILITY=ARCHIVE, for each capability")
    parser.add_argument("--engine", choices=("local", "slurm"), default="local")
    parser.add_argument("--events", action="append", default=[], help="build events of a past run")
    parser.add_argument("--attempts", type=int, default=3, help="runners that may lose a test")
    parser.add_argument("--patience", type=float, default=60, help="seconds without a sign of life")
    parser.add_argument("--jobs", type=int, help="with --engine=local, tests at a time of a runner")
    parser.add_argument("--out", required=True, help="directory of the run")
    parser.add_argument("--history", help="a file with a line per run: which tests were flaky, how fast kernels were")
    flags = parser.parse_args(argv)
    say = lambda line: print(line, file=out, flush=True)
    try:
        flags.out = os.path.abspath(flags.out)
        pools = plan.parse_pools(plan.read(flags.runners), flags.runners)
        bundles = parse_bundles(flags.bundle, os.path.join(flags.out, "bundles"))
        pools = [pool for pool in pools if pool.capability in bundles]
        seconds = {}
        for path in flags.events:
            seconds.update(plan.seconds_of_events(plan.read(path).splitlines()))
        engine = engines.Slurm(say) if flags.engine == "slurm" else engines.Local(flags.jobs)
        farm = Farm(tests_of(bundles), pools, bundles, seconds, engine, flags.out, flags.attempts,
                    flags.patience, say)  # fmt: skip
        farm.resume()
        farm.run()
    except (plan.PlanError, OSError) as error:
        print("farm.py: %s" % error, file=err)
        return 2
    results = farm.results()
    write_results(results, flags.out, flags.history)
    counts = collections.Counter(item["status"] for item in results["items"])
    for item in results["items"]:
        if item["status"] != "passed":
            last = item["attempts"][-1] if item["attempts"] else {"why": "no runner was left"}
            say("%s: %s %d/%d%s" % (item["status"], item["label"], item["shard"] + 1, item["shards"],
                                    last["why"] and ": " + last["why"]))  # fmt: skip
    for test in results["unplaced"]:
        say("no runner: %(label)s: %(why)s" % test)
    say("%d passed, %d flaky, %d failed, %d lost, %d without a runner" % (
        counts["passed"], counts["flaky"], counts["failed"], counts["lost"], len(results["unplaced"])))  # fmt: skip
    if counts["failed"] or counts["lost"]:
        return 3
    return 1 if results["unplaced"] else 0


if __name__ == "__main__":
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # of `bazel run`
    sys.exit(main(sys.argv[1:]))
