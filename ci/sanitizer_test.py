"""Tests sanitizer.py with a fake compute-sanitizer, a script that writes the report given by the
test."""

import contextlib
import io
import os
import stat
import tempfile
import unittest
from unittest import mock

from ci import sanitizer

HERE = os.path.dirname(os.path.abspath(__file__))

# Runs the program, writes its report to the log, and returns the tool's exit code.
FAKE = """#!/bin/sh
here=$(dirname "$0")
[ "$1" != --help ] || { cat "$here/help"; exit; }
echo "$@" >>"$here/calls"
while [ $# -gt 0 ]; do
  case $1 in
    --log-file) log=$2; shift 2 ;;
    */planted | */test) break ;;
    *) shift ;;
  esac
done
name=$(basename "$1")
cp "$here/$name.report" "$log"
"$@" || exit
exit "$(cat "$here/$name.code")"
"""

RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void AttentionRow<4>(Arguments)+0x1b0 in planted.cu:73
=========     and Read access at void AttentionRow<4>(Arguments)+0x4f0 in planted.cu:84 [1984 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""

CLEAN = """\
========= COMPUTE-SANITIZER
========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)
"""

VENDOR = RACE.replace("AttentionRow<4>", "vendor::gemm").replace("planted", "gemm")

KNOWN = """\
[vendor]
tool = racecheck
kernel = void vendor::gemm
report = ^Error: Race reported
most = 2
cause = Its warps take turns by a counter, which the tool does not see.
"""

LEAK = """\
========= COMPUTE-SANITIZER
========= Leaked 67108864 bytes at 0x7fb2c4000000
=========     Saved host backtrace up to driver entry point at allocation time
=========         Host Frame: cuMemAlloc_v2 [0x32b91f] in libcuda.so.1
=========         Host Frame:  [0x218159] in libcublas.so.13
=========         Host Frame: cublasCreate_v2 [0x169f9c] in libcublas.so.13
=========         Host Frame: Gemm::Make(int, CUstream_st*, void*, long) [0x92fb0] in program
=========
========= LEAK SUMMARY: 67108864 bytes leaked in 1 allocations
========= ERROR SUMMARY: 1 error
"""

XML = '<testsuites><testsuite><testcase name="a" %s/></testsuite></testsuites>'


class SanitizerTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.here = directory.name
        self.write("compute-sanitizer", FAKE, executable=True)
        self.write("help", "--tool --racecheck-report")
        self.write("planted", "#!/bin/sh\n", executable=True)
        self.write("known.ini", KNOWN)
        self.xml = XML % 'status="run"'
        self.set_report("planted", RACE, sanitizer.FOUND)
        self.set_report("test", CLEAN, 0)
        self.make_test(0)

    def path(self, name):
        return os.path.join(self.here, name)

    def write(self, name, text, executable=False):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        if executable:
            os.chmod(self.path(name), stat.S_IRWXU)

    def set_report(self, program, report, code):
        self.write(program + ".report", report)
        self.write(program + ".code", str(code))

    def make_test(self, code):
        self.write("test", '#!/bin/sh\necho "the test says $*"\ncp "%s.in" "$XML_OUTPUT_FILE"\nexit %d\n' % (self.path("xml"), code), True)

    def run_it(self, tool="racecheck"):
        """(exit code, output)"""
        self.write("xml.in", self.xml)
        arguments = ["--tool=" + tool, "--sanitizer=" + self.path("compute-sanitizer")]
        arguments += ["--known=" + self.path("known.ini"), "--planted=" + self.path("planted")]
        arguments += ["--", self.path("test"), "--flag"]
        output = io.StringIO()
        environment = {"XML_OUTPUT_FILE": self.path("xml"), "TEST_TMPDIR": self.here}
        with mock.patch.dict(os.environ, environment), contextlib.redirect_stdout(output):
            code = sanitizer.main(arguments)
        return code, output.getvalue()

    def fails(self, message, **kwargs):
        code, output = self.run_it(**kwargs)
        self.assertEqual(code, 1, output)
        self.assertIn(message, output)

    def test_passes_where_nothing_is_found(self):
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.assertIn("racecheck: no new findings", output)
        with open(self.path("calls"), encoding="utf-8") as f:
            calls = f.read().splitlines()
        self.assertEqual(len(calls), 2)
        self.assertIn("planted missing_barrier", calls[0])
        self.assertIn("--tool racecheck", calls[1])
        self.assertIn("--racecheck-report all", calls[1])
        self.assertTrue(calls[1].endswith("/test --flag"), calls[1])

    def test_fails_for_a_finding(self):
        self.set_report("test", RACE, sanitizer.FOUND)
        self.fails("racecheck has 1 new finding(s), the first: Error: Race reported between Write access at void")

    def test_fails_for_a_finding_whatever_the_exit_code(self):
        self.set_report("test", RACE, 0)
        self.fails("racecheck has 1 new finding(s)")

    def test_fails_where_the_test_does(self):
        self.make_test(3)
        self.fails("exit code 3")

    def test_fails_where_the_tool_is_blind(self):
        self.set_report("planted", CLEAN, 0)
        self.fails("racecheck does not find the planted bug missing_barrier")
        self.set_report("planted", "========= Error: Device not supported\n", 1)
        self.fails("racecheck does not find the planted bug missing_barrier")

    def test_fails_where_no_case_ran(self):
        self.xml = XML % 'status="run" result="skipped"'
        self.fails("no case of the test ran")
        self.xml = XML % 'status="notrun"'
        self.fails("no case of the test ran")

    def test_a_message_of_the_tool_is_a_finding_too(self):
        self.set_report("test", "========= Error: Target application terminated before first instrumented API call\n", 0)
        self.fails("terminated before first instrumented API call")
        self.fails("has no summary")

    def test_fails_where_the_report_says_less_than_it_counts(self):
        self.set_report("test", CLEAN.replace("0 hazards", "2 hazards"), 0)
        self.fails("counts 2 finding(s), but its report has none")
        self.set_report("test", CLEAN, sanitizer.FOUND)
        self.fails("found something, by its exit code")
        self.set_report("test", "", 0)
        self.fails("has no summary")

    def test_a_known_false_finding_passes_and_is_named(self):
        self.set_report("test", VENDOR, sanitizer.FOUND)
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.assertIn("known false finding [vendor]: 1\n", output)

    def test_what_is_known_hides_nothing_else(self):
        self.set_report("test", VENDOR + RACE, sanitizer.FOUND)
        self.fails("racecheck has 1 new finding(s)")
        # The same words from another tool.
        self.set_report("planted", RACE, sanitizer.FOUND)
        self.set_report("test", VENDOR, sanitizer.FOUND)
        self.fails("synccheck has 1 new finding(s)", tool="synccheck")
        self.set_report("test", VENDOR.replace("Error: Race", "Warning: Race"), sanitizer.FOUND)
        self.fails("racecheck has 1 new finding(s)")
        many = VENDOR + "========= ERROR SUMMARY: 7 errors were not printed. Use --print-limit option\n"
        self.set_report("test", many, sanitizer.FOUND)
        self.fails("racecheck did not print 7 of its findings")

    def test_more_than_an_entry_allows_are_something_else(self):
        self.set_report("test", VENDOR + VENDOR, sanitizer.FOUND)
        code, output = self.run_it()
        self.assertEqual(code, 0, output)
        self.set_report("test", VENDOR * 3, sanitizer.FOUND)
        self.fails("[vendor] matches 3 times, more than 2")

    def test_a_known_false_finding_does_not_hide_that_the_test_fails(self):
        self.set_report("test", VENDOR + "========= Target application returned an error\n", sanitizer.FOUND)
        self.fails("FAILED: the test fails")

    def test_a_handle_that_cublas_keeps_is_known_and_a_lost_tensor_is_not(self):
        known = sanitizer.read_known(os.path.join(HERE, "sanitizer_known.ini"))
        faults, used = sanitizer.judge("memcheck", LEAK, sanitizer.FOUND, known)
        self.assertEqual(faults, [])
        self.assertEqual(list(used.values()), [1])
        for old, new in [("cublasCreate_v2", "cudaMalloc"), ("Leaked", "Invalid __global__ read of")]:
            faults, used = sanitizer.judge("memcheck", LEAK.replace(old, new), sanitizer.FOUND, known)
            self.assertTrue(faults, new)
            self.assertFalse(used, new)

    def test_an_option_that_the_version_lacks_is_not_used(self):
        self.set_report("planted", RACE, sanitizer.FOUND)
        for text, used in [("--tool", False), ("--tool --initcheck-address-space", True)]:
            self.write("help", text)
            self.write("calls", "")
            self.run_it(tool="initcheck")
            with open(self.path("calls"), encoding="utf-8") as f:
                self.assertEqual("--initcheck-address-space all" in f.read(), used)

    def test_says_what_is_wrong_with_an_entry(self):
        for old, new, message in [
            ("tool = racecheck", "tool = gdb", "tool: gdb is not one of memcheck"),
            ("cause = Its", "because = Its", "must have tool, kernel, report, most, cause"),
            ("most = 2", "most = 0", "most: 0 is not a number from 1 on"),
            ("most = 2", "most = all", "most: all is not a number from 1 on"),
            ("cause = Its warps take turns by a counter, which the tool does not see.", "cause =", "cause is empty"),
            ("kernel = void", "kernel = (void", "is not a regular expression"),
            ("kernel = void vendor::gemm", "kernel = .*", "a pattern matches everything"),
            ("[vendor]", "vendor", "no section headers"),
        ]:
            self.write("known.ini", KNOWN.replace(old, new))
            self.fails(message)

    def test_lists_entries_that_no_log_speaks_of(self):
        os.mkdir(self.path("logs"))
        arguments = ["--known=" + self.path("known.ini"), "--unused=" + self.path("logs")]
        for text, code in [("x\nknown false finding [vendor]: 3\n", 0), ("known false finding [other]: 3\n", 1)]:
            self.write("logs/test.log", text)
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(sanitizer.main(arguments), code)
            self.assertEqual("[vendor] matched nothing: Its warps" in output.getvalue(), code == 1)

    def test_the_file_in_the_tree_can_be_read(self):
        for entry in sanitizer.read_known(os.path.join(HERE, "sanitizer_known.ini")):
            self.assertGreater(len(entry.cause), 40, entry.name)


if __name__ == "__main__":
    unittest.main()
