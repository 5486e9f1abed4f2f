"""The built-in py_runtime."""

py_runtime = native.py_runtime
