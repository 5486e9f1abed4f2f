"""What is timed: a kernel of attnlab, a back end of PyTorch's scaled_dot_product_attention, or
another library with a function for it.

Given a list of input sets, each returns a list of functions without arguments. They run attention
on the inputs and return the output [batch, head, sequence, dim]. Otherwise it raises Unable with
the reason.
"""

import contextlib
import functools
import importlib
import importlib.util
import os
import re
import warnings
from typing import Callable, List, NamedTuple

import torch

import attnlab

from .suites import SCALE_BLOCK, Case

BACKENDS = ("cudnn", "flash", "efficient", "math", "auto")
# Other libraries: the module to import, and what pip installs.
LIBRARIES = {
    "fa3": ("fa3_fwd_interface", "fa3-fwd"),
    "flashinfer": ("flashinfer", "flashinfer-python"),
    # Its decoding with a paged KV cache, pages of 16, 64 and 128 tokens.
    "flashinfer-page16": ("flashinfer", "flashinfer-python"),
    "flashinfer-page64": ("flashinfer", "flashinfer-python"),
    "flashinfer-page128": ("flashinfer", "flashinfer-python"),
}


class Unable(Exception):
    """The contender cannot do the case; the text says why."""


class KernelSpec(NamedTuple):
    name: str  # "": attnlab's choice
    config: str

    @property
    def label(self) -> str:
        name = self.name or "attnlab"
        return name + "".join(f":{item}" for item in self.config.split(",") if item)


def parse_kernels(text: str) -> List[KernelSpec]:
    """Parses "baseline,cpu:threads=4:tile_kv=96" into names with configurations. Raises
    ValueError."""
    specs = []
    for item in text.split(","):
        name, *pairs = item.split(":")
        if any("=" not in pair for pair in pairs):
            raise ValueError(f"--kernel: {item!r} is not NAME or NAME:KEY=VALUE:KEY=VALUE")
        specs.append(KernelSpec(name.strip(), ",".join(pairs)))
    if len({spec.label for spec in specs}) != len(specs):
        raise ValueError(f"--kernel: {text!r} names one twice")
    return specs


class AttnlabKernel:
    ours = True

    def __init__(self, spec: KernelSpec, threads: int):
        self.name = spec.label
        self._kernel, self._config = spec.name, spec.config
        if spec.name == "cpu" and "threads=" not in spec.config:
            self._config = ",".join(filter(None, [spec.config, f"threads={threads}"]))

    def prepare(self, case: Case, inputs) -> List[Callable]:
        device = str(inputs[0][0].device)
        try:
            plan = attnlab.plan(case.line(), device, self._kernel, self._config)
            # One workspace is enough, because calls of one kernel follow each other.
            q = inputs[0][0]
            memory = torch.empty(
                plan.info.workspace_bytes + 256, dtype=torch.uint8, device=q.device
            )
            start = -memory.data_ptr() % 256
            workspace = memory[start : start + max(plan.info.workspace_bytes, 1)]
            calls = []
            for q, k, v in inputs:
                # In the memory order of q, and filled with NaN.
                out = torch.empty_like(q, dtype=output_dtype(case, q)).fill_(float("nan"))
                more = {"out": out, "workspace": workspace}
                if case.page:
                    k, v = (pages_of(case, x).transpose(1, 2) for x in (k, v))
                    more["page_table"] = page_table(case, q.device)
                if case.kv_dtype:
                    of_heads = torch.ones(case.b, case.hkv, device=q.device)
                    more["k_scale"], more["v_scale"] = of_heads * K_SCALE, of_heads * V_SCALE
                if case.dtype == "fp8_e4m3":
                    blocks = [-(-n // SCALE_BLOCK) for n in (case.sq, case.skv)]
                    of_q = torch.ones(case.b, blocks[0], case.hq, device=q.device)
                    of_kv = torch.ones(case.b, blocks[1], case.hkv, device=q.device)
                    more["q_scale"], more["k_scale"] = of_q * Q_SCALE, of_kv * K_SCALE
                    more["v_scale"] = of_kv * V_SCALE
                calls.append(plan.bind(q, k, v, layout="bhsd", **more))
            calls[0]()
            _wait(q)
            return calls
        except (attnlab.Error, RuntimeError) as error:
            raise Unable(_reason(error)) from None

    @contextlib.contextmanager
    def context(self):
        yield


class TorchBackend:
    ours = False

    def __init__(self, name: str):
        self.name = name

    def prepare(self, case: Case, inputs) -> List[Callable]:
        if case.page or case.kv_dtype or case.dtype == "fp8_e4m3":
            raise Unable("takes neither pages nor fp8")
        if case.causal and case.sq != case.skv:
            raise Unable("aligns a causal mask with the first key")
        attend = torch.nn.functional.scaled_dot_product_attention
        options = {"is_causal": case.causal}
        if case.hq != case.hkv:
            options["enable_gqa"] = True
        calls = [lambda qkv=qkv: attend(*qkv, **options) for qkv in inputs]
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                with self.context():
                    calls[0]()
                _wait(inputs[0][0])
            except RuntimeError as error:
                raise Unable(_reason(error, said)) from None
        return calls

    @contextlib.contextmanager
    def context(self):
        if self.name == "auto":
            yield
            return
        from torch.nn.attention import SDPBackend, sdpa_kernel

        backend = {
            "cudnn": SDPBackend.CUDNN_ATTENTION,
            "flash": SDPBackend.FLASH_ATTENTION,
            "efficient": SDPBackend.EFFICIENT_ATTENTION,
            "math": SDPBackend.MATH,
        }[self.name]
        with sdpa_kernel(backend):
            yield


class Library:
    """FlashAttention-3 or FlashInfer. Both take [batch, sequence, head, dim]."""

    ours = False

    def __init__(self, name: str):
        self.name = name

    def prepare(self, case: Case, inputs) -> List[Callable]:
        module, package = LIBRARIES[self.name]
        try:
            library = importlib.import_module(module)
        except ImportError as error:
            raise Unable(f"{error}; pip install {package}") from None
        make = {
            "fa3": self._fa3,
            "flashinfer": self._flashinfer,
            "flashinfer-page16": functools.partial(self._flashinfer_decode, 16),
            "flashinfer-page64": functools.partial(self._flashinfer_decode, 64),
            "flashinfer-page128": functools.partial(self._flashinfer_decode, 128),
        }[self.name]
        try:
            calls = [make(library, case, *(x.transpose(1, 2) for x in qkv)) for qkv in inputs]
            calls[0]()
            _wait(inputs[0][0])
        except (RuntimeError, ValueError, TypeError, AssertionError) as error:
            raise Unable(_reason(error)) from None
        return calls

    @contextlib.contextmanager
    def context(self):
        yield

    @staticmethod
    def _fa3(library, case: Case, q, k, v) -> Callable:
        if case.page or case.kv_dtype:
            raise ValueError("takes neither pages nor an fp8 cache")
        scales = {}
        if case.dtype == "fp8_e4m3":
            of_heads = torch.ones(case.b, case.hkv, device=q.device)
            for name, factor in (("q", Q_SCALE), ("k", K_SCALE), ("v", V_SCALE)):
                scales[name + "_descale"] = of_heads * factor

        def call():
            found = library.flash_attn_func(q, k, v, causal=case.causal, **scales)
            return (found[0] if isinstance(found, tuple) else found).transpose(1, 2)

        return call

    @staticmethod
    def _flashinfer(library, case: Case, q, k, v) -> Callable:
        """Its prefill of a batch, with the schedule made once, as attnlab's plan is."""
        _set_architecture(q)
        flat_q, flat_k, flat_v = (x.reshape(-1, *x.shape[2:]) for x in (q, k, v))
        if case.kv_dtype or case.dtype == "fp8_e4m3":
            raise ValueError("is not called with fp8 here")

        def begins(length: int):
            return torch.arange(case.b + 1, dtype=torch.int32, device=q.device) * length

        memory = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)
        if case.page:
            pages = tuple(pages_of(case, x.transpose(1, 2)) for x in (k, v))
            prefill = library.BatchPrefillWithPagedKVCacheWrapper(memory, "NHD")
            prefill.plan(
                begins(case.sq), begins(case.skv // case.page), page_table(case, q.device).view(-1),
                torch.full((case.b,), case.page, dtype=torch.int32, device=q.device),
                case.hq, case.hkv, case.d, case.page, causal=case.causal,
                q_data_type=q.dtype, kv_data_type=k.dtype,
            )  # fmt: skip
            return lambda: prefill.run(flat_q, pages).view(q.shape).transpose(1, 2)
        prefill = library.BatchPrefillWithRaggedKVCacheWrapper(memory, "NHD")
        prefill.plan(
            begins(case.sq), begins(case.skv), case.hq, case.hkv, case.d, causal=case.causal,
            q_data_type=q.dtype, kv_data_type=k.dtype,
        )  # fmt: skip
        return lambda: prefill.run(flat_q, flat_k, flat_v).view(q.shape).transpose(1, 2)

    @staticmethod
    def _flashinfer_decode(page: int, library, case: Case, q, k, v) -> Callable:
        """Its decoding. If the case is not paged, the pages of a sequence follow each other."""
        if case.sq != 1 or case.skv % page or case.page not in (0, page) or not k.is_contiguous():
            raise ValueError(f"is for one query token and whole pages of {page} tokens")
        _set_architecture(q)
        of_sequence = case.skv // page
        paged = case._replace(page=page)
        pages = tuple(pages_of(paged, x.transpose(1, 2)) for x in (k, v))

        def integers(*values: int, **more):
            return torch.arange(*values, dtype=torch.int32, device=q.device, **more)

        table = integers(case.b * of_sequence)
        if case.page:
            table = page_table(case, q.device).view(-1)
        scales = {"k_scale": K_SCALE, "v_scale": V_SCALE} if case.kv_dtype else {}

        memory = torch.empty(128 << 20, dtype=torch.uint8, device=q.device)
        decode = library.BatchDecodeWithPagedKVCacheWrapper(memory, "NHD", use_tensor_cores=True)
        decode.plan(
            integers(case.b + 1) * of_sequence, table,
            torch.full_like(integers(case.b), page), case.hq, case.hkv, case.d, page,
            q_data_type=q.dtype, kv_data_type=k.dtype,
        )  # fmt: skip
        flat_q = q.squeeze(1)
        return lambda: decode.run(flat_q, pages, **scales).unsqueeze(2)


class PlainRead:
    """Reads as many bytes as K and V have, in one kernel: what memory allows. Computes no
    attention."""

    name = "read"

    def prepare(self, inputs) -> List[Callable]:
        bytes_of_a_set = sum(x.numel() * x.element_size() for x in inputs[0][1:])
        buffers = [
            torch.ones(bytes_of_a_set // 8, dtype=torch.int64, device=inputs[0][0].device)
            for _ in inputs
        ]
        return [lambda buffer=buffer: buffer.sum() for buffer in buffers]

    @contextlib.contextmanager
    def context(self):
        yield


def backend(name: str):
    return Library(name) if name in LIBRARIES else TorchBackend(name)


def _set_architecture(q) -> None:
    """Tells FlashInfer for which GPU it compiles; "9.0a" has Hopper's own instructions."""
    if q.is_cuda:
        major, minor = torch.cuda.get_device_capability(q.device)
        arch = f"{major}.{minor}" + ("a" if major >= 9 else "")
        os.environ.setdefault("FLASHINFER_CUDA_ARCH_LIST", arch)


def _wait(tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)


def _reason(error: Exception, said=()) -> str:
    """One line: the first line of the error, and PyTorch's warnings before it."""
    if isinstance(error, torch.cuda.OutOfMemoryError):
        return "out of memory: " + str(error).split(". ")[0]
    lines = [str(error).strip().split("\n")[0]]
    for warning in said:
        text = re.sub(r"\s*\(Triggered internally.*", "", str(warning.message), flags=re.S).strip()
        # PyTorch also says of every other back end that it is not enabled.
        if text and "has been runtime disabled" not in text and not text.endswith("because:"):
            lines.append(text.split("\n")[0])
    return "; ".join(dict.fromkeys(lines))


# Factors of fp8. Powers of two: values_of() rounds nothing.
Q_SCALE, K_SCALE, V_SCALE = 0.5, 0.5, 2.0


def output_dtype(case: Case, q):
    return torch.bfloat16 if case.dtype == "fp8_e4m3" else q.dtype


def pages_of(case: Case, x):
    """K or V of a paged case as pages [pages, page, head, dim], of consecutive rows of x, which is
    in layout bshd."""
    tokens = x.transpose(1, 2)
    return tokens.view(-1, case.page, *tokens.shape[2:])


@functools.lru_cache(maxsize=4)
def page_table(case: Case, device):
    """int32 [batch, pages of a sequence]: the pages of all sequences in random order. One tensor for all sets of
    K and V, as one table is for all layers of a model."""
    generator = torch.Generator().manual_seed(1)
    order = torch.randperm(case.b * case.skv // case.page, generator=generator, dtype=torch.int32)
    return order.view(case.b, -1).to(device)


def values_of(case: Case, q, k, v):
    """Q, K and V as attention sees them: not paged, in the dtype of Q, or in bf16 if that is fp8."""
    if case.page:
        table = page_table(case, k.device).long()
        shape = (case.b, case.skv, case.hkv, case.d)
        k, v = (pages_of(case, x)[table].view(shape).transpose(1, 2) for x in (k, v))
    if case.dtype == "fp8_e4m3":
        q, k, v = (x.bfloat16() * s for x, s in ((q, Q_SCALE), (k, K_SCALE), (v, V_SCALE)))
    elif case.kv_dtype:
        k, v = k.to(q.dtype) * K_SCALE, v.to(q.dtype) * V_SCALE
    return q, k, v


def make_inputs(case: Case, device: str, layout: str, sets: int, seed: int):
    """`sets` random normal (q, k, v), as [batch, head, sequence, dim], in memory of the case's
    layout. Of a paged case, K and V are its pages one after the other."""
    dtype = {"fp32": torch.float32, "fp16": torch.float16}.get(case.dtype, torch.bfloat16)
    q_dtype = torch.float8_e4m3fn if case.dtype == "fp8_e4m3" else dtype
    kv_dtype = torch.float8_e4m3fn if case.kv_dtype else q_dtype
    generator = torch.Generator(device).manual_seed(seed)

    def one(heads: int, length: int, of=kv_dtype):
        order = (case.b, length, heads, case.d) if layout == "bshd" else (
            case.b, heads, length, case.d)  # fmt: skip
        x = torch.empty(order, device=device, dtype=dtype).normal_(generator=generator).to(of)
        return x.transpose(1, 2) if layout == "bshd" else x

    return [
        (one(case.hq, case.sq, q_dtype), one(case.hkv, case.skv), one(case.hkv, case.skv))
        for _ in range(sets)
    ]


def default_backends(device: str) -> List[str]:
    """On a GPU also the libraries that are installed."""
    if device == "cpu":
        return ["auto"]
    # Decoding is asked for by name: it does few cases, and compiles for each head dim.
    installed = [name for name, (module, _) in LIBRARIES.items()
                 if "page" not in name and importlib.util.find_spec(module)]  # fmt: skip
    return ["cudnn", "flash", "efficient", "math", *installed]


def usable_threads() -> int:
    return len(os.sched_getaffinity(0))
