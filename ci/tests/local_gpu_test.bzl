"""Tests of how --config=gpu chooses a platform."""

load("@bazel_skylib//lib:unittest.bzl", "asserts", "unittest")
load("//ci:local_gpu.bzl", "choose_gpu", "parse_capabilities", "supported_gpu")

def _parse_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.equals(env, [90], parse_capabilities("9.0\n"))
    asserts.equals(env, [90, 75, 120], parse_capabilities("9.0\n 7.5 \n12.0\n"))
    for bad in ["", "\n", "No devices were found\n", "[N/A]\n", "9\n", "9.x\n", ".0\n", "580.95.05\n"]:
        asserts.equals(env, [], parse_capabilities(bad), bad)
    return unittest.end(env)

def _supported_test_impl(ctx):
    env = unittest.begin(ctx)
    for gpu in [75, 80, 86, 89, 90, 100, 120]:
        asserts.equals(env, gpu, supported_gpu(gpu))
    asserts.equals(env, 86, supported_gpu(87))

    # sm_100a and sm_120a run only on those GPUs, and 7.0 and 11.0 have none of their major number.
    for gpu in [61, 70, 72, 103, 110, 121, 130]:
        asserts.equals(env, None, supported_gpu(gpu))
    return unittest.end(env)

def _choose_test_impl(ctx):
    env = unittest.begin(ctx)
    unknown = "ATTNLAB_GPU: \"%s\" is not one of sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120, none"
    cases = [
        ("", [], None, ""),
        ("", [90], 90, ""),
        ("", [90, 75, 120], 75, ""),
        ("", [70], None, "a GPU of compute capability 7.0 runs none of sm_75, sm_80, sm_86, sm_89, sm_90, sm_100, sm_120"),
        ("none", [90], None, ""),
        ("sm_80", [90], 80, ""),
        ("sm_120", [], 120, ""),
        ("sm_81", [], None, unknown % "sm_81"),
        ("90", [], None, unknown % "90"),
    ]
    for wanted, listed, gpu, problem in cases:
        asserts.equals(env, struct(gpu = gpu, problem = problem), choose_gpu(wanted, listed))
    return unittest.end(env)

_parse_test = unittest.make(_parse_test_impl)
_supported_test = unittest.make(_supported_test_impl)
_choose_test = unittest.make(_choose_test_impl)

def local_gpu_test_suite(name):
    """Declares the tests of this file, each under a name of its own.

    Args:
      name: prefix of their names.
    """
    _parse_test(name = name + "_parse", size = "small")
    _supported_test(name = name + "_supported", size = "small")
    _choose_test(name = name + "_choose", size = "small")
