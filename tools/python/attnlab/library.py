"""libattnlab.so: where it is, and its C interface (attention/c/attention_c.h) as ctypes.

The first of these that exists is loaded, once, on first use:

    $ATTNLAB_LIBRARY                       the library itself
    attention/libattnlab.so                in Bazel's runfiles
    bazel-bin/attention/libattnlab.so      in a checkout: ./bazelw build //attention:attnlab
    libattnlab.so                          beside this file
"""

import ctypes
import os
import pathlib
import threading
from ctypes import POINTER, c_char_p, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from typing import List, Optional

from . import errors

ABI_VERSION = 1

DTYPES = ("fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2")
DEVICE_KINDS = ("cpu", "cuda")
MASKS = ("none", "causal", "window")
LENGTHS = ("fixed", "packed", "padded")
LINE_BYTES = 512


class _Sized(ctypes.Structure):
    """A struct that begins with its own size, which is filled in."""

    def __init__(self, **fields):
        super().__init__(size=ctypes.sizeof(type(self)), **fields)


class CProblem(_Sized):
    _fields_ = (
        [("size", c_uint64)]
        + [(name, c_int64) for name in ("b", "hq", "hkv", "sq", "skv", "d", "dv")]
        + [("dtype", c_int32), ("mask", c_int32)]
        + [("window_left", c_int64), ("window_right", c_int64)]
        + [("has_scale", c_int32), ("scale", c_float), ("softcap", c_float)]
        + [("lens", c_int32), ("page", c_int64)]
        + [(n, c_int32) for n in ("has_kv_dtype", "kv_dtype", "has_o_dtype", "o_dtype")]
        + [("scale_block", c_int64), ("has_v_dtype", c_int32), ("v_dtype", c_int32)]
    )


class CTensor(_Sized):
    _fields_ = (
        [("size", c_uint64)]
        + [(name, c_int32) for name in ("dtype", "device_kind", "device_ordinal", "reserved")]
        + [("data", c_void_p), ("shape", c_int64 * 4), ("strides", c_int64 * 4)]
    )


class CForwardArgs(_Sized):
    _fields_ = (
        [("size", c_uint64), ("problem", POINTER(CProblem))]
        + [(name, POINTER(CTensor)) for name in ("q", "k", "v", "o", "lse")]
        + [(name, c_void_p) for name in ("cu_seqlens_q", "cu_seqlens_kv", "q_len", "kv_len")]
        + [("kernel", c_char_p), ("config", c_char_p)]
        + [("workspace", c_void_p), ("workspace_bytes", c_int64), ("stream", c_void_p)]
        + [("page_table", c_void_p)]
        + [(n, c_int64) for n in ("page_table_columns", "page_table_row_stride")]
        + [(name, POINTER(CTensor)) for name in ("q_scale", "k_scale", "v_scale")]
    )


class CPlanArgs(_Sized):
    _fields_ = [
        ("size", c_uint64),
        ("problem", POINTER(CProblem)),
        ("device_kind", c_int32),
        ("device_ordinal", c_int32),
        ("kernel", c_char_p),
        ("config", c_char_p),
    ]


class CPlanInfo(_Sized):
    _fields_ = [
        ("size", c_uint64),
        ("kernel", c_char_p),
        ("workspace_bytes", c_int64),
        ("flops", c_double),
        ("compulsory_bytes", c_int64),
        ("expected_flops", c_double),
        ("expected_bytes_read", c_int64),
        ("expected_bytes_written", c_int64),
    ]


class CKernelInfo(_Sized):
    _fields_ = [
        ("size", c_uint64),
        ("name", c_char_p),
        ("summary", c_char_p),
        ("config_keys", c_char_p),
        ("built_for", POINTER(c_int32)),
        ("built_for_entries", c_int64),
        ("device_kind", c_int32),
        ("preference", c_int32),
    ]


class CDeviceInfo(_Sized):
    _fields_ = (
        [("size", c_uint64), ("name", c_char_p)]
        + [(n, c_int64) for n in ("memory_bytes", "last_level_cache_bytes")]
        + [("shared_memory_per_block", c_int64)]
        + [(n, c_int32) for n in ("threads", "compute_capability", "multiprocessors", "reserved")]
    )


_FUNCTIONS = {  # functions that return a code
    "attnlab_problem_parse": [c_char_p, POINTER(CProblem)],
    "attnlab_problem_print": [POINTER(CProblem), c_char_p, c_int64],
    "attnlab_plan_create": [POINTER(CPlanArgs), POINTER(c_void_p)],
    "attnlab_plan_destroy": [c_void_p],
    "attnlab_plan_forward": [c_void_p, POINTER(CForwardArgs)],
    "attnlab_plan_get_info": [c_void_p, POINTER(CPlanInfo)],
    "attnlab_kernel_get_info": [c_int64, POINTER(CKernelInfo)],
    "attnlab_device_count": [c_int32, POINTER(c_int64)],
    "attnlab_device_get_info": [c_int32, c_int32, POINTER(CDeviceInfo)],
}


def candidates() -> List[pathlib.Path]:
    """Where to look for the library, in this order."""
    named = os.environ.get("ATTNLAB_LIBRARY")
    if named:
        return [pathlib.Path(named)]
    found = [
        pathlib.Path(os.environ[name]) / "attnlab/attention/libattnlab.so"
        for name in ("RUNFILES_DIR", "TEST_SRCDIR")
        if os.environ.get(name)
    ]
    here = pathlib.Path(os.path.abspath(__file__)).parent
    root = here.parent.parent.parent  # root of the checkout, or of the workspace in runfiles
    found.append(root / "attention/libattnlab.so")
    found.append(root / "bazel-bin/attention/libattnlab.so")
    found.append(here / "libattnlab.so")
    return found


class Library:
    """The loaded library. Its functions raise the exception for the code that they return."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        try:
            self._dll = ctypes.CDLL(str(path))
            self._dll.attnlab_abi_version.restype = c_int32
            version = self._dll.attnlab_abi_version()
            if version != ABI_VERSION:
                raise errors.LibraryNotFound(
                    f"{path}: has interface version {version}, not {ABI_VERSION}"
                )
            self._dll.attnlab_last_error.restype = c_char_p
            for name, argtypes in _FUNCTIONS.items():
                function = getattr(self._dll, name)
                function.argtypes, function.restype = argtypes, c_int32
        except (OSError, AttributeError) as error:
            raise errors.LibraryNotFound(f"{path}: {error}") from error

    def call(self, name: str, *arguments) -> None:
        code = getattr(self._dll, name)(*arguments)
        if code != 0:
            raise errors.of(code, self._dll.attnlab_last_error().decode(errors="replace"))


_lock = threading.Lock()
_library: Optional[Library] = None


def get() -> Library:
    """The library, loaded on the first call. LibraryNotFound says where it was looked for."""
    global _library
    if _library is None:
        with _lock:
            if _library is None:
                paths = candidates()
                path = next((path for path in paths if path.exists()), None)
                if path is None:
                    raise errors.LibraryNotFound(
                        "libattnlab.so: not found at "
                        + ", ".join(map(str, paths))
                        + "; ./bazelw build //attention:attnlab builds it, $ATTNLAB_LIBRARY names it"
                    )
                _library = Library(path)
    return _library
