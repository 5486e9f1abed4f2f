"""Shared by the tests: finding the package, NumPy and PyTorch if installed, and main()."""

import os
import pathlib
import sys
import unittest
from xml.etree import ElementTree

# Both as a script in a checkout and in Bazel's runfiles, neither is on the path.
_PYTHON = pathlib.Path(os.path.abspath(__file__)).parent.parent
for _directory in (_PYTHON.parent, _PYTHON):
    if str(_directory) not in sys.path:
        sys.path.insert(0, str(_directory))

try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch

    if tuple(int(x) for x in torch.__version__.split(".")[:2]) < (2, 5):  # Debian 12 has 1.13
        torch = None
except ImportError:
    torch = None
try:
    import ml_dtypes
except ImportError:
    ml_dtypes = None

EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}

needs_numpy = unittest.skipIf(numpy is None, "NumPy is not installed")
needs_torch = unittest.skipIf(torch is None, "PyTorch 2.5 or later is not installed")
needs_cuda = unittest.skipUnless(
    torch is not None and torch.cuda.is_available(), "no GPU, or no PyTorch with CUDA"
)


def gpus() -> int:
    return torch.cuda.device_count() if torch is not None and torch.cuda.is_available() else 0


def assert_close(test, got, want, bound, what=""):
    """Checks NumPy arrays: within the bound, with infinities and NaN in the same places."""
    test.assertEqual(got.shape, want.shape, what)
    got = got.astype("float64")
    finite = numpy.isfinite(want)
    test.assertTrue((got[~finite] == want[~finite]).all(), f"{what}: infinities out of place")
    error = numpy.abs(got[finite] - want[finite]).max(initial=0.0)
    test.assertLessEqual(error, bound, what)  # false for NaN


def _write_xml(path, result, seconds):
    """Writes the cases that .ci/run counts; Bazel's own file would have one case for all."""
    suite = ElementTree.Element("testsuite", name=pathlib.Path(sys.argv[0]).stem)
    for test, outcome, text in result.outcomes:
        name, _, classname = str(test).partition(" ")
        case = ElementTree.SubElement(suite, "testcase", name=name, classname=classname.strip("()"))
        if outcome != "passed":
            ElementTree.SubElement(case, outcome, message=text)
    suite.set("time", f"{seconds:.3f}")
    suites = ElementTree.Element("testsuites")
    suites.append(suite)
    ElementTree.ElementTree(suites).write(path)


class _Result(unittest.TextTestResult):
    """Remembers how each case ended."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.outcomes = []

    def addSuccess(self, test):
        super().addSuccess(test)
        self.outcomes.append((test, "passed", ""))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.outcomes.append((test, "failure", str(err[1])))

    def addError(self, test, err):
        super().addError(test, err)
        self.outcomes.append((test, "error", str(err[1])))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.outcomes.append((test, "skipped", reason))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.outcomes.append((test, "failure", f"{subtest}: {err[1]}"))


class _Runner(unittest.TextTestRunner):
    resultclass = _Result

    def run(self, test):
        result = super().run(test)
        ran = result.testsRun - len(result.skipped)
        failed = sum(outcome in ("failure", "error") for _, outcome, _ in result.outcomes)
        passed = sum(outcome == "passed" for _, outcome, _ in result.outcomes)
        print(f"{passed} passed, {failed} failed, {len(result.skipped)} skipped", file=sys.stderr)
        if ran == 0:
            reasons = sorted({reason for _, reason in result.skipped})
            print(f"SKIPPED, all of it: {'; '.join(reasons)}", file=sys.stderr)
        path = os.environ.get("XML_OUTPUT_FILE")
        if path:
            _write_xml(path, result, 0.0)
        return result


def main():
    unittest.main(testRunner=_Runner)
