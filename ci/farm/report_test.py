"""The page and the JUnit file of a run: real results of a bundle, with attempts that went wrong."""

import copy
import json
import os
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

import support  # of //tools/python/tests: reports skipped cases as skipped

from ci.farm import engines
from ci.farm import farm
from ci.farm import plan
from ci.farm import report
from profiling.report import browser

BUNDLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "small_cpu_bundle.tar.gz")

# The least contrast of a text with the page.
CONTRAST = """
const parse = (c) => c.match(/[\\d.]+/g).map(Number);
const luminance = (c) => parse(c).slice(0, 3).map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const paper = luminance(getComputedStyle(document.body).backgroundColor);
return Math.min(...[...document.querySelectorAll("h1, h2, p, th, td, span, a")].map((e) => {
  const ink = luminance(getComputedStyle(e).color);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}));
"""


class ReportTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.out = directory.name
        bundle = farm.unpack_once(BUNDLE, cls.out)
        tests = [test._replace(shards=3) for test in farm.tests_of({90: bundle})]
        made = farm.Farm(tests, [plan.Pool("h", 90, 2, 1)], {90: bundle}, {}, engines.Local(1), cls.out,
                         say=lambda line: None)  # fmt: skip
        cls.addClassCleanup(made.journal.close)
        made.run(poll=0.05)
        cls.clean = made.results()
        # What a run without faults does not have.
        cls.results = copy.deepcopy(cls.clean)
        first, second, third = cls.results["items"][:3]
        first["status"] = "flaky"
        first["attempts"].insert(0, dict(first["attempts"][0], runner="h-1", status="failed"))
        second.update(status="lost", attempts=[
            {"runner": "h-0", "capability": 90, "status": "died", "why": "it ended before <its> tests"}])  # fmt: skip
        third["attempts"].insert(0, {"runner": "h-1", "capability": 90, "status": "hung", "why": "no sign of life"})
        cls.results["unplaced"] = [{"label": "//x:sm_100", "why": "no runner has compute capability 10.0"}]

    def test_junit_has_each_item_once(self):
        for results, errors in ((self.clean, 0), (self.results, 2)):
            root = ElementTree.fromstring(report.junit(results, self.out).encode())
            suites = [suite.get("name") for suite in root]
            self.assertEqual(len(suites), len(set(suites)))
            self.assertEqual(len(suites), 6 + (errors > 0))
            self.assertEqual(sum(1 for _ in root.iter("error")), errors)
            self.assertFalse(list(root.iter("failure")))

    def test_the_history_counts_flaky_runs(self):
        line = report.history_line(self.results, 1)
        first = self.results["items"][0]
        key = (first["label"], first["shard"])
        self.assertEqual(report.flaky_before([line, "damaged", line]), {key: 2})
        self.assertIn("<td class=number>2</td>", report.page(self.results, self.out, [line, line]))

    def test_results_are_written_whole(self):
        history = os.path.join(self.out, "history.jsonl")
        for _ in range(2):
            farm.write_results(self.results, self.out, history)
        with open(os.path.join(self.out, "results.json"), encoding="utf-8") as f:
            self.assertEqual(json.load(f), self.results)
        with open(history, encoding="utf-8") as f:
            self.assertEqual(len(f.readlines()), 2)

    def test_coverage_counts_what_passed(self):
        covered = report.coverage(self.clean, self.out)
        self.assertEqual(set(covered), {("cpu", 90)})
        self.assertGreater(covered["cpu", 90]["cases"], 0)
        self.assertGreater(covered["cpu", 90]["fp32"] + covered["cpu", 90]["bf16"], 0)

    @unittest.skipIf(browser.missing(), browser.missing() or "")
    def test_the_page_is_readable_in_a_browser(self):
        path = os.path.join(self.out, "page.html")
        with open(path, "w", encoding="utf-8") as f:
            f.write(report.page(self.results, self.out))
        with browser.Browser() as chromium:
            for scheme in ("light", "dark"):
                for width in (1280, 800):
                    chromium.open(path, width=width, scheme=scheme)
                    self.assertGreaterEqual(chromium.run(CONTRAST), 4.5, scheme)
                    self.assertEqual(chromium.run("return document.documentElement.scrollWidth"), width)
            self.assertEqual((chromium.console(), chromium.requests()), ([], []))
            self.assertEqual(chromium.find("#counts")[0].text, "0 failed, 1 lost, 1 flaky, 4 passed")
            text = chromium.find("body")[0].text
            for expected in ("//x:sm_100", "h-0: died, it ended before <its> tests", "h-1: hung, no sign of life"):
                self.assertIn(expected, text)
            for link in chromium.find("a"):
                self.assertTrue(os.path.exists(link.get_attribute("href")[len("file://"):]))


if __name__ == "__main__":
    support.main()
