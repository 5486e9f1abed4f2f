#!/usr/bin/env python3
"""Compares `attnlab run` with NumPy in double precision, on files that NumPy wrote.

    pip install -r tools/requirements.txt
    ./bazelw build //tools:attnlab
    tools/check_against_numpy.py --count=200

Makes random inputs (shapes, layouts, dtypes, masks, scales, softcaps, grouped heads, varying
lengths, with and without a batch axis), runs the command on them, and compares O and LSE. Needs
NumPy; bf16 also needs ml_dtypes, and is left out without it. Exit status: 0 if all agree; 1
otherwise, with the seed and the command of each disagreement; 2 if something is not installed or
not built.
"""

import argparse
import pathlib
import shlex
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as error:
    print(f"{sys.argv[0]}: {error}; pip install -r tools/requirements.txt", file=sys.stderr)
    sys.exit(2)

import numpy_attention

try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10, "bf16": 2.0**-7}


def choose(rng, options):
    return options[rng.integers(len(options))]


def lengths(rng, batch, longest):
    """Sequence lengths: short, long, and in between."""
    return np.array(
        [choose(rng, [0, 1, longest, int(rng.integers(longest + 1))]) for _ in range(batch)]
    )


class Case:
    """A random call and its expected results."""

    def __init__(self, seed, directory):
        rng = self.rng = np.random.default_rng(seed)
        self.directory = directory
        self.flags = []
        self.options = {}
        self.dtype = choose(rng, ["fp32", "fp16", "fp64"] + (["bf16"] if ml_dtypes else []))
        self.packed_qkv = rng.random() < 0.25
        kind = choose(rng, ["fixed", "fixed", "padded", "packed"])

        batch = int(rng.integers(1, 4))
        self.kv_heads = int(rng.integers(1, 4))
        self.heads = self.kv_heads * (1 if self.packed_qkv else choose(rng, [1, 2, 4]))
        self.dim = choose(rng, [1, 8, 33, 64, 80, 128])
        self.v_dim = self.dim if self.packed_qkv or rng.random() < 0.7 else choose(rng, [1, 16, 64])
        sizes = [1, 2, 17, 64, 100, 129]
        sq = choose(rng, sizes)
        skv = sq if self.packed_qkv or rng.random() < 0.3 else choose(rng, sizes)
        mask = choose(rng, ["none", "causal", f"window:{rng.integers(70)}:{rng.integers(9)}"])
        if mask != "none" or rng.random() < 0.5:
            self.flags.append(f"--mask={mask}")
        self.options["mask"] = mask
        if rng.random() < 0.3:
            self.option("scale", round(float(rng.random()), 3))
        if rng.random() < 0.3:
            self.option("softcap", round(float(rng.random()) * 20 + 1, 3))

        if kind == "packed":
            q_len = lengths(rng, batch, sq)
            kv_len = q_len if self.packed_qkv else lengths(rng, batch, skv)
            ends_q, ends_kv = (np.concatenate([[0], np.cumsum(n)]) for n in (q_len, kv_len))
            spare = int(rng.integers(3))  # tokens after the last sequence
            q, k, v = self.tensors(1, ends_q[-1] + spare, ends_kv[-1] + spare)
            self.save_lengths("cu_seqlens_q", ends_q)
            self.save_lengths("cu_seqlens_kv", ends_kv)
            o, lse = numpy_attention.packed(q[0], k[0], v[0], ends_q, ends_kv, **self.options)
            o, lse = o[None], lse[None]
        else:
            q, k, v = self.tensors(batch, sq, skv)
            q_len = kv_len = None
            if kind == "padded":
                kv_len = lengths(rng, batch, skv)
                self.save_lengths("kv_len", kv_len)
                if rng.random() < 0.5:
                    q_len = lengths(rng, batch, sq)
                    self.save_lengths("q_len", q_len)
            o, lse = numpy_attention.padded(q, k, v, q_len, kv_len, **self.options)

        batch_axis = q.shape[0] > 1 or rng.random() < 0.5
        layout = choose(rng, ["bshd", "bhsd"])
        if self.packed_qkv:
            layout = "bshd"
            self.save("qkv", np.stack([q, k, v], axis=2), batch_axis)
        else:
            if layout == "bhsd" or rng.random() < 0.5:
                self.flags.append(f"--layout={layout}")
            for name, x in (("q", q), ("k", k), ("v", v)):
                self.save(name, x.swapaxes(1, 2) if layout == "bhsd" else x, batch_axis)
        o = o.swapaxes(1, 2) if layout == "bhsd" else o
        self.o, self.lse = (o, lse) if batch_axis else (o[0], lse[0])
        compute = "fp32" if self.dtype == "fp64" else self.dtype
        self.o_bound, self.lse_bound = numpy_attention.bounds(EPSILON[compute], v, lse)

    def option(self, name, value):
        self.options[name] = value
        self.flags.append(f"--{name}={value}")

    def numpy_dtype(self):
        return ml_dtypes.bfloat16 if self.dtype == "bf16" else {
            "fp32": np.float32, "fp16": np.float16, "fp64": np.float64}[self.dtype]

    def tensors(self, batch, sq, skv):
        shapes = [(sq, self.heads, self.dim), (skv, self.kv_heads, self.dim),
                  (skv, self.kv_heads, self.v_dim)]
        return [self.rng.standard_normal((batch, *s)).astype(self.numpy_dtype()) for s in shapes]

    def save(self, name, x, batch_axis):
        np.save(self.directory / f"{name}.npy", np.ascontiguousarray(x if batch_axis else x[0]))
        self.flags.append(f"--{name}={self.directory / name}.npy")

    def save_lengths(self, name, values):
        np.save(self.directory / f"{name}.npy", values.astype(choose(self.rng, [np.int32, np.int64])))
        self.flags.append(f"--{name}={self.directory / name}.npy")

    def load_o(self):
        o = np.load(self.directory / "o.npy")
        return o.view(ml_dtypes.bfloat16).astype(np.float64) if o.dtype == "V2" else o


def compare(name, got, want, bound):
    """A line on what is wrong, or None."""
    if got.shape != want.shape:
        return f"{name}: shape is {got.shape}, must be {want.shape}"
    if not np.array_equal(np.isinf(got), np.isinf(want)) or np.isnan(got).any():
        return f"{name}: NaN, or infinities out of place"
    finite = np.isfinite(want)
    error = np.abs(got[finite].astype(np.float64) - want[finite]).max(initial=0.0)
    return None if error <= bound else f"{name}: error {error:.3g} is above {bound:.3g}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--attnlab", default=str(root / "bazel-bin/tools/attnlab"),
                        help="the command (default: %(default)s)")
    parser.add_argument("--count", type=int, default=100, help="cases (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--flag", action="append", default=[],
                        help="passed to every call, such as --flag=--kernel=cpu")
    args = parser.parse_args()

    if not shutil.which(args.attnlab):
        parser.exit(2, f"{sys.argv[0]}: no {args.attnlab}; ./bazelw build //tools:attnlab\n")

    failures = 0
    worst = {}
    with tempfile.TemporaryDirectory(prefix="check against numpy ") as name:
        for seed in range(args.seed, args.seed + args.count):
            directory = pathlib.Path(name) / str(seed)
            directory.mkdir()
            case = Case(seed, directory)
            command = [args.attnlab, "run", *case.flags, f"--out={directory / 'o.npy'}",
                       f"--lse={directory / 'lse.npy'}", *args.flag]
            result = subprocess.run(command, capture_output=True, text=True, timeout=300)
            if result.returncode != 0:
                problem = f"exit code {result.returncode}: {result.stderr.strip()}"
            else:
                o, lse = case.load_o(), np.load(directory / "lse.npy")
                problem = compare("O", o, case.o, case.o_bound)
                problem = problem or compare("LSE", lse, case.lse, case.lse_bound)
                if not problem and case.o.size and case.o_bound:
                    share = np.abs(o - case.o).max() / case.o_bound
                    worst[case.dtype] = max(worst.get(case.dtype, 0.0), share)
            if problem:
                failures += 1
                print(f"seed {seed}: {problem}\n  {shlex.join(command)}", file=sys.stderr)
    shares = ", ".join(f"{dtype} {share:.2f}" for dtype, share in sorted(worst.items()))
    print(f"{args.count - failures} of {args.count} agree with NumPy; "
          f"largest error of O as a share of its bound: {shares}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
