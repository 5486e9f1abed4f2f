"""test_report counts cases, and counts nothing as passed that did not pass."""

import contextlib
import io
import json
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


def result(label, status, xml="", shard=1, attempt=1, log="", **more):
    files = {"test.xml": xml, "test.log": log}
    outputs = [{"name": name, "uri": "file://" + path} for name, path in files.items() if path]
    return {
        "id": {"testResult": {"label": label, "run": 1, "shard": shard, "attempt": attempt}},
        "testResult": dict({"status": status, "testActionOutput": outputs}, **more),
    }


class TestReportTest(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)

    def xml(self, text):
        return self.file("test.xml", text)

    def file(self, name, text):
        path = os.path.join(self.directory.name, name)
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

    def test_the_slowest_targets_and_their_wait_for_a_gpu(self):
        alone = self.file("alone.log", "exec ...\ngpu_slot: GPU-aaaa after 12.5 s\n[ RUN ] S.a\n")
        shared = self.file("shared.log", "gpu_slot: GPU-aaaa, shared, after 0.0 s\n")
        none = self.file("none.log", "nothing of the kind\n")
        events = [
            result("//fast", "PASSED", log=none, testAttemptDurationMillis="1200"),
            result("//slow", "PASSED", shard=1, log=none, testAttemptDurationMillis="5000"),
            result("//slow", "PASSED", shard=2, log=alone, testAttemptDurationMillis="60000"),
            result("//middle", "FAILED", log=shared, testAttemptDurationMillis="7000"),
            result("//no_log", "PASSED", log="/nowhere/test.log", testAttemptDurationMillis="300"),
            result("//cached", "PASSED", cachedLocally=True, testAttemptDurationMillis="90000"),
            result("//remote", "PASSED", executionInfo={"cachedRemotely": True},
                   testAttemptDurationMillis="90000"),
        ]  # fmt: skip
        found = [
            (60, "//slow", 12.5),
            (7, "//middle", 0),
            (1.2, "//fast", None),
            (0.3, "//no_log", None),
        ]
        self.assertEqual(test_report.slowest(events), found)
        self.assertEqual(test_report.slowest(events, most=1), found[:1])
        # Another Bazel's report may lack it.
        self.assertEqual(test_report.slowest([result("//a", "PASSED")]), [(0, "//a", None)])

    def test_the_count_is_the_last_line(self):
        events = [result("//a", "PASSED", testAttemptDurationMillis="1500")]
        path = self.file("events.json", "".join(json.dumps(event) + "\n" for event in events))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            self.assertEqual(test_report.main(path), 0)
        self.assertEqual(out.getvalue(), "    1.5 s  //a\n1 passed, 0 failed, 0 skipped\n")


if __name__ == "__main__":
    unittest.main()
