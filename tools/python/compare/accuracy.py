"""How far fp8 attention is from exact attention, in attnlab and in FlashAttention-3, on the same tensors.

The numbers are N(0, 1) + N(0, 100) Bernoulli(0.001), as in the FlashAttention-3 paper: few large elements
are what fp8 is worst at. `attnlab verify --accuracy` does the same for attnlab alone, and needs no PyTorch.
"""

from typing import Callable, Dict, List, NamedTuple, Optional

import torch

import attnlab

LARGEST, LEAST_SCALE = 448.0, 2.0**-64  # as in attention/fp8/quantize_rows.h
FP8 = torch.float8_e4m3fn


class Row(NamedTuple):
    name: str
    kernel: str
    rmse: float
    largest: float


def draw(b: int, s: int, heads: int, d: int, device: str, seed: int) -> List[torch.Tensor]:
    """Q, K and V, [b, s, heads, d] in fp32."""
    random = torch.Generator(device).manual_seed(seed)

    def normal():
        return torch.randn(b, s, heads, d, generator=random, device=device)

    def one():
        outliers = torch.rand(b, s, heads, d, generator=random, device=device) < 0.001
        return normal() + outliers * 10 * normal()

    return [one() for _ in range(3)]


def exact(q, k, v, rows: torch.Tensor) -> torch.Tensor:
    """O of these queries in double, [b, rows, heads, d]; a head at a time."""
    heads = []
    for head in range(q.shape[2]):
        x, y, z = q[:, rows, head].double(), k[:, :, head].double(), v[:, :, head].double()
        heads.append(torch.softmax(x @ y.transpose(1, 2) / x.shape[-1] ** 0.5, -1) @ z)
    return torch.stack(heads, 2)


def hadamard(x: torch.Tensor, seed: int) -> torch.Tensor:
    """The last axis times a random orthogonal matrix, by blocks of the largest power of two in its size."""
    d = x.shape[-1]
    size = d & -d
    h = torch.ones(1, 1, device=x.device)
    while h.shape[0] < size:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    signs = torch.randint(0, 2, (d,), generator=torch.Generator().manual_seed(seed)) * 2.0 - 1
    return ((x * signs.to(x.device)).unflatten(-1, (-1, size)) @ h / size**0.5).flatten(-2)


def quantize(x: torch.Tensor, per: str):
    """fp8, and its scales [b, blocks, heads]. per: "tensor", "head" or a number of rows."""
    b, s, heads, _ = x.shape
    if per == "tensor":
        largest = x.abs().max().expand(b, 1, heads)
    elif per == "head":
        largest = x.abs().amax((1, 3)).unsqueeze(1)
    else:
        blocks = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, -s % int(per))).unflatten(1, (-1, int(per)))
        largest = blocks.abs().amax((2, 4))
    scales = (largest / LARGEST).clamp_min(LEAST_SCALE).contiguous()
    rows = s if per in ("tensor", "head") else int(per)
    of_rows = scales.repeat_interleave(rows, 1)[:, :s].unsqueeze(-1)
    return (x / of_rows).to(FP8), scales


def measure(b: int, s: int, heads: int, d: int, device: str, seed: int = 0,
            fa3: Optional[Callable] = None) -> List[Row]:  # fmt: skip
    """A row for each dtype and kind of scales. `fa3`: flash_attn_func of FlashAttention-3."""
    wide = draw(b, s, heads, d, device, seed)
    rows = torch.arange(0, s, max(1, b * heads * s // 2048), device=device)
    expected = exact(*wide, rows)
    found = []

    def add(name: str, kernel: str, o: torch.Tensor):
        error = o[:, rows].double() - expected
        found.append(Row(name, kernel, error.pow(2).mean().sqrt().item(), error.abs().max().item()))

    def run_fa3(*args, **scales):
        o = fa3(*args, **scales)
        return o[0] if isinstance(o, tuple) else o

    for dtype in (torch.float16, torch.bfloat16):
        narrow = [x.to(dtype) for x in wide]
        name = str(dtype).partition(".")[2]
        add(name, "attnlab", attnlab.attention(*narrow))
        if fa3 and dtype == torch.bfloat16:  # its wheels have no fp16
            add(name, "fa3", run_fa3(*narrow))
    rotated = [hadamard(wide[0], seed), hadamard(wide[1], seed), wide[2]]
    for per in ("tensor", "head", "128", "64"):
        for of, tensors in (("", wide), (", Hadamard", rotated)):
            narrow, scales = zip(*(quantize(x, per) for x in tensors))
            name = f"fp8, a scale per {per if per in ('tensor', 'head') else per + ' rows'}{of}"
            block = 0 if per in ("tensor", "head") else int(per)
            q_scale, k_scale, v_scale = (x if block else x[:, 0] for x in scales)
            o = torch.empty(narrow[0].shape, dtype=torch.float16, device=device)
            attnlab.attention(*narrow, q_scale=q_scale, k_scale=k_scale, v_scale=v_scale,
                              scale_block=block, out=o)  # fmt: skip
            add(name, "attnlab", o)
            if fa3 and not block:
                descales = {"q_descale": q_scale, "k_descale": k_scale, "v_descale": v_scale}
                add(name, "fa3", run_fa3(*narrow, **descales))
    return found


def table(found: List[Row]) -> str:
    lines = ["| | kernel | RMSE | largest error |", "|---|---|---|---|"]
    lines += [f"| {r.name} | {r.kernel} | {r.rmse:.2e} | {r.largest:.2e} |" for r in found]
    return "\n".join(lines)


def as_json(found: List[Row]) -> List[Dict]:
    return [row._asdict() for row in found]
