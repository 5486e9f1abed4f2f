#!/bin/sh
# What bazelw gives to Bazel, seen by a program in Bazel's place that prints its arguments.
set -eu

mkdir -p "$TEST_TMPDIR/tools/dev"
cp bazelw "$TEST_TMPDIR/"
cp tools/dev/system_packages.sh "$TEST_TMPDIR/tools/dev/"
cd "$TEST_TMPDIR"
cat >bazel <<'END'
#!/bin/sh
for argument; do printf '[%s]' "$argument"; done
END
chmod +x bazel
export BAZEL="$TEST_TMPDIR/bazel" ATTNLAB_NO_INSTALL=1

# expect WANTED FLAGS ARGUMENT...
expect() {
  wanted=$1
  flags=$2
  shift 2
  got=$(BAZELW_FLAGS=$flags ./bazelw "$@")
  [ "$got" = "$wanted" ] && return
  echo "FAILED: with BAZELW_FLAGS='$flags': bazelw $* ran Bazel with $got, not $wanted" >&2
  exit 1
}

expect '[test][//...]' '' test //...
expect '[--output_base=/a][--batch][test][//...]' ' --output_base=/a  --batch' test //...
# Bazel takes the last of one kind: the command line's.
expect '[--output_base=/a][--output_base=/b][info]' --output_base=/a --output_base=/b info
# Words, not patterns of file names; and the command line's own words stay whole.
expect '[--max_idle_secs=*][run][a b]' '--max_idle_secs=*' run 'a b'
unset BAZELW_FLAGS
got=$(./bazelw info)
[ "$got" = '[info]' ] || { echo "FAILED: without BAZELW_FLAGS: $got" >&2 && exit 1; }

# bazelisk, which would take the newest Bazel, is told which; unless the caller has said so.
printf '#!/bin/sh\nprintf "[%%s]" "$USE_BAZEL_VERSION"\n' >bazelisk
chmod +x bazelisk
got=$(BAZEL="$TEST_TMPDIR/bazelisk" ./bazelw info)$(USE_BAZEL_VERSION=4.2.1 BAZEL="$TEST_TMPDIR/bazelisk" ./bazelw info)
[ "$got" = '[4.2.3][4.2.1]' ] || { echo "FAILED: bazelisk was told $got" >&2 && exit 1; }
