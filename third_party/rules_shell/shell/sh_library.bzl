"""The built-in sh_library."""

sh_library = native.sh_library
