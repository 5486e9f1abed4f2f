"""The built-in cc_import."""

cc_import = native.cc_import
