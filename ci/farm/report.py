"""What a run of the farm found: one JUnit file and one page, over all runners and attempts.

The page needs nothing but itself. A history, one JSON line per run, marks tests that were flaky before, and
kernels that became slower.
"""

import collections
import html
import json
import os
import re
import xml.etree.ElementTree as ElementTree

from ci.farm import speed
from ci.farm.run_tests import GOOD, busy_gpus, has_failure, is_skipped

# In the order in which the page shows them.
STATUSES = ("failed", "lost", "flaky", "skipped", "passed")
SLOWEST = 15
SANITIZED = re.compile(r"_(memcheck|initcheck|racecheck|synccheck)$")
# A case of the conformance suite: "fa2_matches_oracle" and "036_bf16_d512_window_packed_bhsd".
CHECKS = re.compile(r"_(matches_oracle|lse_is_optional|lens_modes_agree|config_overrides|traffic_model|"
                    r"hidden_keys|sequences|zero_q|constant_v|nan_reaches|allocates|batch_).*$")  # fmt: skip
FEATURES = re.compile(r"_(fp32|fp16|bf16|fp8|none|causal|window|packed|padded|fixed|bshd|bhsd|softcap|page\d+)(?=_|$)")


def cases_of(path):
    """[(class, name, outcome)] of a test.xml; outcome: passed, failed or skipped."""
    cases = []
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        if case.get("status") == "notrun":
            continue
        outcome = "failed" if has_failure(case) else "skipped" if is_skipped(case) else "passed"
        cases.append((case.get("classname", ""), case.get("name", ""), outcome))
    return cases


def name_of(item):
    """Of a test and its shard, for people. One that is for no capability runs on each."""
    name = item["label"] + (" %d/%d" % (item["shard"] + 1, item["shards"])) * (item["shards"] > 1)
    return name if "_sm_%d" % item["capability"] in item["label"] else name + " on %.1f" % (item["capability"] / 10)


def key_of(item):
    return item["label"], item["capability"], item["shard"]


def junit(results, out):
    """The cases of each item's last attempt that has results; items that are lost are errors."""
    root = ElementTree.Element("testsuites")
    for item in results["items"]:
        name = name_of(item)
        suite = ElementTree.SubElement(root, "testsuite", name=name)
        properties = ElementTree.SubElement(suite, "properties")
        for of in ("capability", "status"):
            ElementTree.SubElement(properties, "property", name=of, value=str(item[of]))
        done = [a for a in item["attempts"] if "directory" in a]
        if item["status"] == "lost" or not done:
            case = ElementTree.SubElement(suite, "testcase", classname=item["label"], name=name)
            why = "; ".join("%(runner)s: %(status)s %(why)s" % a for a in item["attempts"])
            ElementTree.SubElement(case, "error", message="lost: " + (why or "no runner was left"))
            continue
        passed = [a for a in done if a["status"] in GOOD]
        for case in ElementTree.parse(os.path.join(out, (passed or done)[-1]["directory"], "test.xml")).iter("testcase"):
            suite.append(case)
    for test in results["unplaced"]:
        suite = ElementTree.SubElement(root, "testsuite", name=test["label"])
        case = ElementTree.SubElement(suite, "testcase", classname=test["label"], name=test["label"])
        ElementTree.SubElement(case, "error", message="no runner: " + test["why"])
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def coverage(results, out):
    """{(kernel, capability): {feature: cases that passed}} of the conformance suite."""
    found = collections.defaultdict(collections.Counter)
    for item in results["items"]:
        if SANITIZED.search(item["label"]):
            continue  # the same cases once more
        for attempt in item["attempts"]:
            if attempt["status"] != "passed" or "directory" not in attempt:
                continue
            for kind, name, outcome in cases_of(os.path.join(out, attempt["directory"], "test.xml")):
                kernel, is_check = CHECKS.subn("", kind)
                if outcome != "passed" or not is_check:
                    continue
                features = FEATURES.findall(name)
                found[kernel, item["capability"]].update(features + ["cases"])
    return found


def attempts_of_runners(results):
    """{runner: [attempt]}"""
    attempts = collections.defaultdict(list)
    for item in results["items"]:
        for attempt in item["attempts"]:
            attempts[attempt["runner"]].append(attempt)
    return attempts


def span(attempts):
    """Seconds from the begin of the first test that ran to its end to the end of the last."""
    ends = [attempt["began"] + attempt["seconds"] for attempt in attempts]
    return max(ends) - min(attempt["began"] for attempt in attempts) if attempts else 0.0


def flaky_before(history):
    """{key_of an item: runs in which it was flaky} of the lines of a history."""
    counts = collections.Counter()
    for line in history:
        try:
            counts.update(tuple(item) for item in json.loads(line)["flaky"])
        except (ValueError, KeyError, TypeError):
            continue
    return counts


def seconds_before(history):
    """{(label, capability): seconds of all shards} of the last run that had the test."""
    found = {}
    for line in history:
        try:
            run = collections.Counter()
            for label, capability, _, seconds in json.loads(line)["seconds"]:
                run[label, capability] += seconds
            found.update(run)
        except (ValueError, KeyError, TypeError):
            continue
    return found


def history_line(results, when, out):
    """What a run adds to the history."""
    seconds = [[*key_of(item), attempt["seconds"]] for item in results["items"]
               for attempt in item["attempts"][-1:] if "seconds" in attempt]  # fmt: skip
    of = lambda status: [key_of(i) for i in results["items"] if i["status"] == status]
    return json.dumps({"when": when, "flaky": of("flaky"), "failed": of("failed"), "lost": of("lost"),
                       "seconds": seconds, "speed": speed.measured(results, out)[0]}) + "\n"  # fmt: skip


STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --paper: #ffffff; --faint: #57606a; --line: #d0d7de;
  --bad: #a40e26; --odd: #7a4b00; --good: #116329; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --paper: #0d1117; --faint: #9aa4af;
  --line: #3d444d; --bad: #ff8182; --odd: #e3b341; --good: #56d364; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 sans-serif; margin: 0 auto;
  max-width: 72rem; padding: 1rem; }
table { border-collapse: collapse; display: block; max-width: 100%; overflow-x: auto; }
th, td { border-bottom: 1px solid var(--line); padding: .25rem .6rem; text-align: left; }
td { overflow-wrap: anywhere; } th { white-space: nowrap; }
td.number { text-align: right; white-space: nowrap; }
.failed, .lost { color: var(--bad); } .flaky { color: var(--odd); } .passed { color: var(--good); }
p.note { color: var(--faint); }
"""


def _table(head, rows):
    cell = lambda x: "<td class=number>%s</td>" % x if isinstance(x, (int, float)) else "<td>%s</td>" % x
    lines = ["<table><thead><tr>%s</tr></thead><tbody>" % "".join("<th>%s</th>" % h for h in head)]
    lines += ["<tr>%s</tr>" % "".join(map(cell, row)) for row in rows]
    return "\n".join(lines + ["</tbody></table>"])


def _name(item):
    return html.escape(name_of(item))


def _attempt(attempt):
    where = attempt["runner"] + (" on " + attempt["machine"] if attempt["machine"] else "")
    text = "%s: %s%s" % (where, attempt["status"], ", " + attempt["why"] if attempt["why"] else "")
    text = html.escape(text)
    return '<a href="%s/test.log">%s</a>' % (html.escape(attempt["directory"]), text) if "directory" in attempt else text


def _speed(now, damaged, history):
    """The part of the page on kernels that became slower."""
    parts = ["<p class=failed>%s: cannot be read.</p>" % html.escape(path) for path in damaged]
    runs = speed.past(history) + [now] * bool(now)
    rows = [[html.escape(after.kernel), html.escape(after.problem), html.escape(after.machine),
             html.escape("%s to %s" % (before.commit or "?", after.commit or "?")), "%.4g" % (before.median * 1e6),
             "%.4g" % (after.median * 1e6), round(after.median / before.median, 2)]
            for before, after in speed.slower(runs)[:SLOWEST]]  # fmt: skip
    if rows:
        parts.append(_table(["kernel", "problem", "on", "commits", "before, µs", "after, µs", "times"], rows))
    elif now:
        parts.append("<p class=note>%d measured. None became slower than its spread.</p>" % len(now))
    return ["<h2>Became slower</h2>"] * bool(parts) + parts


def page(results, out, history=()):
    counts = collections.Counter(item["status"] for item in results["items"])
    before = flaky_before(history)
    parts = ["<!DOCTYPE html><html lang=en><meta charset=utf-8><title>Tests on the farm</title>",
             '<meta name=viewport content="width=device-width">', "<style>%s</style>" % STYLE, "<h1>Tests on the farm</h1>",
             "<p id=counts>%s</p>" % ", ".join('<span class="%s">%d %s</span>' % (s, counts[s], s) for s in STATUSES)]  # fmt: skip
    seconds = span([a for i in results["items"] for a in i["attempts"] if "seconds" in a])
    commit = results["commit"] and ", commit " + html.escape(results["commit"])
    parts.append("<p class=note>%.1f minutes of tests%s.</p>" % (seconds / 60, commit))
    if results["unplaced"]:
        rows = [[html.escape(t["label"]), html.escape(t["why"])] for t in results["unplaced"]]
        parts += ["<h2>Without a runner</h2>", _table(["test", "why"], rows)]
    odd = [i for i in results["items"] if i["status"] != "passed" or len(i["attempts"]) > 1]
    odd.sort(key=lambda i: (STATUSES.index(i["status"]), key_of(i)))
    if odd:
        rows = [['<span class="%s">%s</span>' % (i["status"], i["status"]), _name(i),
                 "<br>".join(map(_attempt, i["attempts"])) or "no runner was left",
                 before[key_of(i)] or ""] for i in odd]  # fmt: skip
        parts += ["<h2>Not passed at once</h2>", _table(["status", "test", "attempts", "flaky before"], rows)]
    parts += _speed(*speed.measured(results, out), history)
    rows = []
    for runner, attempts in sorted(attempts_of_runners(results).items()):
        of = collections.Counter(attempt["status"] for attempt in attempts)
        bad = ", ".join("%d %s" % (n, s) for s, n in sorted(of.items()) if s != "passed")
        done = [attempt for attempt in attempts if "seconds" in attempt]
        wall = span(done)
        gpus = "<br>".join("%s: %d tests, busy %.0f %%" % (html.escape(gpu), count, 100 * busy / max(wall, 1e-9))
                           for gpu, count, busy, _ in busy_gpus(done))  # fmt: skip
        rows.append([html.escape(runner), of["passed"], bad, round(wall, 1), gpus])
    parts += ["<h2>Runners</h2>", _table(["runner", "passed", "others", "seconds", "GPUs"], rows)]
    timed = [(a["seconds"], i, a) for i in results["items"] for a in i["attempts"] if "seconds" in a]
    timed.sort(key=lambda x: (-x[0], key_of(x[1])))
    rows = [[round(s, 1), _name(i), html.escape(a["runner"])] for s, i, a in timed[:SLOWEST]]
    parts += ["<h2>Slowest</h2>", _table(["seconds", "test", "runner"], rows)]
    covered = coverage(results, out)
    if covered:
        features = sorted({f for counts in covered.values() for f in counts if f != "cases"})
        rows = [[html.escape(kernel), capability, counts["cases"]] + [counts[f] or "" for f in features]
                for (kernel, capability), counts in sorted(covered.items())]  # fmt: skip
        parts += ["<h2>Coverage</h2>", "<p class=note>Cases of the conformance suite that passed, by what they have.</p>",
                  _table(["kernel", "on", "cases"] + features, rows)]  # fmt: skip
    return "\n".join(parts) + "\n</html>\n"
