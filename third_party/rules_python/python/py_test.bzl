"""The built-in py_test."""

py_test = native.py_test
