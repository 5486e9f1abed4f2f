"""Turns compile actions, as printed by `bazel aquery --output=jsonproto`, into
compile_commands.json.

    bazel aquery --output=jsonproto 'mnemonic("CppCompile|CudaCompile", //...)' |
        python3 tools/dev/compile_commands.py --workspace=DIR --execution_root=DIR [--clangd=FILE]
"""

import argparse
import json
import os
import re
import subprocess
import sys

# Options with a value that nvcc and clang share.
_SAME_WITH_VALUE = {"-I", "-isystem"}

# Options of gcc that clang does not have.
_GCC_ONLY = {"-fno-canonical-system-headers"}


def locate(argument, workspace, execution_root):
    """Turns a path in the execution root into one that also exists from the workspace."""
    match = re.match(r"^(-I|-isystem|-iquote)?(external/.*|bazel-out/.*|\.)$", argument)
    if not match:
        return argument
    option, path = match.group(1) or "", match.group(2)
    if path == ".":
        return option + workspace
    if path.startswith("external/"):
        # The execution root links only what the last build used; the output base has everything.
        return option + os.path.join(os.path.dirname(os.path.dirname(execution_root)), path)
    return option + os.path.join(execution_root, path)


def clang_arch(gencodes, clangd_major):
    """An architecture for clang: the newest among those compiled for that this clang knows."""
    newest = 90 if clangd_major >= 16 else 86
    numbers = [int(n) for g in gencodes for n in re.findall(r"arch=compute_(\d+)", g)]
    known = [n for n in (75, 80, 86, 89, 90) if n <= newest and n <= max(numbers + [75])]
    return "sm_%d" % known[-1]


def from_nvcc(arguments, clangd_major):
    """A clang command for what nvcc compiles, with the same headers, macros and standard."""
    root = os.path.dirname(os.path.dirname(arguments[0]))
    command = ["clang++", "-x", "cuda", "--cuda-path=" + root, "-Wno-unknown-cuda-version"]
    gencodes = []
    position = 1
    while position < len(arguments):
        argument = arguments[position]
        value = arguments[position + 1] if position + 1 < len(arguments) else None
        position += 1
        if argument in _SAME_WITH_VALUE:
            command += [argument, value]
            position += 1
        elif argument == "-Xcompiler":
            command.append(value.replace("\\,", ","))
            position += 1
        elif argument == "-gencode":
            gencodes.append(value)
            position += 1
        elif argument in ("-ccbin", "-o", "-x"):
            position += 1
        elif argument == "-c":
            command += [argument, value]
            position += 1
        elif argument.startswith(("-std=", "-D", "-U", "-I")):
            command.append(argument)
    command.insert(3, "--cuda-gpu-arch=" + clang_arch(gencodes, clangd_major))
    return command


def source_of(arguments):
    return arguments[arguments.index("-c") + 1]


def convert(aquery, workspace, execution_root, clangd_major):
    """The entries of compile_commands.json: one per source, from its first action."""
    entries = {}
    for action in aquery.get("actions", []):
        arguments = action["arguments"]
        if "-c" not in arguments:
            continue
        source = source_of(arguments)
        if source.startswith(("external/", "bazel-out/")) or source in entries:
            continue
        if action["mnemonic"] == "CudaCompile":
            arguments = from_nvcc(arguments, clangd_major)
        entries[source] = {
            "directory": workspace,
            "file": source,
            "arguments": [
                locate(a, workspace, execution_root) for a in arguments if a not in _GCC_ONLY
            ],
        }
    return [entries[source] for source in sorted(entries)]


def clangd_version(clangd):
    if not clangd:
        return 0
    text = subprocess.run([clangd, "--version"], stdout=subprocess.PIPE, check=False).stdout.decode()
    match = re.search(r"version (\d+)", text)
    return int(match.group(1)) if match else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--workspace", required=True)
    parser.add_argument("--execution_root", required=True)
    parser.add_argument("--clangd", default="")
    options = parser.parse_args()
    entries = convert(
        json.load(sys.stdin), options.workspace, options.execution_root, clangd_version(options.clangd)
    )
    json.dump(entries, sys.stdout, indent=1)
    sys.stdout.write("\n")
    return 0 if entries else 1


if __name__ == "__main__":
    sys.exit(main())
