#!/usr/bin/env python3
"""Times attnlab's kernels beside PyTorch's scaled_dot_product_attention, in one process.

    pip install -r tools/requirements.txt
    ./bazelw build //attention:attnlab
    tools/compare_torch.py                                      # the suite "cpu", on all cores
    tools/compare_torch.py --suite=fa3-paper --kernel=baseline  # on a GPU, all back ends
    tools/compare_torch.py --suite=gpt2 --kernel=baseline,baseline:softmax=fused --json=r.json

All get the same tensors: random normal, several sets in turn that together are twice what the
last-level cache holds. They take turns in random order, one call each a round; medians over the
rounds are compared. Before anything is timed, each output is held against double precision on
sampled rows, by the rule of docs/numerics.md: an attnlab kernel beyond its bound is an error, a
back end beyond it a note. A back end that cannot do a case is "-", with the reason below the table
and in the JSON. A ratio above 1 means that attnlab is faster.

--timing, on a GPU. device: one call between two events, behind other work, so that neither Python
nor launch latency count. latency: the same on an idle GPU; below some 50 us most of it is the launch.
throughput: calls back to back.

The JSON has the machine, versions, clocks before, during and after (where there is nvidia-smi), and
the commit that git knows, or $ATTNLAB_COMMIT.

Exit status: 0; 1 if an output is wrong, a kernel does no case, or --at_least is not reached; 2 if
something is not installed or not built, or an argument is wrong.
"""

import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "python"))


def run():
    for argument in sys.argv[1:]:  # before the library is looked for
        if argument.startswith("--library="):
            os.environ["ATTNLAB_LIBRARY"] = argument.partition("=")[2]
    try:
        import torch  # noqa: F401
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
