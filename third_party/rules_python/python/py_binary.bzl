"""The built-in py_binary."""

py_binary = native.py_binary
