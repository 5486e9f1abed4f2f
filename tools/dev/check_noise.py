#!/usr/bin/env python3
"""Checks that `attnlab bench` tells the truth on a busy machine.

    tools/dev/check_noise.py bazel-bin/tools/attnlab OUT.json

Times some problems on the idle machine, several times. Then it keeps every processor busy with other work
for 10 minutes (--minutes) and times them again and again. Then the idle machine comes again, because clocks
and a virtual machine's neighbours change within minutes. A row is wrong if its median is farther from those
of the idle machine than the noise of both says. Prints a table, writes all of it as JSON, and exits with 1
where a row is wrong. Nothing else may run on the machine.
"""

import argparse
import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import time

# Calls of 10 µs to 100 ms: on one thread and on all, within one time slice of the scheduler and longer.
PROBLEMS = (
    "hq=1,sq=1,skv=256,d=64,dtype=fp32",
    "hq=2,sq=64,d=64,dtype=fp32",
    "hq=4,sq=256,d=128,dtype=bf16",
    "hq=8,sq=512/1024/4096,d=64,dtype=fp32,mask=causal",
)


KEYS = (
    "problem", "kernel", "median_seconds", "p10_seconds", "p90_seconds", "noise", "noisy", "noise_cause",
    "repetitions", "disturbed_repetitions", "date", "off_by",
)  # fmt: skip


def spin():
    while True:
        pass


def bench(attnlab):
    command = [attnlab, "bench", "--kernel=cpu", "--json", *(f"--problem={p}" for p in PROBLEMS)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["rows"]


def write(path, idle, busy):
    """One line a row; what the rows share once."""

    def lines(rows):
        return ",\n  ".join(json.dumps({key: row[key] for key in KEYS if key in row}) for row in rows)

    with open(path, "w", encoding="utf-8") as file:
        file.write('{\n "command": "check_noise",\n "machine": %s,\n' % json.dumps(idle[0]["machine"]))
        file.write(' "idle": [\n  %s\n ],\n "busy": [\n  %s\n ]\n}\n' % (lines(idle), lines(busy)))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("attnlab")
    parser.add_argument("out")
    parser.add_argument("--minutes", type=float, default=10, help="of the busy machine [10]")
    parser.add_argument("--idle_runs", type=int, default=5, help="runs on the idle machine, before and after [5]")
    flags = parser.parse_args()

    idle = [bench(flags.attnlab) for _ in range(flags.idle_runs)]
    others = [multiprocessing.Process(target=spin, daemon=True) for _ in range(os.cpu_count())]
    for process in others:
        process.start()
    busy = []
    end = time.monotonic() + 60 * flags.minutes
    while time.monotonic() < end:
        busy += bench(flags.attnlab)
    for process in others:
        process.terminate()
    for process in others:
        process.join()
    idle += [bench(flags.attnlab) for _ in range(flags.idle_runs)]

    # The truth of each problem, and how much it differs from run to run.
    truth = {}
    for rows in zip(*idle):
        medians = [row["median_seconds"] for row in rows]
        truth[rows[0]["problem"]] = statistics.median(medians), min(medians), max(medians)

    wrong = 0
    print("| problem | idle, µs | busy, µs | noise | off by | |\n|---|--:|--:|--:|--:|---|")
    for row in busy:
        _, fastest, slowest = truth[row["problem"]]
        median, noise = row["median_seconds"], row["noise"]
        off = max(0.0, fastest - median, median - slowest) / median
        row["off_by"] = off
        verdict = "ok" if off <= noise else "WRONG"
        wrong += off > noise
        print(
            f"| {row['problem']} | {fastest * 1e6:.1f}-{slowest * 1e6:.1f} | {median * 1e6:.1f} "
            f"| ±{100 * noise:.1f} % | {100 * off:.1f} % | {verdict} |"
        )
    print(f"\n{len(busy)} rows, {wrong} wrong, {sum(row['noisy'] for row in busy)} said to be noisy")
    write(flags.out, sum(idle, []), busy)
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
