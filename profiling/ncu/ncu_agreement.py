#!/usr/bin/env python3
"""Checks whether `attnlab profile` and NVIDIA's ncu count the same HBM bytes.

    profiling/ncu/ncu_agreement.py --attnlab=bazel-bin/tools/attnlab [--json=FILE] [--within=0.02] [PROBLEM ...]

Compares medians of five for each kernel whose call is one launch. Like attnlab, ncu flushes caches
before each launch. Problems must read at least four times the size of L2.

Exit status: 0; 1 if reads differ by more than --within, or a kernel failed; 2 for bad arguments and
files that cannot be written; 3 without ncu, or if this machine lacks what attnlab needs.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ncu  # noqa: E402  beside this file, after sys.path, so that it also works in a checkout

REPETITIONS = 5
METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
PROBLEMS = [
    "b=4,hq=32,hkv=32,sq=4096,skv=4096,d=128,dtype=bf16,mask=none",
    "b=16,hq=32,hkv=32,sq=1024,skv=1024,d=128,dtype=bf16,mask=causal",
    "b=8,hq=32,hkv=32,sq=2048,skv=2048,d=64,dtype=fp32,mask=causal",
    "b=64,hq=32,hkv=32,sq=1,skv=4096,d=64,dtype=bf16,mask=none",
]


def profile_of(attnlab, kernel, problems):
    """The output of `attnlab profile --json`, even if some rows failed."""
    out = ncu.run([attnlab, "profile", "--json", "--verify=false", "--ceilings=none", f"--repetitions={REPETITIONS}",
                   f"--kernel={kernel}"] + [f"--problem={p}" for p in problems], codes=(0, 1))
    try:
        profile = json.loads(out)
        profile["machine"]["last_level_cache_bytes"], profile["rows"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ncu.CannotRun(f"{attnlab} profile --json printed no profile: {out[:200]!r}", 1) from error
    return profile


def ncu_bytes(attnlab, row):
    """ncu's medians for the kernel in a row of `attnlab profile`."""
    out = ncu.run(["ncu", "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values()),
                   "--launch-count", str(REPETITIONS), "-k", f"regex:^{re.escape(row['launches'][0]['kernel'])}$",
                   attnlab, "bench", "--verify=false", "--device=cuda:0", "--seconds=0.001",
                   f"--repetitions={REPETITIONS}", f"--kernel={row['kernel']}", f"--problem={row['problem']}"])
    launches = ncu.launches(out, METRICS.values())
    return {name: statistics.median(launch[metric] for launch in launches) for name, metric in METRICS.items()}


def compared(attnlab, profile):
    """A row for each kernel that both count, and the number of kernels that failed."""
    rows, failed = [], 0
    for row in profile["rows"]:
        if row.get("verdict") == "failed":
            failed += 1
            print(f"ncu_agreement: {row['kernel']} failed on {row['problem']}: {row.get('message')}", file=sys.stderr)
            continue
        read, written = (row["counted"].get(f"hbm_bytes_{name}") for name in METRICS)
        if len(row["launches"]) != 1 or not read or read < 4 * profile["machine"]["last_level_cache_bytes"]:
            continue
        by_ncu = ncu_bytes(attnlab, row)
        rows.append({"problem": row["problem"], "kernel": row["kernel"], "launch": row["launches"][0]["kernel"],
                     "read": read, "ncu_read": by_ncu["read"], "read_difference": read / by_ncu["read"] - 1,
                     "written": written, "ncu_written": by_ncu["written"]})
    return rows, failed


def megabytes(value):
    return "-" if value is None else f"{value / 1e6:.2f}"


def show(rows):
    print("| problem | kernel | read, MB | ncu | differs by | written, MB | ncu |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| `{r['problem']}` | {r['kernel']} | {megabytes(r['read'])} | {megabytes(r['ncu_read'])} | "
              f"{100 * r['read_difference']:+.2f} % | {megabytes(r['written'])} | {megabytes(r['ncu_written'])} |")


def fraction(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnlab", required=True, metavar="FILE", help="the attnlab to run")
    parser.add_argument("--kernel", default="all", metavar="NAMES", help="such as a,b [%(default)s]")
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON, too")
    parser.add_argument("--within", type=fraction, default=0.02, metavar="X",
                        help="largest relative difference of attnlab's reads from ncu's [%(default)s]")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM",
                        help="problem line or preset [four built-in problems]")
    return parser.parse_args(arguments)


def agreement(flags):
    """Returns the exit status."""
    ncu.check_there()
    with ncu.replacing(flags.json) as file:
        profile = profile_of(flags.attnlab, flags.kernel, flags.problems or PROBLEMS)
        rows, failed = compared(flags.attnlab, profile)
        show(rows)
        if not rows:
            raise ncu.CannotRun("no call with one launch reads four times the size of L2", 1 if failed else 2)
        if file:
            json.dump({"machine": profile["machine"], "repetitions": REPETITIONS, "rows": rows}, file, indent=1)
    return 0 if not failed and all(abs(r["read_difference"]) <= flags.within for r in rows) else 1


def main(arguments=None):
    return ncu.ended("ncu_agreement", lambda: agreement(parsed(arguments)))


if __name__ == "__main__":
    sys.exit(main())
