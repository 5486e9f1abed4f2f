"""kernel_conformance_test: the conformance suite on one kernel family."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")

def kernel_conformance_test(name, deps, kernel = None, shard_count = 2, size = "medium", **kwargs):
    """A test that holds kernels to the checks of //attention/testing:conformance.

        kernel_conformance_test(
            name = "cpu_conformance_test",
            kernel = "cpu",
            deps = ["//attention/cpu"],
        )

    Args:
      name: of the test.
      deps: what registers the kernels, with alwayslink.
      kernel: the kernel's name in the registry; all that deps link, if left out.
      shard_count: as of cc_test; GoogleTest shares the cases out.
      size: as of cc_test.
      **kwargs: other attributes of cc_test: tags, target_compatible_with for a GPU.
    """
    cc_test(
        name = name,
        size = size,
        args = ["--kernel=" + kernel] if kernel else [],
        # Shards run side by side, and threads that spin for work take it from the others.
        env = {"OMP_WAIT_POLICY": "passive"},
        shard_count = shard_count,
        deps = [Label("//attention/testing:conformance_main")] + deps,
        **kwargs
    )
