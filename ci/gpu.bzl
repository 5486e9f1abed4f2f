"""Which GPUs there are, and which of them a test needs."""

# Compute capabilities of the GPUs that tests run on, times ten.
GPUS = [75, 80, 86, 89, 90, 100, 120]

# Tags of every test that runs on a GPU.
GPU_TAGS = ["gpu"]

# The environment of a test that needs one GPU, which tells //ci:gpu_slot so.
GPU_ENV = {"ATTNLAB_GPUS": "1"}

# Added to these: the test needs the GPU to itself. It measures time or memory, or takes more than 4 GiB.
# Bazel runs it when everything else is done, so that nothing waits for it.
GPU_EXCLUSIVE_ENV = {"ATTNLAB_GPU_EXCLUSIVE": "1"}
GPU_EXCLUSIVE_TAGS = ["exclusive"]

# Architectures with instructions that only machine code for that one capability has (wgmma, TMA
# multicast, tcgen05): "a" as nvcc names them.
_SPECIFIC = [90, 100, 120]

def native_arch(capability):
    """The machine code of a capability as nvcc names it: "sm_80", "sm_90a"."""
    return "sm_%d%s" % (capability, "a" if capability in _SPECIFIC else "")

def requires_gpu(minimum = 75, maximum = 120, other_than = []):
    """A value for target_compatible_with: a GPU with a compute capability in a range.

    On a platform without one (--platforms, --config=sm90 in .bazelrc), the target is skipped.

    Args:
      minimum: least compute capability times ten.
      maximum: greatest compute capability times ten.
      other_than: compute capabilities in that range that will not do.

    Returns:
      A select() of constraints.
    """
    matching = [g for g in GPUS if minimum <= g and g <= maximum and g not in other_than]
    if not matching:
        fail("requires_gpu: no GPU from %d to %d in %s" % (minimum, maximum, GPUS))
    conditions = {str(Label("//ci:is_sm_%d" % gpu)): [] for gpu in matching}
    conditions["//conditions:default"] = ["@platforms//:incompatible"]
    return select(conditions)

def by_gpu(values, default):
    """A select() of values[capability] by the GPU of the platform.

    Args:
      values: a dictionary of capabilities, 75 and so on.
      default: the value for other platforms.

    Returns:
      A select().
    """
    conditions = {str(Label("//ci:is_sm_%d" % gpu)): value for gpu, value in values.items()}
    conditions["//conditions:default"] = default
    return select(conditions)
