"""The built-in py_library."""

py_library = native.py_library
