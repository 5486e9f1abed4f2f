"""local_gpu: the platform of this machine with its GPU, as @local_gpu//:platform, for --config=gpu.

nvidia-smi tells the GPU; ATTNLAB_GPU=sm_90, or none, overrides it. It is looked up again when
ATTNLAB_GPU or PATH changes, when Bazel's server starts, and at `bazel sync --configure`.
"""

load(":gpu.bzl", "GPUS", "native_arch")

def parse_capabilities(text):
    """The compute capabilities, times ten, in the output of nvidia-smi: "9.0", one line per GPU."""
    capabilities = []
    for line in text.split("\n"):
        major, point, minor = line.strip().partition(".")
        if point and major.isdigit() and minor.isdigit() and len(minor) == 1:
            capabilities.append(10 * int(major) + int(minor))
    return capabilities

def supported_gpu(capability):
    """The entry of GPUS whose machine code runs on a GPU of this capability, or None.

    That is its own, or an earlier one with the same major number. Architecture-specific code runs
    on no other capability.
    """
    for gpu in reversed(GPUS):
        if gpu == capability:
            return gpu
        if gpu < capability and gpu // 10 == capability // 10 and not native_arch(gpu).endswith("a"):
            return gpu
    return None

def choose_gpu(wanted, listed):
    """Chooses the platform's GPU.

    Args:
      wanted: the value of ATTNLAB_GPU, "" if it is not set.
      listed: compute capabilities of this machine's GPUs.

    Returns:
      struct(gpu, problem): an entry of GPUS, or None for no GPU; what is wrong, or "". With several GPUs
      it is the least capability, because code for it runs on all with the same major number.
    """
    names = ", ".join(["sm_%d" % gpu for gpu in GPUS])
    if wanted == "none":
        return struct(gpu = None, problem = "")
    if wanted:
        for gpu in GPUS:
            if wanted == "sm_%d" % gpu:
                return struct(gpu = gpu, problem = "")
        return struct(gpu = None, problem = "ATTNLAB_GPU: \"%s\" is not one of %s, none" % (wanted, names))
    if not listed:
        return struct(gpu = None, problem = "")
    least = min(listed)
    gpu = supported_gpu(least)
    if gpu:
        return struct(gpu = gpu, problem = "")
    return struct(
        gpu = None,
        problem = "a GPU of compute capability %d.%d runs none of %s" % (least // 10, least % 10, names),
    )

def _list_capabilities(rctx):
    """Returns the compute capabilities of the GPUs, and the message of nvidia-smi if it fails."""
    nvidia_smi = rctx.which("nvidia-smi")
    if not nvidia_smi:
        return [], ""
    result = rctx.execute([nvidia_smi, "--query-gpu=compute_cap", "--format=csv,noheader"], timeout = 60)
    if result.return_code:
        return [], "nvidia-smi: " + (result.stdout + result.stderr).strip()
    return parse_capabilities(result.stdout), ""

def _local_gpu_impl(rctx):
    wanted = rctx.os.environ.get("ATTNLAB_GPU", "")
    listed, problem = ([], "") if wanted else _list_capabilities(rctx)
    chosen = choose_gpu(wanted, listed)
    if wanted and chosen.problem:
        fail(chosen.problem)

    # A GPU that cannot be used counts as none, with a message.
    for text in [problem, chosen.problem]:
        if text:
            # buildifier: disable=print
            print("@%s: %s; GPU tests are skipped" % (rctx.name, text))
    ci = rctx.attr._gpu_bzl
    parent = "@local_config_platform//:host"
    if chosen.gpu:
        # Absolute, because attnlab may be the main workspace ("@//") or an external one.
        parent = "@%s//%s:linux_sm_%d" % (ci.workspace_name, ci.package, chosen.gpu)
    rctx.file("BUILD.bazel", """\
package(default_visibility = ["//visibility:public"])

platform(
    name = "platform",
    parents = ["%s"],
)
""" % parent)

local_gpu = repository_rule(
    implementation = _local_gpu_impl,
    attrs = {"_gpu_bzl": attr.label(default = "//ci:gpu.bzl")},
    configure = True,
    environ = ["ATTNLAB_GPU", "PATH"],
    local = True,
)
