"""CcInfo under its modern path."""

load("//cc/common:native.bzl", "native_cc_info")

CcInfo = native_cc_info
