#!/usr/bin/env python3
"""Measures with NVIDIA's ncu how long each step of the baseline takes and what it moves, beside its
model.

    profiling/ncu/ncu_steps.py --attnlab=bazel-bin/tools/attnlab [--json=FILE] [--commit=ID]

Runs one call on GPT-2's layer with a batch of 64, fp32 and packed QKV. (`attnlab profile` counts
whole calls only.)

Exit status: 0; 1 if the call failed or has kernels that are not among the known steps; 2 for bad
arguments and files that cannot be written; 3 without ncu, or if this machine lacks what attnlab
needs.
"""

import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import ncu  # noqa: E402  beside this file, after sys.path, so that it also works in a checkout

METRICS = TIME, READ, WRITTEN = "gpu__time_duration.sum", "dram__bytes_read.sum", "dram__bytes_write.sum"
VERIFY = ["verify", "--kernel=baseline", "--problem=gpt2,b=64", "--layout=qkv"]

# Sizes in bytes for that problem: Q, K, V or O, and S or P.
BATCH, HEADS, LENGTH, DIM, FLOAT = 64, 12, 1024, 64, 4
TENSOR = BATCH * HEADS * LENGTH * DIM * FLOAT
SCORES = BATCH * HEADS * LENGTH * LENGTH * FLOAT

# The name of a step, a part of its kernel's name ("" for cuBLAS, whose names vary), and the bytes
# that it should read and write.
STEPS = [
    ("permute Q", "PermuteKernel", TENSOR, TENSOR),
    ("permute K", "PermuteKernel", TENSOR, TENSOR),
    ("permute V", "PermuteKernel", TENSOR, TENSOR),
    ("S = Q K^T", "", 2 * TENSOR, SCORES),
    ("scale and mask", "ScaleAndMaskKernel", SCORES, SCORES),
    ("softmax", "SoftmaxKernel", SCORES, SCORES),
    ("O = P V", "", SCORES + TENSOR, TENSOR),
    ("permute O", "PermuteKernel", TENSOR, TENSOR),
]


def steps_of(launches):
    """A row for each step of the first call among the launches."""
    rows = []
    for index, (step, part, read, written) in enumerate(STEPS):
        launch = launches[index] if index < len(launches) else {"kernel": "missing"}
        if part not in launch["kernel"] or TIME not in launch:
            raise ncu.CannotRun(f"launch {index + 1}, {step}, must be {part or 'cuBLAS'}, is {launch['kernel']}", 1)
        kernel = launch["kernel"].removeprefix("void ").split("(")[0]
        rows.append({"step": step, "kernel": kernel, "milliseconds": round(1e3 * launch[TIME], 6),
                     "dram_bytes_read": round(launch[READ]), "dram_bytes_written": round(launch[WRITTEN]),
                     "model_bytes_read": read, "model_bytes_written": written})
    return rows


def name_of_gpu(attnlab):
    out = ncu.run([attnlab, "list", "--json"])
    try:
        names = [device["name"] for device in json.loads(out)["devices"] if device["device"] == "cuda:0"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ncu.CannotRun(f"{attnlab} list --json printed no list: {out[:200]!r}", 1) from error
    if not names:
        raise ncu.CannotRun("there is no GPU here")
    return names[0]


def show(rows):
    print("| step | ms | read, MB | model | written, MB | model |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        sizes = (row[key] * 1e-6 for key in ("dram_bytes_read", "model_bytes_read", "dram_bytes_written", "model_bytes_written"))
        print(f"| {row['step']} | {row['milliseconds']:.3f} | " + " | ".join(f"{size:.1f}" for size in sizes) + " |")


def parsed(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attnlab", required=True, metavar="FILE", help="the attnlab to run")
    parser.add_argument("--json", metavar="FILE", help="write the steps as JSON, too")
    parser.add_argument("--commit", metavar="ID", default=os.environ.get("ATTNLAB_COMMIT", ""),
                        help="commit to record in the JSON [$ATTNLAB_COMMIT]")
    return parser.parse_args(arguments)


def measure(flags):
    """Returns the exit status."""
    ncu.check_there()
    with ncu.replacing(flags.json) as file:
        gpu = name_of_gpu(flags.attnlab)
        command = ["ncu", "--csv", "--clock-control", "none", "--launch-count", str(len(STEPS)),
                   "--metrics", ",".join(METRICS)]
        rows = steps_of(ncu.launches(ncu.run([*command, flags.attnlab, *VERIFY]), METRICS))
        show(rows)
        if file:
            said = " ".join([*command, "attnlab", *VERIFY])
            json.dump({"gpu": gpu, "commit": flags.commit, "command": said, "steps": rows}, file, indent=1)
    return 0


def main(arguments=None):
    return ncu.ended("ncu_steps", lambda: measure(parsed(arguments)))


if __name__ == "__main__":
    sys.exit(main())
