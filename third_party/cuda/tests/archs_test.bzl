"""Tests of how architectures are parsed and chosen, and of the messages for bad ones."""

load("@bazel_skylib//lib:unittest.bzl", "analysistest", "asserts", "unittest")
load("//third_party/cuda:defs.bzl", "cuda_library")
load("//third_party/cuda/private:archs.bzl", "gencode", "parse_arch", "select_archs")

_CUDA_13 = ["sm_75", "sm_80", "sm_90", "sm_100", "compute_75", "compute_80", "compute_90", "compute_100"]

def _parse_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.equals(env, struct(kind = "sm", number = 90, suffix = "a"), parse_arch("sm_90a"))
    asserts.equals(env, struct(kind = "compute", number = 100, suffix = "f"), parse_arch("compute_100f"))
    for bad in ["", "90", "sm90", "sm_", "sm_9", "sm_x", "sm_90b", "sm_90af", "compute-75", "SM_90"]:
        asserts.equals(env, "string", type(parse_arch(bad)), bad)
    return unittest.end(env)

def _select_test_impl(ctx):
    env = unittest.begin(ctx)
    cases = [
        (["sm_90a", "compute_75"], 0, ["compute_75", "sm_90a"]),
        (["sm_90a", "sm_90a"], 0, ["sm_90a"]),
        (["sm_75", "sm_90a"], 80, ["sm_90a"]),
        (["sm_90a", "compute_75"], 80, ["compute_80", "sm_90a"]),
        (["sm_75"], 80, ["compute_80"]),
        (["compute_100"], 80, ["compute_100"]),
        (["sm_70"], 0, "sm_70: CUDA 13.0 does not compile for compute capability 7.0; it has 7.5, 8.0, 9.0, 10.0"),
        (["sm_90", "90"], 0, "CUDA architecture \"90\": must be sm_XX for machine code or compute_XX for PTX, such as sm_90a or compute_75"),
        ([], 0, "no CUDA architecture: must be sm_XX for machine code or compute_XX for PTX, such as sm_90a or compute_75"),
    ]
    for archs, min_arch, expected in cases:
        asserts.equals(env, expected, select_archs(archs, min_arch, _CUDA_13, "13.0"))
    return unittest.end(env)

def _gencode_test_impl(ctx):
    env = unittest.begin(ctx)
    asserts.equals(env, "arch=compute_90a,code=sm_90a", gencode("sm_90a"))
    asserts.equals(env, "arch=compute_75,code=compute_75", gencode("compute_75"))
    return unittest.end(env)

def _compile_arguments_test_impl(ctx):
    env = analysistest.begin(ctx)
    compiles = [a for a in analysistest.target_actions(env) if a.mnemonic == "CudaCompile"]
    asserts.equals(env, 1, len(compiles), "one compile action per source")
    argv = " ".join(compiles[0].argv)
    asserts.true(env, "-gencode arch=compute_90,code=compute_90" in argv, argv)
    asserts.true(env, "-Xcompiler -fPIC" in argv, argv)
    inputs = compiles[0].inputs.to_list()
    toolkit = [f for f in inputs if "local_cuda" in f.path]
    asserts.equals(env, [], toolkit, "the toolkit's headers are not inputs")
    return analysistest.end(env)

def _bad_arch_test_impl(ctx):
    env = analysistest.begin(ctx)
    asserts.expect_failure(env, "CUDA architecture \"hopper\": must be sm_XX")
    return analysistest.end(env)

_parse_test = unittest.make(_parse_test_impl)
_select_test = unittest.make(_select_test_impl)
_gencode_test = unittest.make(_gencode_test_impl)
_compile_arguments_test = analysistest.make(_compile_arguments_test_impl)
_bad_arch_test = analysistest.make(_bad_arch_test_impl, expect_failure = True)

def archs_test_suite(name):
    """Declares the tests of this file, each under a name of its own.

    Args:
      name: prefix of their names.
    """
    _parse_test(name = name + "_parse", size = "small")
    _select_test(name = name + "_select", size = "small")
    _gencode_test(name = name + "_gencode", size = "small")
    _compile_arguments_test(
        name = name + "_compile_arguments",
        size = "small",
        target_under_test = ":saxpy_of_its_own_archs",
    )
    cuda_library(
        name = name + "_bad_arch_library",
        srcs = ["saxpy.cu"],
        hdrs = ["saxpy.h"],
        archs = ["hopper"],
        tags = ["manual"],
    )
    _bad_arch_test(
        name = name + "_bad_arch",
        size = "small",
        target_under_test = ":%s_bad_arch_library" % name,
    )
