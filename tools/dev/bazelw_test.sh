#!/bin/sh
# Tests what bazelw passes to Bazel, with a fake Bazel that prints its arguments.
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
# If an option occurs twice, Bazel takes the last one, here that of the command line.
expect '[--output_base=/a][--output_base=/b][info]' --output_base=/a --output_base=/b info
# Flags are split into words, not expanded as file patterns; words of the command line stay whole.
expect '[--max_idle_secs=*][run][a b]' '--max_idle_secs=*' run 'a b'
unset BAZELW_FLAGS
got=$(./bazelw info)
[ "$got" = '[info]' ] || { echo "FAILED: without BAZELW_FLAGS: $got" >&2 && exit 1; }

# bazelisk would take the newest Bazel, so bazelw sets the version, unless the caller has set it.
printf '#!/bin/sh\nprintf "[%%s]" "$USE_BAZEL_VERSION"\n' >bazelisk
chmod +x bazelisk
got=$(BAZEL="$TEST_TMPDIR/bazelisk" ./bazelw info)$(USE_BAZEL_VERSION=4.2.1 BAZEL="$TEST_TMPDIR/bazelisk" ./bazelw info)
[ "$got" = '[4.2.3][4.2.1]' ] || { echo "FAILED: bazelisk was told $got" >&2 && exit 1; }
