#!/bin/sh
# A header of ours as C++14 begins with the reason, and as C++17 compiles.
set -eu

compile() { echo '#include "attention/core/mask.h"' | g++ "-std=$1" -fsyntax-only -I. -x c++ - 2>&1; }

if said=$(compile c++14); then
  echo "mask.h compiles as C++14, and does not say that it needs C++17"
  exit 1
fi
case $said in
  *"attnlab's headers need C++17 or later"*) ;;
  *)
    echo "$said"
    exit 1
    ;;
esac
compile c++17
