#!/usr/bin/env python3
"""Writes the files in this directory: small tensors as numpy.save writes them, and what NumPy
computes from them in double. Needs NumPy and ml_dtypes. Its numbers never change.
"""

import pathlib
import sys

import ml_dtypes
import numpy as np

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy_attention  # noqa: E402: found through the line above


def save(name, **arrays):
    for key, array in arrays.items():
        np.save(HERE / f"{name}_{key}.npy", np.ascontiguousarray(array))


def normal(rng, *shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def main():
    rng = np.random.default_rng(2024)

    # fp32, [B, S, H, D], grouped heads, causal, more keys than queries.
    q, k, v = normal(rng, 2, 5, 4, 8), normal(rng, 2, 9, 2, 8), normal(rng, 2, 9, 2, 6)
    o, lse = numpy_attention.padded(q, k, v, mask="causal")
    save("causal", q=q, k=k, v=v, o=o, lse=lse)

    # fp16, [B, H, S, D], a window, more queries than keys: the first rows see nothing.
    f2 = np.float16
    q, k, v = (normal(rng, 1, n, 2, 16, dtype=f2) for n in (12, 7, 7))
    o, lse = numpy_attention.padded(q, k, v, mask="window:2:1")
    save("window", **{n: x.swapaxes(1, 2) for n, x in (("q", q), ("k", k), ("v", v), ("o", o))},
         lse=lse)

    # bf16 by ml_dtypes, packed QKV [B, T, 3, H, D], a scale.
    qkv = normal(rng, 2, 11, 3, 3, 8, dtype=ml_dtypes.bfloat16)
    o, lse = numpy_attention.padded(qkv[:, :, 0], qkv[:, :, 1], qkv[:, :, 2], scale=0.25)
    save("qkv", qkv=qkv, o=o, lse=lse)

    # fp32, sequences of different lengths in a row, one of them empty, no batch axis.
    q, k, v = normal(rng, 10, 2, 8), normal(rng, 12, 1, 8), normal(rng, 12, 1, 8)
    ends_q = np.array([0, 4, 4, 9], np.int32)  # one token behind belongs to none
    ends_kv = np.array([0, 3, 8, 12], np.int64)
    o, lse = numpy_attention.packed(q, k, v, ends_q, ends_kv, mask="causal")
    save("packed", q=q, k=k, v=v, cu_seqlens_q=ends_q, cu_seqlens_kv=ends_kv, o=o, lse=lse)

    # fp64 files, padded, softcap.
    f8 = np.float64
    q, k, v = normal(rng, 3, 6, 2, 8, dtype=f8), *(normal(rng, 3, 7, 2, 8, dtype=f8) for _ in "kv")
    q_len, kv_len = np.array([6, 2, 0], np.int32), np.array([7, 3, 5], np.int32)
    o, lse = numpy_attention.padded(q, k, v, q_len, kv_len, softcap=2.0)
    save("padded", q=q, k=k, v=v, q_len=q_len, kv_len=kv_len, o=o, lse=lse)


if __name__ == "__main__":
    main()
