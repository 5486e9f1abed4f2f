"""Exceptions: one for each code of the C interface, with the same text.

Each is also the closest exception of Python, so that `except ValueError` catches what `except
attnlab.InvalidArgument` catches.
"""

import re
from typing import Dict


class Error(Exception):
    """The base of everything that attnlab raises."""

    code = 0  # of attention_c.h


class InvalidArgument(Error, ValueError):
    """An argument is wrong; the message begins with its name."""

    code = 3


class NotFound(Error, LookupError):
    """There is no such kernel or device."""

    code = 5


class ResourceExhausted(Error, MemoryError):
    """Not enough memory, or shared memory of a GPU; the message says how much is needed."""

    code = 8


class FailedPrecondition(Error, RuntimeError):
    """The program is wrong: it forked after a call, or links two kernels with the same name."""

    code = 9


class OutOfRange(Error, OverflowError):
    """Sizes or strides overflow."""

    code = 11


class Unimplemented(Error, NotImplementedError):
    """No kernel supports this, or the library was built without CUDA."""

    code = 12


class Internal(Error, RuntimeError):
    """A call to the CUDA runtime failed in a way that no other code describes."""

    code = 13


class Unavailable(Error, RuntimeError):
    """There is no driver, or no GPU."""

    code = 14


class LibraryNotFound(Error, ImportError):
    """libattnlab.so was not found, or does not load."""


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
    """The exception for a code; Internal for a code that this package does not know."""
    return _BY_CODE.get(code, Internal)(message)


# Fields whose names in the C interface differ from the arguments of attention(). README.md has this
# table.
ARGUMENTS = {"o": "out", "q_len": "q_lens", "kv_len": "kv_lens", "odtype": "out", "o_dtype": "out",
             "scaleblock": "scale_block"}  # fmt: skip
PACKED_ARGUMENTS = {**ARGUMENTS, "sq": "max_seqlen_q", "skv": "max_seqlen_kv"}


def renamed(error: Error, names: Dict[str, str]) -> Error:
    """Replaces the field (the word before the first colon) by the argument's name, and likewise the
    field that a workspace shares memory with."""
    field, colon, rest = str(error).partition(": ")
    if not colon:
        return error
    shared = re.sub(
        r"(share memory with )(\w+)", lambda m: m[1] + names.get(m[2], m[2]), rest, count=1
    )
    if field not in names and shared == rest:
        return error
    return type(error)(f"{names.get(field, field)}: {shared}")
