"""The built-in cc_library."""

cc_library = native.cc_library
