"""The built-in cc_binary."""

cc_binary = native.cc_binary
