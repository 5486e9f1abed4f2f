"""The problems to compare, and their FLOPs. Needs no library."""

from typing import Dict, List, NamedTuple


class Case(NamedTuple):
    b: int
    hq: int
    hkv: int
    sq: int
    skv: int
    d: int
    dtype: str  # "fp32", "fp16", "bf16", "fp8_e4m3"
    causal: bool
    kv_dtype: str = ""  # of K and V: "fp8_e4m3", or that of Q
    page: int = 0  # tokens per page of K and V; 0: not paged

    def line(self) -> str:
        """The problem as attnlab prints it."""
        mask = "causal" if self.causal else "none"
        return (
            f"b={self.b},hq={self.hq},hkv={self.hkv},sq={self.sq},skv={self.skv},d={self.d},"
            f"dtype={self.dtype}"
            + (f",kvdtype={self.kv_dtype}" if self.kv_dtype else "")
            + f",mask={mask}"
            + (f",page={self.page}" if self.page else "")
            + (f",scaleblock={SCALE_BLOCK}" if self.dtype == "fp8_e4m3" else "")
        )

    def flops(self) -> float:
        """FLOPs as papers count them: 4 b hq sq skv d, less half a square of the shorter length for
        a causal mask."""
        pairs = self.sq * self.skv
        if self.causal:
            pairs = min(self.sq, self.skv) * (self.skv - min(self.sq, self.skv) / 2)
        return 4.0 * self.b * self.hq * pairs * self.d

    def bytes(self) -> int:
        """The bytes of Q, K, V and O."""
        element = {"fp32": 4, "fp8_e4m3": 1}.get(self.dtype, 2)
        of_kv, of_o = 1 if self.kv_dtype else element, max(element, 2)
        return self.b * self.d * (
            (element + of_o) * self.hq * self.sq + 2 * of_kv * self.hkv * self.skv
        )


# Rows of fp8 with one scale, in attnlab. Other libraries have one per head.
SCALE_BLOCK = 128


class Suite(NamedTuple):
    summary: str
    device: str
    layout: str  # memory order: "bshd" as a projection writes it, or "bhsd"
    cases: List[Case]


def _self_attention(b: int, heads: int, s: int, d: int, dtype: str, causal: bool) -> Case:
    return Case(b, heads, heads, s, s, d, dtype, causal)


def _fa3_grid(dtype: str) -> List[Case]:
    return [
        _self_attention(16384 // s, 2048 // d, s, d, dtype, causal)
        for d in (64, 128, 256)
        for causal in (False, True)
        for s in (512, 1024, 2048, 4096, 8192, 16384)
    ]


# (batch, context) of decoding: from a few MB of K and V to several GB.
_CONTEXTS = [
    (1, 1024), (1, 4096), (1, 32768), (1, 131072), (8, 1024), (8, 4096), (8, 32768), (32, 4096),
    (64, 1024), (64, 4096), (64, 8192), (128, 8192),
]  # fmt: skip


def _decode(b: int, hq: int, hkv: int, context: int, d: int) -> Case:
    return Case(b, hq, hkv, 1, context, d, "bf16", False)


SUITES: Dict[str, Suite] = {
    "cpu": Suite(
        "batch 1, hidden size 1024, fp32",
        "cpu",
        "bhsd",
        [
            _self_attention(1, 1024 // d, s, d, "fp32", causal)
            for d in (64, 128)
            for causal in (False, True)
            for s in (512, 1024, 2048, 4096)
        ],
    ),
    "fa3-paper": Suite(
        "16384 tokens in all, hidden size 2048, bf16: the grid of FlashAttention-3's figures",
        "cuda",
        "bshd",
        _fa3_grid("bf16"),
    ),
    "fp8": Suite(
        "the same in fp8_e4m3, with a scale per 128 rows",
        "cuda",
        "bshd",
        _fa3_grid("fp8_e4m3"),
    ),
    "decode": Suite(
        "one query token, 32 query heads over 8 KV heads of 128, bf16",
        "cuda",
        "bshd",
        [_decode(b, 32, 8, context, 128) for b, context in _CONTEXTS],
    ),
    "decode-shapes": Suite(
        "one query token, bf16: 64 query heads over 8, 8 over 8, head dims 64 and 256",
        "cuda",
        "bshd",
        [
            _decode(b, hq, 8, context, d)
            for hq, d in ((64, 128), (8, 128), (32, 64), (32, 256))
            for b, context in ((1, 4096), (8, 4096), (8, 32768), (64, 4096))
        ],
    ),
    "gpt2": Suite(
        "12 heads of 64, 1024 tokens, fp32, causal: batch 8, and times 8",
        "cuda",
        "bshd",
        [_self_attention(b, 12, 1024, 64, "fp32", True) for b in (8, 64)],
    ),
    "fp32": Suite(
        "16384 tokens in all, hidden size 2048, fp32",
        "cuda",
        "bshd",
        [
            _self_attention(16384 // s, 2048 // d, s, d, "fp32", causal)
            for d in (64, 128)
            for causal in (False, True)
            for s in (512, 2048, 8192)
        ],
    ),
}
