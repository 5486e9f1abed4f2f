"""Runs the tests of bundles on many runners, until each has a result:

    ./bazelw build //ci:bundle_sm80 //ci:bundle_sm90
    ./bazelw run //ci/farm -- --runners=ci/farm/runners.json --out=run1 --engine=slurm \
        --bundle=80=bazel-bin/ci/farm/bundle_sm80.tar.gz --bundle=90=bazel-bin/ci/farm/bundle_sm90.tar.gz

plan.py says which runner gets which tests. A test that fails runs once more on another runner: if it
passes there, it is flaky. What a runner leaves undone, because it dies, hangs, loses its GPU or leaves
results that are not whole, goes to another one; after --attempts of them a test that had begun each time is
lost, with what is known. Nothing counts as passed whose log and test.xml are not those that the runner recorded.

--out gets index.html, junit.xml and results.json, and keeps all that happened. If this program is killed,
the same command goes on where it was. Ctrl-C ends the runners, too. Exit status: 0 all passed or skipped,
1 some have no runner, 2 bad input or the engine fails, 3 some failed or are lost.
"""

import argparse
import collections
import fcntl
import json
import math
import os
import shutil
import sys
import tarfile
import time
import xml.etree.ElementTree as ElementTree
import zlib

import whole_file  # of //tools/python

from ci.farm import engines
from ci.farm import plan
from ci.farm import report
from ci.farm.run_tests import GOOD, digest, directory_of, has_failure

LOST = ("died", "hung", "killed", "corrupt", "not done")
FAILED = ("failed", "timeout")
UNTRIED = ("not started", "interrupted")  # what becomes of a batch
MOST_LOST_BATCHES = 2  # in a row; then a runner gets nothing more
START_AGAIN = 10.0  # seconds after runners could not be started
START_PATIENCE = 600.0

# Of a test on a runner. Besides the statuses above: "not begun", where the runner was lost before that.
Attempt = collections.namedtuple("Attempt", "runner status why record batch machine")


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
        try:
            os.rename(part, directory)
        except OSError:  # another process was faster
            shutil.rmtree(part)
    return directory


def manifests_of(bundles):
    """{capability: tests.json}, of {capability: directory of a bundle}."""
    paths = {c: os.path.join(directory, "tests", "tests.json") for c, directory in sorted(bundles.items())}
    return {capability: plan.parse_manifest(plan.read(path), path, capability) for capability, path in paths.items()}


def check_record(record, batch):
    """Of one line of results.jsonl: raises Lost if it is not what a runner wrote of a test of this batch."""
    try:
        key = (record["label"], batch.pool.capability, record["shard"])
        if key not in batch.items:
            raise Lost("%s %s: was not to run" % (record["label"], record["shard"]))
        name = directory_of(record["label"], record["shard"])
        if record["directory"] != name:
            raise Lost("%s: its directory is %r" % (name, record["directory"]))
        if record["status"] not in GOOD + FAILED + ("killed",):
            raise Lost("%s: its status is %r" % (name, record["status"]))
        times = [record[name] for name in ("began", "waited", "seconds")]
        whole = all(isinstance(x, (int, float)) and math.isfinite(x) and x >= 0 for x in times)
        if not (whole and all(isinstance(gpu, str) for gpu in record["gpus"])):
            raise Lost("%s: its times or GPUs are not such" % name)
        for kind in ("log", "xml"):
            if digest(os.path.join(batch.out, name, "test." + kind)) != record[kind + "_sha256"]:
                raise Lost("%s: test.%s is not the one that was recorded" % (name, kind))
        root = ElementTree.parse(os.path.join(batch.out, name, "test.xml")).getroot()
        if record["status"] in GOOD and has_failure(root):
            raise Lost("%s: passed, but its test.xml has failures" % name)
    except Lost:
        raise
    except Exception as error:  # whatever a damaged file may give
        raise Lost("a record is not whole: %r" % error) from None
    return key


def collect(batch, why, machine):
    """{key: Attempt} of the items of a batch that has ended. `why`: what is known of those without a result."""
    attempts, corrupt = {}, ""
    path = os.path.join(batch.out, "results.jsonl")
    ended = os.path.join(batch.out, "ended.json")
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            lines = f.read().splitlines()
        if os.path.exists(ended) and json.loads(plan.read(ended))["results_sha256"] != digest(path):
            corrupt, lines = "results.jsonl is not the one that the runner ended with", []
    except (OSError, ValueError, KeyError, TypeError) as error:
        lines = []
        corrupt = repr(error) if os.path.exists(ended) else ""
    for line in lines:
        try:
            record = json.loads(line)
            key = check_record(record, batch)
            if key in attempts:
                del attempts[key]
                raise Lost("%s has two results" % record["directory"])
        except (ValueError, Lost) as error:
            corrupt = corrupt or str(error)
            continue
        status = record["status"]
        said = "the test was killed; memory may have run out" if status == "killed" else ""
        attempts[key] = Attempt(batch.runner, status, said, record, batch.number, machine)
    status = "corrupt" if corrupt else why[0]
    for key in batch.items:
        begun = os.path.exists(ended) or os.path.exists(os.path.join(batch.out, directory_of(key[0], key[2])))
        attempts.setdefault(key, Attempt(batch.runner, status if begun else "not begun", corrupt or why[1], None,
                                         batch.number, machine))  # fmt: skip
    return attempts


class Farm:
    """Items are keys (label, capability of the bundle, shard)."""

    def __init__(self, tests, pools, bundles, seconds, engine, out, attempts=3, patience=60.0,
                 queue_patience=86400.0, unplaced=(), say=print):  # fmt: skip
        self.tests = {(test.label, test.capability): test for test in tests}
        self.pools_for = {key: plan.pools_for(test, pools) for key, test in self.tests.items()}
        self.bundles, self.engine, self.out = bundles, engine, out
        self.most, self.patience, self.queue_patience, self.say = attempts, patience, queue_patience, say
        self.plan = plan.make_plan(tests, pools, seconds, unplaced)
        self.pool_of = {runner.name: runner.pool for runner in self.plan.runners}
        self.wanted = {r.name: [(i.label, i.capability, i.shard) for i in r.items] for r in self.plan.runners}
        self.attempts = {key: [] for keys in self.wanted.values() for key in keys}
        self.pending = []  # to run once more
        self.active = {}  # runner: Batch
        self.lost_in_row = collections.Counter()
        self.next_batch = 0
        self.last_sign = {}  # number of a batch: (what it said last, since when)
        self.fails_since = None  # runners cannot be started
        self.reported = False
        os.makedirs(os.path.join(out, "batches"), exist_ok=True)
        self.journal = open(os.path.join(out, "journal.jsonl"), "a+", encoding="utf-8")
        try:
            fcntl.flock(self.journal, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.journal.close()
            raise plan.PlanError("%s: another farm.py uses it" % out) from None

    def _identity(self):
        """What must be the same when a run goes on. Bundles lie in directories that are named by their contents."""
        return {"engine": type(self.engine).__name__,
                "bundles": {str(c): os.path.basename(d) for c, d in sorted(self.bundles.items())},
                "runners": sorted((r, p.capability) for r, p in self.pool_of.items())}  # fmt: skip

    def _note(self, **event):
        self.journal.write(json.dumps(event) + "\n")
        self.journal.flush()
        os.fsync(self.journal.fileno())

    def _batch(self, number, runner, items):
        pool = self.pool_of[runner]
        directory = os.path.join(self.out, "batches", "%05d" % number)
        batch = engines.Batch(number, pool, runner, self.bundles[pool.capability], items, directory)
        batch.avoid = tuple(sorted({a.machine for key in items for a in self.attempts[key] if a.machine}))
        return batch

    def resume(self):
        """Reads the journal of a run that was killed. Batches that still run are waited for."""
        self.journal.seek(0)
        text = self.journal.read()
        # Half a line was being written when the run was killed. What it said had not happened yet.
        whole = text[: text.rfind("\n") + 1]
        os.truncate(self.journal.name, len(whole.encode()))
        try:
            events = [json.loads(line) for line in whole.splitlines()]
        except ValueError as error:
            raise plan.PlanError("%s: is damaged: %s" % (self.journal.name, error)) from None
        identity = json.loads(json.dumps(self._identity()))
        if not events:
            self._note(run=identity)
        elif events[0].get("run") != identity:
            raise plan.PlanError("%s: is the run of other bundles or runners, or of another engine; "
                                 "take another --out" % self.out)  # fmt: skip
        elif events[-1] == {"reported": True}:
            self.say("%s: has ended before; nothing runs" % self.out)
        begun = {}
        for event in events[1:]:
            if "begin" in event:
                batch = self._batch(event["begin"], event["runner"], [tuple(item) for item in event["items"]])
                batch.name = event["name"]
                begun[batch.number] = batch
                self.next_batch = max(self.next_batch, batch.number + 1)
                for queue in [self.pending] + list(self.wanted.values()):
                    queue[:] = [key for key in queue if key not in batch.items]
            elif "handle" in event:
                begun[event["of"]].handle = event["handle"]
            elif "end" in event:
                self._take(begun.pop(event["end"]), tuple(event["why"]), event.get("machine", ""))
            elif "reported" in event:
                self.reported = True
        for batch in begun.values():
            batch.handle = batch.handle or self.engine.find(batch)
            if batch.handle is None:
                self._end(batch, ("not started", "the coordinator was killed before it had started the runner"))
            else:
                self.active[batch.runner] = batch

    def _take(self, batch, why, machine):
        """Counts the results of a batch that has ended."""
        lost = why[0] in ("died", "hung")
        for key, attempt in collect(batch, why, machine).items():
            # Of a batch that was not the runner's to end, what has no result was not tried.
            if why[0] in UNTRIED and attempt.status in UNTRIED + ("not begun",):
                self.pending.append(key)
                continue
            tried = self.attempts[key]
            tried.append(attempt)
            lost = lost or attempt.status == "corrupt"
            if attempt.status not in GOOD and self._may_try_again(tried):
                self.pending.append(key)
        self.lost_in_row[batch.runner] = self.lost_in_row[batch.runner] + 1 if lost else 0

    def _may_try_again(self, tried):
        """By how often the last thing that went wrong did."""
        for statuses, most in ((FAILED, 2), (LOST, self.most)):
            if tried[-1].status in statuses:
                return sum(attempt.status in statuses for attempt in tried) < most
        return True  # not begun

    def _end(self, batch, why):
        known, machine = self.engine.end_of(batch) if batch.handle else ("", "")
        if known and why[0] == "died":
            why = why[0], "%s (%s)" % (why[1], known)
        self._note(end=batch.number, why=why, machine=machine)
        self._take(batch, why, machine)
        said = "ended" if why[0] == "not done" else why[0] + (why[1] and ": " + why[1])
        with_result = sum(any(a.record for a in tried) for tried in self.attempts.values())
        self.say("%s: %s; %d of %d have a result" % (batch.runner, said, with_result, len(self.attempts)))

    def _silence(self, batch):
        """(seconds since a batch last gave a sign of life, or since it waits; the most that it may)."""
        if self.engine.waits(batch):
            sign, most = "waits", self.queue_patience
        else:
            most = self.patience
            try:
                with open(os.path.join(batch.out, "alive"), encoding="utf-8") as f:
                    sign = f.read()
            except OSError:
                sign = None
        if self.last_sign.get(batch.number, (self, 0))[0] != sign:
            self.last_sign[batch.number] = sign, time.monotonic()
        return time.monotonic() - self.last_sign[batch.number][1], most

    def _collect_ended(self):
        running = self.engine.running(list(self.active.values()))
        for runner, batch in list(self.active.items()):
            if batch not in running:
                del self.active[runner]
                if os.path.exists(os.path.join(batch.out, "ended.json")):
                    self._end(batch, ("not done", "the runner left it out"))
                else:
                    self._end(batch, ("died", self._last_words(batch)))
                continue
            seconds, most = self._silence(batch)
            if seconds > most:
                self.engine.cancel(batch)
                del self.active[runner]
                waited = self.last_sign[batch.number][0] == "waits"
                self._end(batch, ("hung", ("%s for %.0f s" % ("in the queue" if waited else "no sign of life", most))))

    def _last_words(self, batch):
        try:
            with open(self.engine.log(batch), encoding="utf-8", errors="replace") as f:
                lines = [line for line in f.read().splitlines() if line.strip()]
        except OSError:
            lines = []
        said = [line[len("run_tests: "):] for line in lines if line.startswith("run_tests: ")]
        return said[-1] if said else "after: " + lines[-1] if lines else "without a word"

    def _healthy(self, runner):
        return self.lost_in_row[runner] < MOST_LOST_BATCHES

    def _may_run(self, key, runner):
        return self.pool_of[runner] in self.pools_for[key[:2]]

    def _next_items(self, idle):
        """{runner: items} for runners that have nothing to do."""
        given = {}
        for runner in idle:
            if self.wanted[runner]:
                given[runner], self.wanted[runner] = self.wanted[runner], []
        free = [runner for runner in idle if runner not in given]
        for key in list(self.pending):
            tried = {attempt.runner for attempt in self.attempts[key]}
            able = [r for r in self.pool_of if self._healthy(r) and self._may_run(key, r)]
            if not able:
                self.pending.remove(key)  # lost: nobody is left
                continue
            fresh = [r for r in able if r not in tried] or able
            # What a runner was lost with may be the reason: others do not share a batch with it.
            suspect = any(attempt.status in LOST for attempt in self.attempts[key])
            here = [r for r in fresh if r in free and not (suspect and r in given)]
            if here:
                self.pending.remove(key)
                runner = min(here, key=lambda r: len(given.get(r, [])))
                given.setdefault(runner, []).append(key)
                if suspect:
                    free.remove(runner)
        return given

    def step(self):
        """Looks after all runners once. Returns whether there is more to do."""
        self._collect_ended()
        for runner, keys in self.wanted.items():
            if keys and not self._healthy(runner):
                self.pending += keys
                self.wanted[runner] = []
        idle = [r for r in self.pool_of if r not in self.active and self._healthy(r)]
        if self.fails_since and time.monotonic() < self.fails_since[1]:
            idle = []
        batches = []
        for runner, items in self._next_items(idle).items():
            batches.append(self._batch(self.next_batch, runner, items))
            self.next_batch += 1
        self.engine.name(batches)
        for batch in batches:
            os.makedirs(batch.directory, exist_ok=True)
            write(os.path.join(batch.directory, "items.json"), json.dumps([[key[0], key[2]] for key in batch.items]))
            self._note(begin=batch.number, runner=batch.runner, items=batch.items, name=batch.name)
        if batches:
            self.engine.start(batches)
        failed = [batch for batch in batches if batch.handle is None]
        for batch in batches:
            if batch.handle is None:
                self._end(batch, ("not started", batch.why))
            else:
                self._note(of=batch.number, handle=batch.handle)
                self.active[batch.runner] = batch
        if failed:
            now = time.monotonic()
            since = self.fails_since[0] if self.fails_since else now
            if now - since > START_PATIENCE:
                raise OSError(failed[0].why)
            self.fails_since = since, now + START_AGAIN
        elif batches:
            self.fails_since = None
        return bool(self.active or self.pending or any(self.wanted.values()))

    def interrupt(self):
        """Ends all runners. What they had not finished was not tried."""
        for runner, batch in list(self.active.items()):
            self.engine.cancel(batch)
            del self.active[runner]
            self._end(batch, ("interrupted", ""))

    def run(self, poll=0.5):
        while self.step():
            time.sleep(poll)

    def results(self):
        """Each item once, with all attempts."""
        items = []
        for key, tried in sorted(self.attempts.items()):
            statuses = [a.status for a in tried]
            if "passed" in statuses:
                status = "flaky" if any(s in FAILED for s in statuses) else "passed"
            elif any(s in FAILED for s in statuses):
                status = "failed"
            else:
                status = "skipped" if "skipped" in statuses else "lost"
            test = self.tests[key[:2]]
            items.append({
                "label": test.label, "capability": test.named or test.capability, "shard": key[2],
                "shards": test.shards, "status": status, "attempts": [self._of(a) for a in tried],
            })  # fmt: skip
        return {"commit": os.environ.get("ATTNLAB_COMMIT", ""), "items": items,
                "unplaced": [{"label": label, "why": why} for label, why in self.plan.unplaced]}  # fmt: skip

    def report(self, history):
        """Writes what the run found, and a line to `history`, if any, unless it has one of this run."""
        results = self.results()
        write_results(results, self.out, history, add=not self.reported)
        if not self.reported:
            self._note(reported=True)
            self.reported = True
        return results

    def _of(self, attempt):
        about = {"runner": attempt.runner, "machine": attempt.machine, "status": attempt.status, "why": attempt.why,
                 "capability": self.pool_of[attempt.runner].capability}  # fmt: skip
        if attempt.record:
            directory = os.path.join("batches", "%05d" % attempt.batch, "out", attempt.record["directory"])
            about.update({name: attempt.record[name] for name in ("began", "waited", "seconds", "gpus")})
            about["directory"] = directory
        return about


def write_results(results, out, history, add=True):
    """results.json, junit.xml and index.html in `out`, and a line more in the file `history`, if any."""
    past = []
    if history:
        with open(history, "a+", encoding="utf-8") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
            f.seek(0)
            past = f.read().splitlines()
            if add:
                f.write("\n" * (bool(past) and not past[-1]) + report.history_line(results, int(time.time()), out))
                f.flush()
                os.fsync(f.fileno())
    write(os.path.join(out, "results.json"), json.dumps(results, indent=1) + "\n")
    write(os.path.join(out, "junit.xml"), report.junit(results, out))
    write(os.path.join(out, "index.html"), report.page(results, out, past))


def parse_bundles(flags, parent):
    os.makedirs(parent, exist_ok=True)
    bundles = {}
    for flag in flags:
        capability, archive = plan.capability_of(flag, "--bundle")
        if capability in bundles:
            raise plan.PlanError("--bundle: %d is given twice" % capability)
        if not os.path.exists(archive):
            raise plan.PlanError("%s: does not exist; build it: ./bazelw build //ci:bundle_sm%d"
                                 % (archive, capability))  # fmt: skip
        bundles[capability] = unpack_once(archive, parent)
    return bundles


def main(argv, out=sys.stdout, err=sys.stderr):
    parser = argparse.ArgumentParser(prog="farm.py", description=__doc__.splitlines()[0])
    parser.add_argument("--runners", required=True, help="the inventory, a JSON file")
    parser.add_argument("--bundle", action="append", required=True, help="CAPABILITY=ARCHIVE, for each capability")
    parser.add_argument("--engine", choices=("local", "slurm"), default="local")
    parser.add_argument("--events", action="append", default=[], help="build events of a past run")
    parser.add_argument("--attempts", type=int, default=3, help="runners that may lose a test")
    parser.add_argument("--patience", type=float, default=60, help="seconds without a sign of life")
    parser.add_argument("--queue-patience", type=float, default=86400, help="seconds that a job may wait [a day]")
    parser.add_argument("--jobs", type=int, help="with --engine=local, tests at a time of a runner")
    parser.add_argument("--out", required=True, help="directory of the run")
    parser.add_argument("--history", help="a file with a line per run: how long tests took, which were flaky, "
                        "how fast kernels were")  # fmt: skip
    flags = parser.parse_args(argv)
    say = lambda line: print(line, file=out, flush=True)
    farm = None
    try:
        for name, least in (("attempts", 1), ("patience", 1), ("queue_patience", 1), ("jobs", 1)):
            if getattr(flags, name) is not None and getattr(flags, name) < least:
                raise plan.PlanError("--%s: %r is less than %d" % (name.replace("_", "-"), getattr(flags, name), least))
        flags.out = os.path.abspath(flags.out)
        pools = plan.parse_pools(plan.read(flags.runners), flags.runners)
        seconds = {}
        if flags.history:
            with open(flags.history, "a+", encoding="utf-8") as f:  # so that it can be written in the end
                f.seek(0)
                seconds.update(report.seconds_before(f.read().splitlines()))
        for path in flags.events:
            seconds.update(plan.seconds_of_events(plan.read(path).splitlines()))
        bundles = parse_bundles(flags.bundle, os.path.join(flags.out, "bundles"))
        for pool in pools:
            if pool.capability not in bundles:
                say("%s: gets nothing: no --bundle=%d=ARCHIVE" % (pool.name, pool.capability))
        pools = [pool for pool in pools if pool.capability in bundles]
        tests, unplaced = plan.tests_of(manifests_of(bundles), pools)
        engine = engines.Slurm(say) if flags.engine == "slurm" else engines.Local(flags.jobs)
        farm = Farm(tests, pools, bundles, seconds, engine, flags.out, flags.attempts, flags.patience,
                    flags.queue_patience, unplaced, say)  # fmt: skip
        farm.resume()
        farm.run()
        results = farm.report(flags.history)
    except KeyboardInterrupt:
        if farm:
            farm.interrupt()
        print("farm.py: interrupted; the same command goes on", file=err)
        return 130
    except (plan.PlanError, OSError, UnicodeDecodeError) as error:
        print("farm.py: %s" % error, file=err)
        return 2
    counts = collections.Counter(item["status"] for item in results["items"])
    for item in results["items"]:
        if item["status"] != "passed":
            last = item["attempts"][-1] if item["attempts"] else {"why": "no runner was left"}
            say("%s: %s%s" % (item["status"], report.name_of(item), last["why"] and ": " + last["why"]))
    for test in results["unplaced"]:
        say("no runner: %(label)s: %(why)s" % test)
    say(", ".join("%d %s" % (counts[status], status) for status in ("passed", "skipped", "flaky", "failed", "lost"))
        + ", %d without a runner" % len(results["unplaced"]))  # fmt: skip
    if counts["failed"] or counts["lost"]:
        return 3
    return 1 if results["unplaced"] else 0


if __name__ == "__main__":
    os.chdir(os.environ.get("BUILD_WORKING_DIRECTORY", "."))  # of `bazel run`
    sys.exit(main(sys.argv[1:]))
