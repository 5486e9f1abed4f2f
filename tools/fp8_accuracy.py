#!/usr/bin/env python3
"""Measures the error of fp8 attention, in attnlab and in FlashAttention-3 if it is installed.

    pip install -r tools/requirements.txt
    ./bazelw build //attention:attnlab
    tools/fp8_accuracy.py                                    # on a GPU
    tools/fp8_accuracy.py --device=cpu --s=1024 --heads=4

O of each is compared with attention in double precision over the fp32 numbers that all dtypes are made
from (tools/python/compare/accuracy.py, docs/fp8.md).
"""

import argparse
import contextlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tools" / "python"))


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("b", 1), ("s", 8192), ("heads", 16), ("d", 128), ("seed", 0)):
        parser.add_argument("--" + name, type=int, default=default, help="[%(default)s]")
    parser.add_argument("--device", default="cuda:0", help="[%(default)s]")
    parser.add_argument("--json", help="file for the figures")
    flags = parser.parse_args(argv)
    if min(flags.b, flags.s, flags.heads, flags.d) < 1:
        parser.error("--b, --s, --heads and --d must be at least 1")
    try:
        from compare import accuracy, machine
    except ImportError as error:
        parser.exit(2, f"fp8_accuracy: {error}; pip install -r tools/requirements.txt\n")
    import attnlab
    import whole_file

    fa3 = None
    if flags.device.startswith("cuda"):
        with contextlib.suppress(ImportError):
            from fa3_fwd_interface import flash_attn_func as fa3
    sizes = {name: getattr(flags, name) for name in ("b", "s", "heads", "d")}
    try:
        found = accuracy.measure(**sizes, device=flags.device, seed=flags.seed, fa3=fa3)
    except (attnlab.Error, RuntimeError) as error:
        parser.exit(2, f"fp8_accuracy: {error}\n")
    print(accuracy.table(found))
    if flags.json:
        about = machine.describe(flags.device, 0, ROOT, "libattnlab.so")
        with whole_file.replacing(flags.json) as file:
            json.dump({"machine": about, **sizes, "rows": accuracy.as_json(found)}, file, indent=1)
            file.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
