#!/usr/bin/env python3
"""Times attnlab beside PyTorch's scaled_dot_product_attention, in one process.

    pip install -r tools/requirements.txt
    ./bazelw build //attention:attnlab
    tools/compare_torch.py                        # the suite "cpu", on all cores
    tools/compare_torch.py --json=ratios.json --rounds=31

Both get the same tensors ([batch, head, sequence, dim], random normal data) and as many threads.
They take turns, one call each a round, so that whatever else the machine does hits both alike;
the medians over the rounds are compared. A pause before each call lets the other's idle threads
stop spinning. Before anything is timed, both outputs are held against double precision on
sampled rows. A ratio above 1 means that attnlab is faster. The JSON names the commit that git
knows, or $ATTNLAB_COMMIT.

Exit status: 0; 1 if an output is wrong, or if --at_least is given and not reached; 2 if something
is not installed or not built.
"""

import argparse
import ctypes
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import time

try:
    import torch
except ImportError as error:
    print(f"{sys.argv[0]}: {error}; pip install -r tools/requirements.txt", file=sys.stderr)
    sys.exit(2)

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Name -> list of (batch, heads, sequence, head dim, causal).
SUITES = {
    "cpu": [
        (1, 1024 // d, s, d, causal)
        for d in (64, 128)
        for causal in (False, True)
        for s in (512, 1024, 2048, 4096)
    ],
}


class _Problem(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_uint64)]
        + [(n, ctypes.c_int64) for n in ("b", "hq", "hkv", "sq", "skv", "d", "dv")]
        + [("dtype", ctypes.c_int32), ("mask", ctypes.c_int32)]
        + [("window_left", ctypes.c_int64), ("window_right", ctypes.c_int64)]
        + [("has_scale", ctypes.c_int32), ("scale", ctypes.c_float), ("softcap", ctypes.c_float)]
        + [("lens", ctypes.c_int32), ("page", ctypes.c_int64)]
    )


class _Tensor(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_uint64)]
        + [(n, ctypes.c_int32) for n in ("dtype", "device_kind", "device_ordinal", "reserved")]
        + [("data", ctypes.c_void_p)]
        + [("shape", ctypes.c_int64 * 4), ("strides", ctypes.c_int64 * 4)]
    )


class _Args(ctypes.Structure):
    _fields_ = (
        [("size", ctypes.c_uint64), ("problem", ctypes.POINTER(_Problem))]
        + [(n, ctypes.POINTER(_Tensor)) for n in ("q", "k", "v", "o", "lse")]
        + [(n, ctypes.c_void_p) for n in ("cu_seqlens_q", "cu_seqlens_kv", "q_len", "kv_len")]
        + [("kernel", ctypes.c_char_p), ("config", ctypes.c_char_p)]
        + [("workspace", ctypes.c_void_p), ("workspace_bytes", ctypes.c_int64)]
        + [("stream", ctypes.c_void_p)]
    )


class Attnlab:
    """The C interface, attention/attention_c.h."""

    def __init__(self, path):
        self._lib = ctypes.CDLL(str(path))
        self._lib.attnlab_last_error.restype = ctypes.c_char_p
        version = self._lib.attnlab_abi_version()
        if version != 1:
            raise RuntimeError(f"{path} has interface version {version}, not 1")

    def _check(self, code):
        if code != 0:
            raise RuntimeError(self._lib.attnlab_last_error().decode())

    def prepare(self, q, k, v, causal, kernel, threads):
        """A function that runs attention on these fp32 tensors [b, h, s, d], and its output."""
        b, h, s, d = q.shape
        problem = _Problem(
            size=ctypes.sizeof(_Problem), b=b, hq=h, hkv=k.shape[1], sq=s, skv=k.shape[2],
            d=d, dv=v.shape[3], mask=int(causal),
        )  # fmt: skip
        out = torch.full((b, h, s, v.shape[3]), float("nan"))

        def view(t):
            # The views' axes are batch, sequence, head, dim, whatever the order in memory.
            t = t.transpose(1, 2)
            return _Tensor(
                size=ctypes.sizeof(_Tensor), data=t.data_ptr(),
                shape=(ctypes.c_int64 * 4)(*t.shape), strides=(ctypes.c_int64 * 4)(*t.stride()),
            )  # fmt: skip

        views = [view(t) for t in (q, k, v, out)]
        args = _Args(
            ctypes.sizeof(_Args), ctypes.pointer(problem), *map(ctypes.pointer, views)
        )
        args.kernel = kernel.encode()
        if kernel == "cpu":
            args.config = f"threads={threads}".encode()
        needed = ctypes.c_int64()
        self._check(self._lib.attnlab_workspace_bytes(ctypes.byref(args), ctypes.byref(needed)))
        workspace = ctypes.create_string_buffer(needed.value + 256)
        address = ctypes.addressof(workspace)
        args.workspace = address + -address % 256
        args.workspace_bytes = needed.value
        keep = (problem, views, workspace, q, k, v, out)

        def run():
            self._check(self._lib.attnlab_forward(ctypes.byref(args)))
            return keep[-1]

        return run


def sampled_error(out, q, k, v, causal, rows=64):
    """The largest error on sampled rows of every head, against double precision."""
    s = q.shape[2]
    index = torch.linspace(0, s - 1, min(rows, s)).long().unique()
    scores = q[:, :, index].double() @ k.double().transpose(2, 3) / math.sqrt(q.shape[3])
    if causal:
        scores.masked_fill_(torch.arange(k.shape[2]) > index[:, None], float("-inf"))
    exact = torch.softmax(scores, -1) @ v.double()
    difference = (out[:, :, index].double() - exact).abs()
    return float("inf") if difference.isnan().any() else float(difference.max())


def timed(function):
    time.sleep(0.01)
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(attnlab, case, options):
    b, h, s, d, causal = case
    generator = torch.Generator().manual_seed(options.seed)
    q, k, v = (torch.randn(b, h, s, d, generator=generator) for _ in range(3))
    ours = attnlab.prepare(q, k, v, causal, options.kernel, options.threads)

    def theirs():
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)

    errors = [sampled_error(f(), q, k, v, causal) for f in (ours, theirs)]
    for f in (ours, theirs):
        timed(f)  # warm up
    samples = []
    for i in range(options.rounds):  # each goes first every other round
        first, second = (ours, theirs) if i % 2 == 0 else (theirs, ours)
        pair = timed(first), timed(second)
        samples.append(pair if i % 2 == 0 else pair[::-1])
    ours_s, theirs_s = (statistics.median(column) for column in zip(*samples))
    pairs = s * (s + 1) // 2 if causal else s * s
    return {
        "problem": f"b={b},hq={h},hkv={h},sq={s},skv={s},d={d},dtype=fp32,"
        f"mask={'causal' if causal else 'none'}",
        "attnlab_ms": ours_s * 1e3,
        "torch_ms": theirs_s * 1e3,
        "attnlab_gflops": 4e-9 * b * h * d * pairs / ours_s,
        "torch_gflops": 4e-9 * b * h * d * pairs / theirs_s,
        "ratio": theirs_s / ours_s,
        "attnlab_error": errors[0],
        "torch_error": errors[1],
    }


def machine(options):
    names = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line]
    git = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    commit = os.environ.get("ATTNLAB_COMMIT") or (git.stdout.strip() if not git.returncode else "")
    return {
        "cpu": names[0] if names else "unknown",
        "threads": options.threads,
        "torch": torch.__version__,
        "torch_cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "rounds": options.rounds,
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--suite", choices=sorted(SUITES), default="cpu")
    parser.add_argument("--library", default=ROOT / "bazel-bin/attention/libattnlab.so")
    parser.add_argument("--kernel", default="cpu", help="the kernel of attnlab")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rounds", type=int, default=15, help="timed calls of each")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="writes the figures here")
    parser.add_argument("--at_least", type=float, help="the geometric mean that is asked for")
    options = parser.parse_args()
    if options.threads < 1 or options.rounds < 1:
        parser.error("--threads and --rounds must be at least 1")

    if not os.path.exists(options.library):
        parser.exit(
            2, f"{sys.argv[0]}: no {options.library}; ./bazelw build //attention:attnlab\n"
        )

    torch.set_num_threads(options.threads)
    attnlab = Attnlab(options.library)
    header = machine(options)
    print(", ".join(f"{key} {value}" for key, value in header.items()))
    print("\n| problem | attnlab ms | PyTorch ms | attnlab GFLOP/s | PyTorch GFLOP/s | ratio |")
    print("|---|---|---|---|---|---|")
    rows = []
    wrong = 0
    for case in SUITES[options.suite]:
        row = compare(attnlab, case, options)
        rows.append(row)
        print(
            f"| {row['problem']} | {row['attnlab_ms']:.2f} | {row['torch_ms']:.2f} "
            f"| {row['attnlab_gflops']:.0f} | {row['torch_gflops']:.0f} | {row['ratio']:.2f} |",
            flush=True,
        )
        # Both sum in fp32: attnlab may err twice as much as PyTorch, and by a floor.
        if not row["attnlab_error"] <= 2 * row["torch_error"] + 1e-6:
            print(f"WRONG: error {row['attnlab_error']:.2g}, PyTorch's {row['torch_error']:.2g}")
            wrong += 1
    ratios = [row["ratio"] for row in rows]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"\ngeometric mean {mean:.3f}, worst {min(ratios):.3f}")
    if options.json:
        temporary = pathlib.Path(options.json + ".tmp")
        result = {"machine": header, "geometric_mean": mean, "worst": min(ratios), "rows": rows}
        temporary.write_text(json.dumps(result, indent=1) + "\n")
        temporary.replace(options.json)
    return 1 if wrong or (options.at_least and mean < options.at_least) else 0


if __name__ == "__main__":
    sys.exit(main())
