#!/bin/sh
# where.sh POOL BUILT: fails unless a worker of the pool runs it, and one of the pool `cpu` built BUILT.
case $ATTNLAB_RBE_WORKER in
  "$1"-*) ;;
  *) echo "runs on '$ATTNLAB_RBE_WORKER', not on $1"; exit 1 ;;
esac
grep -q '^built by cpu-' "$2" || { cat "$2"; exit 1; }
