"""Runs a test under a tool of compute-sanitizer and judges the tool's report.

    sanitizer.py --tool=racecheck --sanitizer=COMPUTE_SANITIZER --known=sanitizer_known.ini
                 --planted=PROGRAM -- TEST ARGUMENT...

It first runs the tool on the program with planted bugs (//ci/debugging). The test fails
  - if the tool does not find its planted bug: it then does not see what kernels do on this machine, and a
    clean report would mean nothing;
  - if TEST fails, runs no case, or never initialises CUDA;
  - if the tool has a finding that is not a known false one, more of them than are known, or more findings
    than it prints.

Known false findings are entries of an INI file, which describes them and their causes; see
sanitizer_known.ini. The test prints which entries matched.

    sanitizer.py --known=FILE --unused=DIRECTORY

lists entries that no test.log below the directory (bazel-testlogs) mentions; remove those.
"""

import argparse
import collections
import configparser
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

TOOLS = ("memcheck", "initcheck", "racecheck", "synccheck")
FOUND = 42  # exit code of the tool if it found something
# The tool waits so long until the program has connected to it. By default 10, after which it waits for a
# program that waits for it, and a loaded machine can need more.
LAUNCH_SECONDS = "120"

# The bug of //ci/debugging:planted that each tool has to find first.
PLANTED = {
    "memcheck": "out_of_bounds",
    "initcheck": "uninitialized",
    "racecheck": "missing_barrier",
    "synccheck": "warp_mask",
}

# OPTIONS exist in every version; OPTIONS_OF_SOME are used if the version has them.
OPTIONS = {
    "memcheck": ["--leak-check", "full", "--padding", "512"],
    "initcheck": [],
    "racecheck": ["--racecheck-report", "all"],
    "synccheck": [],
}
OPTIONS_OF_SOME = {"initcheck": ["--initcheck-address-space", "all"]}

# An unindented line of a report begins a finding, unless it matches this.
NOT_FINDINGS = re.compile(
    r"COMPUTE-SANITIZER|ERROR SUMMARY:|LEAK SUMMARY:|RACECHECK SUMMARY:|"
    r"Target application returned an error"
)
SUMMARY = re.compile(r"ERROR SUMMARY: ([\d,]+) error|RACECHECK SUMMARY: ([\d,]+) hazard")
# If the tool found something, the exit code is the tool's, so only this text tells that the test
# failed.
TEST_FAILED = "Target application returned an error"
NOT_PRINTED = re.compile(r"([\d,]+) errors? (?:was|were) not printed")

Known = collections.namedtuple("Known", "name tool kernel report most cause")
FIELDS = ("tool", "kernel", "report", "most", "cause")


class Fault(Exception):
    """Why the test fails."""


def read_known(path):
    """Reads a file of known false findings. Fault if an entry has missing or unknown fields."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        with open(path, encoding="utf-8") as f:
            parser.read_file(f)
    except (OSError, configparser.Error) as error:
        raise Fault("%s: %s" % (path, error)) from None
    entries = []
    for name in parser.sections():
        fields = dict(parser[name])
        if set(fields) != set(FIELDS):
            message = "%s: [%s] has %s; must have %s" % (path, name, ", ".join(sorted(fields)), ", ".join(FIELDS))
            raise Fault(message)
        for field, value in fields.items():
            if not value.strip():
                raise Fault("%s: [%s]: %s is empty" % (path, name, field))
        if fields["tool"] not in TOOLS:
            raise Fault("%s: [%s]: tool: %s is not one of %s" % (path, name, fields["tool"], ", ".join(TOOLS)))
        try:
            patterns = [re.compile(fields[f]) for f in ("kernel", "report")]
        except re.error as error:
            raise Fault("%s: [%s]: %s is not a regular expression: %s" % (path, name, error.pattern, error)) from None
        if any(p.search("") for p in patterns):
            raise Fault("%s: [%s]: a pattern matches everything" % (path, name))
        if not re.fullmatch(r"[1-9]\d{0,5}", fields["most"]):
            raise Fault("%s: [%s]: most: %s is not a number from 1 on" % (path, name, fields["most"]))
        entries.append(Known(name, fields["tool"], patterns[0], patterns[1], int(fields["most"]), fields["cause"]))
    return entries


def findings_of(report):
    """The findings of a report: for each, its lines without the tool's margin."""
    findings, current = [], None
    for line in report.splitlines():
        if not line.startswith("========="):
            continue
        text = line[len("=========") :]
        if not text.strip():
            current = None
        elif text.startswith("     ") or text.startswith("\t"):
            if current is not None:
                current.append(text.strip())
        else:
            current = None
            if not NOT_FINDINGS.match(text.strip()) and not NOT_PRINTED.search(text):
                current = [text.strip()]
                findings.append(current)
    return findings


def counted(report):
    """The number of findings in the tool's own summary, or None if there is no summary."""
    total = None
    for match in SUMMARY.finditer(report):
        total = (total or 0) + int((match.group(1) or match.group(2)).replace(",", ""))
    return total


def matches(entry, tool, finding):
    return (
        entry.tool == tool
        and entry.report.search(finding[0]) is not None
        and any(entry.kernel.search(line) for line in finding)
    )


def judge(tool, report, exit_code, known):
    """(faults, counts by entry). Faults are unknown findings, and anything else wrong with the
    report."""
    faults, used = [], collections.Counter()
    findings = findings_of(report)
    unknown = []
    for finding in findings:
        entry = next((e for e in known if matches(e, tool, finding)), None)
        if entry is None:
            unknown.append(finding)
        else:
            used[entry.name] += 1
    if unknown:
        faults.append("%s has %d new finding(s), the first: %s" % (tool, len(unknown), " | ".join(unknown[0][:3])))
    for entry in known:
        if used[entry.name] > entry.most:
            faults.append("[%s] matches %d times, more than %d" % (entry.name, used[entry.name], entry.most))
    missing = NOT_PRINTED.search(report)
    if missing:
        faults.append("%s did not print %s of its findings" % (tool, missing.group(1)))
    total = counted(report)
    if total is None:
        faults.append("the report of %s has no summary" % tool)
    elif total > 0 and not findings:
        faults.append("%s counts %d finding(s), but its report has none that can be read" % (tool, total))
    if exit_code not in (0, FOUND):
        faults.append("exit code %d" % exit_code)
    elif TEST_FAILED in report:
        faults.append("the test fails")
    elif exit_code == FOUND and not findings:
        faults.append("%s found something, by its exit code" % tool)
    return faults, used


def cases_run(path):
    """How many cases of a test.xml ran and were not skipped."""
    cases = ElementTree.parse(path).getroot().iter("testcase")
    return sum(
        1 for c in cases if c.get("status") != "notrun" and c.get("result") != "skipped" and c.find("skipped") is None
    )


class Sanitizer:
    def __init__(self, executable, tool):
        self.executable, self.tool = executable, tool
        said = subprocess.run([executable, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.help = said.stdout

    def options(self):
        extra = OPTIONS_OF_SOME.get(self.tool, [])
        return OPTIONS[self.tool] + (extra if extra and extra[0] in self.help else [])

    def run(self, command, options, quiet=False):
        """Returns (exit code, report)."""
        descriptor, log = tempfile.mkstemp(suffix=".log", dir=os.environ.get("TEST_TMPDIR"))
        os.close(descriptor)
        full = [self.executable, "--tool", self.tool, "--error-exitcode", str(FOUND), "--require-cuda-init", "yes"]
        full += ["--log-file", log, "--print-limit", "1000", "--launch-timeout", LAUNCH_SECONDS] + options + command
        print("$ " + " ".join(full), flush=True)
        output = subprocess.DEVNULL if quiet else None
        done = subprocess.run(full, stdout=output, stderr=output)
        with open(log, encoding="utf-8", errors="replace") as f:
            report = f.read()
        os.remove(log)
        return done.returncode, report


def check_planted(sanitizer, planted):
    bug = PLANTED[sanitizer.tool]
    _, report = sanitizer.run([planted, bug], sanitizer.options(), quiet=True)
    if not any("AttentionRow" in line for finding in findings_of(report) for line in finding):
        print(report)
        raise Fault(
            "%s does not find the planted bug %s: it does not see kernels on this machine" % (sanitizer.tool, bug)
        )


def check_test(sanitizer, command, known):
    exit_code, report = sanitizer.run(command, sanitizer.options())
    print(report, flush=True)
    faults, used = judge(sanitizer.tool, report, exit_code, known)
    for name, count in sorted(used.items()):
        print("known false finding [%s]: %d" % (name, count))
    xml = os.environ.get("XML_OUTPUT_FILE", "")
    if os.path.exists(xml) and cases_run(xml) == 0:
        faults.append("no case of the test ran")
    if faults:
        raise Fault("; ".join(faults))
    print("%s: no new findings" % sanitizer.tool)


def unused(known, directory):
    seen = set()
    for root, _, files in os.walk(directory, followlinks=True):
        for name in files:
            if name == "test.log":
                with open(os.path.join(root, name), encoding="utf-8", errors="replace") as f:
                    seen.update(re.findall(r"^known false finding \[(.*)\]: \d+$", f.read(), re.MULTILINE))
    return [entry for entry in known if entry.name not in seen]


def main(arguments):
    parser = argparse.ArgumentParser(description="Runs a test under compute-sanitizer.")
    parser.add_argument("--tool", choices=TOOLS)
    parser.add_argument("--sanitizer", help="the program compute-sanitizer")
    parser.add_argument("--known", required=True, help="known false findings")
    parser.add_argument("--planted", help="the program with planted bugs")
    parser.add_argument("--unused", help="a directory with test logs")
    parser.add_argument("command", nargs="*", help="the test and its arguments, after --")
    options = parser.parse_args(arguments)
    try:
        known = read_known(options.known)
        if options.unused:
            stale = unused(known, options.unused)
            for entry in stale:
                print("%s: [%s] matched nothing: %s" % (options.known, entry.name, entry.cause))
            return 1 if stale else 0
        if not (options.tool and options.sanitizer and options.planted and options.command):
            parser.error("needs --tool, --sanitizer, --planted and a test, or --unused")
        sanitizer = Sanitizer(options.sanitizer, options.tool)
        check_planted(sanitizer, options.planted)
        check_test(sanitizer, options.command, known)
    except Fault as fault:
        print("FAILED: %s" % fault, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
