"""What is timed: a kernel of attnlab, or a back end of PyTorch's scaled_dot_product_attention.

Given a list of input sets, each returns a list of functions without arguments. They run attention
on the inputs and return the output [batch, head, sequence, dim]. Otherwise it raises Unable with
the reason.
"""

import contextlib
import os
import re
import warnings
from typing import Callable, List, NamedTuple

import torch

import attnlab

from .suites import Case

BACKENDS = ("cudnn", "flash", "efficient", "math", "auto")


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
                out = torch.empty_like(q).fill_(float("nan"))
                calls.append(
                    plan.bind(q, k, v, layout="bhsd", out=out, workspace=workspace)
                )
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


def make_inputs(case: Case, device: str, layout: str, sets: int, seed: int):
    """`sets` random normal (q, k, v), as [batch, head, sequence, dim], in memory of the case's
    layout."""
    dtype = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[case.dtype]
    generator = torch.Generator(device).manual_seed(seed)

    def one(heads: int, length: int):
        order = (case.b, length, heads, case.d) if layout == "bshd" else (
            case.b, heads, length, case.d)  # fmt: skip
        x = torch.empty(order, device=device, dtype=dtype).normal_(generator=generator)
        return x.transpose(1, 2) if layout == "bshd" else x

    return [
        (one(case.hq, case.sq), one(case.hkv, case.skv), one(case.hkv, case.skv))
        for _ in range(sets)
    ]


def default_backends(device: str) -> List[str]:
    return ["auto"] if device == "cpu" else ["cudnn", "flash", "efficient", "math"]


def usable_threads() -> int:
    return len(os.sched_getaffinity(0))
