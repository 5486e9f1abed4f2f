"""The built-in sh_test."""

sh_test = native.sh_test
