"""kernel_conformance_test: the conformance suite on one kernel family."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//ci:gpu_test.bzl", "gpu_test")
load("//ci:sanitizer.bzl", "SANITIZERS")

def kernel_conformance_test(
        name,
        deps,
        kernel = None,
        capabilities = [],
        shard_count = 2,
        size = "medium",
        env = {},
        **kwargs):
    """A test that holds kernels to the checks of //attention/testing:conformance.

        kernel_conformance_test(
            name = "cpu_conformance_test",
            kernel = "cpu",
            deps = ["//attention/cpu"],
        )

        kernel_conformance_test(
            name = "fa2_conformance_test",   # fa2_conformance_test_sm_80, fa2_conformance_test_sm_90
            kernel = "fa2",
            capabilities = [80, 90],
            deps = ["//attention/fa2"],
        )

    Args:
      name: of the test.
      deps: what registers the kernels, with alwayslink.
      kernel: the kernel's name in the registry; all that deps link, if left out.
      capabilities: of a CUDA kernel, the compute capabilities to test it for: targets NAME_sm_80 and
        so on, which run on a GPU (gpu_test() of //ci:gpu_test.bzl), and on fewer problems NAME_memcheck and
        so on (//ci:sanitizer.bzl).
      shard_count: as of cc_test; GoogleTest shares the cases out.
      size: as of cc_test.
      env: of the test; without capabilities, GPU_ENV of //ci:gpu.bzl has kernels of GPUs tested on a GPU that
        is there, and not skipped.
      **kwargs: other attributes of cc_test, or of gpu_test.
    """
    attributes = dict(
        name = name,
        size = size,
        args = ["--kernel=" + kernel] if kernel else [],
        # Shards run side by side, and threads that spin for work take it from the others.
        env = dict({"OMP_WAIT_POLICY": "passive"}, **env),
        shard_count = shard_count,
        deps = [Label("//attention/testing:conformance_main")] + deps,
        **kwargs
    )
    if capabilities:
        gpu_test(
            capabilities = capabilities,
            sanitizers = SANITIZERS,
            sanitizer_args = attributes["args"] + ["--reduced", "--bare_memory"],
            **attributes
        )
    else:
        cc_test(**attributes)
