#!/bin/sh
# Checks what .bazelrc promises of every test. It sees only the files that it declared, and no
# network. Of the caller's environment it sees only where CUPTI is.
set -eu

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The sandbox has its own tree with declared files only; outside it, whole packages are linked
# there.
execution_root=${TEST_SRCDIR%%/bazel-out/*}
[ -e ci/gpu.bzl ] || fail "ci/gpu.bzl is declared as data and not here"
[ ! -e ci/BUILD ] || fail "ci/BUILD is not declared and yet here"
[ ! -e "$execution_root/ci/BUILD" ] || fail "$execution_root has files that are not declared: no sandbox"

[ -z "${LD_LIBRARY_PATH+set}${PYTHONPATH+set}${ATTNLAB_PREFIX_PATH+set}" ] ||
  fail "the caller's environment reaches tests"

# Bazel's linux-sandbox runs in its own user namespace. Where the system forbids these, Bazel falls
# back to a sandbox that cannot remove the network, so there is nothing to check.
if [ "$(tr -s ' ' <"/proc/self/uid_map")" = " 0 0 4294967295" ]; then
  echo "no user namespace: the network is not checked"
  exit 0
fi
interfaces=$(sed -n 's/^ *\([^ :]*\):.*/\1/p' /proc/net/dev)
[ "$interfaces" = lo ] || fail "network interfaces other than lo:" "$interfaces"
