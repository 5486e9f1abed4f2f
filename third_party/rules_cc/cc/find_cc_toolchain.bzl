"""How a rule asks for the C++ toolchain."""

load("@bazel_tools//tools/cpp:toolchain_utils.bzl", _find_cpp_toolchain = "find_cpp_toolchain")

CC_TOOLCHAIN_ATTRS = {
    "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
}

find_cc_toolchain = _find_cpp_toolchain
find_cpp_toolchain = _find_cpp_toolchain

def use_cc_toolchain(mandatory = True):  # buildifier: disable=unused-variable
    """The toolchain types a rule that calls find_cc_toolchain lists.

    Args:
      mandatory: accepted as in rules_cc; Bazel 4 has no optional toolchains.

    Returns:
      A list for rule(toolchains = ...).
    """
    return ["@bazel_tools//tools/cpp:toolchain_type"]
