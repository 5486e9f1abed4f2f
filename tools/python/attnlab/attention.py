"""attention(): turns arrays into a call of the library, and its results into arrays."""

import ctypes
from typing import Any, Optional, Tuple

from . import arrays, errors, library, outputs
from .arrays import View
from .plan import Plan, cached
from .problem import Mask, Problem, integer, mask_of, real

_FLOATS = library.DTYPES


class _Lengths:
    """The sequence lengths of a call: packed, padded or all equal. With pages, kv_lens takes the
    place of cu_seqlens_kv."""

    def __init__(self, q: View, cu_seqlens_q, cu_seqlens_kv, q_lens, kv_lens, paged: bool):
        given = {
            "cu_seqlens_q": cu_seqlens_q,
            "cu_seqlens_kv": cu_seqlens_kv,
            "q_lens": q_lens,
            "kv_lens": kv_lens,
        }
        self.arrays = {name: x for name, x in given.items() if x is not None}
        packed = [name for name in self.arrays if name.startswith("cu_")]
        if paged and cu_seqlens_kv is not None:
            raise errors.InvalidArgument(
                "cu_seqlens_kv: is given, but with page_table kv_lens gives the lengths"
            )
        if len(packed) == 1 and not paged:
            other = "cu_seqlens_kv" if packed == ["cu_seqlens_q"] else "cu_seqlens_q"
            raise errors.InvalidArgument(f"{other}: is missing, but {packed[0]} is given")
        extra = [x for x in self.arrays if x == "q_lens" or (x == "kv_lens" and not paged)]
        if packed and extra:
            raise errors.InvalidArgument(f"{extra[0]}: is given, but cu_seqlens give the lengths")
        self.mode = "packed" if packed else "padded" if self.arrays else "fixed"
        self.views = {}
        for name, array in self.arrays.items():
            view = arrays.view(name, array)
            if view.dtype != "int32":
                raise errors.InvalidArgument(f"{name}: dtype is {view.dtype}, must be int32")
            if len(view.shape) != 1 or (view.shape[0] > 1 and view.strides[0] != 1):
                raise errors.InvalidArgument(
                    f"{name}: shape is {list(view.shape)} with strides {list(view.strides)}, "
                    "must be one contiguous axis"
                )
            if view.device != q.device:
                raise errors.InvalidArgument(f"{name}: on {view.device}, but q is on {q.device}")
            self.views[name] = view
        if packed and self.views["cu_seqlens_q"].shape[0] < 2:
            raise errors.InvalidArgument("cu_seqlens_q: must have at least 2 entries, the first 0")

    def batch(self) -> int:
        return self.views["cu_seqlens_q"].shape[0] - 1

    def check(self, b: int) -> None:
        """Checks the number of elements, because C gets addresses without counts."""
        for name, view in self.views.items():
            wanted = b + 1 if name.startswith("cu_") else b
            if view.shape[0] != wanted:
                entries = "1 entry" if view.shape[0] == 1 else f"{view.shape[0]} entries"
                raise errors.InvalidArgument(
                    f"{name}: has {entries}, must have {wanted}"
                )

    def longest(self, name: str, maximum: str, given: Optional[int]) -> int:
        """The longest sequence: the caller's value or, on the CPU, found in the array."""
        if given is not None:
            return integer(maximum, given)
        if self.views[name].kind != "cpu":
            raise errors.InvalidArgument(
                f"{maximum}: is missing; on a GPU the lengths cannot be read without waiting for it"
            )
        array = self.arrays[name]
        ends = arrays.adapter(name, array).integers(array)
        return max(max(b - a for a, b in zip(ends, ends[1:])), 0)


def _four(name: str, view: View, layout: str, packed: bool) -> View:
    """The view with axes batch, sequence, head, dim."""
    count = 3 if packed else 4
    if len(view.shape) != count:
        raise errors.InvalidArgument(
            f"{name}: has {len(view.shape)} axes, must have {count} "
            f"({outputs.axes(layout, packed)})"
        )
    shape, strides = view.shape, view.strides
    if packed:
        shape, strides = (1,) + shape, (0,) + strides
    order = outputs.AXES[layout]
    return view._replace(
        shape=tuple(shape[i] for i in order), strides=tuple(strides[i] for i in order)
    )


def _table(table, q: View) -> View:
    """The page table: one row of int32 per sequence."""
    view = arrays.view("page_table", table)
    if view.dtype != "int32":
        raise errors.InvalidArgument(f"page_table: dtype is {view.dtype}, must be int32")
    if len(view.shape) != 2 or (view.shape[1] > 1 and view.strides[1] != 1):
        raise errors.InvalidArgument(
            f"page_table: shape is {list(view.shape)} with strides {list(view.strides)}, "
            "must be [B, pages] with contiguous rows"
        )
    if view.device != q.device:
        raise errors.InvalidArgument(f"page_table: on {view.device}, but q is on {q.device}")
    return view


def _scale(name: str, scales) -> library.CTensor:
    view = arrays.view(name, scales)
    shape, strides = view.shape, view.strides
    if len(shape) == 2:  # one scale per head
        shape, strides = (shape[0], 1, shape[1]), (strides[0], 0, strides[1])
    if len(shape) != 3:
        raise errors.InvalidArgument(
            f"{name}: has {len(shape)} axes, must have 2 (B, H) or 3 (B, blocks, H)"
        )
    return _tensor(name, view._replace(shape=shape + (1,), strides=strides + (1,)), fp32=True)


def _tensor(name: str, view: View, fp32: bool = False) -> library.CTensor:
    if view.dtype not in (_FLOATS[:1] if fp32 else _FLOATS):
        wanted = _FLOATS[0] if fp32 else f"one of {', '.join(_FLOATS[:3])}, or float8_e4m3fn"
        raise errors.InvalidArgument(f"{name}: dtype is {view.dtype}, must be {wanted}")
    return library.CTensor(
        dtype=_FLOATS.index(view.dtype),
        device_kind=library.DEVICE_KINDS.index(view.kind),
        device_ordinal=view.ordinal,
        data=view.data,
        shape=(ctypes.c_int64 * 4)(*view.shape),
        strides=(ctypes.c_int64 * 4)(*view.strides),
    )


class _Inputs:
    """Q, K, V, their scales, the lengths and the page table, validated."""

    def __init__(
        self, q, k, v, layout, cu_seqlens_q, cu_seqlens_kv, q_lens, kv_lens, page_table, scales
    ):
        if not isinstance(layout, str) or layout not in outputs.AXES:
            raise errors.InvalidArgument(f"layout: {layout!r} is not one of {', '.join(outputs.AXES)}")
        self.arrays = (q, k, v)
        self.layout = layout
        self.adapter = arrays.adapter("q", q)
        self.q = self.adapter.view("q", q, False)
        self.table = None if page_table is None else _table(page_table, self.q)
        paged = self.table is not None
        self.lengths = _Lengths(self.q, cu_seqlens_q, cu_seqlens_kv, q_lens, kv_lens, paged)
        self.packed = self.lengths.mode == "packed"
        self.views = {"q": _four("q", self.q, layout, self.packed)}
        for name, array in (("k", k), ("v", v)):
            view = arrays.view(name, array)
            self.views[name] = _four(name, view, layout, self.packed and not paged)
        self.tensors = {name: _tensor(name, view) for name, view in self.views.items()}
        self.others = (page_table, scales)  # alive as long as this object
        for name, given in zip(("q_scale", "k_scale", "v_scale"), scales):
            if given is not None:
                self.tensors[name] = _scale(name, given)


class Call:
    """A call ready to run: arrays validated, outputs and scratch allocated."""

    def __init__(self, plan: Plan, arguments, adapter, q: View, result, keep):
        self.plan = plan
        self._arguments, self._adapter, self._q = arguments, adapter, q
        self._result, self._keep = result, keep

    def __call__(self):
        """Runs, and returns the output or (output, lse). On a GPU the work goes to the current
        stream, and the call returns before the work is done."""
        self._arguments.stream = self._adapter.stream(self._q)
        try:
            self.plan.run(self._arguments)
        except errors.Error as error:
            raise errors.renamed(error, errors.ARGUMENTS) from None
        return self._result


def bind(
    plan: Plan,
    q,
    k,
    v,
    *,
    layout: str = "bshd",
    out=None,
    return_lse: bool = False,
    lse=None,
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    q_lens=None,
    kv_lens=None,
    page_table=None,
    q_scale=None,
    k_scale=None,
    v_scale=None,
    workspace=None,
) -> Call:
    """The Call of a plan. Arguments as in attention()."""
    scales = (q_scale, k_scale, v_scale)
    inputs = _Inputs(
        q, k, v, layout, cu_seqlens_q, cu_seqlens_kv, q_lens, kv_lens, page_table, scales
    )
    if inputs.lengths.mode != plan.problem.lens and "packed" in (
        inputs.lengths.mode,
        plan.problem.lens,
    ):
        raise errors.InvalidArgument(
            f"cu_seqlens: the plan is for lens={plan.problem.lens}, "
            f"but the arrays are for lens={inputs.lengths.mode}"
        )
    return _bind(plan, inputs, out, return_lse, lse, workspace)


def _bind(plan: Plan, inputs: _Inputs, out, return_lse: bool, lse, workspace) -> Call:
    q, _, _ = inputs.arrays
    adapter, lengths, views = inputs.adapter, inputs.lengths, inputs.views
    layout, packed = inputs.layout, inputs.packed
    lengths.check(plan.problem.b)

    # Rows that no sequence uses are not written. In arrays allocated here they are 0 and minus
    # infinity.
    uneven = lengths.mode != "fixed"
    batch, rows, heads, _ = views["q"].shape
    new = outputs.shapes(batch, rows, heads, views["v"].shape[3], layout, packed)
    if not packed:  # arrays of the caller are checked against the plan, as q, k and v are
        batch, rows = plan.problem.b, plan.problem.sq
    wanted = outputs.shapes(batch, rows, plan.problem.hq, plan.problem.dv, layout, packed)
    ours = out is None
    if ours:
        dtype = plan.problem.output_dtype
        out = outputs.new("out", q, inputs.q.device, new[0], dtype, fill=0 if uneven else None)
    view = arrays.view("out", out, output=True)
    tensors = {**inputs.tensors, "o": _tensor("out", _four("out", view, layout, packed))}
    if not ours:
        outputs.check("out", view, wanted[0], outputs.axes(layout, packed))
    ours = lse is None
    if ours and return_lse:
        fill = float("-inf") if uneven else None
        lse = outputs.new("lse", q, inputs.q.device, new[1], "fp32", fill=fill)
    if lse is not None:
        view = arrays.view("lse", lse, output=True)
        tensors["lse"] = _tensor("lse", outputs.lse_view(view, packed), fp32=True)
        if not ours:
            outputs.check("lse", view, wanted[1], outputs.axes("bhs", packed))
    arguments = library.CForwardArgs(
        **{name: ctypes.pointer(tensor) for name, tensor in tensors.items()}
    )
    for name, view in lengths.views.items():
        field = {"q_lens": "q_len", "kv_lens": "kv_len"}.get(name, name)
        setattr(arguments, field, view.data)
    table = inputs.table
    if table is not None:
        if table.shape[0] != plan.problem.b:
            raise errors.InvalidArgument(
                f"page_table: has {table.shape[0]} rows, must have {plan.problem.b}"
            )
        arguments.page_table, arguments.page_table_columns = table.data, table.shape[1]
        arguments.page_table_row_stride = table.strides[0]
    scratch: Any = workspace
    if workspace is not None:
        memory = arrays.view("workspace", workspace, output=True)
        if memory.dtype != "uint8" or len(memory.shape) != 1 or memory.strides[0] != 1:
            raise errors.InvalidArgument(
                f"workspace: {memory.dtype}{list(memory.shape)}, must be one contiguous axis "
                "of uint8"
            )
        if memory.device != inputs.q.device:
            raise errors.InvalidArgument(
                f"workspace: on {memory.device}, but q is on {inputs.q.device}"
            )
        arguments.workspace, arguments.workspace_bytes = memory.data, memory.shape[0]
    elif plan.info.workspace_bytes > 0:
        scratch, arguments.workspace = outputs.scratch(q, inputs.q.device, plan.info.workspace_bytes)
        arguments.workspace_bytes = plan.info.workspace_bytes
    keep = (inputs, out, lse, scratch)
    return Call(plan, arguments, adapter, inputs.q, (out, lse) if return_lse else out, keep)


def attention(
    q,
    k,
    v,
    *,
    mask: Mask = "none",
    causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1),
    scale: Optional[float] = None,
    softcap: float = 0.0,
    scale_block: int = 0,
    layout: str = "bshd",
    out=None,
    return_lse: bool = False,
    lse=None,
    kernel: str = "",
    config: str = "",
    cu_seqlens_q=None,
    cu_seqlens_kv=None,
    max_seqlen_q: Optional[int] = None,
    max_seqlen_kv: Optional[int] = None,
    q_lens=None,
    kv_lens=None,
    page_table=None,
    q_scale=None,
    k_scale=None,
    v_scale=None,
    workspace=None,
):
    """softmax(scale Q Kᵀ + mask) V for NumPy arrays or PyTorch tensors. Returns O, or (O, LSE).

    layout "bshd": q [B, Sq, Hq, D], k [B, Skv, Hkv, D], v [B, Skv, Hkv, Dv], O [B, Sq, Hq, Dv];
    "bhsd": head before sequence. Hkv divides Hq. All arrays are float32, float16 or bfloat16; k and v
    may be float8_e4m3fn under 16-bit q, and so may all three, or v float8_e5m2 beside such q and k. O is
    then bfloat16, or as `out` is. Any strides; the last axis is contiguous. Nothing is copied.

    mask            "none"; "causal"; (left, right): a sliding window, with the number of keys before and
                    after a query's own position. The last query is aligned with the last key.
    causal, window_size
                    the same in FlashAttention's words, instead of mask: causal=True, and (left, right)
                    with -1 for a side without limit
    scale           [1/sqrt(D)]
    softcap         scores become softcap * tanh(scores / softcap); 0: no cap
    out             array for O; otherwise a new array of q's library. It must not overlap the inputs or
                    lse: only equal addresses are detected
    return_lse      also return the log-sum-exp of each row, float32 [B, Hq, Sq]
    lse             array for it
    kernel, config  a name, and "key=value,key=value"; otherwise the library's choice
    cu_seqlens_q, cu_seqlens_kv
                    for packed sequences, without a batch axis (q [T, Hq, D], LSE [Hq, T]): B + 1 int32
                    offsets, the first 0
    max_seqlen_q, max_seqlen_kv
                    the longest of those; required on a GPU, found on the CPU if not given
    q_lens, kv_lens int32 [B]: how many of the Sq and Skv rows are used
    page_table      int32 [B, N]: the pages of each sequence in order, for k [pages, page, Hkv, D] and v
                    [pages, page, Hkv, Dv] ("bhsd": Hkv before page). A sequence has kv_lens keys, or all
                    of max_seqlen_kv [N * page]. Packed q has cu_seqlens_q and max_seqlen_q alone
    q_scale, k_scale, v_scale
                    float32 [B, Hq] and [B, Hkv], positive: factors of q, k and v of 8 bits [all 1]; with
                    scale_block, [B, blocks, H], of 64 or 128 rows each
    workspace       uint8 scratch of at least Plan.info.workspace_bytes, aligned to 256, that shares no
                    memory with the arrays; otherwise allocated

    Rows that no sequence uses are not written; in arrays allocated here they are 0 and minus
    infinity. On a GPU the work goes to PyTorch's current stream of the tensors' device. Raises
    attnlab.Error.
    """
    scales = (q_scale, k_scale, v_scale)
    inputs = _Inputs(
        q, k, v, layout, cu_seqlens_q, cu_seqlens_kv, q_lens, kv_lens, page_table, scales
    )
    lengths, paged = inputs.lengths, inputs.table is not None
    b, sq, hq, d = inputs.views["q"].shape
    _, skv, hkv, _ = inputs.views["k"].shape
    page = skv if paged else 0
    if inputs.packed:
        b = lengths.batch()
        sq = lengths.longest("cu_seqlens_q", "max_seqlen_q", max_seqlen_q)
    elif max_seqlen_q is not None:
        raise errors.InvalidArgument("max_seqlen_q: is given without cu_seqlens")
    if paged:
        most = inputs.table.shape[1] * page
        skv = most if max_seqlen_kv is None else integer("max_seqlen_kv", max_seqlen_kv)
    elif inputs.packed:
        skv = lengths.longest("cu_seqlens_kv", "max_seqlen_kv", max_seqlen_kv)
    elif max_seqlen_kv is not None:
        raise errors.InvalidArgument("max_seqlen_kv: is given without cu_seqlens")
    for name, given in (("kernel", kernel), ("config", config)):
        if not isinstance(given, str):
            raise errors.InvalidArgument(f"{name}: {given!r} is not a string")
    fp8 = inputs.q.dtype == "fp8_e4m3"
    o_dtype = arrays.view("out", out).dtype if fp8 and out is not None else None
    cache = inputs.views["k"].dtype == "fp8_e4m3" and inputs.q.dtype in ("fp16", "bf16")
    problem = Problem(
        b, hq, hkv, sq, skv, d, inputs.views["v"].shape[3], inputs.q.dtype, mask_of(mask, causal, window_size),
        None if scale is None else real("scale", scale), real("softcap", softcap), lengths.mode,
        page, "fp8_e4m3" if cache else None, o_dtype, integer("scale_block", scale_block),
        "fp8_e5m2" if fp8 and inputs.views["v"].dtype == "fp8_e5m2" else None,
    )  # fmt: skip
    try:
        plan = cached(problem, inputs.q.kind, inputs.q.ordinal, kernel, config)
    except errors.Error as error:
        names = errors.PACKED_ARGUMENTS if inputs.packed else errors.ARGUMENTS
        raise errors.renamed(error, names) from None
    return _bind(plan, inputs, out, return_lse, lse, workspace)()
