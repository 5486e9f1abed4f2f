"""cuda_toolkit: what cuda_library needs to know about the toolkit, as @local_cuda//:toolkit."""

CudaToolkitInfo = provider(
    doc = "A CUDA toolkit that is installed on this machine.",
    fields = {
        "archs": "Architectures that nvcc compiles for: sm_75, compute_75 and so on, without suffixes.",
        "build": "nvcc's release and build, as it prints it; part of the key of every compile action.",
        "nvcc": "Absolute path of nvcc.",
        "options": "Those of the optional nvcc options (see local_cuda.bzl) that this nvcc has.",
        "repository": "Directory of the toolkit's repository in the execution root.",
        "root": "Absolute path of the toolkit.",
        "version": "Such as 13.0.",
    },
)

def _cuda_toolkit_impl(ctx):
    return [CudaToolkitInfo(
        archs = ctx.attr.archs,
        build = ctx.attr.build,
        nvcc = ctx.attr.nvcc,
        options = ctx.attr.options,
        repository = ctx.label.workspace_root,
        root = ctx.attr.root,
        version = ctx.attr.version,
    )]

cuda_toolkit = rule(
    implementation = _cuda_toolkit_impl,
    doc = "Instantiated by local_cuda alone.",
    attrs = {
        "archs": attr.string_list(),
        "build": attr.string(),
        "nvcc": attr.string(),
        "options": attr.string_list(),
        "root": attr.string(),
        "version": attr.string(),
    },
    provides = [CudaToolkitInfo],
)
