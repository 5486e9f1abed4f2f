"""test_report counts cases, and nothing that did not pass counts as passed."""

import os
import tempfile
import unittest

from tools.dev import test_report

GTEST_XML = """<testsuites><testsuite name="S">
<testcase name="Passes" classname="S" status="run" result="completed"/>
<testcase name="Fails" classname="S" status="run" result="completed"><failure message="no"/></testcase>
<testcase name="Skips" classname="S" status="run" result="skipped"><skipped message="no GPU"/></testcase>
<testcase name="DISABLED_X" classname="S" status="notrun" result="suppressed"/>
</testsuite></testsuites>"""


def configured(label):
    return {"id": {"targetConfigured": {"label": label}}, "configured": {"testSize": "SMALL"}}


def result(label, status, xml="", shard=1, attempt=1):
    outputs = [{"name": "test.xml", "uri": "file://" + xml}] if xml else []
    return {
        "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
        "testResult": {"status": status, "testActionOutput": outputs},
    }


class TestReportTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def xml(self, text):
        path = os.path.join(self.directory.name, "test.xml")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        return path

    def test_cases(self):
        counts = test_report.count([configured("//a"), result("//a", "FAILED", self.xml(GTEST_XML))])
        self.assertEqual(counts, (1, 1, 1, ["//a S.Fails"]))

    def test_a_target_without_cases_counts_as_one(self):
        events = [configured("//a"), result("//a", "PASSED"), configured("//b"), result("//b", "TIMEOUT")]
        self.assertEqual(test_report.count(events), (1, 1, 0, ["//b TIMEOUT"]))

    def test_a_target_that_crashes_after_its_cases_passed_fails(self):
        passing = self.xml('<testsuite><testcase name="a" classname="S"/></testsuite>')
        counts = test_report.count([configured("//a"), result("//a", "FAILED", passing)])
        self.assertEqual(counts, (1, 1, 0, ["//a FAILED"]))

    def test_a_truncated_report_of_a_failed_test_is_no_pass(self):
        counts = test_report.count([configured("//a"), result("//a", "FAILED", self.xml("<testsuite>"))])
        self.assertEqual(counts, (0, 1, 0, ["//a FAILED"]))

    def test_not_built_is_failed_and_incompatible_is_skipped(self):
        skipped = {
            "id": {"targetCompleted": {"label": "//gpu"}},
            "aborted": {"reason": "SKIPPED"},
        }
        counts = test_report.count([configured("//a"), configured("//gpu"), skipped])
        self.assertEqual(counts, (0, 1, 1, ["//a NOT BUILT OR NOT RUN"]))

    def test_the_last_attempt_of_each_shard_counts(self):
        events = [
            configured("//a"),
            result("//a", "FAILED", attempt=1),
            result("//a", "PASSED", attempt=2),
            result("//a", "PASSED", shard=2),
        ]
        self.assertEqual(test_report.count(events), (2, 0, 0, []))


if __name__ == "__main__":
    unittest.main()
