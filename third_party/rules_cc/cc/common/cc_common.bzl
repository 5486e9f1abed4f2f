"""cc_common under its modern path."""

load("//cc/common:native.bzl", "native_cc_common")

cc_common = native_cc_common
