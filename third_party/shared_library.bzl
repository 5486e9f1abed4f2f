"""shared_library: one .so with everything that its deps link, for callers from other languages.

Abseil is the exception. Distributions build its archives for programs only (thread-local variables
use the local-exec model), and a linker refuses them in a shared library. System archives from the
repositories in `shared_repositories` are therefore replaced by the shared libraries beside them. An
Abseil built from source by Bazel is linked in like everything else.

Libraries that exist only as shared ones, such as cuBLAS, are found through links below _solib_*,
beside the package's directory in bazel-bin and in runfiles, because RUNPATH is relative to the
library. To use a copy of the library elsewhere, set $LD_LIBRARY_PATH to find them. A process that
has already loaded one with the same SONAME, as PyTorch does with its own cuBLAS, keeps using that
one for both.
"""

load("@rules_cc//cc:find_cc_toolchain.bzl", "find_cc_toolchain", "use_cc_toolchain")
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")
load("@rules_cc//cc/common:cc_info.bzl", "CcInfo")

def _archive(library):
    return library.pic_static_library or library.static_library

def _impl(ctx):
    cc_toolchain = find_cc_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = cc_toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )

    # Merged, so that what two deps share comes after both: the linker searches only archives that
    # come after the use of a symbol.
    merged = cc_common.merge_cc_infos(direct_cc_infos = [dep[CcInfo] for dep in ctx.attr.deps])
    inputs = []
    shared = []
    for given in merged.linking_context.linker_inputs.to_list():
        archives = [_archive(library) for library in given.libraries if _archive(library)]
        from_system = [a for a in archives if a.is_source]
        if given.owner.workspace_name in ctx.attr.shared_repositories and from_system:
            given = cc_common.create_linker_input(
                owner = given.owner,
                user_link_flags = depset(
                    ["-l:%s.so" % a.basename.rpartition(".")[0] for a in from_system] +
                    given.user_link_flags,
                ),
            )
        inputs.append(given)
        for library in given.libraries:
            if not _archive(library) and library.dynamic_library:
                shared.append(library.dynamic_library)
    outputs = cc_common.link(
        name = ctx.label.name,
        actions = ctx.actions,
        additional_inputs = [ctx.file.version_script],
        cc_toolchain = cc_toolchain,
        feature_configuration = features,
        linking_contexts = [cc_common.create_linking_context(linker_inputs = depset(inputs, order = "topological"))],
        output_type = "dynamic_library",
        user_link_flags = [
            "-Wl,--as-needed",
            "-Wl,-soname,lib%s.so" % ctx.label.name,
            "-Wl,--version-script=" + ctx.file.version_script.path,
            "-Wl,-z,defs",
        ],
    )
    library = outputs.library_to_link.resolved_symlink_dynamic_library or outputs.library_to_link.dynamic_library
    return [DefaultInfo(files = depset([library]), runfiles = ctx.runfiles([library] + shared))]

shared_library = rule(
    implementation = _impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "shared_repositories": attr.string_list(default = ["com_google_absl"]),
        "version_script": attr.label(
            allow_single_file = True,
            mandatory = True,
            doc = "Which symbols the library shows; the rest stays its own.",
        ),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = use_cc_toolchain(),
)
