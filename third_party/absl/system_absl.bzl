"""system_absl: an installed Abseil as @com_google_absl.

Libraries and what they need come from Abseil's own pkg-config files, so that one file serves every
release; a target that the installed release does not have is simply not there.
"""

load("//third_party:system.bzl", "ENVIRON", "library_directories", "not_found", "prefixes")

# Package -> {target: pkg-config name without "absl_"}; a target that is named like its file has "".
_PUBLIC = {
    "algorithm": {"algorithm": "", "container": "algorithm_container"},
    "base": {
        "base": "",
        "config": "",
        "core_headers": "",
        "dynamic_annotations": "",
        "log_severity": "",
        "no_destructor": "",
        "nullability": "",
        "prefetch": "",
    },
    "cleanup": {"cleanup": ""},
    "container": {
        "btree": "",
        "fixed_array": "",
        "flat_hash_map": "",
        "flat_hash_set": "",
        "inlined_vector": "",
        "node_hash_map": "",
        "node_hash_set": "",
    },
    "debugging": {"failure_signal_handler": "", "leak_check": "", "stacktrace": "", "symbolize": ""},
    "flags": {
        "commandlineflag": "flags_commandlineflag",
        "config": "flags_config",
        "flag": "flags",
        "marshalling": "flags_marshalling",
        "parse": "flags_parse",
        "reflection": "flags_reflection",
        "usage": "flags_usage",
    },
    "functional": {"any_invocable": "", "bind_front": "", "function_ref": "", "overload": ""},
    "hash": {"hash": ""},
    "log": {
        "absl_check": "",
        "absl_log": "",
        "check": "",
        "die_if_null": "",
        "flags": "log_flags",
        "globals": "log_globals",
        "initialize": "log_initialize",
        "log": "",
        "log_entry": "",
        "log_sink": "",
        "log_sink_registry": "",
        "structured": "log_structured",
    },
    "memory": {"memory": ""},
    "meta": {"type_traits": ""},
    "numeric": {"bits": "", "int128": ""},
    "random": {
        "bit_gen_ref": "random_bit_gen_ref",
        "distributions": "random_distributions",
        "random": "random_random",
        "seed_gen_exception": "random_seed_gen_exception",
        "seed_sequences": "random_seed_sequences",
    },
    "status": {"status": "", "statusor": ""},
    "strings": {"cord": "", "str_format": "", "string_view": "", "strings": ""},
    "synchronization": {"synchronization": ""},
    "time": {"time": ""},
    "types": {
        "any": "",
        "bad_any_cast": "",
        "bad_optional_access": "",
        "bad_variant_access": "",
        "compare": "",
        "optional": "",
        "span": "",
        "variant": "",
    },
    "utility": {"utility": ""},
}

_HEAD = """\
load("@rules_cc//cc:cc_library.bzl", "cc_library")

package(default_visibility = ["//visibility:public"])

cc_library(
    name = "headers",
    hdrs = glob([
        "include/**/*.h",
        "include/**/*.inc",
    ]),
    includes = ["include"],
    linkopts = ["-lpthread"],
)
"""

_LIBRARY = """
cc_library(
    name = "{name}",
    srcs = {srcs},
    deps = {deps},
)
"""

_ALIAS = """
alias(
    name = "{name}",
    actual = "//:absl_{actual}",
)
"""

def _requires(text):
    for line in text.split("\n"):
        if line.startswith("Requires:"):
            words = [r.strip().split(" ")[0] for r in line[len("Requires:"):].split(",")]
            return [w for w in words if w]
    return []

def _find(rctx):
    for prefix in prefixes(rctx):
        for directory in library_directories(rctx, prefix):
            if rctx.path(directory + "/pkgconfig/absl_base.pc").exists:
                return prefix, directory
    not_found(rctx, "Abseil", "On Debian or Ubuntu: apt-get install libabsl-dev")
    return None, None  # not reached

def _system_absl_impl(rctx):
    prefix, directory = _find(rctx)
    rctx.symlink(prefix + "/include/absl", "include/absl")
    requires = {}
    for path in rctx.path(directory + "/pkgconfig").readdir():
        if path.basename.startswith("absl_") and path.basename.endswith(".pc"):
            requires[path.basename[:-len(".pc")]] = _requires(rctx.read(path))
    build = _HEAD
    for name in sorted(requires):
        srcs = []
        for suffix in [".a", ".so"]:
            library = rctx.path("%s/lib%s%s" % (directory, name, suffix))
            if library.exists:
                srcs = ["lib/" + library.basename]
                rctx.symlink(library, srcs[0])
                break
        build += _LIBRARY.format(
            name = name,
            srcs = srcs,
            deps = [":headers"] + [":" + r for r in requires[name] if r in requires],
        )
    rctx.file("BUILD.bazel", build)
    for package, targets in _PUBLIC.items():
        build = "package(default_visibility = [\"//visibility:public\"])\n"
        for target, actual in targets.items():
            if "absl_" + (actual or target) in requires:
                build += _ALIAS.format(name = target, actual = actual or target)
        rctx.file("absl/%s/BUILD.bazel" % package, build)

system_absl = repository_rule(
    implementation = _system_absl_impl,
    configure = True,
    environ = ENVIRON,
    local = True,
)
