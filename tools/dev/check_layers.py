"""Checks the layers of docs/architecture.md: dependencies between directories form no cycle.

    python3 tools/dev/check_layers.py        in the workspace, where it runs `./bazelw query`

Fails, and names the cause, if

- directories depend on each other in a cycle,
- a kernel family, one of those that //attention:kernels links, depends on another,
- something other than a test depends on the conformance suite,
- a BUILD file has 300 lines or more.

Tests may depend on anything. Bazel itself ensures that nothing else depends on a testonly target.
"""

import collections
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree

# How many parts of a package's path name its directory: //attention/fa2/x belongs to attention/fa2,
# but //profiling/report to profiling.
DEPTH = {"attention": 2, "ci": 2, "tools": 2}

# Targets that name all families. Each counts as a directory of its own, and so does every alias.
BUNDLES = {"//attention:attnlab", "//attention:kernels"}

KERNELS = "//attention:kernels"
CONFORMANCE = "attention/conformance"
LONGEST_BUILD_FILE = 299

Rule = collections.namedtuple("Rule", "label kind testonly deps")


def read_rules(text):
    """The rules in the output of `bazel query --output=xml`. It claims to be XML 1.1; Python reads
    1.0."""
    rules = []
    for element in ElementTree.fromstring(re.sub(r"^<\?xml.*\?>", "", text)).iter("rule"):
        testonly = any(b.get("name") == "testonly" and b.get("value") == "true" for b in element.iter("boolean"))
        deps = [dep.get("name") for dep in element.iter("rule-input")]
        rules.append(Rule(element.get("name"), element.get("class"), testonly, deps))
    return rules


def is_test(rule):
    return rule.testonly or rule.kind.endswith("_test") or rule.kind == "test_suite"


def directory_of(label, alone=BUNDLES):
    """The directory of a label of this workspace; None for other labels, and for files of the
    root."""
    if not label.startswith("//"):
        return None
    if label in alone:
        return label
    parts = label[2:].partition(":")[0].split("/")
    return "/".join(parts[:DEPTH.get(parts[0], 1)]) or None


def edges_of(rules):
    """{(directory, directory): ["label -> label", ...]} for everything but tests."""
    alone = BUNDLES | {rule.label for rule in rules if rule.kind == "alias"}
    edges = collections.defaultdict(list)
    for rule in rules:
        if is_test(rule):
            continue
        for dep in rule.deps:
            pair = directory_of(rule.label, alone), directory_of(dep, alone)
            if None not in pair and pair[0] != pair[1]:
                edges[pair].append(f"{rule.label} -> {dep}")
    return dict(edges)


def circles(pairs):
    """Sets of directories that depend on each other."""
    after = collections.defaultdict(set)
    for one, other in pairs:
        after[one].add(other)

    def reached(start):
        found, waiting = set(), [start]
        while waiting:
            for other in after[waiting.pop()] - found:
                found.add(other)
                waiting.append(other)
        return found

    reach = {one: reached(one) for one in list(after)}
    return sorted({tuple(sorted(other for other in reach[one] if one in reach.get(other, ())))
                   for one in reach if one in reach[one]})  # fmt: skip


def problems_of(rules):
    edges = edges_of(rules)
    problems = []
    for circle in circles(edges):
        problems.append(f"these directories depend on each other: {', '.join(circle)}")
        for (one, other), labels in sorted(edges.items()):
            if one in circle and other in circle:
                more = f", and {len(labels) - 1} more" if len(labels) > 1 else ""
                problems.append(f"    {one} -> {other}: {labels[0]}{more}")
    families = {other for one, other in edges if one == KERNELS and other.startswith("attention/")}
    for (one, other), labels in sorted(edges.items()):
        if one in families and other in families:
            problems += [f"a family depends on another: {label}" for label in labels]
        if other == CONFORMANCE:
            problems += [f"is not a test, but depends on the conformance suite: {label}" for label in labels]
    return problems


def long_build_files(lines):
    """`lines`: {path: number of lines}."""
    return [f"{path}: {n} lines; a BUILD file has at most {LONGEST_BUILD_FILE}"
            for path, n in sorted(lines.items()) if n > LONGEST_BUILD_FILE]  # fmt: skip


def main():
    query = ["./bazelw", "query", "--noshow_progress", "--ui_event_filters=-info,-warning", "--noimplicit_deps",
             "--output=xml", "//..."]  # fmt: skip
    rules = read_rules(subprocess.run(query, check=True, stdout=subprocess.PIPE, encoding="utf-8").stdout)
    files = {rule.label[2:].partition(":")[0] + "/BUILD" for rule in rules}
    lines = {path: len(pathlib.Path(path).read_text(encoding="utf-8").splitlines()) for path in files if path != "/BUILD"}
    problems = problems_of(rules) + long_build_files(lines)
    for problem in problems:
        print(problem)
    return 1 if problems or not rules else 0


if __name__ == "__main__":
    sys.exit(main())
