#!/bin/sh
# For --workspace_status_command: the commit that a build with --config=stamp is of.
commit=$(git rev-parse HEAD 2>/dev/null) || exit 0
git diff --quiet HEAD || commit="$commit with changes"
echo "STABLE_ATTNLAB_COMMIT $commit"
