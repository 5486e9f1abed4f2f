"""The built-in cc_test."""

cc_test = native.cc_test
