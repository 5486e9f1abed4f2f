"""Exceptions, one for each code of the C interface, with the same text.

Each is also the exception of Python that comes closest, so that `except ValueError` finds what
`except attnlab.InvalidArgument` finds.
"""

import re
from typing import Dict


class Error(Exception):
    """Whatever attnlab raises."""

    code = 0  # of attention_c.h


class InvalidArgument(Error, ValueError):
    """An argument is wrong; the message begins with its name."""

    code = 3


class NotFound(Error, LookupError):
    """There is no such kernel or device."""

    code = 5


class ResourceExhausted(Error, MemoryError):
    """Memory is not there, or shared memory of a GPU; the message says how much is needed."""

    code = 8


class FailedPrecondition(Error, RuntimeError):
    """The program is at fault: it forked after a call, or links two kernels of one name."""

    code = 9


class OutOfRange(Error, OverflowError):
    """Sizes or strides overflow."""

    code = 11


class Unimplemented(Error, NotImplementedError):
    """No kernel does this, or the library was built without CUDA."""

    code = 12


class Internal(Error, RuntimeError):
    """A call to the CUDA runtime failed in a way that no other code describes."""

    code = 13


class Unavailable(Error, RuntimeError):
    """There is no driver, or no GPU."""

    code = 14


class LibraryNotFound(Error, ImportError):
    """libattnlab.so is not where it is looked for, or does not load."""


_BY_CODE = {
    error.code: error
    for error in (
        InvalidArgument,
        NotFound,
        ResourceExhausted,
        FailedPrecondition,
        OutOfRange,
        Unimplemented,
        Internal,
        Unavailable,
    )
}


def of(code: int, message: str) -> Error:
    """The exception for a code; Internal for one that this package does not know."""
    return _BY_CODE.get(code, Internal)(message)


# What the C interface calls otherwise than the arguments of attention(). README.md has this table.
ARGUMENTS = {"o": "out", "q_len": "q_lens", "kv_len": "kv_lens"}
PACKED_ARGUMENTS = {**ARGUMENTS, "sq": "max_seqlen_q", "skv": "max_seqlen_kv"}


def renamed(error: Error, names: Dict[str, str]) -> Error:
    """The error with its field, the word before the first colon, by the name of the argument; and so
    with what a workspace shares memory with."""
    field, colon, rest = str(error).partition(": ")
    if not colon:
        return error
    shared = re.sub(
        r"(share memory with )(\w+)", lambda m: m[1] + names.get(m[2], m[2]), rest, count=1
    )
    if field not in names and shared == rest:
        return error
    return type(error)(f"{names.get(field, field)}: {shared}")
