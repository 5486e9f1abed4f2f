"""The cuda_library rule; load it from //third_party/cuda:defs.bzl."""

load("@bazel_skylib//rules:common_settings.bzl", "BuildSettingInfo")
load("@rules_cc//cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")
load(":archs.bzl", "CudaArchsInfo", "gencode", "select_archs")
load(":toolkit.bzl", "CudaToolkitInfo")

SOURCES = [".cu"]
HEADERS = [".cuh", ".h", ".hh", ".hpp", ".inc", ".inl"]

# Options of the host compiler that nvcc takes under the same name; device code needs them too.
_SHARED_OPTIONS = ["-D", "-U", "-I"]

def _is_header(file):
    return file.extension in [h[1:] for h in HEADERS]

def _include_directories(ctx):
    """Directories of `includes`, in the source tree and in the output tree."""
    directories = []
    for include in ctx.attr.includes:
        if include.startswith("/") or ".." in include.split("/"):
            fail("includes: %r leaves the package" % include)
        parts = [ctx.label.workspace_root, ctx.label.package, include]
        path = "/".join([p for p in parts if p and p != "."])
        directories += [path or ".", "/".join([p for p in [ctx.bin_dir.path, path] if p])]
    return directories

def _quote_directories(ctx):
    root = ctx.label.workspace_root
    return [root or ".", "/".join([p for p in [ctx.bin_dir.path, root] if p])]

def _host_options(flags):
    """Turns options of the C++ compiler into options of nvcc."""
    options = []
    for flag in flags:
        if flag.startswith("-std="):
            continue
        if flag[:2] in _SHARED_OPTIONS and len(flag) > 2:
            options.append(flag)
        else:
            # nvcc splits the value at commas that are not escaped.
            options += ["-Xcompiler", flag.replace(",", "\\,")]
    return options

def _standard(flags):
    """The last -std= of the C++ compiler's options in nvcc's spelling, else C++17."""
    standard = "-std=c++17"
    for flag in flags:
        if flag.startswith("-std="):
            standard = flag.replace("gnu++", "c++")
    return standard

def _not_of_toolkit(toolkit, directories):
    """Include directories except those of @local_cuda, whose headers nvcc finds by itself."""
    return [d for d in directories.to_list() if toolkit.repository not in d]

def _mode_options(ctx):
    """What --compilation_mode means for device and host code."""
    mode = ctx.var["COMPILATION_MODE"]
    if mode != "dbg":
        # The line table costs no time on the device, and profilers and sanitizers need it.
        return (["-O3", "-DNDEBUG"] if mode == "opt" else ["-O1"]) + ["-lineinfo"]

    # -G turns off all optimisation of device code; some kernels then exceed the limits of a GPU.
    device = "-G" if ctx.attr._device_debug[BuildSettingInfo].value else "-lineinfo"
    return ["-O0", "-g", device]

def _archs(ctx, toolkit):
    archs = select_archs(
        archs = ctx.attr.archs or ctx.attr._archs[CudaArchsInfo].archs,
        min_arch = ctx.attr.min_arch,
        supported = toolkit.archs,
        version = toolkit.version,
    )
    if type(archs) == "string":
        fail("%s: %s" % (ctx.label, archs))
    return archs

def _compile(ctx, src, headers, dep_context, toolkit, common_args, host_compiler_files):
    name = src.short_path.replace("../", "").replace("/", "_")
    obj = ctx.actions.declare_file("_objs/%s/%s.o" % (ctx.label.name, name[:-len(".cu")]))
    args = ctx.actions.args()
    args.add_all(["-x", "cu", "-c", src, "-o", obj])
    if "--frandom-seed" in toolkit.options:
        args.add("--frandom-seed=" + obj.short_path)
    if "--objdir-as-tempdir" in toolkit.options:
        args.add("--objdir-as-tempdir")

    # nvcc finds the toolkit's headers itself. As inputs, each would be a link in every sandbox.
    prefix = toolkit.repository + "/"
    dep_headers = [h for h in dep_context.headers.to_list() if not h.path.startswith(prefix)]
    ctx.actions.run(
        executable = toolkit.nvcc,
        arguments = [args, common_args],
        inputs = depset([src] + headers + dep_headers),
        tools = host_compiler_files,
        outputs = [obj],
        env = {
            # Part of the action's key: another toolkit compiles everything again.
            "ATTNLAB_NVCC_BUILD": toolkit.build,
            "PATH": "/usr/bin:/bin",
            # As in Bazel's own C++ actions, so that debug information does not name the sandbox.
            "PWD": "/proc/self/cwd",
        },
        mnemonic = "CudaCompile",
        progress_message = "Compiling CUDA %s" % src.short_path,
    )
    return obj

def _cuda_library_impl(ctx):
    toolkit = ctx.attr._toolkit[CudaToolkitInfo]
    cc_toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    deps = ctx.attr.deps + [ctx.attr._runtime]
    dep_info = cc_common.merge_cc_infos(cc_infos = [d[CcInfo] for d in deps])
    dep_context = dep_info.compilation_context
    headers = ctx.files.hdrs + [f for f in ctx.files.srcs if _is_header(f)]
    includes = _include_directories(ctx)
    quotes = _quote_directories(ctx)
    own_context = cc_common.create_compilation_context(
        defines = depset(ctx.attr.defines),
        headers = depset(headers),
        quote_includes = depset(quotes),
        system_includes = depset(includes),
    )

    user = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts
    compiler = cc_common.get_tool_for_action(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
    )
    args = ctx.actions.args()
    args.add_all(["-ccbin", compiler, _standard(user + ctx.attr.copts)])
    for arch in _archs(ctx, toolkit):
        args.add_all(["-gencode", gencode(arch)])
    args.add_all(_mode_options(ctx))

    # Always position independent: programs and shared libraries can use the same objects, with and
    # without --force_pic, so each source is compiled once.
    args.add_all(["-Xcompiler", "-fPIC"])
    args.add_all(["--expt-relaxed-constexpr", "--extended-lambda"])
    args.add_all(_host_options(user + ctx.attr.host_copts))
    args.add_all(ctx.attr.defines + ctx.attr.local_defines, format_each = "-D%s")
    args.add_all(dep_context.defines, format_each = "-D%s")
    args.add_all(quotes, before_each = "-I")
    args.add_all(_not_of_toolkit(toolkit, dep_context.quote_includes), before_each = "-I")
    args.add_all(_not_of_toolkit(toolkit, dep_context.includes), before_each = "-I")
    args.add_all(includes, before_each = "-isystem")
    args.add_all(_not_of_toolkit(toolkit, dep_context.system_includes), before_each = "-isystem")

    # nvcc adds its own headers with -I, which would show their warnings; -isystem for the same
    # directory takes precedence.
    args.add_all(["-isystem", toolkit.root + "/include"])
    args.add_all(ctx.attr._copts[BuildSettingInfo].value)
    args.add_all([o for o in ctx.attr.copts if not o.startswith("-std=")])

    objects = [
        _compile(ctx, src, headers, dep_context, toolkit, args, cc_toolchain.all_files)
        for src in ctx.files.srcs
        if not _is_header(src)
    ]
    linking_context, linking_outputs = cc_common.create_linking_context_from_compilation_outputs(
        actions = ctx.actions,
        alwayslink = ctx.attr.alwayslink,
        cc_toolchain = cc_toolchain,
        compilation_outputs = cc_common.create_compilation_outputs(
            objects = depset(objects),
            pic_objects = depset(objects),
        ),
        disallow_dynamic_library = True,
        feature_configuration = features,
        linking_contexts = [dep_info.linking_context],
        name = ctx.label.name,
        user_link_flags = ctx.attr.linkopts,
    )
    library = linking_outputs.library_to_link
    archives = [library.pic_static_library or library.static_library] if library else []
    runfiles = ctx.runfiles(files = ctx.files.data)
    for dep in ctx.attr.deps + ctx.attr.data + [ctx.attr._runtime]:
        runfiles = runfiles.merge(dep[DefaultInfo].default_runfiles)
    return [
        DefaultInfo(files = depset(archives), runfiles = runfiles),
        OutputGroupInfo(objects = depset(objects)),
        cc_common.merge_cc_infos(
            cc_infos = [CcInfo(compilation_context = dep_context)],
            direct_cc_infos = [CcInfo(
                compilation_context = own_context,
                linking_context = linking_context,
            )],
        ),
    ]

cuda_library = rule(
    implementation = _cuda_library_impl,
    doc = """A library of CUDA sources, which cc_* and cuda_* targets depend on like a cc_library.

Compiled by nvcc with C++17, one object a source whatever the --compilation_mode and --force_pic, and the
same bytes every time. Skipped where there is no toolkit. Programs get the static CUDA runtime.""",
    attrs = {
        "alwayslink": attr.bool(
            doc = "Link every object, also where nothing refers to it, as a kernel that registers itself.",
        ),
        "archs": attr.string_list(
            doc = "Architectures of this target, in place of --//third_party/cuda:archs.",
        ),
        "copts": attr.string_list(doc = "Options of nvcc, for this target."),
        "data": attr.label_list(allow_files = True),
        "defines": attr.string_list(doc = "Macros for this target and all that depend on it."),
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = HEADERS),
        "host_copts": attr.string_list(doc = "Options of the host compiler, for this target."),
        "includes": attr.string_list(doc = "Include directories, below the package."),
        "linkopts": attr.string_list(),
        "local_defines": attr.string_list(doc = "Macros for this target."),
        "min_arch": attr.int(
            doc = "Least compute capability of the sources, 80 say: architectures below it are left out " +
                  "and PTX below it is raised to it.",
        ),
        "srcs": attr.label_list(allow_files = SOURCES + HEADERS),
        "_archs": attr.label(
            default = "//third_party/cuda:selected_archs",
            providers = [CudaArchsInfo],
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
        "_copts": attr.label(default = "//third_party/cuda:copts"),
        "_device_debug": attr.label(default = "//third_party/cuda:device_debug"),
        "_runtime": attr.label(default = "@local_cuda//:cuda_runtime_static"),
        "_toolkit": attr.label(
            default = "@local_cuda//:toolkit",
            providers = [CudaToolkitInfo],
        ),
    },
    fragments = ["cpp"],
    provides = [CcInfo],
    toolchains = use_cc_toolchain(),
)
