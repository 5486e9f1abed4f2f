"""Counts what `bazel test --build_event_json_file=FILE` ran, and lists the slowest targets.

    python3 tools/dev/test_report.py FILE

Prints a line for each failure, the slowest targets, and last "N passed, N failed, N skipped". For a
target it gives the seconds of its slowest shard, and how many of them it waited for a GPU
(ci/gpu_slot.py). It counts test cases, from the test.xml of each test. A target counts as one if it
wrote no test.xml, did not build, or failed although no case did. Skipped are cases that skipped
themselves, and targets that are incompatible with the platform.
"""

import collections
import json
import os
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree

Counts = collections.namedtuple("Counts", "passed failed skipped failures")
Duration = collections.namedtuple("Duration", "seconds label waited")

SLOWEST = 15
# What gpu_slot prints before it executes the test.
WAITED = re.compile(r"^gpu_slot: .* after (\d+\.\d+) s$")


def read_events(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f if line.strip()]


def cases_of(path):
    """(passed, failed names, skipped) of one test.xml, or None if it cannot be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    passed, failed, skipped = 0, [], 0
    for case in root.iter("testcase"):
        if case.get("status") == "notrun" or case.get("result") == "suppressed":
            continue
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append("%s.%s" % (case.get("classname", ""), case.get("name", "")))
        elif case.get("result") == "skipped" or case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def output_path(result, name):
    for output in result.get("testActionOutput", []):
        if output.get("name") == name and output.get("uri", "").startswith("file://"):
            return urllib.parse.unquote(output["uri"][len("file://") :])
    return ""


def count(events):
    passed, skipped, failures = 0, 0, []
    # Only the last attempt of each shard and run of a target counts.
    results = {}
    expected = set()
    summarized = set()
    for event in events:
        identity = event.get("id", {})
        if "targetConfigured" in identity and event.get("configured", {}).get("testSize"):
            expected.add(identity["targetConfigured"]["label"])
        if "testResult" in identity and "testResult" in event:
            key = identity["testResult"]
            results[(key["label"], key.get("run", 1), key.get("shard", 1))] = event["testResult"]
        if "testSummary" in identity and "testSummary" in event:
            summarized.add(identity["testSummary"]["label"])
        if "targetCompleted" in identity and event.get("aborted", {}).get("reason") == "SKIPPED":
            label = identity["targetCompleted"]["label"]
            if label in expected:
                expected.discard(label)
                skipped += 1
    for (label, _, _), result in sorted(results.items()):
        cases = cases_of(output_path(result, "test.xml"))
        status = result.get("status", "NO_STATUS")
        if cases is None:
            cases = (1, [], 0) if status in ("PASSED", "FLAKY") else (0, [], 0)
        passed += cases[0]
        skipped += cases[2]
        failures += ["%s %s" % (label, name) for name in cases[1]]
        if status not in ("PASSED", "FLAKY") and not cases[1]:
            failures.append("%s %s" % (label, status))
    ran = {label for label, _, _ in results}
    failures += ["%s NOT BUILT OR NOT RUN" % label for label in sorted(expected - ran)]
    return Counts(passed, len(failures), skipped, failures)


def seconds_waited(path):
    """How long the test of a test.log waited for a GPU, or None if the log does not say."""
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            for line in log:
                match = WAITED.match(line)
                if match:
                    return float(match.group(1))
    except OSError:
        pass
    return None


def slowest(events, most=SLOWEST):
    """The slowest targets, the slowest first. Results from a cache took no time."""
    found = {}
    for event in events:
        result = event.get("testResult", {})
        if "testResult" not in event.get("id", {}) or result.get("cachedLocally"):
            continue
        if result.get("executionInfo", {}).get("cachedRemotely"):
            continue
        label = event["id"]["testResult"]["label"]
        seconds = int(result.get("testAttemptDurationMillis", 0)) / 1000
        if label not in found or seconds > found[label][0]:
            found[label] = seconds, output_path(result, "test.log")
    order = sorted(found, key=lambda label: (-found[label][0], label))[:most]
    return [Duration(found[label][0], label, seconds_waited(found[label][1])) for label in order]


def main(path):
    if not os.path.exists(path):
        print("FAILED: no build events in %s" % path)
        print("0 passed, 1 failed, 0 skipped")
        return 1
    events = read_events(path)
    counts = count(events)
    for failure in counts.failures:
        print("FAILED: " + failure)
    for seconds, label, waited in slowest(events):
        print("%7.1f s  %s%s" % (seconds, label, "" if waited is None else ", %.1f s for a GPU" % waited))
    print("%d passed, %d failed, %d skipped" % counts[:3])
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
