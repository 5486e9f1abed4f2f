"""attnlab from Python: attention on NumPy arrays and PyTorch tensors, through libattnlab.so.

    import attnlab

    out = attnlab.attention(q, k, v, mask="causal")                # [batch, sequence, head, dim]
    out, lse = attnlab.attention(q, k, v, return_lse=True, kernel="cpu")
    attnlab.kernels(), attnlab.devices()
    plan = attnlab.plan("hq=8,sq=512,d=64,dtype=fp16", device="cuda:0")

See README.md in the directory above for the rest.
"""

from .attention import Call, attention
from .errors import (
    Error,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    LibraryNotFound,
    NotFound,
    OutOfRange,
    ResourceExhausted,
    Unavailable,
    Unimplemented,
)
from .library import ABI_VERSION
from .machine import Device, Kernel, devices, kernels
from .plan import Info, Plan, plan, why_not
from .problem import Problem

__all__ = [
    "ABI_VERSION", "Call", "Device", "Error", "FailedPrecondition", "Info", "Internal",
    "InvalidArgument", "Kernel", "LibraryNotFound", "NotFound", "OutOfRange", "Plan", "Problem",
    "ResourceExhausted", "Unavailable", "Unimplemented", "attention", "devices", "kernels",
    "library_path", "plan", "why_not",
]  # fmt: skip


def library_path() -> str:
    """The path of the libattnlab.so in use. Loads it if necessary."""
    from . import library

    return str(library.get().path)
