"""The kernels of the library, and the devices of this machine."""

import ctypes
from typing import List, NamedTuple, Optional, Tuple

from . import errors, library


class Kernel(NamedTuple):
    name: str
    summary: str
    device: str  # "cpu" or "cuda"
    built_for: Tuple[int, ...]  # compute capabilities times ten; () on the CPU
    config_keys: Tuple[str, ...]  # "tile_q: rows of …"
    preference: int  # the default is the supporting kernel with the highest value


class Device(NamedTuple):
    device: str  # "cpu", "cuda:0"
    name: str
    memory_bytes: int
    last_level_cache_bytes: int
    shared_memory_per_block: int  # of a GPU, the maximum; 0 on the CPU
    threads: int  # CPU threads that this process may use; 0 on a GPU
    compute_capability: int  # times ten; 0 on the CPU
    multiprocessors: int  # 0 on the CPU


def kernels() -> List[Kernel]:
    """The kernels of the library, in alphabetical order."""
    found: List[Kernel] = []
    while True:
        info = library.CKernelInfo()
        try:
            library.get().call("attnlab_kernel_get_info", len(found), ctypes.byref(info))
        except errors.NotFound:
            return found
        found.append(
            Kernel(
                info.name.decode(),
                info.summary.decode(),
                library.DEVICE_KINDS[info.device_kind],
                tuple(info.built_for[i] for i in range(info.built_for_entries)),
                tuple(info.config_keys.decode().splitlines()),
                info.preference,
            )
        )


def _describe(kind: str, ordinal: int) -> Device:
    info = library.CDeviceInfo()
    code = library.DEVICE_KINDS.index(kind)
    library.get().call("attnlab_device_get_info", code, ordinal, ctypes.byref(info))
    names = Device._fields[2:]
    device = kind if kind == "cpu" else f"{kind}:{ordinal}"
    return Device(device, info.name.decode(), *(getattr(info, name) for name in names))


def devices(kind: Optional[str] = None) -> List[Device]:
    """The CPU and the GPUs, or only those of one kind, "cpu" or "cuda".

    devices("cuda") raises Unavailable without a GPU or driver, and Unimplemented if the library was
    built without CUDA. devices() then returns only the CPU.
    """
    if kind not in (None,) + library.DEVICE_KINDS:
        raise errors.InvalidArgument(f"kind: {kind!r} is not None, cpu or cuda")
    found: List[Device] = []
    for each in library.DEVICE_KINDS if kind is None else (kind,):
        count = ctypes.c_int64()
        try:
            code = library.DEVICE_KINDS.index(each)
            library.get().call("attnlab_device_count", code, ctypes.byref(count))
        except (errors.Unavailable, errors.Unimplemented):
            if kind is not None:
                raise
        found += [_describe(each, ordinal) for ordinal in range(count.value)]
    return found
