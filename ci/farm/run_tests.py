#!/usr/bin/env python3
"""Runs the tests of a bundle without Bazel, as Bazel would run them:

    tar xzf bundle_sm90.tar.gz && tests/run_tests.py --out=results

Each test gets its place on a GPU by gpu_slot.py. In the directory of results, each shard of a test has
test.log and test.xml, and results.jsonl has a line for each that has ended. A test on a GPU that skips all
its cases is skipped. The last lines of the output count tests and say what each GPU did. With --after, an
earlier directory of results, of tests with the same timeout those come first that took long there. Exit status: 0
all passed or skipped, 3 some failed, 4 the machine cannot go on.
"""

import argparse
import collections
import concurrent.futures
import contextlib
import ctypes
import glob
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from xml.sax.saxutils import escape, quoteattr

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = {"short": 60, "moderate": 300, "long": 900, "eternal": 3600}  # Bazel's timeouts
GOOD = ("passed", "skipped")  # statuses of tests with which a run is all right
LOG_BYTES_IN_XML = 1 << 16
RUNFILES = "tests.runfiles"  # what starts a Python program looks for a directory of such a name
ENDS_WITHIN = 60  # seconds, when killed; a driver that hangs keeps its processes
# XML has no other characters.
NOT_XML = re.compile("[^\t\n\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
LIBC = ctypes.CDLL(None)
PLACE = re.compile(r"^gpu_slot: (\S+?)(?:, shared,)? after (\d+\.\d+) s$", re.MULTILINE)

Item = collections.namedtuple("Item", "label shard")


class BadInput(Exception):
    """What is wrong with flags or files, for people."""


def digest(path):
    """The SHA-256 of a file."""
    total = hashlib.sha256()
    with open(path, "rb") as f:
        for block in iter(lambda: f.read(1 << 20), b""):
            total.update(block)
    return total.hexdigest()


def has_failure(root):
    """Whether a case of a test.xml, or a test.xml, has failed. (Elements without children are false.)"""
    return root.find(".//failure") is not None or root.find(".//error") is not None


def is_skipped(case):
    """Whether a case of a test.xml did not run."""
    return case.get("status") == "notrun" or case.get("result") == "skipped" or case.find("skipped") is not None


def directory_of(label, shard):
    """Where a test leaves its results, below --out."""
    return "tests/%s/%d" % (label.lstrip("@/").replace(":", "/"), shard)


def gpus_here():
    """The UUIDs of the GPUs that answer."""
    try:
        smi = subprocess.Popen(["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, universal_newlines=True)  # fmt: skip
    except OSError:
        return []
    try:
        output = smi.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        smi.kill()  # and no wait: in a driver that hangs it does not end
        return []
    return output.split() if smi.returncode == 0 else []


def visible_gpus(uuids):
    """How many of the GPUs gpu_slot.py gives to tests."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return len(uuids) if visible is None else len([x for x in visible.split(",") if x])


def die_with_parent():
    """For a child: SIGKILL when its runner ends, however that ends."""
    LIBC.prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Bundle:
    def __init__(self, directory):
        self.directory = directory
        try:
            with open(os.path.join(directory, "tests.json"), encoding="utf-8") as f:
                manifest = json.load(f)
            self.workspace = manifest["workspace"]
            self.tests = {test["label"]: test for test in manifest["tests"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BadInput("%s: is no bundle of tests: %s" % (directory, error)) from None

    def items(self):
        return [Item(label, shard) for label, test in self.tests.items() for shard in range(test["shards"])]

    def items_of(self, text, where):
        """The items of a JSON list of [label, shard]."""
        try:
            items = [Item(label, shard) for label, shard in json.loads(text)]
        except (ValueError, TypeError):
            raise BadInput("%s: is not a JSON list of [label, shard]" % where) from None
        for label, shard in items:
            if label not in self.tests:
                raise BadInput("%s: %s: is not in this bundle" % (where, label))
            if shard not in range(self.tests[label]["shards"]):
                raise BadInput("%s: %s: has no shard %r" % (where, label, shard))
        return items


def seconds_in(directory):
    """{item: seconds} in a directory of results."""
    path = os.path.join(directory, "results.jsonl")
    try:
        with open(path, encoding="utf-8") as f:
            records = [json.loads(line) for line in f]
        return {Item(record["label"], record["shard"]): record["seconds"] - record["waited"] for record in records}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput("--after: %s: has no results: %s" % (path, error)) from None


def kill_group(process, number):
    try:
        os.killpg(process.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


class Runs:
    """Runs items, each in a process group of its own."""

    def __init__(self, bundle, out, say):
        self.bundle, self.out, self.say = bundle, out, say
        self.gpus = gpus_here()
        self.stopped = threading.Event()  # nothing more begins
        self.why = ""
        self._lock = threading.Lock()
        self._running = set()
        self._results = open(os.path.join(out, "results.jsonl"), "a", encoding="utf-8")
        self.records = []

    def stop(self, why):
        self.why = self.why or why
        self.stopped.set()
        with self._lock:
            for process in self._running:
                kill_group(process, signal.SIGKILL)

    def _environment(self, item, test, directory, temporary):
        program = os.path.join(self.bundle.directory, RUNFILES)
        env = {name: value for name, value in os.environ.items()
               if name in ("PATH", "HOME", "USER", "LANG", "CUDA_HOME", "CUDA_PATH", "LD_LIBRARY_PATH",
                           "CUDA_VISIBLE_DEVICES") or name.startswith("ATTNLAB_")}  # fmt: skip
        env.update(test["env"])
        env.update({
            "TEST_SRCDIR": program, "RUNFILES_DIR": program, "TEST_WORKSPACE": self.bundle.workspace,
            "TEST_TARGET": item.label, "TEST_TMPDIR": temporary, "TEST_SIZE": "medium",
            "TEST_TIMEOUT": str(SECONDS[test["timeout"]]), "XML_OUTPUT_FILE": os.path.join(directory, "test.xml"),
            "TEST_UNDECLARED_OUTPUTS_DIR": os.path.join(directory, "outputs"),
            "GTEST_TMP_DIR": temporary, "BAZEL_TEST": "1",
        })  # fmt: skip
        if test["shards"] > 1:
            status = os.path.join(directory, "sharded")
            env.update({
                "TEST_TOTAL_SHARDS": str(test["shards"]), "TEST_SHARD_INDEX": str(item.shard),
                "TEST_SHARD_STATUS_FILE": status, "GTEST_TOTAL_SHARDS": str(test["shards"]),
                "GTEST_SHARD_INDEX": str(item.shard), "GTEST_SHARD_STATUS_FILE": status,
            })  # fmt: skip
        return env

    def _command(self, test):
        program = os.path.join(self.bundle.directory, RUNFILES, test["program"])
        slot = [sys.executable, os.path.join(self.bundle.directory, "gpu_slot.py")] if test["gpus"] else []
        return slot + [program] + test["args"]

    def run(self, item):
        """Runs one item and records it, if it was not stopped."""
        if self.stopped.is_set():
            return
        test = self.bundle.tests[item.label]
        name = directory_of(item.label, item.shard)
        directory = os.path.join(self.out, name)
        shutil.rmtree(directory, ignore_errors=True)
        os.makedirs(os.path.join(directory, "outputs"))
        temporary = tempfile.mkdtemp(prefix="attnlab-test.")
        log = os.path.join(directory, "test.log")
        began = time.time()
        try:
            status = self._wait(item, test, directory, temporary, log)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
        if self.stopped.is_set():
            return  # killed by us: it says nothing of the test
        seconds = time.time() - began
        status = self._judge(item, test, directory, log, status, seconds)
        with open(log, encoding="utf-8", errors="replace") as f:
            place = PLACE.search(f.read(1 << 16))
        record = {
            "label": item.label, "shard": item.shard, "shards": test["shards"], "status": status,
            "began": round(began, 3), "seconds": round(seconds, 3), "directory": name,
            "gpus": place.group(1).split(",") if place else [], "waited": float(place.group(2)) if place else 0,
            "log_sha256": digest(log), "xml_sha256": digest(os.path.join(directory, "test.xml")),
        }  # fmt: skip
        # A test that finds no GPU may skip all its cases: its result counts if all GPUs answer afterwards.
        if test["gpus"]:
            now = gpus_here()
            if now != self.gpus:
                self.stop("GPUs were lost: there were %d, %d answer" % (len(self.gpus), len(now)))
                return
        with self._lock:
            self.records.append(record)
            self._results.write(json.dumps(record) + "\n")
            self._results.flush()
            os.fsync(self._results.fileno())
        self.say("%-8s %7.1f s  %s%s" % (status, seconds, item.label,
                                         " %d/%d" % (item.shard + 1, test["shards"]) * (test["shards"] > 1)))

    def _wait(self, item, test, directory, temporary, log):
        """The exit status of the program; "timeout" or "no start"."""
        root = os.path.join(self.bundle.directory, RUNFILES, self.bundle.workspace)
        with open(log, "wb") as output:
            try:
                with self._lock:
                    if self.stopped.is_set():
                        return "stopped"
                    process = subprocess.Popen(
                        self._command(test), cwd=root, stdin=subprocess.DEVNULL, stdout=output,
                        stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=die_with_parent,
                        env=self._environment(item, test, directory, temporary))  # fmt: skip
                    self._running.add(process)
            except OSError as error:
                output.write(("run_tests: cannot start: %s\n" % error).encode())
                return "no start"
        try:
            return process.wait(timeout=SECONDS[test["timeout"]])
        except subprocess.TimeoutExpired:
            return "timeout"
        finally:
            # Also what the test left running.
            kill_group(process, signal.SIGKILL)
            try:
                process.wait(ENDS_WITHIN)
            except subprocess.TimeoutExpired:
                self.stop("%s: does not end when it is killed" % item.label)
            with self._lock:
                self._running.discard(process)

    def _judge(self, item, test, directory, log, status, seconds):
        """passed, skipped, failed, timeout or killed. There is a test.xml afterwards that says the same."""
        path, why = os.path.join(directory, "test.xml"), ""
        if status == "timeout":
            status, why = "timeout", "took more than %d s" % SECONDS[test["timeout"]]
        elif status == -signal.SIGKILL:
            status, why = "killed", "was killed from outside; memory may have run out"
        elif status != 0:
            status, why = "failed", "exit status %s" % status
        elif test["shards"] > 1 and not os.path.exists(os.path.join(directory, "sharded")):
            status, why = "failed", "does not know of shards: did not touch TEST_SHARD_STATUS_FILE"
        else:
            status = "passed"
        try:
            root = ElementTree.parse(path).getroot()
            has_failures = has_failure(root)
            if status == "passed" and has_failures:
                status = "failed"
            cases = list(root.iter("testcase"))
            if status == "passed" and test["gpus"] and cases and all(map(is_skipped, cases)):
                return "skipped"
            if status == "passed" or has_failures:
                return status
        except OSError:
            pass
        except ElementTree.ParseError as error:
            why = why or "test.xml is not XML: %s" % error
            status = "failed" if status == "passed" else status
        with open(log, encoding="utf-8", errors="replace") as f:
            text = f.read()[-LOG_BYTES_IN_XML:]
        text = escape(NOT_XML.sub("", text))
        failure = "" if status == "passed" else "<failure message=%s/>" % quoteattr(why)
        with open(path, "w", encoding="utf-8") as f:
            f.write('<testsuites><testsuite name=%s tests="1"><testcase name=%s time="%.3f">%s</testcase>'
                    "<system-out>%s</system-out></testsuite></testsuites>\n"
                    % (quoteattr(item.label), quoteattr(item.label), seconds, failure, text))  # fmt: skip
        return status

    def close(self):
        self._results.close()


def busy_gpus(records):
    """What each GPU did: [(GPU, tests, seconds with a test, seconds of all tests)]."""
    of_gpu = collections.defaultdict(list)
    for record in records:
        for gpu in record["gpus"]:
            of_gpu[gpu].append((record["began"] + record["waited"], record["began"] + record["seconds"]))
    found = []
    for gpu, spans in sorted(of_gpu.items()):
        busy, end = 0.0, 0.0
        for begin, until in sorted(spans):
            busy += max(0.0, until - max(begin, end))
            end = max(end, until)
        found.append((gpu, len(spans), busy, sum(until - begin for begin, until in spans)))
    return found


def gpu_lines(records, wall):
    return ["%s: %d tests, busy %.0f %% of %.1f s, %.1f tests at a time"
            % (gpu, tests, 100 * busy / wall, wall, total / max(busy, 1e-9))
            for gpu, tests, busy, total in busy_gpus(records)]  # fmt: skip


def beat(path, stopped):
    """Says every second that this program is alive."""
    while True:
        with open(path, "w", encoding="utf-8") as f:
            f.write("%f\n" % time.time())
        if stopped.wait(1):
            return


def main(argv, out=sys.stdout):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", required=True, help="directory of results, new or empty")
    parser.add_argument("--items", help="a JSON list of [label, shard]: what to run [all]")
    parser.add_argument("--after", help="results of an earlier run, to begin with what took long; not with --items")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="tests at a time")
    parser.add_argument("tests", nargs="*", metavar="LABEL", help="tests to run [all]")
    flags = parser.parse_args(argv)
    try:
        if flags.jobs < 1:
            raise BadInput("--jobs: %d is less than 1" % flags.jobs)
        bundle = Bundle(HERE)
        if flags.items and flags.after:
            raise BadInput("--after: tests of --items keep their order")
        if flags.items:
            with open(flags.items, encoding="utf-8") as f:
                items = bundle.items_of(f.read(), flags.items)
        else:
            unknown = [label for label in flags.tests if label not in bundle.tests]
            if unknown:
                raise BadInput("%s: is not in this bundle" % unknown[0])
            items = [item for item in bundle.items() if not flags.tests or item.label in flags.tests]
            # Those that may take long come first, so that none of them is left at the end.
            past = seconds_in(flags.after) if flags.after else {}
            items.sort(key=lambda item: (-SECONDS[bundle.tests[item.label]["timeout"]], -past.get(item, 0)))
        flags.out = os.path.abspath(flags.out)
        os.makedirs(flags.out, exist_ok=True)
        if glob.glob(os.path.join(flags.out, "*.jsonl")):
            raise BadInput("--out: %s has results already" % flags.out)
        runs = Runs(bundle, flags.out, lambda line: print(line, file=out, flush=True))
    except (BadInput, OSError) as error:
        print("run_tests: %s" % error, file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: threading.Thread(target=runs.stop, args=("interrupted",)).start())
    ended = threading.Event()
    threading.Thread(target=beat, args=(os.path.join(flags.out, "alive"), ended), daemon=True).start()
    began = time.time()
    # Tests that want a GPU for themselves come last, so that no other waits for them, and not more than there are
    # GPUs, as waiting counts for their timeouts. They begin when another GPU may still have some.
    items.sort(key=lambda item: bundle.tests[item.label]["exclusive"])
    if any(bundle.tests[item.label]["gpus"] for item in items) and not runs.gpus:
        runs.stop("no GPU answers")
    alone = threading.Semaphore(max(1, visible_gpus(runs.gpus)))

    def run(item):
        with alone if bundle.tests[item.label]["exclusive"] else contextlib.nullcontext():
            runs.run(item)

    with concurrent.futures.ThreadPoolExecutor(flags.jobs) as pool:
        list(pool.map(run, items))
    ended.set()
    runs.close()
    for line in gpu_lines(runs.records, time.time() - began):
        print(line, file=out)
    counts = collections.Counter(record["status"] for record in runs.records)
    good = sum(counts[status] for status in GOOD)
    print("%d passed, %d skipped, %d failed, %d not run"
          % (counts["passed"], counts["skipped"], len(runs.records) - good, len(items) - len(runs.records)), file=out)  # fmt: skip
    if runs.stopped.is_set():
        print("run_tests: stopped: %s" % runs.why, file=sys.stderr)
        return 130 if runs.why == "interrupted" else 4
    # Only now: whoever collects the results knows that there are no more.
    with open(os.path.join(flags.out, "ended.part"), "w", encoding="utf-8") as f:
        json.dump({"results_sha256": digest(os.path.join(flags.out, "results.jsonl"))}, f)
    os.replace(os.path.join(flags.out, "ended.part"), os.path.join(flags.out, "ended.json"))
    return 0 if good == len(items) else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
