"""The built-in sh_binary."""

sh_binary = native.sh_binary
