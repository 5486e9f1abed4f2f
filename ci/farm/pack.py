"""Packs a bundle of tests: pack.py ARCHIVE TESTS_JSON LISTING RUNNER_FILE...

LISTING has a line "PATH<tab>FILE" for each file that tests need. In the archive, all is in tests/: the
runner's files, tests.json, and tests.runfiles/PATH. Files that are the same file are stored once. The same
inputs give the same bytes.
"""

import gzip
import os
import sys
import tarfile


def add(archive, stored, path, file):
    info = tarfile.TarInfo("tests/" + path)
    real = os.path.realpath(file)
    info.mode = 0o755 if os.access(real, os.X_OK) else 0o644
    if real in stored:
        info.type, info.linkname = tarfile.LNKTYPE, stored[real]
        archive.addfile(info)
        return
    stored[real] = info.name
    info.size = os.path.getsize(real)
    with open(real, "rb") as content:
        archive.addfile(info, content)


def pack(archive_path, manifest, listing, runner):
    with open(listing, encoding="utf-8") as lines:
        files = [line.rstrip("\n").split("\t") for line in lines if line.strip()]
    with open(archive_path, "wb") as raw, gzip.GzipFile("", "wb", 1, raw, mtime=0) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive:
            stored = {}
            for file in runner:
                add(archive, stored, os.path.basename(file), file)
            add(archive, stored, "tests.json", manifest)
            for path, file in sorted(files):
                add(archive, stored, "tests.runfiles/" + path, file)


if __name__ == "__main__":
    pack(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
