"""Which kernels became slower, commit by commit.

A test that measures leaves bench.json, of `attnlab bench --json`, in TEST_UNDECLARED_OUTPUTS_DIR
(//tools:speed_test). The history keeps what it says of each run.
"""

import collections
import json
import os

# Seconds of a call: 80 % of the repetitions lie between p10 and p90.
Speed = collections.namedtuple("Speed", "kernel problem machine commit p10 median p90")


def measured(results, out):
    """([Speed], [files that cannot be read]) of a run."""
    found, damaged = [], []
    for item in results["items"]:
        for attempt in item["attempts"]:
            if attempt["status"] != "passed" or "directory" not in attempt:
                continue
            path = os.path.join(attempt["directory"], "outputs", "bench.json")
            try:
                with open(os.path.join(out, path), encoding="utf-8") as f:
                    found += [_of_row(row) for row in json.load(f)["rows"] if row["verdict"] == "ok"]
            except FileNotFoundError:
                continue
            except (OSError, ValueError, KeyError, TypeError):
                damaged.append(path)
    return found, damaged


def _of_row(row):
    kernel = row["kernel"] + (row["config"] and " " + row["config"])
    seconds = [float(row[name + "_seconds"]) for name in ("p10", "median", "p90")]
    return Speed(kernel, row["problem"], row["machine"]["name"], row["commit"], *seconds)


def past(history):
    """[[Speed]] of the lines of a history, oldest first. Damaged lines, and those of runs without any, are left out."""
    runs = []
    for line in history:
        try:
            rows = json.loads(line)["speed"]
            run = [Speed(*map(str, row[:3]), row[3], *map(float, row[4:])) for row in rows]
        except (ValueError, KeyError, TypeError, IndexError):
            continue
        if run:
            runs.append(run)
    return runs


def slower(runs):
    """[(before, after)] where a kernel is slower than at the commit before, beyond both spreads; the newest first.
    Two runs of one commit say something of the machine, not of the kernel."""
    last, found = {}, []
    for run in runs:
        for after in run:
            before = last.get(after[:3])
            if before and before.commit and before.commit != after.commit and after.p10 > before.p90:
                found.insert(0, (before, after))
            last[after[:3]] = after
    return found
