#!/bin/sh
echo "bazel coverage: Bazel's coverage tools are a download, and this workspace makes none." >&2
echo "Define remote_coverage_tools in WORKSPACE before attnlab_deps() to use your own copy." >&2
exit 1
