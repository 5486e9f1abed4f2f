#!/bin/sh
# Fails unless the file exists.
[ -s "$1" ]
