"""The built-in names, kept apart so that the files beside this one can export the same names."""

native_cc_common = cc_common
native_cc_info = CcInfo
