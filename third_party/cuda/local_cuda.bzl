"""local_cuda: the CUDA toolkit of this machine as @local_cuda.

It is looked for in $CUDA_HOME, $CUDA_PATH, /usr/local/cuda and beside the nvcc on PATH; the first
place with both nvcc and headers wins. ATTNLAB_NO_CUDA=1 hides it; otherwise Bazel prints a message
if there is none.

The labels are those of rules_cuda: `:cuda_headers`, `:cuda_runtime`, `:cuda_runtime_static`,
`:cuda` (the driver), `:cublas`, `:cupti`, `:nvrtc` and so on. Without a toolkit they exist too, as
incompatible targets, so that targets which depend on them are skipped.

`:is_enabled` is a config_setting for select(). `:has_cupti` is one that is true if the toolkit has
the CUPTI that profiling needs: an installation may leave CUPTI out, and toolkits before 12.6 cannot
count ranges. Without it, `:cupti_headers` is incompatible, too.
"""

load("//third_party:system.bzl", "library_directories", "link_library")

# The environment variables that decide which toolkit is found.
CUDA_ENVIRON = ["ATTNLAB_NO_CUDA", "ATTNLAB_PREFIX_PATH", "CUDA_HOME", "CUDA_PATH", "PATH"]

# Target -> its shared libraries (names after -l), headers below include/ (glob patterns), and the
# other targets of this repository that it needs.
_LIBRARIES = {
    "cublas": struct(
        libraries = ["cublas"],
        headers = ["cublas*.h"],
        deps = [
            ":cublasLt",
            ":cuda_headers",
        ],
    ),
    "cublasLt": struct(libraries = ["cublasLt"], headers = ["cublas*.h"], deps = [":cuda_headers"]),
    "cuda_runtime": struct(libraries = ["cudart"], headers = [], deps = [":cuda_headers"]),
    "cupti": struct(
        libraries = ["cupti"],
        headers = ["cupti*.h", "nvperf*.h"],
        deps = [":cuda_headers"],
    ),
    "curand": struct(libraries = ["curand"], headers = ["curand*.h"], deps = [":cuda_headers"]),
    "nvperf_host": struct(
        libraries = ["nvperf_host"],
        headers = ["nvperf*.h"],
        deps = [":cuda_headers"],
    ),
    "nvperf_target": struct(
        libraries = ["nvperf_target"],
        headers = ["nvperf*.h"],
        deps = [":cuda_headers"],
    ),
    "nvrtc": struct(
        libraries = ["nvrtc", "nvrtc-builtins"],
        headers = ["nvrtc.h"],
        deps = [":cuda_headers"],
    ),
}

# Headers of a CUPTI that can list the metrics of a chip and count them over a range.
CUPTI_HEADERS = ["cupti_profiler_host.h", "cupti_range_profiler.h", "cupti_target.h"]

# Target -> possible paths of the program. Not every toolkit has these.
_TOOLS = {
    "compute_sanitizer": ["bin/compute-sanitizer", "compute-sanitizer/compute-sanitizer"],
    "cuda_gdb": ["bin/cuda-gdb"],
}

# Headers of libraries and of device C++, which users of the plain runtime do not include.
_NOT_RUNTIME = [
    "cccl/**",
    "cub/**",
    "cublas*",
    "cuda/**",
    "cudnn*",
    "cufft*",
    "cufile*",
    "cupti*",
    "curand*",
    "cusolver*",
    "cusparse*",
    "nccl*",
    "nccl*/**",
    "npp*",
    "nvjpeg*",
    "nvperf*",
    "nvtx3/**",
    "thrust/**",
]

_HEAD = """\
load("@bazel_skylib//rules:common_settings.bzl", "bool_setting")
load("@rules_cc//cc:cc_import.bzl", "cc_import")
load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("{toolkit_bzl}", "cuda_toolkit")

package(default_visibility = ["//visibility:public"])

bool_setting(
    name = "valid_toolchain_found",
    build_setting_default = {found},
)

config_setting(
    name = "is_enabled",
    flag_values = {{":valid_toolchain_found": "True"}},
)

bool_setting(
    name = "cupti_found",
    build_setting_default = {cupti_found},
)

# Says more than :is_enabled, so that a select() may have both.
config_setting(
    name = "has_cupti",
    flag_values = {{
        ":cupti_found": "True",
        ":valid_toolchain_found": "True",
    }},
)
"""

_TOOLKIT = """
cuda_toolkit(
    name = "toolkit",
    archs = {archs},
    build = "{build}",
    nvcc = "{nvcc}",
    options = {options},
    root = "{root}",
    version = "{version}",
)

cc_library(
    name = "cuda_headers",
    hdrs = glob(
        [
            "include/**/*.h",
            "include/**/*.hpp",
            "include/**/*.inl",
            "include/nv/**",
        ],
        exclude = ["include/" + p for p in {not_runtime}],
    ),
    includes = ["include"],
)

# CUB, Thrust and libcu++: about 1700 headers. nvcc finds them without a label; this is for host code.
cc_library(
    name = "cccl",
    hdrs = glob(
        ["include/%s/**" % d for d in ["cccl", "cub", "cuda", "thrust"]],
        allow_empty = True,
    ),
    includes = [
        "include",
        "include/cccl",
    ],
    deps = [":cuda_headers"],
)

cc_library(
    name = "nvtx",
    hdrs = glob(
        ["include/nvtx3/**"],
        allow_empty = True,
    ),
    includes = ["include"],
    linkopts = ["-ldl"],
)
"""

_CUPTI_HEADERS = """
# For programs that load CUPTI when they want it.
cc_library(
    name = "cupti_headers",
    hdrs = glob(
        [
            "include/cupti*.h",
            "include/nvperf*.h",
        ],
        allow_empty = True,
    ),
    includes = ["include"],
    deps = [":cuda_headers"],
)
"""

_STATIC_RUNTIME = """
cc_library(
    name = "cuda_runtime_static",
    srcs = {srcs},
    linkopts = [
        "-ldl",
        "-lpthread",
        "-lrt",
    ],
    deps = [":cuda_headers"],
)
"""

# The stub's file name is not its SONAME (libcuda.so.1). Programs therefore find the driver's own
# library when they run, never the stub.
_DRIVER = """
cc_library(
    name = "cuda",
    srcs = ["lib/stubs/libcuda.so"],
    deps = [":cuda_headers"],
)
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    srcs = {srcs},
    hdrs = glob(
        {headers},
        allow_empty = True,
    ),
    includes = ["include"],
    deps = {deps},
)
"""

# A tool of the toolkit, which finds its other files relative to its installation.
_TOOL = """
filegroup(
    name = "{name}",
    srcs = ["bin/{name}"],
)
"""

# For a select(): whether the toolkit has a tool.
_HAS_TOOL = """
bool_setting(
    name = "{name}_found",
    build_setting_default = {found},
)

config_setting(
    name = "has_{name}",
    flag_values = {{":{name}_found": "True"}},
)
"""

_MISSING = """
cc_library(
    name = "{name}",
    target_compatible_with = ["@platforms//:incompatible"],
)
"""

_MISSING_TOOLKIT = """
cuda_toolkit(
    name = "toolkit",
    target_compatible_with = ["@platforms//:incompatible"],
)
"""

# Options that some supported versions of nvcc lack; used if --help lists them.
_OPTIONS = ["--frandom-seed", "--objdir-as-tempdir"]

def is_hidden(environ):
    """Whether the caller wants no toolkit even if there is one."""
    return environ.get("ATTNLAB_NO_CUDA", "") not in ["", "0"]

def toolkit_places(environ, nvcc_root):
    """The directories to search for a toolkit, in this order, without duplicates.

    Args:
      environ: the environment.
      nvcc_root: the directory above that of the nvcc on PATH, or None.

    Returns:
      Directories. /usr, over which a distribution spreads its toolkit, is not among them. It would make
      /usr/include an -isystem directory, which breaks #include_next in the C++ library.
    """
    places = []
    for place in [environ.get("CUDA_HOME"), environ.get("CUDA_PATH"), "/usr/local/cuda", nvcc_root]:
        if place and place != "/usr" and place not in places:
            places.append(place)
    return places

def no_toolkit_message(places, nvcc_root):
    """The message if no directory of `places` has a toolkit."""
    ignored = " (the toolkit of /usr is spread over the system's directories and not used)" if nvcc_root == "/usr" else ""
    text = ("no CUDA toolkit, so nothing is built for GPUs: no bin/nvcc with include/cuda_runtime.h in %s%s. " +
            "Set CUDA_HOME=DIR to a toolkit, or ATTNLAB_NO_CUDA=1 to build without CUDA and without this message")
    return text % (", ".join(places), ignored)

def _nvcc_root(rctx):
    nvcc = rctx.which("nvcc")
    return str(nvcc.realpath.dirname.dirname) if nvcc else None

def find_toolkit(rctx):
    """Returns the toolkit's directory, or None."""
    if is_hidden(rctx.os.environ):
        return None
    for place in toolkit_places(rctx.os.environ, _nvcc_root(rctx)):
        if rctx.path(place + "/bin/nvcc").exists and toolkit_header(rctx, place, "cuda_runtime.h"):
            return place
    return None

def toolkit_header(rctx, root, header):
    """The include directory of the toolkit at `root` that has `header`, or None."""
    for directory in ["/include", "/extras/CUPTI/include"]:
        if rctx.path("%s%s/%s" % (root, directory, header)).exists:
            return root + directory
    return None

def cupti_found(headers):
    """Whether a toolkit with `headers` (names) has the CUPTI that profiling needs."""
    return all([h in headers for h in CUPTI_HEADERS])

def toolkit_library_directories(root):
    """Directories of the toolkit at `root` that may contain libraries."""
    return [root + d for d in ["/lib64", "/lib", "/extras/CUPTI/lib64"]]

def _nvcc(rctx, nvcc, *args):
    result = rctx.execute([nvcc] + list(args))
    if result.return_code:
        fail("%s %s failed:\n%s%s" % (nvcc, " ".join(args), result.stdout, result.stderr))
    return result.stdout

def _link_headers(rctx, root):
    for directory in ["/extras/CUPTI/include", "/include"]:
        path = rctx.path(root + directory)
        if path.exists:
            for entry in path.readdir():
                if not rctx.path("include/" + entry.basename).exists:
                    rctx.symlink(entry, "include/" + entry.basename)

def _library_targets(rctx, directories):
    build = ""
    for name, library in _LIBRARIES.items():
        srcs = [link_library(rctx, n, directories, [".so"]) for n in library.libraries]
        if srcs[0]:
            build += _LIBRARY.format(
                name = name,
                srcs = [s for s in srcs if s],
                headers = ["include/" + h for h in library.headers],
                deps = library.deps,
            )
        else:
            build += _MISSING.format(name = name)
    return build

def _tool_targets(rctx, root):
    build = ""
    for name, places in _TOOLS.items():
        found = [root + "/" + p for p in places if rctx.path(root + "/" + p).exists]
        if found:
            script = "#!/bin/sh\nexec '%s' \"$@\"\n" % found[0]
            rctx.file("bin/" + name, script, executable = True)
            build += _TOOL.format(name = name)
        else:
            build += _MISSING.format(name = name)
        build += _HAS_TOOL.format(name = name, found = bool(found))
    return build

def _local_cuda_impl(rctx):
    root = find_toolkit(rctx)
    if not root and not is_hidden(rctx.os.environ):
        nvcc_root = _nvcc_root(rctx)

        # buildifier: disable=print
        print("@%s: %s" % (rctx.name, no_toolkit_message(toolkit_places(rctx.os.environ, nvcc_root), nvcc_root)))
    has_cupti = bool(root) and cupti_found([h for h in CUPTI_HEADERS if toolkit_header(rctx, root, h)])
    build = _HEAD.format(
        cupti_found = has_cupti,
        found = bool(root),
        # Absolute, because attnlab may be the main workspace ("@//") or an external one.
        toolkit_bzl = "@%s//%s:%s" % (
            rctx.attr._toolkit_bzl.workspace_name,
            rctx.attr._toolkit_bzl.package,
            rctx.attr._toolkit_bzl.name,
        ),
    )
    if not root:
        names = _LIBRARIES.keys() + _TOOLS.keys()
        names += ["cccl", "cuda", "cuda_headers", "cuda_runtime_static", "cupti_headers", "nvtx"]
        build += _MISSING_TOOLKIT + "".join([_MISSING.format(name = n) for n in sorted(names)])
        build += "".join([_HAS_TOOL.format(name = n, found = False) for n in _TOOLS])
        rctx.file("BUILD.bazel", build)
        return

    root = str(rctx.path(root).realpath)
    nvcc = root + "/bin/nvcc"
    release = _nvcc(rctx, nvcc, "--version").partition(", release ")[2]
    help_text = _nvcc(rctx, nvcc, "--help")
    listed = _nvcc(rctx, nvcc, "--list-gpu-code") + _nvcc(rctx, nvcc, "--list-gpu-arch")
    archs = [a.strip() for a in listed.split("\n") if a.strip()]
    build += _TOOLKIT.format(
        archs = archs,
        build = release.strip().replace("\n", " "),
        not_runtime = _NOT_RUNTIME,
        nvcc = nvcc,
        options = [o for o in _OPTIONS if o in help_text],
        root = root,
        version = release.partition(",")[0],
    )
    _link_headers(rctx, root)
    build += _CUPTI_HEADERS if has_cupti else _MISSING.format(name = "cupti_headers")

    directories = toolkit_library_directories(root)
    runtime = [link_library(rctx, n, directories, [".a"]) for n in ["cudart_static", "cudadevrt"]]
    if not runtime[0]:
        fail("@%s: no libcudart_static.a in %s" % (rctx.name, ", ".join(directories)))
    build += _STATIC_RUNTIME.format(srcs = [r for r in runtime if r])

    stubs = [d + "/stubs/libcuda.so" for d in directories]
    stubs = [s for s in stubs if rctx.path(s).exists]
    if stubs:
        rctx.symlink(stubs[0], "lib/stubs/libcuda.so")
        build += _DRIVER
    else:
        build += _MISSING.format(name = "cuda")
    build += _library_targets(rctx, directories + library_directories(rctx))
    build += _tool_targets(rctx, root)
    rctx.file("BUILD.bazel", build)

local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    attrs = {"_toolkit_bzl": attr.label(default = "//third_party/cuda/private:toolkit.bzl")},
    configure = True,
    environ = CUDA_ENVIRON,
    local = True,
)
