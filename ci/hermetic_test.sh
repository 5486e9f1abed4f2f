#!/bin/sh
# What .bazelrc promises of every test: it sees the files that it declared and no others, of the caller's environment
# nothing but where CUPTI is, and no network.
set -eu

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The sandbox has a tree of its own, with declared files alone; outside it, whole packages are linked there.
execution_root=${TEST_SRCDIR%%/bazel-out/*}
[ -e ci/gpu.bzl ] || fail "ci/gpu.bzl is declared as data and not here"
[ ! -e ci/BUILD ] || fail "ci/BUILD is not declared and yet here"
[ ! -e "$execution_root/ci/BUILD" ] || fail "$execution_root has files that are not declared: no sandbox"

[ -z "${LD_LIBRARY_PATH+set}${PYTHONPATH+set}${ATTNLAB_PREFIX_PATH+set}" ] ||
  fail "the caller's environment reaches tests"

# Bazel's linux-sandbox runs in a user namespace of its own. Where the system allows none, Bazel falls back to
# a sandbox that cannot take the network away, and there is nothing to hold it to.
if [ "$(tr -s ' ' <"/proc/self/uid_map")" = " 0 0 4294967295" ]; then
  echo "no user namespace: the network is not checked"
  exit 0
fi
interfaces=$(sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev)
[ "$interfaces" = lo ] || fail "network interfaces other than lo:" "$interfaces"
