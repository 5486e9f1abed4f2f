"""Attention in double precision with NumPy, to compare `attnlab run` with.

Follows the definition, head by head and sequence by sequence, and is independent of the C++ oracle.
"""

import numpy as np


def visible(mask, q_len, kv_len):
    """Bool [q_len, kv_len]: which keys a query sees. Masks: none, causal, window:LEFT:RIGHT."""
    # The last query is aligned with the last key.
    distance = np.arange(kv_len)[None, :] - (np.arange(q_len)[:, None] + kv_len - q_len)
    if mask == "none":
        return np.ones((q_len, kv_len), bool)
    if mask == "causal":
        return distance <= 0
    kind, left, right = mask.split(":")
    assert kind == "window", mask
    return (distance >= -int(left)) & (distance <= int(right))


def one_sequence(q, k, v, mask="none", scale=None, softcap=None):
    """q [Sq, Hq, D], k [Skv, Hkv, D], v [Skv, Hkv, Dv] -> O [Sq, Hq, Dv], LSE [Hq, Sq]."""
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    q_len, heads, dim = q.shape
    kv_len, kv_heads, v_dim = v.shape
    scale = 1 / np.sqrt(dim) if scale is None else scale
    seen = visible(mask, q_len, kv_len)
    o = np.zeros((q_len, heads, v_dim))
    lse = np.full((heads, q_len), -np.inf)
    rows = seen.any(axis=1)  # the other rows see no key: O is 0, LSE -inf
    if not rows.any():
        return o, lse
    for h in range(heads):
        kv_head = h // (heads // kv_heads)
        s = q[:, h] @ k[:, kv_head].T * scale
        if softcap is not None:
            s = softcap * np.tanh(s / softcap)
        s = np.where(seen, s, -np.inf)[rows]
        top = s.max(axis=1, keepdims=True)
        p = np.exp(s - top)
        total = p.sum(axis=1, keepdims=True)
        o[rows, h] = p / total @ v[:, kv_head]
        lse[h, rows] = (np.log(total) + top)[:, 0]
    return o, lse


def padded(q, k, v, q_len=None, kv_len=None, **options):
    """q [B, Sq, Hq, D], … -> O [B, Sq, Hq, Dv], LSE [B, Hq, Sq]; unused rows 0 and -inf."""
    batch, sq, heads, _ = q.shape
    skv = k.shape[1]
    o = np.zeros((batch, sq, heads, v.shape[3]))
    lse = np.full((batch, heads, sq), -np.inf)
    for b in range(batch):
        m = sq if q_len is None else q_len[b]
        n = skv if kv_len is None else kv_len[b]
        o[b, :m], lse[b, :, :m] = one_sequence(q[b, :m], k[b, :n], v[b, :n], **options)
    return o, lse


def packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, **options):
    """q [T, Hq, D], … -> O [T, Hq, Dv], LSE [Hq, T]; tokens of no sequence 0 and -inf."""
    o = np.zeros((q.shape[0], q.shape[1], v.shape[2]))
    lse = np.full((q.shape[1], q.shape[0]), -np.inf)
    for i in range(len(cu_seqlens_q) - 1):
        rows = slice(cu_seqlens_q[i], cu_seqlens_q[i + 1])
        keys = slice(cu_seqlens_kv[i], cu_seqlens_kv[i + 1])
        o[rows], lse[:, rows] = one_sequence(q[rows], k[keys], v[keys], **options)
    return o, lse


def bounds(dtype_epsilon, v, lse):
    """The largest rounding errors of O and LSE for a computation in that dtype.

    O is a weighted mean of V, so rounding P or O to the dtype causes an error of a fraction epsilon
    of the largest V. P is an exponential of scores. These are about as large as LSE, and have an
    error of a few fp32 units of that size.
    """
    finite = lse[np.isfinite(lse)]
    largest = np.abs(finite).max() if finite.size else 0.0
    lse_bound = 16 * np.finfo(np.float32).eps * (1 + largest)
    size = np.abs(v.astype(np.float64)).max() if v.size else 0.0
    return (2 * dtype_epsilon + lse_bound) * size, lse_bound
