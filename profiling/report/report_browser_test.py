"""Tests reports in a real browser: they draw what the JSON has, are readable, and fetch nothing."""

import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import support  # of //tools/python/tests: reports skipped cases as skipped

from profiling.report import browser, report_png

PACKAGE = pathlib.Path("profiling/report")
REPORTS = ("h200", "lengths", "failed")

# The contrast of every visible text, mark and bar with its background.
CONTRASTS = """
const parse = (colour) => {
  const [r, g, b, a] = colour.match(/[\\d.]+/g).map(Number);
  return { rgb: [r, g, b], a: a === undefined ? 1 : a };
};
const luminance = ({ rgb }) => rgb.map((v) => v / 255)
    .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const colour = parse(getComputedStyle(e).backgroundColor);
    if (colour.a === 1) return colour;
  }
  return parse("rgb(255, 255, 255)");
};
const contrast = (a, b) => {
  const [x, y] = [luminance(a), luminance(b)];
  return (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05);
};
const texts = new Set(document.querySelectorAll("select"));
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  const seen = element.getClientRects().length && !element.closest("script");
  if (seen && walker.currentNode.data.trim()) texts.add(element);
}
const of = (elements, property) => [...elements].map((element) => {
  const style = getComputedStyle(element);
  const svg = element instanceof SVGElement;
  return [(element.textContent || element.outerHTML).slice(0, 60),
          contrast(parse(svg || property === "fill" ? style.fill : style.color), behind(element))];
});
return { texts: of(texts, "color"), shapes: of(document.querySelectorAll(".mark, .bar, .gantt rect"), "fill") };
"""

# Texts of a figure that overlap or leave the picture. Rotated texts are not checked.
CROWDED = """
const found = [];
for (const svg of document.querySelectorAll("figure svg[role=img]")) {
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")]
      .filter((t) => t.textContent && !/rotate/.test(t.getAttribute("transform")))
      .map((t) => ({ text: t.textContent, box: t.getBoundingClientRect() }));
  texts.forEach(({ text, box }, i) => {
    if (box.left < frame.left - 1 || box.right > frame.right + 1 ||
        box.top < frame.top - 1 || box.bottom > frame.bottom + 1) {
      found.push(`${text}: leaves the picture`);
    }
    for (const other of texts.slice(i + 1)) {
      const x = Math.min(box.right, other.box.right) - Math.max(box.left, other.box.left);
      const y = Math.min(box.bottom, other.box.bottom) - Math.max(box.top, other.box.top);
      if (x > 1 && y > 3) found.push(`${text}: on ${other.text}`);
    }
  });
}
return found;
"""


# The fonts of a machine are unknown, so letters are also set wider and narrower than in any of
# them.
FONTS = ("font-family: serif", "font-family: monospace", "letter-spacing: 2px", "letter-spacing: -1.5px")


def profile(name):
    return json.loads((PACKAGE / "testdata" / f"{name}.json").read_text(encoding="utf-8"))


def positive(value):
    return isinstance(value, (int, float)) and value > 0


def measured(rows):
    return [row for row in rows if row.get("verdict") != "failed"]


def counted(row, name):
    return (row.get("counted") or {}).get(name)


def without_length(row):
    return ",".join(pair for pair in row["problem"].split(",") if not pair.startswith(("sq=", "skv=")))


@unittest.skipIf(browser.missing(), browser.missing() or "")
class ReportBrowserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        directory = tempfile.TemporaryDirectory()
        cls.addClassCleanup(directory.cleanup)
        cls.directory = pathlib.Path(directory.name)
        for name in REPORTS:
            cls.make((PACKAGE / "testdata" / f"{name}.json").absolute(), name)
        cls.browser = browser.Browser()
        cls.addClassCleanup(cls.browser.close)

    @classmethod
    def make(cls, path, name):
        subprocess.run([PACKAGE / "make_report", path, cls.directory / f"{name}.html"], check=True)

    def open(self, name, **options):
        self.browser.open(self.directory / f"{name}.html", **options)

    def state(self):
        return self.browser.run("const d = document.documentElement.dataset; return [d.ready, d.errors]")

    def count(self, selector):
        return self.browser.count(selector)

    def text(self, selector):
        return " ".join(self.browser.run("return arguments[0].textContent", e) for e in self.browser.find(selector))

    def altered(self, name, *replacements):
        """Opens a report after replacing parts of its page."""
        page = (self.directory / f"{name}.html").read_text(encoding="utf-8")
        for old, new in replacements:
            self.assertEqual(page.count(old), 1, old)
            page = page.replace(old, new)
        (self.directory / "altered.html").write_text(page, encoding="utf-8")
        self.open("altered")

    def made_of(self, value):
        """Opens the report of any JSON."""
        page = (self.directory / "h200.html").read_text(encoding="utf-8")
        before, opening, rest = page.partition('id="profile">')
        after = rest[rest.index("</script>"):]
        text = json.dumps(value).replace("<", "\\u003c")
        (self.directory / "made.html").write_text(before + opening + text + after, encoding="utf-8")
        self.open("made")

    def test_pages_are_drawn_without_errors(self):
        for name in REPORTS:
            for width in (1280, 400):
                with self.subTest(name, width=width):
                    self.open(name, width=width)
                    self.assertEqual(self.state(), ["true", "0"])
                    self.assertEqual(self.browser.console(), [])
                    self.assertEqual(self.count(".error"), 0)

    def test_nothing_is_fetched(self):
        for name in REPORTS:
            self.open(name)
            self.assertEqual(self.browser.requests(), [], name)

    def test_what_is_fetched_would_be_seen(self):
        csp = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
        image = ("<main>", '<main><img src="http://127.0.0.1:9/x.png" alt="">')
        self.altered("h200", (csp, "img-src *"), image)
        self.assertEqual(self.browser.requests(), ["http://127.0.0.1:9/x.png"])
        # The page's own policy prevents the request.
        self.altered("h200", image)
        self.assertIn("Content Security Policy", " ".join(self.browser.console()))

    def test_roofline_has_a_point_a_row(self):
        for name in REPORTS:
            rows = [row for row in measured(profile(name)["rows"]) if positive(counted(row, "hbm_bytes_read"))]
            self.open(name)
            self.assertEqual(self.count("#roofline > svg .mark"), len(rows), name)
            self.assertGreater(len(rows), 0)
        self.assertEqual(self.count("#roofline .ceiling"), 2, "of HBM and bf16; that of fp32 is null")
        self.open("h200")
        self.assertEqual(self.count("#roofline .ceiling"), 3)
        self.assertEqual(self.count("#roofline .point-label"), 3)
        self.assertIn("HBM: 4.03 TB/s read, 4.51 TB/s written", self.text("#roofline"))
        self.assertIn("The slope is the measured write bandwidth, 4.51 TB/s", self.text("#roofline"))
        self.assertIn("bf16: 817 TFLOP/s", self.text("#roofline"))

    def test_points_lie_where_the_figures_say(self):
        self.open("h200")
        rows = {row["kernel"]: row for row in profile("h200")["rows"]}
        at = {}
        for mark in self.browser.find("#roofline > svg .mark"):
            x, y = mark.get_attribute("transform")[len("translate("):-1].split()
            at[mark.get_attribute("data-tip").split("\n")[0]] = (float(x), -float(y))
        self.assertEqual(set(at), set(rows))
        self.assertLess(at["baseline"][0], at["fa1"][0])
        self.assertLess(at["fa1"][1], at["baseline"][1])
        self.assertLess(at["baseline"][1], at["fa2"][1])

        def decade(a, b):
            return (at[a][1] - at[b][1]) / math.log10(rows[a]["tflop_per_second"] / rows[b]["tflop_per_second"])

        self.assertAlmostEqual(decade("fa2", "fa1"), decade("fa2", "baseline"), places=3)

    def test_no_ceilings_is_said(self):
        self.open("lengths")
        self.assertEqual(self.count("#roofline .ceiling"), 0)
        self.assertIn("ceilings were not measured", self.text("#roofline"))

    def check_group(self, rows):
        for selector, name in (
            (".counted", "hbm_bytes_read"),
            ("circle.model[data-tip]", "expected_bytes_read"),
            ("line.least[data-tip]", "compulsory_bytes_read"),
        ):
            want = [row for row in rows if positive(row.get(name) or counted(row, name))]
            self.assertEqual(self.count(f"#traffic {selector}"), len(want), selector)
        lengths = {row["problem"].split("skv=")[1].split(",")[0] for row in rows}
        self.assertEqual(self.count("#time svg .mark") > 0, len(lengths) > 1)
        if len(lengths) > 1:
            self.assertEqual(self.count("#time > svg .mark"), len(rows))
            self.assertEqual(self.count("#time > svg .path"), len({row["kernel"] for row in rows}))

    def test_groups_can_be_chosen(self):
        groups = {}
        for row in profile("lengths")["rows"]:
            groups.setdefault(without_length(row), []).append(row)
        self.open("lengths")
        options = [option.text for option in self.browser.find("#group-select option")]
        self.assertEqual(len(options), len(groups))
        self.assertEqual(len(options), 3)
        self.assertIn("3 lengths", options[0])
        for place, rows in enumerate(groups.values()):  # the file, too, lists groups with the most lengths first
            with self.subTest(options[place]):
                self.browser.find("#group-select option")[place].click()
                self.check_group(rows)
        self.assertIn("have the same length", self.text("#time"))
        self.assertEqual(self.state(), ["true", "0"])

    def test_traffic_of_one_length(self):
        self.open("h200")
        self.assertEqual(self.count("#group-select"), 0)
        self.check_group(profile("h200")["rows"])

    def test_no_font_hides_a_figure(self):
        style = "</style>"
        for font in FONTS:
            self.altered("h200", (style, f"body, svg text {{ {font} }} {style}"))
            for width in (1280, 400, 320):
                with self.subTest(font, width=width):
                    self.browser.open(self.directory / "altered.html", width=width)
                    self.assertEqual(self.browser.run(CROWDED), [])
                    for said in ("5.53 GB", "110× the least", "the least of any kernel, 50.3 MB"):
                        self.assertIn(said, self.text("#traffic"))
            self.altered("lengths", (style, f"body, svg text {{ {font} }} {style}"))
            for width in (1280, 400):
                with self.subTest(font, width=width):
                    self.browser.open(self.directory / "altered.html", width=width)
                    self.assertEqual(self.browser.run(CROWDED), [])

    def test_a_guess_of_the_model_is_in_brackets(self):
        whole = profile("h200")
        self.made_of(whole)  # without l2_decides
        self.assertNotIn("(", self.text("#rows table"))
        (row,) = [row for row in whole["rows"] if row["kernel"] == "fa2"]
        row["l2_decides"] = True
        self.made_of(whole)
        ratio = counted(row, "hbm_bytes_read") / row["expected_bytes_read"]
        self.assertIn(f"({ratio:.2f}×)", self.text("#rows table"))
        tips = [mark.get_attribute("data-tip") for mark in self.browser.find("#traffic circle.model[data-tip]")]
        self.assertEqual(sum("a guess: L2 decides" in tip for tip in tips), 1)

    def test_growth_with_length(self):
        self.open("lengths")
        exponents = [float(e.text.split("n")[-1]) for e in self.browser.find("#traffic svg .small.tick")]
        self.assertEqual(len(exponents), 3)  # fa1, baseline, fa2
        self.assertAlmostEqual(exponents[1], 2, delta=0.1)
        self.assertAlmostEqual(exponents[2], 1, delta=0.1)

    def test_ladder_goes_from_the_baseline_to_the_fastest(self):
        self.open("h200")
        names = [bar.get_attribute("data-tip").split("\n")[0] for bar in self.browser.find("#ladder .bar")]
        self.assertEqual(names, ["baseline", "fa1", "fa2"])
        self.assertIn("7.81× the baseline", self.text("#ladder"))
        rates = {row["kernel"]: row["tflop_per_second"] for row in profile("h200")["rows"]}
        widths = [float(bar.get_attribute("width")) for bar in self.browser.find("#ladder .bar")]
        for name, width in zip(names, widths):
            self.assertAlmostEqual(width / widths[0], rates[name] / rates["baseline"], places=3)

    def test_ladder_has_a_problem_to_choose(self):
        rows = profile("lengths")["rows"]
        problems = list(dict.fromkeys(row["problem"] for row in rows))
        self.open("lengths")
        options = self.browser.find("#problem-select option")
        self.assertEqual(len(options), 1 + len(problems))
        options[0].click()
        self.assertEqual(self.count("#ladder .bar"), len(rows))
        for option, problem in zip(options[1:], problems):
            option.click()
            self.assertEqual(self.count("#ladder .bar"), sum(row["problem"] == problem for row in rows), problem)

    def test_tables_have_all_rows(self):
        for name in REPORTS:
            rows = profile(name)["rows"]
            self.open(name)
            self.assertEqual(self.count("#rows tr.row"), len(rows), name)
            called = [row for row in measured(rows) if row.get("launches") or row.get("timeline")]
            self.assertEqual(self.count("#launches details"), len(called), name)
            activities = sum(len(row["timeline"]) for row in called)
            self.assertEqual(self.count("#launches .gantt rect"), activities, name)
            self.assertEqual(self.count("#launches tr.launch"), activities, name)
        self.open("h200")
        cells = [cell.text for cell in self.browser.find("#rows tr.row")[1].find_elements("css selector", "td")]
        self.assertEqual(cells, ["baseline", "2.87 ms", "47.9", "5.53 GB", "1.01×", "110×", "5.45 GB", "0.995×", "163×",
                                 "84.9 %", "5.87 %", "ok"])  # fmt: skip

    def test_header_names_the_machine(self):
        self.open("h200")
        for text in ("NVIDIA H200", "GH100", "580.159.04", "2026-11-22", "wip", "4.03 TB/s"):
            self.assertIn(text, self.text("#header"))
        self.assertEqual(self.browser.driver.title, "Attention kernels on NVIDIA H200")

    def test_failed_and_wrong_rows_are_told(self):
        self.open("failed")
        failed = [row for row in profile("failed")["rows"] if row["verdict"] in ("failed", "WRONG")]
        self.assertEqual(self.count("#failures li"), len(failed))
        (message,) = [row["message"] for row in failed if row["verdict"] == "failed"]
        self.assertIn(message, self.text("#failures"))
        self.assertTrue(self.browser.find("#failures li")[1].is_displayed())
        self.assertEqual(self.count("#injected"), 0)
        self.assertIn("<i>fa2</i>", self.text("#rows"))
        self.assertNotIn("NaN", self.text("main"))
        self.assertNotIn("undefined", self.text("main"))
        self.assertNotIn("null", self.text("main"))

    def test_any_field_may_be_null_or_of_another_type(self):
        whole = profile("h200")
        for field in whole:
            for value in (None, 7, "text", [], {}):
                self.made_of({**whole, field: value})
                self.assertEqual(self.state(), ["true", "0"], f"{field}: {value}")
        for field in whole["rows"][0]:
            for value in (None, "text", -1, [None], {"x": None}):
                rows = [{**row, field: value} for row in whole["rows"]]
                self.made_of({**whole, "rows": rows})
                self.assertEqual(self.state(), ["true", "0"], f"rows[].{field}: {value}")
                self.assertEqual(self.count("#rows tr.row"), 3)
        for value in (None, 1, "text", [], {}, {"rows": [None, 1, {}, {"launches": [None], "timeline": [None, {}]}]}):
            self.made_of(value)
            self.assertEqual(self.state(), ["true", "0"], value)
            self.assertEqual(self.browser.console(), [])

    def test_what_is_left_to_gain_is_shown(self):
        self.open("h200")
        titles = [title.text for title in self.browser.find("#rows thead th")]
        self.assertEqual(titles[-3:], ["roofline", "least roofline", "verdict"])
        tip = self.browser.find("#roofline > svg .mark")[0].get_attribute("data-tip")
        self.assertIn("of the least roofline", tip)

    def test_the_duration_of_the_range_is_explained_where_it_is(self):
        whole = profile("h200")
        self.made_of(whole)
        self.assertNotIn("range_duration", self.text("#launches"))
        for row in whole["rows"]:
            row["counted"]["range_duration"] = row["counted"].pop("duration")
        self.made_of(whole)
        self.assertIn("range_duration is the counted call", self.text("#launches p"))

    def colours(self, part="#rows"):
        """All pairs of a name and its colour in a table."""
        style = "getComputedStyle(e.querySelector('.swatch')).backgroundColor"
        names = f"document.querySelectorAll('{part} td.name')"
        return {tuple(pair) for pair in self.browser.run(f"return [...{names}].map((e) => [e.textContent, {style}])")}

    def test_a_kernel_has_its_colour_in_every_report(self):
        whole = profile("h200")
        self.open("h200")
        together = self.colours()
        self.assertEqual(len({colour for _, colour in together}), 3)
        for row in whole["rows"]:
            self.made_of({**whole, "rows": [row]})
            self.assertLessEqual(self.colours(), together)
        tuned = [{**whole["rows"][0], "config": f"tile_q={2**power}"} for power in range(12)]
        self.made_of({**whole, "rows": tuned + whole["rows"]})
        self.assertLessEqual(together, self.colours())
        self.assertEqual(len({colour for _, colour in self.colours()}), 8)

    def test_a_launch_has_its_colour_in_every_call(self):
        (baseline,) = [row for row in profile("h200")["rows"] if row["kernel"] == "baseline"]
        other = {**baseline, "timeline": baseline["timeline"][4:], "launches": []}
        self.made_of({"rows": [baseline, other]})
        pairs = self.colours("#launches")
        self.assertGreater(len(pairs), 5)
        self.assertEqual(len(pairs), len({name for name, _ in pairs}))

    def test_a_table_that_goes_on_has_a_shadow(self):
        self.open("h200", width=400)
        shadows = "return getComputedStyle(document.querySelector('#rows .scroll')).backgroundAttachment"
        self.assertEqual(self.browser.run(shadows), "local, local, scroll, scroll")
        wider = "const e = document.querySelector('#rows .scroll'); return e.scrollWidth > e.clientWidth"
        self.assertTrue(self.browser.run(wider))

    def test_captions_spell_problems_alike(self):
        self.open("h200")
        codes = [code.text for code in self.browser.find("figcaption code")]
        self.assertEqual(codes, ["b=1, hq=32, hkv=8, d=128, dtype=bf16, mask=causal, sq=skv=4096",
                                 "b=1, hq=32, hkv=8, sq=4096, skv=4096, d=128, dtype=bf16, mask=causal"])

    def test_an_error_stays_in_its_figure(self):
        head = "function drawTraffic(data, width) {"
        self.altered("lengths", (head, head + ' throw new Error("planted");'))
        self.assertEqual(self.state(), ["true", "1"])
        self.assertIn("could not be drawn: planted", self.text("#traffic"))
        self.assertGreater(self.count("#time > svg .mark"), 0)
        self.assertGreater(self.count("#rows tr.row"), 0)

    def test_both_schemes_can_be_read(self):
        for name in REPORTS:
            backgrounds = []
            for scheme in ("light", "dark"):
                with self.subTest(name, scheme=scheme):
                    self.open(name, scheme=scheme)
                    self.browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
                    found = self.browser.run(CONTRASTS)
                    self.assertGreater(len(found["texts"]), 50)
                    self.assertEqual([(text, c) for text, c in found["texts"] if c < 4.5], [])
                    self.assertGreater(len(found["shapes"]), 3)
                    self.assertEqual([(shape, c) for shape, c in found["shapes"] if c < 3], [])
                    backgrounds.append(self.browser.run("return getComputedStyle(document.body).backgroundColor"))
            self.assertEqual(len(set(backgrounds)), 2)

    def test_nothing_leaves_the_window_or_lies_on_another_text(self):
        for name in REPORTS:
            for width in (1280, 768, 400):
                with self.subTest(name, width=width):
                    self.open(name, width=width)
                    self.browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
                    widest = self.browser.run("return document.documentElement.scrollWidth")
                    self.assertLessEqual(widest, width)
                    self.assertEqual(self.browser.run(CROWDED), [])

    def test_many_kernels_and_lengths_are_not_crowded(self):
        kernels = ["baseline", "fa1", "fa2", "split_k", "warp_specialized", "fa2:block=128,stages=3", "a_long_name"]
        rows = []
        for n in (2**power for power in range(16)):
            for place, kernel in enumerate(kernels):
                name, _, config = kernel.partition(":")
                flops, seconds = 2048 * n * n, 1e-6 + 1e-12 * n * n * (1 + place / 50)
                row = {"problem": f"b=1,hq=8,hkv=8,sq={n},skv={n},d=64,dtype=bf16,mask=none", "verdict": "ok"}
                row.update(kernel=name, config=config, seconds=seconds, flops=flops)
                row.update(tflop_per_second=flops / seconds * 1e-12)
                row.update(compulsory_bytes_read=3072 * n, expected_bytes_read=3100 * n)
                row.update(counted={"hbm_bytes_read": (3200 + place) * n, "hbm_bytes_written": 1024 * n})
                rows.append(row)
        self.made_of({"rows": rows, "ceilings": profile("h200")["ceilings"]})
        for width in (1280, 400):
            self.browser.open(self.directory / "made.html", width=width)
            self.assertEqual(self.state(), ["true", "0"])
            self.assertEqual(self.count("#time > svg .mark"), len(rows))
            self.assertEqual(self.browser.run(CROWDED), [], width)
            self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)

    def configured(self, *configs):
        """Rows of the baseline for each length and configuration, with almost equal speeds."""
        rows = []
        for place, config in enumerate(configs):
            for n in (512, 1024, 2048):
                flops, seconds = 2048 * n * n, 1e-5 + 1e-10 * n * n * (1 + place / 100)
                row = {"problem": f"b=1,hq=8,hkv=8,sq={n},skv={n},d=64,dtype=bf16,mask=none", "verdict": "ok"}
                row.update(kernel="baseline", config=config, seconds=seconds, flops=flops)
                row.update(compulsory_bytes_read=3072 * n, expected_bytes_read=16 * n * n)
                row.update(counted={"hbm_bytes_read": 16 * n * n, "hbm_bytes_written": 1024 * n})
                rows.append(row)
        return {**profile("h200"), "rows": rows}

    CONFIGS = tuple(
        f"block={block},softmax={softmax},permute=always,math=fp32"
        for block in (32, 64, 128, 256, 512)
        for softmax in ("fused", "unfused")
    )

    def test_each_series_has_a_marker_and_colour_of_its_own(self):
        pairs = (
            "return [...document.querySelectorAll('#roofline .legend .mark')]"
            ".map((e) => `${e.getAttribute('d')} ${e.getAttribute('style')}`)"
        )
        for configs in (self.CONFIGS, [f"tile={n}" for n in range(56)]):
            self.made_of(self.configured(*configs))
            found = self.browser.run(pairs)
            self.assertEqual(len(found), len(configs))
            self.assertEqual(len(set(found)), len(configs))

    def test_configurations_have_names_that_differ(self):
        self.made_of(self.configured(*self.CONFIGS))
        short = {config.replace(",permute=always,math=fp32", "") for config in self.CONFIGS}
        said = "All are configurations of baseline with permute=always, math=fp32."
        for width in (1280, 900, 400, 320):
            with self.subTest(width=width):
                self.browser.open(self.directory / "made.html", width=width)
                self.assertEqual(self.state(), ["true", "0"])
                self.assertEqual(self.browser.run(CROWDED), [])
                self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
                self.assertEqual({item.text for item in self.browser.find("#roofline .legend li")}, short)
                for figure in ("roofline", "traffic", "time", "ladder"):
                    self.assertIn(said, self.text(f"#{figure} figcaption"))
                    texts = [e.text for e in self.browser.find(f"#{figure} > svg .strong")]
                    if figure != "traffic" and figure != "ladder":  # where names may have several lines
                        self.assertLessEqual(set(texts), short)
                        self.assertEqual(len(texts), len(set(texts)))
                    self.assertNotIn("…", "".join(texts))
        # With one length, names have several lines, or are in a legend.
        one = self.configured(*self.CONFIGS)
        one["rows"] = one["rows"][::3]
        self.made_of(one)
        for width in (1280, 900, 400):
            self.browser.open(self.directory / "made.html", width=width)
            self.assertEqual(self.browser.run(CROWDED), [])
            self.assertNotIn("…", self.text("#traffic"))
            self.assertIn("block=512,softmax=unfused", self.text("#traffic").replace(" ", ""))
        # With another kernel, names have the kernel and what differs between its configurations.
        several = self.configured("block=32,math=fp32", "block=64,math=fp32")
        several["rows"] += profile("h200")["rows"][-1:]
        self.made_of(several)
        names = [item.text for item in self.browser.find("#roofline .legend li")]
        self.assertEqual(names[:2], ["baseline:block=32", "baseline:block=64"])
        self.assertEqual(len(names), 3)
        self.assertIn("All configurations of baseline are with math=fp32.", self.text("#roofline figcaption"))

    def test_labels_of_points_keep_off_the_ceilings(self):
        self.made_of(self.configured(*self.CONFIGS))
        self.browser.open(self.directory / "made.html", width=900)
        self.assertGreater(self.count("#roofline .point-label"), 0)
        on_the_slope = """
            const slope = [...document.querySelectorAll("#roofline path.ceiling")].pop();
            const texts = [...document.querySelectorAll("#roofline .point-label")].map((e) => e.getBBox());
            return Array.from({ length: 200 }, (_, i) => slope.getPointAtLength(slope.getTotalLength() * i / 199))
                .filter((p) => texts.some((t) => p.x > t.x + 3 && p.x < t.x + t.width - 3 &&
                                                 p.y > t.y + 3 && p.y < t.y + t.height - 3)).length;
        """
        self.assertEqual(self.browser.run(on_the_slope), 0)

    def test_the_ladder_names_its_baseline(self):
        self.made_of(self.configured(*self.CONFIGS))
        bars = self.browser.find("#ladder .bar")
        self.assertIn("block=512,softmax=unfused", bars[0].get_attribute("data-tip"))
        self.assertEqual(self.text("#ladder").count("TFLOP/s, the baseline"), 3)  # for each length
        self.assertIn("The baseline is the first bar, the slowest of its configurations", self.text("#ladder"))
        self.open("h200")
        self.assertNotIn(", the baseline", self.text("#ladder"))
        self.assertNotIn("slowest of its configurations", self.text("#ladder"))

    def test_long_names_do_not_widen_the_page(self):
        whole = profile("h200")
        for row in whole["rows"]:
            row["kernel"] = f"a_very_long_kernel_name_of_somebody_that_does_not_end_soon_{row['kernel']}"
        whole["machine"]["name"] = "A" * 90
        self.made_of(whole)
        for width in (1280, 400, 320):
            self.browser.open(self.directory / "made.html", width=width)
            self.assertEqual(self.state(), ["true", "0"])
            self.assertLessEqual(self.browser.run("return document.documentElement.scrollWidth"), width)
            self.assertEqual(self.browser.run(CROWDED), [], width)

    def test_texts_of_ceilings_keep_apart(self):
        # Corners of the rotated text against the boxes of the others.
        covered = """
            const texts = [...document.querySelectorAll("#roofline .ceiling-text")];
            const flat = texts.filter((t) => !t.hasAttribute("transform")).map((t) => t.getBoundingClientRect());
            const found = [];
            for (const t of texts.filter((each) => each.hasAttribute("transform"))) {
              const box = t.getBBox(), matrix = t.getScreenCTM();
              for (let x = 0; x <= 20; ++x) for (let y = 1; y < 4; ++y) {
                const p = new DOMPoint(box.x + box.width * x / 20, box.y + box.height * y / 4).matrixTransform(matrix);
                if (flat.some((f) => p.x > f.left && p.x < f.right && p.y > f.top && p.y < f.bottom)) {
                  found.push(`${p.x} ${p.y}`);
                }
              }
            }
            return [texts.length, found];
        """
        self.made_of({**profile("lengths"), "ceilings": profile("h200")["ceilings"]})
        for width in (900, 400, 320):
            self.browser.open(self.directory / "made.html", width=width)
            count, found = self.browser.run(covered)
            self.assertEqual(count, 3, width)
            self.assertEqual(found, [], width)

    def test_writes_that_stay_in_l2_have_no_ratio(self):
        whole = profile("h200")
        (row,) = [each for each in whole["rows"] if each["kernel"] == "fa2"]
        row["counted"]["hbm_bytes_written"] = 2048
        self.assertLess(row["expected_bytes_written"], whole["machine"]["last_level_cache_bytes"])
        self.made_of({**whole, "rows": [row]})
        cells = self.browser.find("#rows tr.row td")
        self.assertEqual([cell.text for cell in cells[6:9]], ["2.05 kB", "in L2", "in L2"])
        self.assertIn("fits in L2", cells[7].get_attribute("data-tip"))
        del whole["machine"]["last_level_cache_bytes"]
        self.made_of({**whole, "rows": [row]})
        self.assertIn("×", self.browser.find("#rows tr.row td")[7].text)

    def test_figures_are_drawn_anew_for_another_width(self):
        self.open("lengths", width=1280)
        wide = [svg.size["width"] for svg in self.browser.find("figure > svg")]
        self.assertEqual(len(wide), 4)
        self.browser.resize(400)
        narrow = self.browser.run(
            "return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => "
            "done([...document.querySelectorAll('figure > svg')].map((s) => s.viewBox.baseVal.width)))))"
        )
        for before, after in zip(wide, narrow):
            self.assertGreater(before, 800)
            self.assertLess(after, 400)
        self.assertEqual(self.state(), ["true", "0"])

    def test_figures_have_names(self):
        self.open("lengths")
        for svg in self.browser.find("figure > svg"):
            self.assertEqual(svg.get_attribute("role"), "img")
            self.assertGreater(len(svg.get_attribute("aria-label")), 20)

    def test_pointing_at_a_point_tells_its_problem(self):
        self.open("h200")
        self.browser.run(
            "arguments[0].dispatchEvent(new PointerEvent('pointerover', { bubbles: true, clientX: 99, clientY: 99 }))",
            self.browser.find("#roofline > svg .mark")[2],
        )
        (tip,) = self.browser.find("#tip")
        self.assertTrue(tip.is_displayed())
        for text in ("fa2", "sq=4096", "367 µs", "45.9 % of the roofline"):
            self.assertIn(text, tip.text)

    def test_pictures_of_the_figures(self):
        written, absent = report_png.write_figures(self.browser, self.directory / "lengths.html", self.directory)
        self.assertEqual([path.name for path in written], ["roofline.png", "traffic.png", "time.png", "ladder.png"])
        self.assertEqual(absent, [])
        for path in written:
            self.assertEqual(path.read_bytes()[:8], b"\x89PNG\r\n\x1a\n")
            self.assertTrue(5_000 < path.stat().st_size < 150_000, f"{path.name}: {path.stat().st_size}")
        self.assertFalse(self.browser.find("#roofline .pointing")[0].is_displayed())
        self.open("lengths")
        self.assertTrue(self.browser.find("#roofline .pointing")[0].is_displayed())
        _, absent = report_png.write_figures(self.browser, self.directory / "h200.html", self.directory)
        self.assertEqual(absent, ["time"])

    def test_a_python_without_selenium_is_named(self):
        with mock.patch.object(browser, "webdriver", None):
            self.assertIn(f"python3-selenium for {sys.executable}; Debian's is for", browser.missing())

    def test_what_there_are_no_pictures_of(self):
        (self.directory / "other.html").write_text("<p>Another page</p>", encoding="utf-8")
        report, other = str(self.directory / "h200.html"), str(self.directory / "other.html")
        pictures = str(self.directory / "pictures")
        for words, says in [
            ([other, pictures], f"{other}: is not a page of `attnlab profile --html`"),
            (["/no/such.html", pictures], "report_png: /no/such.html: there is no such file"),
            ([str(self.directory), pictures], f"{self.directory}: is a directory, not a file"),
            ([report, other], f"{other}: is a file or under a file, not a directory"),
            ([report, f"{other}/in"], f"{other}/in: is a file or under a file, not a directory"),
            ([report, pictures, "--width=0"], "0 is not an integer in 320..4096"),
            ([report, pictures, "--width=5000"], "5000 is not an integer in 320..4096"),
            ([report, pictures, "--width=wide"], "wide is not an integer in 320..4096"),
        ]:
            err = io.StringIO()
            with contextlib.redirect_stderr(err):
                try:
                    status = report_png.main(words)
                except SystemExit as exited:  # from argparse
                    status = exited.code
            self.assertEqual(status, 2, words)
            self.assertIn(says, err.getvalue())
        self.assertFalse(pathlib.Path(pictures).exists())


if __name__ == "__main__":
    support.main()
