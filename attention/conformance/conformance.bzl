"""kernel_conformance_test: the conformance suite on one kernel family."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//ci:gpu_test.bzl", "gpu_test")
load("//ci:sanitizer.bzl", "SANITIZERS")

def kernel_conformance_test(
        name,
        deps,
        kernel = None,
        capabilities = [],
        reduced = False,
        shard_count = 4,
        size = "medium",
        env = {},
        **kwargs):
    """A test that runs the checks of //attention/conformance:conformance on kernels.

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
      deps: libraries that register the kernels, with alwayslink.
      kernel: the kernel's name in the registry. By default, all kernels that deps link.
      capabilities: for a CUDA kernel, the compute capabilities to test. Each gives a target NAME_sm_80
        (and so on) that runs on a GPU; see gpu_test() of //ci:gpu_test.bzl. NAME_sm_80 on a later GPU
        and NAME_memcheck (and so on, //ci:sanitizer.bzl) run fewer problems, which still reach every
        tile: --reduced of conformance_main.cc.
      reduced: whether a few dozen small problems are enough.
      shard_count: as of cc_test; GoogleTest distributes the cases over the shards.
      size: as of cc_test.
      env: of the test.
      **kwargs: other attributes of cc_test, or of gpu_test.
    """
    attributes = dict(
        name = name,
        size = size,
        args = (["--kernel=" + kernel] if kernel else []) + (["--reduced"] if reduced else []),
        # Shards run side by side, and threads that spin for work take it from the others.
        env = dict({"OMP_WAIT_POLICY": "passive"}, **env),
        shard_count = shard_count,
        deps = [Label("//attention/conformance:conformance_main")] + deps,
        **kwargs
    )
    if capabilities:
        gpu_test(
            capabilities = capabilities,
            also_native = True,
            older_args = attributes["args"] + ["--reduced"],
            sanitizers = SANITIZERS,
            sanitizer_args = attributes["args"] + ["--reduced", "--bare_memory"],
            **attributes
        )
    else:
        cc_test(**attributes)
