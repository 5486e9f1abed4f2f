#!/usr/bin/env python3
"""Times attnlab's kernels beside PyTorch's scaled_dot_product_attention, and beside FlashAttention-3
and FlashInfer where they are installed, in one process.

    pip install -r tools/requirements.txt
    ./bazelw build //attention:attnlab
    tools/compare_torch.py                                      # the suite "cpu", on all cores
    tools/compare_torch.py --suite=fa3-paper --kernel=baseline  # on a GPU, all back ends
    tools/compare_torch.py --suite=gpt2 --kernel=baseline,baseline:softmax=fused --json=r.json

All contenders get the same tensors: random normal, in several sets used in turn, which together are
twice the size of the last-level cache. In each round every contender makes one call, in random
order; the table compares medians over the rounds. Before timing, each output is compared with
double precision on sampled rows, by the rule of docs/numerics.md. An attnlab kernel beyond its
bound is an error; a back end beyond it is a note. A back end that cannot do a case shows "-"; the
reason is below the table and in the JSON. A ratio above 1 means that attnlab is faster; the best is
the fastest of all back ends in that case. FlashInfer compiles its kernels with nvcc at their first
use, which takes a minute.

--timing, on a GPU. device: one call between two events, queued behind other work, so that neither
Python nor launch latency counts. latency: the same on an idle GPU; below about 50 us most of it is
the launch. throughput: calls back to back.

The JSON has the machine, versions, clocks before, during and after (if nvidia-smi exists), and the
commit that git knows, or $ATTNLAB_COMMIT.

Exit status: 0; 1 if an output is wrong, a kernel does no case, or --at_least is not reached; 2 if
something is not installed or not built, or an argument is wrong.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))


def run():
    for argument in sys.argv[1:]:  # before looking for the library
        if argument.startswith("--library="):
            os.environ["ATTNLAB_LIBRARY"] = argument.partition("=")[2]
    try:
        import torch.nn.attention  # noqa: F401
    except ImportError as error:
        print(f"{sys.argv[0]}: {error}; pip install -r tools/requirements.txt", file=sys.stderr)
        return 2
    import attnlab
    from compare.main import main

    try:
        return main(__doc__, sys.argv[1:])
    except attnlab.LibraryNotFound as error:
        print(f"{sys.argv[0]}: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
