"""`import attnlab` in a program of another workspace, whose target does not mention __init__.py
files."""

import unittest

import attnlab


class PythonTest(unittest.TestCase):
    def test_the_package_finds_its_library(self):
        self.assertIn("cpu", [kernel.name for kernel in attnlab.kernels()])
        self.assertTrue(attnlab.library_path().endswith("/attention/libattnlab.so"))

    def test_there_is_a_plan(self):
        plan = attnlab.plan("hq=2,sq=16,d=32,dtype=fp32", device="cpu", kernel="cpu")
        self.assertEqual(plan.info.kernel, "cpu")

    def test_modules_of_the_repository_are_still_there_under_its_name(self):
        from attnlab.tools.python.attnlab import errors

        self.assertEqual(errors.__name__, "attnlab.tools.python.attnlab.errors")


if __name__ == "__main__":
    unittest.main()
