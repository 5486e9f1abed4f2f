"""Queries of the library (problems, plans, kernels, devices), where it is found, and fork()."""

import gc
import importlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

import support
from support import needs_numpy, numpy

import attnlab
from attnlab import errors, library

LINE = "b=2,hq=8,hkv=2,sq=5,skv=7,d=64,dv=32,dtype=fp16,mask=window:3:1,scale=0.5,softcap=30"


class ProblemTest(unittest.TestCase):
    def test_parses_and_prints(self):
        problem = attnlab.Problem.parse(LINE)
        self.assertEqual(
            problem,
            attnlab.Problem(2, 8, 2, 5, 7, 64, 32, "fp16", (3, 1), 0.5, 30.0, "fixed", 0),
        )
        self.assertEqual(str(problem), LINE)
        self.assertEqual(len({problem, attnlab.Problem.parse(LINE)}), 1)
        plain = attnlab.Problem.parse("hq=8,sq=5,d=64,mask=causal,lens=packed,page=16")
        self.assertEqual((plain.mask, plain.scale, plain.lens), ("causal", None, "packed"))
        self.assertEqual(str(pickle.loads(pickle.dumps(plain))), str(plain))
        cache = attnlab.Problem.parse("hq=8,sq=5,d=64,dtype=fp16,kvdtype=fp8_e4m3")
        self.assertEqual((cache.kv_dtype, cache.o_dtype), ("fp8_e4m3", None))
        self.assertIn("dtype=fp16,kvdtype=fp8_e4m3,mask=none", str(cache))
        fp8 = attnlab.Problem.parse("hq=8,sq=5,d=64,dtype=fp8_e4m3,vdtype=fp8_e5m2")
        self.assertEqual((fp8.kv_dtype, fp8.v_dtype), (None, "fp8_e5m2"))
        self.assertIn("dtype=fp8_e4m3,vdtype=fp8_e5m2,mask=none", str(fp8))

    def test_rejects(self):
        for line, text in (
            ("hq=8", "sq: is required and missing"),
            ("hq=8,sq=5,d=64,x=1", 'problem: unknown key "x"'),
            ("hq=8,sq=5,d=64,hkv=3", "hkv: 3 does not divide hq = 8"),
            (b"hq=8,sq=5,d=64", "problem: b'hq=8,sq=5,d=64' is not a string"),
            ("hq=8,sq=5\0,d=64", "without NUL"),
        ):
            with self.assertRaises(attnlab.InvalidArgument) as caught:
                attnlab.Problem.parse(line)
            self.assertIn(text, str(caught.exception))
        with self.assertRaisesRegex(attnlab.InvalidArgument, "dtype: 'fp64' is not one of fp32"):
            attnlab.plan(attnlab.Problem(1, 1, 1, 1, 1, 1, 1, dtype="fp64"))
        with self.assertRaisesRegex(attnlab.OutOfRange, "b: 18446744073709551617 does not fit"):
            attnlab.plan(attnlab.Problem(2**64 + 1, 1, 1, 1, 1, 1, 1))
        with self.assertRaisesRegex(attnlab.OutOfRange, "exceed 2\\^60 bytes"):
            attnlab.plan("b=2147483647,hq=2147483647,sq=2147483647,d=64,dtype=fp32")


class PlanTest(unittest.TestCase):
    def test_says_what_it_is(self):
        plan = attnlab.plan("hq=2,sq=4,d=8,dtype=fp32", kernel="reference")
        self.assertEqual(plan.info.kernel, "reference")
        self.assertEqual(plan.info.flops, 2 * 2 * (8 + 8) * 16)
        self.assertEqual(plan.info.compulsory_bytes, 4 * 2 * 4 * 8 * 4)
        self.assertGreaterEqual(plan.info.expected_bytes_read, plan.info.compulsory_bytes * 3 // 4)
        self.assertIn("by reference on cpu", repr(plan))

    def test_errors(self):
        line = "hq=2,sq=4,d=8,dtype=fp32"
        for device, error, text in (
            ("gpu", attnlab.InvalidArgument, 'device: "gpu" is not one of'),
            ("cpu:0", attnlab.InvalidArgument, 'device: "cpu:0" is not one of'),
            ("cuda:-1", attnlab.InvalidArgument, 'device: "cuda:-1" is not one of'),
            ("cuda:x", attnlab.InvalidArgument, 'device: "cuda:x" is not one of'),
            ("cuda:99999999999", attnlab.InvalidArgument, "is not one of"),
        ):
            with self.assertRaises(error) as caught:
                attnlab.plan(line, device)
            self.assertIn(text, str(caught.exception))
        with self.assertRaises(
            (attnlab.NotFound, attnlab.Unavailable, attnlab.Unimplemented)
        ) as caught:
            attnlab.plan(line, "cuda:99")
        self.assertIn("cuda:99", str(caught.exception))

    def test_why_not(self):
        self.assertIsNone(attnlab.why_not("hq=2,sq=4,d=8,dtype=fp32"))
        reason = attnlab.why_not("hq=2,sq=4,d=8", config="no_such_key=1")
        for kernel in attnlab.kernels():
            self.assertIn(f"\n  {kernel.name}: ", reason)
        self.assertIn('"x" is not linked', attnlab.why_not("hq=2,sq=4,d=8", kernel="x"))

    def test_plans_are_freed(self):
        calls = []
        real = library.get().call

        def counting(name, *arguments):
            calls.append(name)
            real(name, *arguments)

        library.get().call = counting
        try:
            plan = attnlab.plan("hq=2,sq=4,d=8,dtype=fp32")
            del plan
            gc.collect()
        finally:
            del library.get().call
        self.assertEqual(calls.count("attnlab_plan_create"), 1)
        self.assertEqual(calls.count("attnlab_plan_destroy"), 1)


class MachineTest(unittest.TestCase):
    def test_kernels(self):
        kernels = {kernel.name: kernel for kernel in attnlab.kernels()}
        self.assertEqual(list(kernels), sorted(kernels))
        self.assertEqual(kernels["cpu"].device, "cpu")
        self.assertEqual(kernels["cpu"].built_for, ())
        self.assertTrue(any(key.startswith("threads: ") for key in kernels["cpu"].config_keys))
        for kernel in kernels.values():
            self.assertEqual(bool(kernel.built_for), kernel.device == "cuda")

    def test_devices(self):
        cpu = attnlab.devices("cpu")
        self.assertEqual([device.device for device in cpu], ["cpu"])
        self.assertGreaterEqual(cpu[0].threads, 1)
        self.assertEqual(attnlab.devices()[0], cpu[0])
        with self.assertRaises(attnlab.InvalidArgument):
            attnlab.devices("gpu")
        try:
            gpus = attnlab.devices("cuda")
        except (attnlab.Unavailable, attnlab.Unimplemented) as error:
            self.assertRegex(str(error), "looking for GPUs|without a CUDA toolkit")
            self.assertEqual(len(attnlab.devices()), 1)
        else:
            self.assertEqual(attnlab.devices()[1:], gpus)
            self.assertGreaterEqual(gpus[0].compute_capability, 50)


class ErrorsTest(unittest.TestCase):
    def test_each_is_pythons_own_too(self):
        for ours, pythons in (
            (attnlab.InvalidArgument, ValueError),
            (attnlab.NotFound, LookupError),
            (attnlab.OutOfRange, OverflowError),
            (attnlab.Unimplemented, NotImplementedError),
            (attnlab.ResourceExhausted, MemoryError),
            (attnlab.FailedPrecondition, RuntimeError),
            (attnlab.Unavailable, RuntimeError),
            (attnlab.Internal, RuntimeError),
            (attnlab.LibraryNotFound, ImportError),
        ):
            self.assertTrue(issubclass(ours, pythons) and issubclass(ours, attnlab.Error))
            if ours.code:
                self.assertIs(type(errors.of(ours.code, "text")), ours)
        self.assertIs(type(errors.of(77, "text")), attnlab.Internal)


class LibraryTest(unittest.TestCase):
    def run_python(self, program, **environment):
        """stdout of a program in its own process, which can import the package."""
        inherited = {k: v for k, v in os.environ.items() if k != "ATTNLAB_LIBRARY"}
        package = pathlib.Path(attnlab.__file__).parent.parent
        inherited.pop("LD_LIBRARY_PATH", None)
        full = {**inherited, "PYTHONPATH": str(package), **environment}
        result = subprocess.run(
            [sys.executable, "-c", program], env=full, capture_output=True, text=True, timeout=120
        )
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    TRY = """
import attnlab
try:
    print(attnlab.library_path())
except attnlab.LibraryNotFound as error:
    print("error:", error)
"""

    def test_is_the_one_that_is_named(self):
        path = attnlab.library_path()
        self.assertEqual(self.run_python(self.TRY, ATTNLAB_LIBRARY=path).strip(), path)
        said = self.run_python(self.TRY, ATTNLAB_LIBRARY="/no/such.so")
        self.assertIn("error: libattnlab.so: not found at /no/such.so; ./bazelw build", said)

    def test_an_empty_name_is_none(self):
        places = "from attnlab import library\nprint(len(library.candidates()))"
        self.assertGreater(int(self.run_python(places, ATTNLAB_LIBRARY="")), 1)
        self.assertEqual(int(self.run_python(places, ATTNLAB_LIBRARY="/no/such.so")), 1)

    @unittest.skipUnless("TEST_SRCDIR" in os.environ, "not run by Bazel")
    def test_is_that_of_the_runfiles(self):
        path = pathlib.Path(attnlab.library_path())
        self.assertIn(pathlib.Path(os.environ["TEST_SRCDIR"]), path.parents)
        # Together with the libraries that its RUNPATH needs.
        if any(kernel.device == "cuda" for kernel in attnlab.kernels()):
            self.assertTrue(list(path.parent.parent.glob("_solib_*/*/libcublas.so*")))

    def test_what_is_no_library(self):
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(b"text")
            file.flush()
            said = self.run_python(self.TRY, ATTNLAB_LIBRARY=file.name)
            self.assertIn(f"error: {file.name}: ", said)

    def test_another_library(self):
        import ctypes.util

        libc = ctypes.util.find_library("m")
        with self.assertRaises(attnlab.LibraryNotFound):
            library.Library(pathlib.Path(libc))

    def test_loads_with_all_that_it_needs(self):
        # It also loads cuBLAS if a kernel uses it: through RUNPATH, not LD_LIBRARY_PATH.
        program = """
import attnlab
gpu_kernels = [kernel for kernel in attnlab.kernels() if kernel.device == "cuda"]
with open("/proc/self/maps") as maps:
    loaded = {line.split()[-1].rpartition("/")[2] for line in maps if ".so" in line}
print("libattnlab.so" in loaded,
      not gpu_kernels or any(name.startswith("libcublas.so") for name in loaded))
"""
        path = attnlab.library_path()
        self.assertEqual(self.run_python(program, ATTNLAB_LIBRARY=path).split(), ["True", "True"])

    def test_package_does_not_import_array_libraries(self):
        program = """
import sys, attnlab
attnlab.kernels()
print([name for name in ("numpy", "torch") if name in sys.modules])
"""
        path = attnlab.library_path()
        self.assertEqual(self.run_python(program, ATTNLAB_LIBRARY=path).strip(), "[]")


@needs_numpy
class ForkTest(unittest.TestCase):
    PROGRAM = """
import os, signal, sys, numpy, attnlab
x = numpy.ones((1, 300, 2, 64), "f4")
attnlab.plan("hq=2,sq=300,d=64,dtype=fp32")
if sys.argv[1] == "after":
    attnlab.attention(x, x, x)
child = os.fork()
if child == 0:
    signal.alarm(20)
    try:
        out = attnlab.attention(x, x, x)
        ended = 10 if abs(out - 1).max() < 1e-5 else 11
    except attnlab.FailedPrecondition as error:
        ended = 20 if "was forked after process" in str(error) else 21
    os._exit(ended)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""

    def child_of(self, when):
        environment = {**os.environ, "ATTNLAB_LIBRARY": attnlab.library_path()}
        environment["PYTHONPATH"] = str(pathlib.Path(attnlab.__file__).parent.parent)
        result = subprocess.run(
            # Python itself warns about threads, and OpenMP starts some.
            [sys.executable, "-W", "ignore::DeprecationWarning", "-c", self.PROGRAM, when],
            env=environment, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        self.assertEqual(result.stderr, "")
        return int(result.stdout)

    def test_a_child_from_after_the_first_call_gets_an_error(self):
        self.assertEqual(self.child_of("after"), 20)

    def test_a_child_from_before_it_computes(self):
        self.assertEqual(self.child_of("before"), 10)


class ModuleTest(unittest.TestCase):
    def test_all_names_are_there(self):
        module = importlib.import_module("attnlab")
        for name in module.__all__:
            self.assertTrue(hasattr(module, name), name)
        self.assertEqual(attnlab.ABI_VERSION, 1)


if __name__ == "__main__":
    support.main()
