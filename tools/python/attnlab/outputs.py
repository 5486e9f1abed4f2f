"""The outputs of a call, O and LSE, with the caller's axes: shapes, new arrays, and checks."""

import math
import re
from typing import Any, Tuple

from . import arrays, errors
from .arrays import View

# Axis of an array that is batch, sequence, head and dim; each permutation is its own inverse.
AXES = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3)}
NAMES = {"b": "batch", "s": "sequence", "h": "head", "d": "dim"}

Shape = Tuple[int, ...]


def axes(layout: str, packed: bool) -> str:
    """The names of an array's axes. Packed sequences have no batch."""
    return ", ".join(NAMES[letter] for letter in (layout[1:] if packed else layout))


def shapes(b: int, s: int, h: int, dv: int, layout: str, packed: bool) -> Tuple[Shape, Shape]:
    """The shapes of O and LSE."""
    bshd = (b, s, h, dv)
    o, lse = tuple(bshd[i] for i in AXES[layout]), (b, h, s)
    return (o[1:], lse[1:]) if packed else (o, lse)


def check(name: str, view: View, shape: Shape, of: str) -> None:
    """Checks a shape. The library would do so, too, but with four axes in its own order."""
    if tuple(view.shape) != shape:
        raise errors.InvalidArgument(
            f"{name}: shape is {list(view.shape)}, must be {list(shape)} ({of})"
        )


def lse_view(view: View, packed: bool) -> View:
    """The view with axes batch, sequence, head, and one of length 1."""
    wanted = "2 (head, token)" if packed else "3 (batch, head, sequence)"
    if len(view.shape) != (2 if packed else 3):
        raise errors.InvalidArgument(f"lse: has {len(view.shape)} axes, must have {wanted}")
    shape, strides = view.shape, view.strides
    if packed:
        shape, strides = (1,) + shape, (0,) + strides
    return view._replace(
        shape=(shape[0], shape[2], shape[1], 1), strides=(strides[0], strides[2], strides[1], 1)
    )


def _is_about_memory(error: Exception) -> bool:
    # PyTorch's error for lack of memory on the CPU has no type of its own.
    return not isinstance(error, RuntimeError) or bool(re.search("memory|overflow", str(error), re.I))


def new(name: str, like, device: str, shape: Shape, dtype: str, fill=None) -> Any:
    """A new array of `like`'s library and device."""
    try:
        return arrays.adapter("q", like).new(like, shape, dtype, fill)
    except (MemoryError, ValueError, OverflowError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        count = math.prod(shape) * (4 if dtype == "fp32" else 2)
        raise errors.ResourceExhausted(
            f"{name}: {count} bytes for the shape {list(shape)} cannot be allocated on {device}"
        ) from error


def scratch(like, device: str, count: int) -> Tuple[Any, int]:
    """A workspace on the device of `like`: the memory, and its address."""
    try:
        return arrays.adapter("q", like).scratch(like, count)
    except (MemoryError, ValueError, OverflowError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        raise errors.ResourceExhausted(
            f"workspace: {count} bytes cannot be allocated on {device}"
        ) from error
