"""The supported GPUs, and which of them a test needs."""

# Compute capabilities, times ten, of the GPUs that tests run on.
GPUS = [75, 80, 86, 89, 90, 100, 120]

# Tags of every test that needs a GPU.
GPU_TAGS = ["gpu"]

# Environment of a test that needs one GPU; //ci:gpu_slot reads it.
GPU_ENV = {"ATTNLAB_GPUS": "1"}

# Added for a test that needs the GPU to itself because it measures time or memory, or takes more
# than 4 GiB. Bazel runs such tests last, so that no other test waits for them.
GPU_EXCLUSIVE_ENV = {"ATTNLAB_GPU_EXCLUSIVE": "1"}
GPU_EXCLUSIVE_TAGS = ["exclusive"]

# Capabilities with instructions that exist only in architecture-specific machine code (wgmma, TMA
# multicast, tcgen05); nvcc marks it with "a".
_SPECIFIC = [90, 100, 120]

def native_arch(capability):
    """nvcc's name for the machine code of a capability: "sm_80", "sm_90a"."""
    return "sm_%d%s" % (capability, "a" if capability in _SPECIFIC else "")

def requires_gpu(minimum = 75, maximum = 120, other_than = []):
    """A value for target_compatible_with: a GPU whose compute capability is in a range.

    On a platform without such a GPU (--platforms, --config=sm90 in .bazelrc), the target is
    skipped.

    Args:
      minimum: least compute capability times ten.
      maximum: greatest compute capability times ten.
      other_than: compute capabilities in that range that are excluded.

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
    """A select() of values[capability] by the platform's GPU.

    Args:
      values: a dictionary by capability, such as 75.
      default: the value for other platforms.

    Returns:
      A select().
    """
    conditions = {str(Label("//ci:is_sm_%d" % gpu)): value for gpu, value in values.items()}
    conditions["//conditions:default"] = default
    return select(conditions)
