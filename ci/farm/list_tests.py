"""Writes gpu_tests.bzl, which names all tests of one GPU and the GPUs that each may run on. Those that need a tool
which not every toolkit has are apart.

    python3 ci/farm/list_tests.py            writes it anew
    python3 ci/farm/list_tests.py --check    changes nothing; exits with 1 if it is out of date

Bazel cannot depend on "all tests", so bundle.bzl needs the list.
"""

import argparse
import os
import re
import subprocess
import sys

TOOLS = ("compute_sanitizer", "cuda_gdb")
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tools", "python"))

import whole_file  # noqa: E402

FILE = os.path.join(ROOT, "ci", "farm", "gpu_tests.bzl")
# Without the package that loads gpu_tests.bzl.
QUERY = ["./bazelw", "query", "--noshow_progress", "--ui_event_filters=-info,-warning", "--output=build",
         "--deleted_packages=ci/farm",
         r'attr(tags, "\bgpu\b", kind("program_test rule", //...))']  # fmt: skip


def parse(text):
    """{tool or "": {label: capabilities}} of `bazel query --output=build`."""
    # Under compute-sanitizer tests take longest. A bundle's come in this order, and the longest should come first.
    tests = {tool: {} for tool in (*TOOLS, "")}
    for rule in re.split(r"^# (?=\S+BUILD:\d+:\d+$)", text, flags=re.MULTILINE)[1:]:
        if '"ATTNLAB_GPUS": "1"' not in rule:  # several GPUs, which a host may not have
            continue
        package = os.path.dirname(os.path.relpath(rule.split(":", 1)[0], ROOT))
        name = re.search(r'^  name = "([^"]+)"', rule, re.MULTILINE).group(1)
        compatible = re.search(r"^  target_compatible_with = (.*),$", rule, re.MULTILINE).group(1)
        gpus = [int(gpu) for gpu in re.findall(r'"//ci:is_sm_(\d+)": \[\]', compatible)]
        tool = ([tool for tool in TOOLS if '"@local_cuda//:%s"' % tool in rule] + [""])[0]
        tests[tool]["//%s:%s" % (package, name)] = gpus
    return tests


def source(tests):
    lines = ['"""All GPU tests, and the GPUs that they may run on: made by list_tests.py."""']
    lines += ["", "# By the tool of the toolkit that they need."]
    lines += ["GPU_TESTS = {"]
    for tool, some in tests.items():
        lines += ['    "%s": {' % tool]
        lines += ['        "%s": %s,' % (label, some[label]) for label in sorted(some)] + ["    },"]
    lines += ["}"]
    return "\n".join(lines) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 if the list is out of date")
    check = parser.parse_args(argv).check
    done = subprocess.run(QUERY, cwd=ROOT, stdout=subprocess.PIPE, check=True, universal_newlines=True)
    wanted = source(parse(done.stdout))
    if check:
        try:
            with open(FILE, encoding="utf-8") as f:
                there = f.read()
        except OSError:
            there = ""
        if there != wanted:
            print("ci/farm/gpu_tests.bzl is out of date; run: python3 ci/farm/list_tests.py", file=sys.stderr)
            return 1
        return 0
    with whole_file.replacing(FILE) as f:
        f.write(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
