"""Tests of sessions.py that need no GPU."""

import os
import re
import sys
import unittest

from ci.debugging import sessions


class SessionsTest(unittest.TestCase):
    def test_every_marker_that_is_asked_for_is_there(self):
        lines = sessions.lines_of_markers()
        self.assertGreaterEqual(len(lines), 9)
        asked = set()
        for steps in sessions.SESSIONS.values():
            for step in steps:
                for pattern in step.wanted + step.unwanted:
                    asked.update(re.findall(r"@(\w+)@", pattern))
                    re.compile(sessions.with_lines(pattern))
                if step.script:
                    with open(os.path.join(sessions.HERE, step.script), encoding="utf-8") as f:
                        asked.update(re.findall(r"@LINE\((\w+)\)@", f.read()))
        self.assertLessEqual(asked, set(lines))
        # Every planted bug is covered by a session.
        self.assertLessEqual(set(lines) - {"index_overflow"}, asked)

    def test_every_bug_has_a_session(self):
        with open(os.path.join(sessions.HERE, "planted.cu"), encoding="utf-8") as f:
            bugs = re.findall(r"// BUG\((\w+)\)", f.read())
        commands = " ".join(step.command for steps in sessions.SESSIONS.values() for step in steps)
        for bug in bugs:
            self.assertIn(bug, commands)

    def test_names_are_names_of_files_and_there_once(self):
        names = [step.name for steps in sessions.SESSIONS.values() for step in steps]
        self.assertEqual(len(names), len(set(names)))
        for name in names:
            self.assertRegex(name, r"^[a-z_]+$")

    def test_a_step_runs_with_its_script_and_is_held_to_what_it_says(self):
        step = sessions.Step("x", "{planted} -c {script}", script="stale_maximum.gdb")
        exit_code, output = sessions.run(step, {"planted": sys.executable})
        self.assertNotEqual(exit_code, 0)  # the path of the script is no Python program
        self.assertIn("stale_maximum.gdb", output)
        step = sessions.Step("y", "{planted} --version", [r"^Python 3", r"^never$"], [r"Python"], (7,))
        exit_code, output = sessions.run(step, {"planted": sys.executable})
        self.assertEqual(
            sessions.faults(step, exit_code, output),
            [
                "y: the output lacks ^never$",
                "y: the output has Python",
                "y: exit code 0, not 7",
            ],
        )

    def test_lines_are_put_into_patterns_and_scripts(self):
        line = sessions.lines_of_markers()["stale_maximum"]
        self.assertEqual(sessions.with_lines(r"planted\.cu:@stale_maximum@\b"), r"planted\.cu:%d\b" % line)
        self.assertEqual(
            sessions.with_lines("break planted.cu:@LINE(stale_maximum)@", r"@LINE\((\w+)\)@"),
            "break planted.cu:%d" % line,
        )


if __name__ == "__main__":
    unittest.main()
