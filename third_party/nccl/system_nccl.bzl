"""system_nccl: NCCL as @nccl//:nccl, from the CUDA toolkit or from the system's libnccl-dev."""

load("//third_party:system.bzl", "find_header", "library_directories", "link_library")
load(
    "//third_party/cuda:local_cuda.bzl",
    "CUDA_ENVIRON",
    "find_toolkit",
    "toolkit_header",
    "toolkit_library_directories",
)

_HEAD = """\
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])
"""

_FOUND = """
cc_library(
    name = "nccl",
    srcs = ["{library}"],
    hdrs = glob(["include/**"]),
    includes = ["include"],
    deps = ["@local_cuda//:cuda_headers"],
)
"""

_MISSING = """
cc_library(
    name = "nccl",
    target_compatible_with = ["@platforms//:incompatible"],
)
"""

def _system_nccl_impl(rctx):
    root = find_toolkit(rctx)
    if root:
        include = toolkit_header(rctx, root, "nccl.h") or find_header(rctx, "nccl.h")
        directories = toolkit_library_directories(root) + library_directories(rctx)
        library = link_library(rctx, "nccl", directories, [".so"])
        if include and library:
            for header in ["nccl.h", "nccl_device.h", "nccl_device", "nccl_net.h"]:
                if rctx.path(include + "/" + header).exists:
                    rctx.symlink(include + "/" + header, "include/" + header)
            rctx.file("BUILD.bazel", _HEAD + _FOUND.format(library = library))
            return
    rctx.file("BUILD.bazel", _HEAD + _MISSING)

system_nccl = repository_rule(
    implementation = _system_nccl_impl,
    configure = True,
    environ = CUDA_ENVIRON,
    local = True,
)
