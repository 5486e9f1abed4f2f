#!/bin/sh
# On a GPU: the conformance suite of a CUDA kernel that is right, but computes on the host, fails for want
# of a launch where a compute capability asks for proof, and there alone.
#
#   launch_proof_test.sh CONFORMANCE_PROGRAM
set -u

output=$TEST_TMPDIR/output
# In one shard, whatever Bazel says.
unset TEST_TOTAL_SHARDS TEST_SHARD_INDEX TEST_SHARD_STATUS_FILE XML_OUTPUT_FILE
set -- "$1" --kernel=via_host --gtest_filter='via_host_matches_oracle.0*_fixed_*'

# fails|passes LINE COMMAND...: how the command ends, and what it must say
expect() {
  how=$1
  line=$2
  shift 2
  if "$@" >"$output" 2>&1; then ended=passes; else ended=fails; fi
  if [ "$ended" != "$how" ] || ! grep -q "$line" "$output"; then
    tail -n 50 "$output"
    echo "FAILED: $ended, and must: $how with \"$line\""
    exit 1
  fi
}

expect passes 'PASSED  ] [1-9]' env -u ATTNLAB_COMPUTE_CAPABILITY "$@"
expect fails 'via_host passed [1-9][0-9]* tests without any device::Launch' "$@"
expect fails 'ATTNLAB_COMPUTE_CAPABILITY: "hopper"' env ATTNLAB_COMPUTE_CAPABILITY=hopper "$@"
