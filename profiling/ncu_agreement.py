#!/usr/bin/env python3
"""Whether `attnlab profile` and NVIDIA's ncu count the same bytes of HBM.

    profiling/ncu_agreement.py --attnlab=bazel-bin/tools/attnlab [--json=FILE] [--within=0.02] [PROBLEM ...]

Of each kernel whose call is one launch, medians of five: attnlab's beside those of ncu, which flushes
caches before each launch as well. Problems move at least four times what L2 holds. Exit status: 0; 1
where reads differ by more than --within; 2 for what cannot be run.
"""

import argparse
import csv
import io
import json
import re
import statistics
import subprocess
import sys

REPETITIONS = 5
METRICS = {"read": "dram__bytes_read.sum", "written": "dram__bytes_write.sum"}
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
PROBLEMS = [
    "b=4,hq=32,hkv=32,sq=4096,skv=4096,d=128,dtype=bf16,mask=none",
    "b=16,hq=32,hkv=32,sq=1024,skv=1024,d=128,dtype=bf16,mask=causal",
    "b=8,hq=32,hkv=32,sq=2048,skv=2048,d=64,dtype=fp32,mask=causal",
    "b=64,hq=32,hkv=32,sq=1,skv=4096,d=64,dtype=bf16,mask=none",
]


def run(command):
    """The standard output of a command that has to succeed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{command[0]}: {done.stderr.strip() or done.stdout.strip()}", file=sys.stderr)
        sys.exit(2)
    return done.stdout


def ncu_bytes(attnlab, row):
    """Medians by ncu of the kernel of a row of `attnlab profile`."""
    out = run(["ncu", "--csv", "--clock-control", "none", "--metrics", ",".join(METRICS.values()), "--launch-count",
               str(REPETITIONS), "-k", f"regex:^{re.escape(row['launches'][0]['kernel'])}$", attnlab, "bench",
               "--verify=false", "--device=cuda:0", "--seconds=0.001", f"--repetitions={REPETITIONS}",
               f"--kernel={row['kernel']}", f"--problem={row['problem']}"])
    counted = {name: [] for name in METRICS}
    table = out[out.index('"ID"'):]
    for line in csv.DictReader(io.StringIO(table)):
        for name, metric in METRICS.items():
            if line["Metric Name"] == metric:
                counted[name].append(float(line["Metric Value"].replace(",", "")) * UNITS[line["Metric Unit"]])
    return {name: statistics.median(values) for name, values in counted.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnlab", required=True)
    parser.add_argument("--kernel", default="fa1,fa2")
    parser.add_argument("--json")
    parser.add_argument("--within", type=float, default=0.02)
    parser.add_argument("problems", nargs="*")
    flags = parser.parse_args()
    profile = json.loads(run([flags.attnlab, "profile", "--json", "--verify=false", "--ceilings=none",
                              f"--repetitions={REPETITIONS}", f"--kernel={flags.kernel}"] +
                             [f"--problem={p}" for p in flags.problems or PROBLEMS]))
    l2 = profile["machine"]["last_level_cache_bytes"]
    rows = []
    for row in profile["rows"]:
        if len(row["launches"]) != 1 or row["counted"]["hbm_bytes_read"] < 4 * l2:
            continue
        ncu = ncu_bytes(flags.attnlab, row)
        ours = row["counted"]
        rows.append({"problem": row["problem"], "kernel": row["kernel"], "launch": row["launches"][0]["kernel"],
                     "read": ours["hbm_bytes_read"], "ncu_read": ncu["read"],
                     "read_difference": ours["hbm_bytes_read"] / ncu["read"] - 1,
                     "written": ours["hbm_bytes_written"], "ncu_written": ncu["written"]})
    print("| problem | kernel | read, MB | ncu | differs by | written, MB | ncu |")
    print("|---|---|---|---|---|---|---|")
    for r in rows:
        print(f"| `{r['problem']}` | {r['kernel']} | {r['read'] / 1e6:.2f} | {r['ncu_read'] / 1e6:.2f} | "
              f"{100 * r['read_difference']:+.2f} % | {r['written'] / 1e6:.2f} | {r['ncu_written'] / 1e6:.2f} |")
    if flags.json:
        with open(flags.json, "w", encoding="utf-8") as file:
            json.dump({"machine": profile["machine"], "repetitions": REPETITIONS, "rows": rows}, file, indent=1)
    if not rows:
        print("no call of one launch reads four times what L2 holds", file=sys.stderr)
        return 2
    return 0 if all(abs(r["read_difference"]) <= flags.within for r in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
