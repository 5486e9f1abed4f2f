"""Writes files completely or not at all."""

import contextlib
import os
import pathlib
import tempfile


@contextlib.contextmanager
def replacing(path):
    """A text file that replaces `path` when the block ends; after an exception `path` is unchanged.

    Created first, so that an unwritable path is reported early. If `path` is a link, its target is
    replaced; the mode is kept.
    """
    target = pathlib.Path(path).resolve()
    if target.is_dir():
        raise IsADirectoryError(0, "is a directory")
    handle, temporary = tempfile.mkstemp(prefix=target.name + ".", dir=target.parent)
    try:
        with open(handle, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # or the new name may come to be before the contents
        os.chmod(temporary, target.stat().st_mode & 0o777 if target.exists() else 0o644)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
