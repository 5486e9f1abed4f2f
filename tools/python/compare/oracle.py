"""Double precision on sampled rows, and the error bound of docs/numerics.md.

    |O - exact| <= 2 fair u + (e / 2 + 8 e32 (1 + score)) u + spacing           in fp8: e, and 2^-9 for 8 e32

u is the size of the row: the larger of its largest |O| and its spread, the root of the largest sum
of (p v)². `fair` is the largest error, in units of u, of a straightforward computation in the dtype
on the same rows (scores and sums in fp32, P rounded, O rounded). e and e32 are the epsilons of the
dtype and of fp32. `score` is the row's largest |score| or |LSE|. attention/oracle/tolerance.h is the same
rule in C++, and says why.
"""

from typing import NamedTuple

import torch

RULE = "2 fair u + (e / 2 + 8 e32 (1 + score)) u + spacing; in fp8 e and 2^-9; docs/numerics.md"

_FP8 = torch.float8_e4m3fn
_EPSILON = {torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7, _FP8: 2.0**-3}
_SMALLEST = {torch.float32: 2.0**-126, torch.float16: 2.0**-14, torch.bfloat16: 2.0**-126,
             _FP8: 2.0**-126}  # fmt: skip
_CHUNK_BYTES = 1 << 29  # limit for one matrix of scores in double


class Verdict(NamedTuple):
    """The element whose error is the largest fraction of its bound."""

    error: float  # absolute; infinity for NaN
    bound: float
    part: float  # above 1: wrong


class Oracle:
    """The exact O on some rows of every head. Tensors are [batch, head, sequence, dim]. `dtype` is that of
    the kernels' inputs, if another: fp8 comes as bf16."""

    def __init__(self, q, k, v, causal: bool, rows: int, dtype=None):
        dtype = dtype or q.dtype
        batch, heads, sq, d = q.shape
        self.rows = torch.linspace(0, sq - 1, min(rows, sq), device=q.device).long().unique()
        self.dtype = dtype
        scale = d**-0.5
        group = heads // k.shape[1]
        chunk = max(1, _CHUNK_BYTES // (8 * len(self.rows) * k.shape[2]))
        limit = self.rows + k.shape[2] - sq  # the last key that a row sees
        hidden = torch.arange(k.shape[2], device=q.device) > limit[:, None] if causal else None
        exact, units, floors, fair = [], [], [], 0.0
        e, e32 = _EPSILON[dtype], _EPSILON[torch.float32]
        for b in range(batch):
            for first in range(0, heads, chunk):
                which = slice(first, min(first + chunk, heads))
                of_kv = torch.arange(heads, device=q.device)[which] // group
                inputs = q[b, which][:, self.rows], k[b][of_kv], v[b][of_kv]
                o, p, s, lse = _attend(*(x.double() for x in inputs), scale, hidden)
                spread = (p.square() @ inputs[2].double().square()).amax(-1, keepdim=True).sqrt()
                unit = torch.maximum(spread, o.abs().amax(-1, keepdim=True))
                seen = s if hidden is None else s.masked_fill(hidden, 0)
                score = 1 + torch.maximum(seen.abs().amax(-1, keepdim=True), lse.abs())
                exact.append(o)
                units.append(unit)
                of_p, of_score = (e, 2.0**-9) if dtype == _FP8 else (e / 2, 8 * e32)
                floors.append((of_p + of_score * score) * unit + _SMALLEST[dtype] * e)
                plain = _attend(*(x.float() for x in inputs), scale, hidden, dtype)[0]
                error = (plain.to(q.dtype).double() - o).abs() / unit
                fair = max(fair, float(error.nan_to_num(0, 0, 0).max()))
                del inputs, p, s, lse, spread, seen, plain, error
        shape = (batch, heads, len(self.rows), -1)
        self.exact = torch.cat(exact).view(shape)
        self.bound = 2 * fair * torch.cat(units).view(shape) + torch.cat(floors).view(shape)

    def judge(self, out) -> Verdict:
        """Judges a complete output."""
        error = (out[:, :, self.rows].double() - self.exact).abs()
        error = error.masked_fill(error.isnan(), float("inf"))
        part = error / self.bound
        worst = int(part.argmax())
        bound = self.bound.expand_as(part).reshape(-1)[worst]
        return Verdict(float(error.reshape(-1)[worst]), float(bound), float(part.reshape(-1)[worst]))


def _attend(q, k, v, scale, hidden, round_p_to=None):
    """(O, P, scores, LSE) in the precision of the inputs."""
    s = q @ k.transpose(1, 2) * scale
    masked = s if hidden is None else s.masked_fill(hidden, float("-inf"))
    p = torch.softmax(masked, -1)
    if round_p_to is _FP8:  # as multiples of 1/256 of what the largest score gives
        weights = torch.exp(masked - masked.amax(-1, keepdim=True))
        p = (weights * 256).to(_FP8).to(p.dtype) / 256 / weights.sum(-1, keepdim=True)
    elif round_p_to is not None:
        p = p.to(round_p_to).to(p.dtype)
    return p @ v, p, s, masked.logsumexp(-1, keepdim=True)
