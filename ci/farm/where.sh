#!/bin/sh
# where.sh POOL BUILT: fails unless a worker of the pool runs it, and one of the pool `cpu` built BUILT. Then
# runs the bundle of conformance tests that check_remote_execution.py has put here.
set -e
case $ATTNLAB_RBE_WORKER in
  "$1"-*) ;;
  *) echo "runs on '$ATTNLAB_RBE_WORKER', not on $1"; exit 1 ;;
esac
grep -q '^built by cpu-' "$2" || { cat "$2"; exit 1; }
tar -C "$TEST_TMPDIR" -xzf ci/farm/prebuilt/bundle.tar.gz
exec python3 "$TEST_TMPDIR/tests/run_tests.py" --out="$TEST_TMPDIR/results"
