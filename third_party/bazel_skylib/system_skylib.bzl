"""system_skylib: Debian's bazel-skylib as @bazel_skylib."""

load("//third_party:system.bzl", "ENVIRON", "not_found", "prefixes")

def _system_skylib_impl(rctx):
    for prefix in prefixes(rctx):
        for place in ["/share/bazel/tools/skylib", "/share/bazel-skylib"]:
            root = rctx.path(prefix + place)
            if root.exists:
                for entry in root.readdir():
                    rctx.symlink(entry, entry.basename)
                return
    not_found(rctx, "bazel-skylib", "On Debian or Ubuntu: apt-get install bazel-skylib")

system_skylib = repository_rule(
    implementation = _system_skylib_impl,
    configure = True,
    environ = ENVIRON,
    local = True,
)
