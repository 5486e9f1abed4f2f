"""Tests check_layers with rules that break the layers, and with correct ones."""

import unittest

from tools.dev import check_layers
from tools.dev.check_layers import Rule


def library(label, *deps, kind="cc_library", testonly=False):
    return Rule(label, kind, testonly, deps)


IN_ORDER = [
    library("//attention:kernels", "//attention/fa2:fa2"),
    library("//attention", "//attention/core:kernel"),
    library("//attention/fa2:fa2", "//attention/fa2/private:call", "//attention/core:kernel", "@com_google_absl//absl/status"),
    library("//profiling:profile", "//profiling/report:report", "//attention:kernels"),
    library("//profiling/report:report", "//profiling:profile"),
]


class CheckLayersTest(unittest.TestCase):
    def test_in_order(self):
        self.assertEqual(check_layers.problems_of(IN_ORDER), [])

    def test_a_circle_is_named_with_its_edges(self):
        found = check_layers.problems_of([*IN_ORDER, library("//attention/core:tuned", "//attention/bench:a"),
                                          library("//attention/bench:a", "//attention/fa2:fa2")])  # fmt: skip
        self.assertEqual(found, [
            "these directories depend on each other: attention/bench, attention/core, attention/fa2",
            "    attention/bench -> attention/fa2: //attention/bench:a -> //attention/fa2:fa2",
            "    attention/core -> attention/bench: //attention/core:tuned -> //attention/bench:a",
            "    attention/fa2 -> attention/core: //attention/fa2:fa2 -> //attention/core:kernel",
        ])  # fmt: skip

    def test_tests_may_look_up(self):
        up = "//attention/core:up", "//attention:kernels", "//attention/conformance:suite"
        for rule in (library(*up, kind="cc_test"), library(*up, kind="test_suite"), library(*up, testonly=True)):
            self.assertEqual(check_layers.problems_of([*IN_ORDER, rule]), [])

    def test_a_family_that_depends_on_all_of_them(self):
        found = check_layers.problems_of([*IN_ORDER, library("//attention/fa2:rate", "//attention:kernels")])
        self.assertEqual(found[0], "these directories depend on each other: //attention:kernels, attention/fa2")

    def test_families_know_nothing_of_each_other(self):
        both = [*IN_ORDER, library("//attention:kernels", "//attention/fa1:fa1")]
        self.assertEqual(check_layers.problems_of(both), [])
        self.assertEqual(check_layers.problems_of([*both, library("//attention/fa2:tile", "//attention/fa1:tile")]),
                         ["a family depends on another: //attention/fa2:tile -> //attention/fa1:tile"])  # fmt: skip

    def test_an_alias_is_alone(self):
        alias = library("//attention/core:old_name", "//attention/fa2:fa2", kind="alias")
        self.assertEqual(check_layers.problems_of([*IN_ORDER, alias]), [])
        self.assertEqual(len(check_layers.problems_of(
            [*IN_ORDER, alias, library("//attention/core:kernel", "//attention/core:old_name")])), 4)  # fmt: skip

    def test_only_tests_depend_on_the_conformance_suite(self):
        edge = "//attention/oracle:verify", "//attention/conformance:trial"
        self.assertEqual(check_layers.problems_of([library(*edge)]),
                         ["is not a test, but depends on the conformance suite: " + " -> ".join(edge)])  # fmt: skip

    def test_long_build_files(self):
        self.assertEqual(check_layers.long_build_files({"a/BUILD": 299, "b/BUILD": 300}),
                         ["b/BUILD: 300 lines; a BUILD file has at most 299"])  # fmt: skip

    def test_reads_what_bazel_prints(self):
        self.assertEqual(check_layers.read_rules("""<?xml version="1.1" encoding="UTF-8" standalone="no"?>
            <query version="2"><source-file name="//a:a.cc"/>
              <rule class="cc_library" name="//a:a"><string name="name" value="a"/>
                <boolean name="testonly" value="true"/><rule-input name="//b:b"/><rule-input name="//a:a.cc"/>
              </rule>
            </query>"""),
                         [Rule("//a:a", "cc_library", True, ["//b:b", "//a:a.cc"])])  # fmt: skip


if __name__ == "__main__":
    unittest.main()
