"""attnlab_deps(): every external repository that attnlab needs.

In the WORKSPACE of a project that uses attnlab:

    local_repository(name = "attnlab", path = "...")  # or http_archive, git_repository
    load("@attnlab//third_party:deps.bzl", "attnlab_deps")
    attnlab_deps()

A repository is defined only if the workspace has none of that name yet, so definitions before the
call win. Nothing is downloaded: the libraries are those installed on this machine.
"""

load("//ci:local_gpu.bzl", "local_gpu")
load("//third_party:in_tree_repository.bzl", "in_tree_repository")
load("//third_party:system.bzl", "system_library", "system_starlark")
load("//third_party/absl:system_absl.bzl", "system_absl")
load("//third_party/cuda:local_cuda.bzl", "local_cuda")
load("//third_party/nccl:system_nccl.bzl", "system_nccl")

def _maybe(rule, name, **kwargs):
    if not native.existing_rule(name):
        rule(name = name, **kwargs)

def attnlab_deps():
    """Defines the external repositories that the workspace does not have yet."""

    # Rule sets, and what Bazel 4 would otherwise download for its own use (README.md).
    for name in [
        "remote_coverage_tools",
        "rules_cc",
        "rules_java",
        "rules_python",
        "rules_shell",
    ]:
        _maybe(in_tree_repository, name, directory = name)
    _maybe(system_starlark, "bazel_skylib", directory = "skylib", package = "bazel-skylib")

    # Bazel's own copy has no @platforms//:incompatible.
    _maybe(system_starlark, "platforms", directory = "platforms", package = "bazel-platforms")

    _maybe(system_absl, "com_google_absl")
    _maybe(
        system_library,
        "com_google_googletest",
        build_file = Label("//third_party/googletest:googletest.BUILD"),
        headers = [
            "gmock",
            "gtest",
        ],
        libraries = [
            "gmock",
            "gmock_main",
            "gtest",
        ],
        package = "libgtest-dev libgmock-dev",
    )
    _maybe(
        system_library,
        "com_github_google_benchmark",
        build_file = Label("//third_party/benchmark:benchmark.BUILD"),
        headers = ["benchmark"],
        libraries = [
            "benchmark",
            "benchmark_main",
        ],
        package = "libbenchmark-dev",
    )
    _maybe(
        system_library,
        "com_google_highway",
        build_file = Label("//third_party/highway:highway.BUILD"),
        headers = ["hwy"],
        libraries = [
            "hwy",
            "hwy_contrib",
            "hwy_test",
        ],
        package = "libhwy-dev",
        shared_defines = ["HWY_SHARED_DEFINE"],
    )
    _maybe(
        system_library,
        "cli11",
        build_file = Label("//third_party/cli11:cli11.BUILD"),
        headers = ["CLI"],
        package = "libcli11-dev",
    )
    _maybe(
        system_library,
        "nlohmann_json",
        build_file = Label("//third_party/nlohmann_json:nlohmann_json.BUILD"),
        headers = ["nlohmann"],
        package = "nlohmann-json3-dev",
    )

    _maybe(local_cuda, "local_cuda")
    _maybe(local_gpu, "local_gpu")
    _maybe(system_nccl, "nccl")
