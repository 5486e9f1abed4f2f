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
from ci.farm import speed
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
        pools = [plan.Pool("h", 90, 2, 1)]
        tests = plan.tests_of(farm.manifests_of({90: bundle}), pools)[0]
        tests = [test._replace(shards=3) for test in tests if test.shards > 3]
        made = farm.Farm(tests, pools, {90: bundle}, {}, engines.Local(1), cls.out,
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
            {"runner": "h-0", "machine": "", "capability": 90, "status": "died", "why": "it ended before <its> tests"}])  # fmt: skip
        third["attempts"].insert(0, {"runner": "h-1", "machine": "n<1>", "capability": 90, "status": "hung",
                                     "why": "no sign of life"})  # fmt: skip
        third["attempts"][1].update(gpus=["GPU-1"], began=100.0, waited=2.0, seconds=12.0)
        cls.results["commit"] = "c0ffee"
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
        line = report.history_line(self.results, 1, self.out)
        first = self.results["items"][0]
        key = report.key_of(first)
        self.assertEqual(report.flaky_before([line, "damaged", line]), {key: 2})
        self.assertIn("<td class=number>2</td>", report.page(self.results, self.out, [line, line]))
        seconds = report.seconds_before(["damaged", line])
        self.assertEqual(set(seconds), {("//ci/farm:cpu_0", 90), ("//ci/farm:cpu_1", 90)})
        self.assertGreater(min(seconds.values()), 0)

    def test_commits_that_are_not_known_are_not_compared(self):
        of = lambda commit, seconds: json.dumps({"speed": [["k", "p", "m", commit] + [seconds] * 3]})
        runs = speed.past([of(None, 1), of(None, 2), of("c1", 3), of("c2", 4)])
        self.assertEqual([after.median for _, after in speed.slower(runs)], [4])

    def test_a_kernel_that_became_slower(self):
        row = {"kernel": "fa2", "config": "tile_q=64", "problem": "hq=8", "machine": {"name": "A <GPU>"}, "verdict": "ok"}
        other = dict(row, kernel="fa1", config="")
        directory = os.path.join(self.out, self.clean["items"][0]["attempts"][0]["directory"], "outputs")
        path = os.path.join(directory, "bench.json")
        self.addCleanup(os.remove, path)
        history = ["damaged", '{"flaky": []}', '{"speed": [[1, 2]]}']
        pages = []
        # Within the spread, beyond it, and once more at the same commit.
        for commit, micros in (("c1", 100), ("c2", 104), ("c3", 120), ("c3", 140), ("c4", 141)):
            measured = [dict(row, commit=commit, p10_seconds=(micros - 5) * 1e-6, median_seconds=micros * 1e-6,
                             p90_seconds=(micros + 5) * 1e-6),
                        dict(other, commit=commit, p10_seconds=9e-6, median_seconds=1e-5, p90_seconds=2e-5)]  # fmt: skip
            with open(path, "w", encoding="utf-8") as f:
                json.dump({"rows": measured}, f)
            pages.append(report.page(self.clean, self.out, history))
            history.append(report.history_line(self.clean, 1, self.out))
        said = [page.count("<td>fa2 tile_q=64</td>") for page in pages]
        self.assertEqual(said, [0, 0, 1, 1, 1])
        self.assertIn("2 measured. None became slower", pages[1])
        self.assertIn("<td>hq=8</td><td>A &lt;GPU&gt;</td><td>c2 to c3</td><td>104</td><td>120</td>", pages[2])
        with open(path, "w", encoding="utf-8") as f:
            f.write('{"rows": [{')
        self.assertIn("outputs/bench.json: cannot be read.", report.page(self.clean, self.out, []))

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
            self.assertEqual(chromium.find("#counts")[0].text, "0 failed, 1 lost, 1 flaky, 0 skipped, 4 passed")
            text = chromium.find("body")[0].text
            for expected in ("//x:sm_100", "h-0: died, it ended before <its> tests", "h-1 on n<1>: hung, no sign of life",
                             "minutes of tests, commit c0ffee.", "GPU-1: 1 tests, busy"):  # fmt: skip
                self.assertIn(expected, text)
            for link in chromium.find("a"):
                self.assertTrue(os.path.exists(link.get_attribute("href")[len("file://"):]))


if __name__ == "__main__":
    support.main()
