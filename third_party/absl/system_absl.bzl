"""system_absl: an installed Abseil as @com_google_absl.

The libraries and their dependencies come from Abseil's own pkg-config files, so this file serves
every release. A target that the installed release lacks does not exist.
"""

load("//third_party:system.bzl", "ENVIRON", "library_directories", "link_library", "not_found")

# Package -> {target: pkg-config name without "absl_"}; "" if the target is named like its package.
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

def _system_absl_impl(rctx):
    directories = [
        d
        for d in library_directories(rctx)
        if rctx.path(d + "/pkgconfig/absl_base.pc").exists
    ]
    if not directories:
        not_found(rctx, "Abseil", "On Debian or Ubuntu: apt-get install libabsl-dev")
    directory = directories[0]
    rctx.symlink(directory.partition("/lib")[0] + "/include/absl", "include/absl")
    requires = {}
    for path in rctx.path(directory + "/pkgconfig").readdir():
        if path.basename.startswith("absl_") and path.basename.endswith(".pc"):
            requires[path.basename[:-len(".pc")]] = _requires(rctx.read(path))
    build = _HEAD
    for name in sorted(requires):
        library = link_library(rctx, name, [directory])
        build += _LIBRARY.format(
            name = name,
            srcs = [library] if library else [],
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
