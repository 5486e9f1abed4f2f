"""sessions.py accepts the output in docs/debugging.md, and page.py only shortens output."""

import os
import re
import tempfile
import unittest

from ci.debugging import page, sessions

PAGE = os.path.join(sessions.HERE, "..", "..", "docs", "debugging.md")

REPORT = """\
$ compute-sanitizer --tool memcheck planted x
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at float4 attnlab::debugging::<unnamed>::LoadKey<(attnlab::debugging::Bug)1>(int)+0xc60 in planted.cu:44
=========     by thread (96,0,0) in block (2,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: main [0x9117] in planted
=========\x20
========= Invalid __global__ read of size 4 bytes
=========     at float4 attnlab::debugging::<unnamed>::LoadKey<(attnlab::debugging::Bug)1>(int)+0xc60 in planted.cu:44
=========     by thread (97,0,0) in block (2,0,0)
=========\x20
========= Program hit cudaErrorLaunchFailure (error 719)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========\x20
o: 0 of 320 elements are wrong
========= ERROR SUMMARY: 3 errors
(exit code 42)
"""

SHORT = """\
$ compute-sanitizer --tool memcheck planted x
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at float4 LoadKey<(Bug)1>(int)+0xc60 in planted.cu:44
=========     by thread (96,0,0) in block (2,0,0)
…
========= Program hit cudaErrorLaunchFailure (error 719)
o: 0 of 320 elements are wrong
========= ERROR SUMMARY: 3 errors
(exit code 42)
"""

RACE = """\
========= Error: Race reported between Write access at void F(Arguments)+0xd80 in planted.cu:68
=========     and Read access at void F(Arguments)+0x1410 in planted.cu:79 [1648 hazards]
=========     and Read access at void F(Arguments)+0x14d0 in planted.cu:79 [1920 hazards]
=========     and Read access at void F(Arguments)+0x1560 in planted.cu:79 [1920 hazards]
=========\x20
========= Error: Race reported between Write access at void F(Arguments)+0xf90 in planted.cu:68
=========     and Read access at void F(Arguments)+0x1410 in planted.cu:79 [1648 hazards]
=========\x20
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""

SHORT_RACE = """\
========= Error: Race reported between Write access at void F(Arguments)+0xd80 in planted.cu:68
=========     and Read access at void F(Arguments)+0x1410 in planted.cu:79 [1648 hazards]
=========     …
…
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""


class PageTest(unittest.TestCase):
    def test_the_page_has_what_the_sessions_want(self):
        steps = {step.name: step for steps in sessions.SESSIONS.values() for step in steps}
        with open(PAGE, encoding="utf-8") as f:
            text = f.read()
        blocks = page.blocks(text)
        self.assertEqual(text.count("<!-- output:"), len(blocks))
        self.assertGreaterEqual(len(blocks), 10)
        for name, block in blocks:
            self.assertIn(name, steps)
            self.assertTrue(block, "%s: no output" % name)
            exit_code = int(re.search(r"^\(exit code (\d+)\)$", block, re.MULTILINE).group(1))
            # The output has line numbers of planted.cu, so it must come from the current
            # planted.cu.
            self.assertEqual(sessions.faults(steps[name], exit_code, block), [])

    def test_what_repeats_and_what_is_the_hosts_is_left_out(self):
        self.assertEqual(page.shortened(REPORT), SHORT)
        self.assertEqual(page.shortened(RACE), SHORT_RACE)

    def test_other_output_stays_as_it_is(self):
        for output in [SHORT, "$ planted none\no: 0 of 320 elements are wrong\n\n$1 = 0\n(exit code 0)\n"]:
            self.assertEqual(page.shortened(output), output)

    def test_a_page_is_filled_again_and_again_and_other_blocks_stay(self):
        with tempfile.TemporaryDirectory() as directory:
            path = os.path.join(directory, "page.md")
            first = "A\n\n<!-- output: one -->\nB\n\n<!-- output: two -->\n\n```text\nold\n```\n\n```sh\nls\n```\n"
            with open(path, "w", encoding="utf-8") as f:
                f.write(first)
            for output in ["x\n", "y\nz\n"]:
                with open(os.path.join(directory, "one.txt"), "w", encoding="utf-8") as f:
                    f.write(output)
                page.main(directory, path)
                with open(path, encoding="utf-8") as f:
                    got = f.read()
                block = "<!-- output: one -->\n\n```text\n%s```\n" % output
                self.assertEqual(got, first.replace("<!-- output: one -->\n", block))
            self.assertEqual(page.blocks(got), [("one", "y\nz\n"), ("two", "old\n")])

    def test_what_is_no_directory_is_named_and_the_page_stays(self):
        with tempfile.TemporaryDirectory() as directory:
            path, missing = os.path.join(directory, "page.md"), os.path.join(directory, "none")
            with open(path, "w", encoding="utf-8") as f:
                f.write("<!-- output: one -->\n")
            before = os.stat(path).st_ino
            for wrong in [missing, path]:
                with self.assertRaises(SystemExit) as caught:
                    page.main(wrong, path)
                self.assertEqual(caught.exception.code, "page.py: %s: is not a directory" % wrong)
            self.assertEqual(os.stat(path).st_ino, before)


if __name__ == "__main__":
    unittest.main()
