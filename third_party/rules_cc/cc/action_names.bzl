"""Names of C++ actions, for cc_common.get_tool_for_action and its kin."""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", _ACTION_NAMES = "ACTION_NAMES")

ACTION_NAMES = _ACTION_NAMES
CPP_COMPILE_ACTION_NAME = _ACTION_NAMES.cpp_compile
CPP_LINK_STATIC_LIBRARY_ACTION_NAME = _ACTION_NAMES.cpp_link_static_library
C_COMPILE_ACTION_NAME = _ACTION_NAMES.c_compile
