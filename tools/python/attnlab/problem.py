"""The attention problem: what is computed, not where the data is (attention/core/problem.h)."""

import ctypes
import dataclasses
import operator
import struct
from typing import Optional, Tuple, Union

from . import errors, library

Mask = Union[str, Tuple[int, int]]


def integer(name: str, value) -> int:
    """`value` as an integer that fits in C's type."""
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise errors.InvalidArgument(f"{name}: {value!r} is not an integer") from None
    if not -(2**63) <= number < 2**63:
        raise errors.OutOfRange(f"{name}: {number} does not fit 64 bits")
    return number


def real(name: str, value) -> float:
    """`value` as a number that fits in C's float; the library rejects infinity and NaN where
    needed."""
    try:
        if str(getattr(value, "dtype", type(value).__name__)).endswith("bool"):
            raise TypeError
        number = float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise errors.InvalidArgument(f"{name}: {value!r} is not a number") from None
    try:
        struct.pack("<f", number)
    except OverflowError:
        raise errors.InvalidArgument(f"{name}: {value!r} does not fit fp32") from None
    return number


def text(name: str, value) -> bytes:
    """A string for C."""
    if not isinstance(value, str) or "\0" in value:
        raise errors.InvalidArgument(f"{name}: {value!r} is not a string without NUL")
    return value.encode()


def choice(name: str, value, choices: Tuple[str, ...]) -> int:
    if not isinstance(value, str) or value not in choices:
        raise errors.InvalidArgument(f"{name}: {value!r} is not one of {', '.join(choices)}")
    return choices.index(value)


def normalized_mask(mask: Mask) -> Mask:
    """"none", "causal", or a pair of integers."""
    if isinstance(mask, str):
        if mask in ("none", "causal"):
            return mask
    elif isinstance(mask, (tuple, list)) and len(mask) == 2:
        return integer("mask: left", mask[0]), integer("mask: right", mask[1])
    if getattr(mask, "shape", ()):  # printing its elements would fill the screen
        kind = f"{type(mask).__module__}.{type(mask).__qualname__}"
        raise errors.InvalidArgument(
            f"mask: is a {kind} of dtype {getattr(mask, 'dtype', 'unknown')} and shape "
            f"{list(mask.shape)}, and dense masks are not supported; "
            'it is "none", "causal" or a pair (left, right)'
        )
    raise errors.InvalidArgument(
        f'mask: {mask!r} is not "none", "causal" or a pair (left, right)'
    )


# A side of a window that hides nothing: AttentionProblem::kMaxExtent.
_UNLIMITED = 2**31 - 1


def mask_of(mask: Mask, causal: bool, window_size: Tuple[int, int]) -> Mask:
    """The mask of the arguments of attention(), of which `causal` and `window_size` are those of
    FlashAttention."""
    if not isinstance(causal, bool):
        raise errors.InvalidArgument(f"causal: {causal!r} is not True or False")
    if not isinstance(window_size, (tuple, list)) or len(window_size) != 2:
        raise errors.InvalidArgument(f"window_size: {window_size!r} is not a pair (left, right)")
    left, right = (integer("window_size", side) for side in window_size)
    if left < -1 or right < -1:
        raise errors.InvalidArgument(
            f"window_size: ({left}, {right}) has a side below -1, which means unlimited"
        )
    if not causal and (left, right) == (-1, -1):
        return normalized_mask(mask)
    if not isinstance(mask, str) or mask != "none":
        other = "causal" if causal else "window_size"
        raise errors.InvalidArgument(f"mask, {other}: both are given, and say the same thing")
    if causal:
        if right > 0:
            raise errors.InvalidArgument(
                f"window_size: right is {right}, but causal=True hides all later keys"
            )
        if left == -1:
            return "causal"
        right = 0
    return _UNLIMITED if left == -1 else left, _UNLIMITED if right == -1 else right


@dataclasses.dataclass(frozen=True)
class Problem:
    """A value: compares, hashes, prints to and parses from one line.

        attnlab.Problem.parse("b=4,hq=32,hkv=8,sq=4096,d=128,dtype=bf16,mask=causal")

    `mask` is "none", "causal" or (left, right), the number of keys in a sliding window before a
    query's own position and after it. plan() checks whether the numbers make sense.
    """

    b: int
    hq: int
    hkv: int
    sq: int
    skv: int
    d: int
    dv: int
    dtype: str = "bf16"
    mask: Mask = "none"
    scale: Optional[float] = None  # 1/sqrt(d)
    softcap: float = 0.0  # no cap
    lens: str = "fixed"
    page: int = 0
    kv_dtype: Optional[str] = None  # of K and V; None: dtype
    o_dtype: Optional[str] = None  # None: dtype, or bf16 if that is fp8_e4m3
    scale_block: int = 0  # rows with one scale; 0: all rows of a head
    v_dtype: Optional[str] = None  # of V; None: that of K

    @property
    def output_dtype(self) -> str:
        return self.o_dtype or ("bf16" if self.dtype == "fp8_e4m3" else self.dtype)

    @staticmethod
    def parse(line: str) -> "Problem":
        """Parses a line in the form of attention/core/problem.h. Raises InvalidArgument."""
        c = library.CProblem()
        library.get().call("attnlab_problem_parse", text("problem", line), ctypes.byref(c))
        mask = library.MASKS[c.mask]
        return Problem(
            **{name: getattr(c, name) for name in ("b", "hq", "hkv", "sq", "skv", "d", "dv")},
            dtype=library.DTYPES[c.dtype],
            mask=(c.window_left, c.window_right) if mask == "window" else mask,
            scale=c.scale if c.has_scale else None,
            softcap=c.softcap,
            lens=library.LENGTHS[c.lens],
            page=c.page,
            kv_dtype=library.DTYPES[c.kv_dtype] if c.has_kv_dtype else None,
            o_dtype=library.DTYPES[c.o_dtype] if c.has_o_dtype else None,
            scale_block=c.scale_block,
            v_dtype=library.DTYPES[c.v_dtype] if c.has_v_dtype else None,
        )

    def __str__(self) -> str:
        """The canonical line. Raises InvalidArgument for an invalid problem."""
        line = ctypes.create_string_buffer(library.LINE_BYTES)
        c = self.to_c()
        library.get().call("attnlab_problem_print", ctypes.byref(c), line, library.LINE_BYTES)
        return line.value.decode()

    def to_c(self) -> library.CProblem:
        mask = normalized_mask(self.mask)
        window = mask if isinstance(mask, tuple) else (0, 0)
        names = ("b", "hq", "hkv", "sq", "skv", "d", "dv", "page", "scale_block")
        return library.CProblem(
            **{name: integer(name, getattr(self, name)) for name in names},
            dtype=choice("dtype", self.dtype, library.DTYPES),
            mask=library.MASKS.index(mask if isinstance(mask, str) else "window"),
            window_left=window[0],
            window_right=window[1],
            has_scale=self.scale is not None,
            scale=0.0 if self.scale is None else real("scale", self.scale),
            softcap=real("softcap", self.softcap),
            lens=choice("lens", self.lens, library.LENGTHS),
            has_kv_dtype=self.kv_dtype is not None,
            kv_dtype=0 if self.kv_dtype is None else choice("kv_dtype", self.kv_dtype, library.DTYPES),
            has_v_dtype=self.v_dtype is not None,
            v_dtype=0 if self.v_dtype is None else choice("v_dtype", self.v_dtype, library.DTYPES),
            has_o_dtype=self.o_dtype is not None,
            o_dtype=0 if self.o_dtype is None else choice("o_dtype", self.o_dtype, library.DTYPES),
        )
