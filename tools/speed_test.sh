#!/bin/sh
# How fast all kernels are on this GPU, for the farm's page (ci/farm/speed.py): speed_test.sh ATTNLAB
set -eu
exec "$1" bench --device=cuda:0 --preset=gpt2,dtype=fp16 --preset=llama3-8b-prefill-4k,dtype=fp16 \
  --preset=llama3-8b-decode-32k,dtype=fp16 --json="$TEST_UNDECLARED_OUTPUTS_DIR/bench.json"
