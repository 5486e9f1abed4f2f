"""NumPy arrays and PyTorch tensors as the C interface takes them: an address, a shape, strides.

Imports neither library, because a caller with one of its arrays already has. Copies nothing: an
array that cannot be used as it is raises an error with the reason. Each of the two classes below
makes views of its library's arrays, new arrays like a given one, and scratch memory.
"""

import sys
from typing import Any, Dict, List, NamedTuple, Tuple

from . import errors

# The libraries' dtype names, and those of attention_c.h.
_DTYPES = {
    "float32": "fp32",
    "float16": "fp16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8_e4m3",
    "float8_e5m2": "fp8_e5m2",
    "int32": "int32",
    "uint8": "uint8",
}

_NAMES = {name: of_library for of_library, name in _DTYPES.items()}

_names: Dict[Any, str] = {}  # cache of names by dtype

WORKSPACE_ALIGNMENT = 256


def _name(dtype) -> str:
    """attnlab's name of a dtype, or the library's name if attnlab has none."""
    name = _names.get(dtype)
    if name is None:
        plain = str(dtype).rpartition(".")[2]  # float32, torch.float32
        name = _names[dtype] = _DTYPES.get(plain, plain)
    return name


class View(NamedTuple):
    """Where an array lies. Strides are in elements. `dtype` is attnlab's name, or the library's."""

    data: int
    shape: Tuple[int, ...]
    strides: Tuple[int, ...]
    dtype: str
    kind: str  # "cpu" or "cuda"
    ordinal: int

    @property
    def device(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.ordinal}"


class Numpy:
    """NumPy arrays, on the CPU."""

    @staticmethod
    def view(name: str, array, output: bool) -> View:
        numpy = sys.modules["numpy"]
        if isinstance(array, numpy.ma.MaskedArray):
            raise errors.InvalidArgument(f"{name}: is a masked array, whose mask would be ignored")
        if not array.dtype.isnative:
            raise errors.InvalidArgument(f"{name}: dtype {array.dtype} has a foreign byte order")
        if output and not array.flags.writeable:
            raise errors.InvalidArgument(f"{name}: is read-only")
        size = array.dtype.itemsize
        strides = []
        for extent, stride in zip(array.shape, array.strides):
            # The stride of an axis with one element has no meaning.
            if extent > 1 and stride % size != 0:
                raise errors.InvalidArgument(
                    f"{name}: stride of {stride} bytes is not a multiple of the element size {size}"
                )
            strides.append(stride // size if extent > 1 else max(stride // size, 0))
        data = array.ctypes.data
        return View(data, array.shape, tuple(strides), _name(array.dtype), "cpu", 0)

    @staticmethod
    def new(like, shape: Tuple[int, ...], dtype: str, fill=None):
        # NumPy has no bfloat16. Arrays of it, and of fp8, are those of ml_dtypes.
        numpy = sys.modules["numpy"]
        dtype = sys.modules["ml_dtypes"].bfloat16 if dtype == "bf16" else _NAMES[dtype]
        return numpy.empty(shape, dtype) if fill is None else numpy.full(shape, fill, dtype)

    @staticmethod
    def scratch(like, count: int) -> Tuple[Any, int]:
        """Memory, and the aligned address in it at which `count` bytes begin."""
        memory = sys.modules["numpy"].empty(count + WORKSPACE_ALIGNMENT, "uint8")
        address = memory.ctypes.data
        return memory, address + -address % WORKSPACE_ALIGNMENT

    @staticmethod
    def stream(view: View) -> int:
        return 0

    @staticmethod
    def integers(array) -> List[int]:
        return array.tolist()


class Torch:
    """PyTorch tensors, on the CPU or on a GPU."""

    @staticmethod
    def view(name: str, tensor, output: bool) -> View:
        torch = sys.modules["torch"]
        device = tensor.device
        if device.type not in ("cpu", "cuda"):
            raise errors.InvalidArgument(f"{name}: on {device}; attention is for cpu and cuda")
        if torch.version.hip is not None and device.type == "cuda":
            raise errors.InvalidArgument(f"{name}: on {device} of ROCm; attention is for CUDA")
        if tensor.layout is not torch.strided:
            raise errors.InvalidArgument(f"{name}: layout {tensor.layout} is not torch.strided")
        if tensor.is_neg():
            raise errors.InvalidArgument(f"{name}: is a lazy negation; resolve_neg() makes it real")
        if tensor.requires_grad and torch.is_grad_enabled():
            raise errors.InvalidArgument(
                f"{name}: requires grad, and attnlab has no backward pass; "
                f"use torch.no_grad(), or {name}.detach()"
            )
        try:
            data = tensor.data_ptr()
        except RuntimeError as error:  # a tensor without memory, such as one from tracing
            raise errors.InvalidArgument(f"{name}: has no address: {error}") from None
        shape, strides = tuple(tensor.shape), tensor.stride()
        return View(data, shape, strides, _name(tensor.dtype), device.type, device.index or 0)

    @staticmethod
    def new(like, shape: Tuple[int, ...], dtype: str, fill=None):
        torch = sys.modules["torch"]
        dtype = getattr(torch, _NAMES[dtype])
        if fill is None:
            return torch.empty(shape, dtype=dtype, device=like.device)
        return torch.full(shape, fill, dtype=dtype, device=like.device)

    @staticmethod
    def scratch(like, count: int) -> Tuple[Any, int]:
        # On a GPU the caching allocator provides it: for the current stream, without waiting, and
        # from the graph's own pool while a graph is captured.
        torch = sys.modules["torch"]
        memory = torch.empty(count + WORKSPACE_ALIGNMENT, dtype=torch.uint8, device=like.device)
        address = memory.data_ptr()
        return memory, address + -address % WORKSPACE_ALIGNMENT

    @staticmethod
    def stream(view: View) -> int:
        if view.kind == "cpu":
            return 0
        return sys.modules["torch"].cuda.current_stream(view.ordinal).cuda_stream

    @staticmethod
    def integers(tensor) -> List[int]:
        return tensor.tolist()


def adapter(name: str, array):
    """The class above for an array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        return Torch
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(array, numpy.ndarray):
        return Numpy
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    hint = ""
    if hasattr(array, "__dlpack__") or hasattr(array, "__cuda_array_interface__"):
        hint = f"; torch.from_dlpack({name}) is a tensor in the same memory"
    raise errors.InvalidArgument(
        f"{name}: is a {kind}, must be a NumPy array or a PyTorch tensor{hint}"
    )


def view(name: str, array, output: bool = False) -> View:
    return adapter(name, array).view(name, array, output)
