#!/usr/bin/env python3
"""Whether `attnlab profile` and NVIDIA's ncu count the same bytes of HBM.

    profiling/ncu_agreement.py --attnlab=bazel-bin/tools/attnlab [--json=FILE] [--within=0.02] [PROBLEM ...]

Of each kernel whose call is one launch, medians of five: attnlab's beside those of ncu, which flushes
caches before each launch as well. Problems move at least four times what L2 holds.

Exit status: 0; 1 where reads differ by more than --within, or a kernel failed; 2 for bad arguments and
files that cannot be written; 3 where there is no ncu, or what attnlab wants is not on this machine.
"""

import argparse
import contextlib
import csv
import io
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

REPETITIONS = 5
METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
PROBLEMS = [
    "b=4,hq=32,hkv=32,sq=4096,skv=4096,d=128,dtype=bf16,mask=none",
    "b=16,hq=32,hkv=32,sq=1024,skv=1024,d=128,dtype=bf16,mask=causal",
    "b=8,hq=32,hkv=32,sq=2048,skv=2048,d=64,dtype=fp32,mask=causal",
    "b=64,hq=32,hkv=32,sq=1,skv=4096,d=64,dtype=bf16,mask=none",
]




class CannotRun(Exception):
    """A message for the user, and what the process ends with."""

    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


def run(command, codes=(0,)):
    """The standard output of a command that has to end with one of the codes."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CannotRun(f"{command[0]}: cannot be run: {error.strerror}", 2) from error
    if done.returncode not in codes:
        said = done.stderr.strip() or done.stdout.strip() or "it says nothing"
        # attnlab's own codes, which say whose fault it is; ncu ends with those of what it runs.
        code = done.returncode if done.returncode in (1, 2, 3) else 1
        raise CannotRun(f"{command[0]} ended with {done.returncode}: {said}", code)
    return done.stdout


def profile_of(attnlab, kernel, problems):
    """What `attnlab profile --json` prints: also with rows that failed."""
    out = run([attnlab, "profile", "--json", "--verify=false", "--ceilings=none", f"--repetitions={REPETITIONS}",
               f"--kernel={kernel}"] + [f"--problem={p}" for p in problems], codes=(0, 1))
    try:
        profile = json.loads(out)
        profile["machine"]["last_level_cache_bytes"], profile["rows"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise CannotRun(f"{attnlab} profile --json printed no profile: {out[:200]!r}", 1) from error
    return profile


def medians(out):
    """By metric, of the table of `ncu --csv`."""
    at = out.find('"ID"')
    if at < 0:
        raise CannotRun(f"ncu printed no table: {out.strip()[-500:] or 'nothing at all'}")
    counted = {name: [] for name in METRICS}
    for line in csv.DictReader(io.StringIO(out[at:])):
        for name, metric in METRICS.items():
            if line["Metric Name"] != metric:
                continue
            value, unit = line["Metric Value"], line["Metric Unit"]
            try:
                counted[name].append(float(value.replace(",", "")) * UNITS[unit])
            except (ValueError, KeyError) as error:
                raise CannotRun(f"ncu: {metric} is {value!r} {unit!r}, not a number of bytes", 1) from error
    for name, values in counted.items():
        if not values:
            raise CannotRun(f"ncu: {METRICS[name]} is not in its table, so it profiled no launch of the kernel", 1)
    return {name: statistics.median(values) for name, values in counted.items()}


def ncu_bytes(attnlab, row):
    """Medians by ncu of the kernel of a row of `attnlab profile`."""
    return medians(run(["ncu", "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values()),
                        "--launch-count", str(REPETITIONS), "-k", f"regex:^{re.escape(row['launches'][0]['kernel'])}$",
                        attnlab, "bench", "--verify=false", "--device=cuda:0", "--seconds=0.001",
                        f"--repetitions={REPETITIONS}", f"--kernel={row['kernel']}", f"--problem={row['problem']}"]))


def compared(attnlab, profile):
    """A row each of what both count, and how many kernels failed."""
    rows, failed = [], 0
    for row in profile["rows"]:
        if row.get("verdict") == "failed":
            failed += 1
            print(f"ncu_agreement: {row['kernel']} failed on {row['problem']}: {row.get('message')}", file=sys.stderr)
            continue
        read, written = (row["counted"].get(f"hbm_bytes_{name}") for name in METRICS)
        if len(row["launches"]) != 1 or not read or read < 4 * profile["machine"]["last_level_cache_bytes"]:
            continue
        ncu = ncu_bytes(attnlab, row)
        rows.append({"problem": row["problem"], "kernel": row["kernel"], "launch": row["launches"][0]["kernel"],
                     "read": read, "ncu_read": ncu["read"], "read_difference": read / ncu["read"] - 1,
                     "written": written, "ncu_written": ncu["written"]})
    return rows, failed


def megabytes(value):
    return "-" if value is None else f"{value / 1e6:.2f}"


def show(rows):
    print("| problem | kernel | read, MB | ncu | differs by | written, MB | ncu |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| `{r['problem']}` | {r['kernel']} | {megabytes(r['read'])} | {megabytes(r['ncu_read'])} | "
              f"{100 * r['read_difference']:+.2f} % | {megabytes(r['written'])} | {megabytes(r['ncu_written'])} |")


@contextlib.contextmanager
def replacing(path):
    """A file that takes the place of `path` in the end; made first, so that what cannot be written is said first."""
    if path is None:
        yield None
        return
    try:
        if os.path.isdir(path):
            raise IsADirectoryError(0, "is a directory")
        descriptor, name = tempfile.mkstemp(dir=os.path.dirname(os.path.abspath(path)), prefix=".ncu_agreement")
    except OSError as error:
        raise CannotRun(f"--json: {path}: {error.strerror}", 2) from error
    try:
        with open(descriptor, "w", encoding="utf-8") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def fraction(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnlab", required=True, metavar="FILE", help="the attnlab to run")
    parser.add_argument("--kernel", default="fa1,fa2", metavar="NAMES", help="as in a,b; by default %(default)s")
    parser.add_argument("--json", metavar="FILE", help="write the comparison as JSON, too")
    parser.add_argument("--within", type=fraction, default=0.02, metavar="X",
                        help="how much of ncu's reads those of attnlab may differ by: a fraction, by default %(default)s")
    parser.add_argument("problems", nargs="*", metavar="PROBLEM",
                        help="in attnlab's one-line form or a preset; by default four of its own")
    return parser.parse_args(arguments)


def agreement(flags):
    """What the process ends with."""
    if shutil.which("ncu") is None:
        raise CannotRun("ncu is not on PATH; it comes with the CUDA toolkit")
    with replacing(flags.json) as file:
        profile = profile_of(flags.attnlab, flags.kernel, flags.problems or PROBLEMS)
        rows, failed = compared(flags.attnlab, profile)
        show(rows)
        if not rows:
            raise CannotRun("no call of one launch reads four times what L2 holds", 1 if failed else 2)
        if file:
            json.dump({"machine": profile["machine"], "repetitions": REPETITIONS, "rows": rows}, file, indent=1)
    return 0 if not failed and all(abs(r["read_difference"]) <= flags.within for r in rows) else 1


def main(arguments=None):
    try:
        return agreement(parsed(arguments))
    except CannotRun as error:
        print(f"ncu_agreement: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
