"""For each rule of check_build_files: a file that breaks it is reported, and a correct one is
not."""

import unittest

from tools.dev import check_build_files

GOOD = '''load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("//third_party/cuda:defs.bzl", "cuda_library")
load(":local.bzl", "local_rule")

cc_library(
    name = "a",
    srcs = [
        "a.cc",
        "b.cc",
    ],
    deps = [
        ":b",
        "//attention/core:kernel",
        "//attention/core:problem",
        "@com_google_absl//absl/status",
    ],
)

cuda_library(name = "b")

local_rule(
    name = "c",
    **{"x": 1}
)

[cc_library(name = n) for n in ["d", "e"]]
'''


def messages(text, path="pkg/BUILD"):
    return [message for _, message in check_build_files.check_text(path, text)]


class CheckBuildFilesTest(unittest.TestCase):
    def test_a_file_in_form_has_no_problems(self):
        self.assertEqual(messages(GOOD), [])

    def assert_reported(self, before, after, message):
        self.assertIn(before, GOOD)
        found = messages(GOOD.replace(before, after))
        self.assertTrue(any(message in m for m in found), "%r not in %r" % (message, found))

    def test_reports(self):
        cases = [
            ('load("@rules_cc//cc:cc_library.bzl", "cc_library")\n', "", "cc_library is not loaded"),
            ('"local_rule")', '"local_rule", "unused")', "unused is loaded but not used"),
            ('"//attention/core:kernel",\n        "//attention/core:problem",',
             '"//attention/core:problem",\n        "//attention/core:kernel",', "deps is not sorted"),
            (":b", "@z//:z", "deps is not sorted"),
            ('"b.cc",\n    ]', '"a.cc",\n    ]', "srcs has an item twice"),
            ('"a.cc",\n        "b.cc",', '"a.cc", "b.cc",', "put one item on each line"),
            ('"b.cc",\n    ]', '"b.cc"\n    ]', "no comma after the last item"),
            ('"b.cc",\n    ]', '"b.cc",\n  ]', "not below the line that opens it"),
            ('name = "a"', "name = 'a'", "single quotes"),
            ('    name = "a",\n    srcs', '    visibility = [],\n    name = "a",\n    srcs',
             "name is not the first attribute"),
            ("cuda_library(name", "native.cc_library(name", "load cc_library from its rule set"),
            ("    name", "\tname", "a tab"),
            ('name = "b")\n', 'name = "b") \n', "space at the end of the line"),
            ('["d", "e"]]\n', '["d", "e"]]', "no newline at the end"),
            ('name = "b")', 'name = "b"', "does not parse"),
        ]  # yapf: disable
        for before, after, message in cases:
            with self.subTest(message):
                self.assert_reported(before, after, message)

    def test_loads_are_sorted_but_not_in_workspace(self):
        first, second, rest = GOOD.split("\n", 2)
        swapped = "\n".join([second, first, rest])
        self.assertIn("loads are not sorted (@..., then //..., then :...)", messages(swapped))
        self.assertEqual(messages(swapped, "WORKSPACE"), [])

    def test_a_bzl_file_has_a_docstring(self):
        self.assertEqual(messages('"""What it is for."""\n\nX = 1\n', "a.bzl"), [])
        self.assertEqual(
            messages("X = 1\n", "a.bzl"), ["a .bzl file begins with a docstring that says what it is for"]
        )


if __name__ == "__main__":
    unittest.main()
