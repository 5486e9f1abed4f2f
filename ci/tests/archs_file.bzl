"""archs_file: writes the architectures that cuda_library compiles for in this configuration to a
file."""

load("//third_party/cuda/private:archs.bzl", "CudaArchsInfo")

def _archs_file_impl(ctx):
    file = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(file, " ".join(ctx.attr._archs[CudaArchsInfo].archs))
    return [DefaultInfo(files = depset([file]), runfiles = ctx.runfiles(files = [file]))]

archs_file = rule(
    implementation = _archs_file_impl,
    attrs = {
        "_archs": attr.label(default = "//third_party/cuda:selected_archs"),
    },
)
