"""Bad input of every kind: the class of the exception, and its message."""

import unittest

import support
from support import needs_numpy, numpy

import attnlab


def arrays(sq=9, skv=13, hq=4, hkv=2, d=16, dv=8, b=2, dtype="float32"):
    shapes = ((b, sq, hq, d), (b, skv, hkv, d), (b, skv, hkv, dv))
    return [numpy.ones(shape, dtype) for shape in shapes]


class Rejects(unittest.TestCase):
    def rejects(self, error, text, *arguments, **options):
        with self.assertRaises(error) as caught:
            attnlab.attention(*arguments, **options)
        self.assertIn(text, str(caught.exception))
        self.assertIsInstance(caught.exception, attnlab.Error)


@needs_numpy
class BadArraysTest(Rejects):
    def test_what_is_no_array(self):
        q, k, v = arrays()
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "q: is a builtins.list, must be a NumPy array", q.tolist(), k, v)
        self.rejects(invalid, "k: is a builtins.NoneType", q, None, v)
        self.rejects(invalid, "v: is a numpy.float64", q, k, numpy.float64(1))
        self.rejects(invalid, "out: is a builtins.int", q, k, v, out=3)
        self.rejects(invalid, "lse: is a builtins.str", q, k, v, lse="x")
        self.rejects(invalid, "q_lens: is a builtins.list", q, k, v, q_lens=[1, 2])

        class Foreign:
            def __dlpack__(self):
                raise AssertionError("not to be called")

        self.rejects(invalid, "torch.from_dlpack(q)", Foreign(), k, v)

    def test_dtypes(self):
        q, k, v = arrays()
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "q: dtype is float64, must be one of fp32, fp16, bf16", *arrays(dtype="f8"))
        self.rejects(invalid, "q: dtype is int32, must be one of fp32, fp16, bf16, or float8_e4m3fn", *arrays(dtype="i4"))
        self.rejects(invalid, "scale_block: 32 is not 64 or 128", q, k, v, scale_block=32)
        self.rejects(invalid, "k: dtype is fp16, must be fp32", q, k.astype("f2"), v)
        self.rejects(invalid, "v: dtype is float64", q, k, v.astype("f8"))
        out = numpy.empty((2, 9, 4, 8), "f2")
        self.rejects(invalid, "out: dtype is fp16, must be fp32", q, k, v, out=out)
        lse = numpy.empty((2, 4, 9), "f2")
        self.rejects(invalid, "lse: dtype is fp16, must be fp32", q, k, v, lse=lse)
        self.rejects(invalid, "q: dtype >f4 has a foreign byte order", q.astype(">f4"), k, v)

    def test_shapes(self):
        q, k, v = arrays()
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "q: has 3 axes, must have 4 (batch, sequence, head, dim)",
                     q[0], k, v)  # fmt: skip
        self.rejects(invalid, "k: has 5 axes", q, k[None], v)
        self.rejects(invalid, "(batch, head, sequence, dim)", q[0], k, v, layout="bhsd")
        self.rejects(invalid, "k: shape is [1, 13, 2, 16], must be [2, 13, 2, 16]", q, k[:1], v)
        self.rejects(invalid, "k: shape is [2, 13, 2, 15], must be [2, 13, 2, 16]", q, k[..., :15], v)
        self.rejects(invalid, "v: shape is [2, 12, 2, 8], must be [2, 13, 2, 8]", q, k, v[:, :12])
        self.rejects(invalid, "hkv: 2 does not divide hq = 3", q[:, :, :3], k, v)
        self.rejects(invalid, "out: shape is [2, 9, 4, 7], must be [2, 9, 4, 8] (batch, sequence, "
                     "head, dim)", q, k, v,
                     out=numpy.empty((2, 9, 4, 7), "f4"))  # fmt: skip
        self.rejects(invalid, "lse: has 2 axes, must have 3 (batch, head, sequence)", q, k, v,
                     lse=numpy.empty((4, 9), "f4"))  # fmt: skip
        self.rejects(invalid, "lse: shape is [2, 9, 4], must be [2, 4, 9] (batch, head, sequence)",
                     q, k, v, lse=numpy.empty((2, 9, 4), "f4"))  # fmt: skip
        of = [x.swapaxes(1, 2) for x in (q, k, v)]
        self.rejects(invalid, "out: shape is [2, 9, 4, 8], must be [2, 4, 9, 8] (batch, head, sequence, dim)",
                     *of, layout="bhsd", out=numpy.empty((2, 9, 4, 8), "f4"))  # fmt: skip
        self.rejects(invalid, "d: 513", *arrays(d=513))
        self.rejects(invalid, "b: 0", *arrays(b=0))

    def test_strides_and_addresses(self):
        q, k, v = arrays()
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "q: stride 2 of the dim axis is not 1",
                     numpy.ones((2, 9, 4, 32), "f4")[..., ::2], k, v)  # fmt: skip
        self.rejects(invalid, "k: strides [416, -32, 16, 1]: one is negative", q, k[:, ::-1], v)
        bytes_of = numpy.zeros(q.nbytes + 8, "uint8")
        odd = numpy.frombuffer(bytes_of[2 : 2 + q.nbytes], "f4").reshape(q.shape)
        self.rejects(invalid, "is not a multiple of the element size 4", odd, k, v)
        record = numpy.zeros((2, 9, 4), [("x", "f4", 16), ("pad", "i1")])["x"]
        self.rejects(invalid, "q: stride of 65 bytes is not a multiple of the element size 4",
                     record, k, v)  # fmt: skip
        out = numpy.lib.stride_tricks.as_strided(
            numpy.empty(100, "f4"), (2, 9, 4, 8), (0, 0, 0, 4)
        )
        self.rejects(invalid, "out: strides [0, 0, 0, 1] with shape", q, k, v, out=out)
        out = numpy.empty((2, 9, 4, 8), "f4")
        out.flags.writeable = False
        self.rejects(invalid, "out: is read-only", q, k, v, out=out)
        self.rejects(invalid, "out: shares its address with the input ", *[q[..., :8], k[..., :8], v],
                     out=q[..., :8])  # fmt: skip
        self.rejects(invalid, "q: is a masked array", numpy.ma.masked_array(q), k, v)

    def test_an_error_writes_nothing(self):
        q, k, v = arrays()
        out, lse = numpy.full((2, 9, 4, 8), 5.0, "f4"), numpy.full((2, 4, 9), 5.0, "f4")
        self.rejects(attnlab.InvalidArgument, "mask: left: ", q, k, v, out=out, lse=lse,
                     mask=("a", 1))  # fmt: skip
        self.rejects(attnlab.NotFound, "no-such", q, k, v, out=out, lse=lse, kernel="no-such")
        self.rejects(attnlab.InvalidArgument, "v: ", q, k, v[:, :1], out=out, lse=lse)
        self.assertTrue((out == 5).all() and (lse == 5).all())


@needs_numpy
class BadOptionsTest(Rejects):
    def test_masks(self):
        q, k, v = arrays()
        for mask in ("full", 3, (1,), (1, 2, 3), None, True):
            self.rejects(attnlab.InvalidArgument, "mask: ", q, k, v, mask=mask)
        dense = numpy.ones((9, 13), bool)
        with self.assertRaises(attnlab.InvalidArgument) as caught:
            attnlab.attention(q, k, v, mask=dense)
        self.assertEqual(
            str(caught.exception),
            "mask: is a numpy.ndarray of dtype bool and shape [9, 13], and dense masks are not "
            'supported; it is "none", "causal" or a pair (left, right)',
        )
        self.rejects(attnlab.InvalidArgument, "mask: left: True is not an integer", q, k, v,
                     mask=(True, False))  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "mask: left: -1 is not in 0..", q, k, v,
                     mask=(-1, 0))  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "mask: right: 1.5 is not an integer", q, k, v,
                     mask=(1, 1.5))  # fmt: skip
        self.rejects(attnlab.OutOfRange, "mask: left: 18446744073709551617 does not fit 64 bits",
                     q, k, v, mask=(2**64 + 1, 0))  # fmt: skip

    def test_numbers(self):
        q, k, v = arrays()
        self.rejects(attnlab.InvalidArgument, "scale: 'x' is not a number", q, k, v, scale="x")
        self.rejects(attnlab.InvalidArgument, "scale: nan is not 0 or in", q, k, v,
                     scale=float("nan"))  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "scale: inf is not", q, k, v, scale=float("inf"))
        self.rejects(attnlab.InvalidArgument, "scale: 1e+300 does not fit fp32", q, k, v, scale=1e300)
        for truth in (True, numpy.bool_(True), numpy.array(True)):
            self.rejects(attnlab.InvalidArgument, "True", q, k, v, scale=truth)
            self.rejects(attnlab.InvalidArgument, "True", q, k, v, softcap=truth)
        self.rejects(attnlab.InvalidArgument, "softcap: -1 is not in", q, k, v, softcap=-1)
        self.rejects(attnlab.InvalidArgument, "softcap: None is not a number", q, k, v,
                     softcap=None)  # fmt: skip

    def test_names(self):
        q, k, v = arrays()
        self.rejects(attnlab.InvalidArgument, "layout: 'sbhd' is not one of bshd, bhsd", q, k, v,
                     layout="sbhd")  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "layout: ['bshd'] is not one of bshd, bhsd", q, k, v,
                     layout=["bshd"])  # fmt: skip
        self.rejects(attnlab.NotFound, 'kernel: "none" is not linked', q, k, v, kernel="none")
        self.rejects(attnlab.InvalidArgument, "kernel: 7 is not a string", q, k, v, kernel=7)
        self.rejects(attnlab.InvalidArgument, "without NUL", q, k, v, kernel="cpu\0x")
        self.rejects(attnlab.InvalidArgument, "no_such_key", q, k, v, config="no_such_key=1")
        self.rejects(attnlab.InvalidArgument, "config: ", q, k, v, config="tile")
        self.rejects(attnlab.InvalidArgument, "config: None is not a string", q, k, v, config=None)
        with self.assertRaises(TypeError):
            attnlab.attention(q, k, v, no_such_argument=True)

    def test_unimplemented(self):
        q, k, v = arrays()
        for kernel in attnlab.kernels():
            if kernel.device == "cuda":
                self.rejects(attnlab.Unimplemented, f"{kernel.name}: runs on CUDA devices, not on "
                             "cpu", q, k, v, kernel=kernel.name)  # fmt: skip

    def test_workspace(self):
        q, k, v = arrays()
        needed = attnlab.plan(
            "b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dv=8,dtype=fp32", kernel="cpu"
        ).info.workspace_bytes
        memory = numpy.empty(needed + 512, "uint8")
        start = -memory.ctypes.data % 256
        for workspace, text in (
            (memory[start : start + needed - 1], f"{needed - 1} bytes, but {needed} are needed"),
            (memory[start + 1 : start + 1 + needed], "is not a multiple of 256"),
            (memory.view("float32"), "workspace: fp32["),
            (memory.reshape(2, -1), "workspace: uint8[2, "),
            (memory[::2], "one contiguous axis of uint8"),
            ("memory", "workspace: is a builtins.str"),
        ):
            self.rejects(attnlab.InvalidArgument, text, q, k, v, kernel="cpu", workspace=workspace)

    def test_workspace_that_shares_memory(self):
        q, k, v = arrays()
        line = "b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dv=8,dtype=fp32,lens=padded"
        needed = attnlab.plan(line, kernel="cpu").info.workspace_bytes
        memory = numpy.zeros(needed + 2 * 9 * 4 * 8 * 4 + 512, "uint8")
        memory = memory[-memory.ctypes.data % 256 :]
        inside = lambda x: numpy.frombuffer(memory.data, x.dtype, x.size).reshape(x.shape)  # noqa: E731
        options = {"kernel": "cpu", "workspace": memory[:needed], "q_lens": numpy.array([9, 9], "int32")}
        out = numpy.empty((2, 9, 4, 8), "f4")
        shared = f"workspace: {needed} bytes at 0x"
        self.rejects(attnlab.InvalidArgument, shared, q, inside(k), v, **options)
        self.rejects(attnlab.InvalidArgument, "share memory with k, ", q, inside(k), v, **options)
        self.rejects(
            attnlab.InvalidArgument, "share memory with out, ", q, k, v, out=inside(out), **options
        )
        options["q_lens"] = inside(options["q_lens"])
        self.rejects(attnlab.InvalidArgument, "share memory with q_lens, ", q, k, v, **options)


@needs_numpy
class BadLengthsTest(Rejects):
    def test_packed(self):
        q, k, v = (x[0] for x in arrays(b=1))
        ends = lambda *values: numpy.array(values, "int32")  # noqa: E731
        good = {"cu_seqlens_q": ends(0, 4, 9), "cu_seqlens_kv": ends(0, 6, 13)}

        def rejects(text, error=attnlab.InvalidArgument, **options):
            self.rejects(error, text, q, k, v, **{**good, **options})

        rejects("cu_seqlens_kv: is missing, but cu_seqlens_q is given", cu_seqlens_kv=None)
        rejects("cu_seqlens_q: is missing", cu_seqlens_q=None)
        rejects("cu_seqlens_q: dtype is int64, must be int32",
                cu_seqlens_q=numpy.array([0, 4, 9]))  # fmt: skip
        rejects("cu_seqlens_kv: has 4 entries, must have 3", cu_seqlens_kv=ends(0, 1, 2, 3))
        rejects("cu_seqlens_q: shape is [3, 1]", cu_seqlens_q=ends(0, 4, 9)[:, None])
        rejects("one contiguous axis", cu_seqlens_q=ends(0, 0, 4, 0, 9, 0)[::2])
        rejects("cu_seqlens_q: must have at least 2 entries", cu_seqlens_q=ends(0))
        rejects("cu_seqlens_q: ", cu_seqlens_q=ends(0, 4, 10))  # past the last token
        rejects("cu_seqlens_q: ", cu_seqlens_q=ends(1, 4, 9))
        rejects("cu_seqlens_kv: ", cu_seqlens_kv=ends(0, 14, 13))
        rejects("cu_seqlens_q: ", max_seqlen_q=4)  # the second has 5
        rejects("max_seqlen_q: -1", max_seqlen_q=-1)
        rejects("max_seqlen_kv: -1", max_seqlen_kv=-1)
        rejects("out: shape is [9, 4, 7], must be [9, 4, 8] (sequence, head, dim)",
                out=numpy.empty((9, 4, 7), "f4"))  # fmt: skip
        rejects("lse: shape is [9, 4], must be [4, 9] (head, sequence)",
                lse=numpy.empty((9, 4), "f4"))  # fmt: skip
        rejects("max_seqlen_q: 'x' is not an integer", max_seqlen_q="x")
        rejects("max_seqlen_kv: 36893488147419103232 does", error=attnlab.OutOfRange, max_seqlen_kv=2**65)
        rejects("q_lens: is given, but cu_seqlens give the lengths", q_lens=ends(1, 2))
        self.rejects(attnlab.InvalidArgument, "q: has 4 axes, must have 3", q[None], k, v,
                     **good)  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "lse: has 3 axes, must have 2 (head, token)",
                     q, k, v, lse=numpy.empty((1, 4, 9), "f4"), **good)  # fmt: skip

    def test_padded(self):
        q, k, v = arrays()
        for lens, text in (
            (numpy.array([1, 14], "int32"), "kv_lens: entry 1 is 14"),
            (numpy.array([-1, 2], "int32"), "kv_lens: entry 0 is -1"),
            (numpy.array([1], "int32"), "kv_lens: has 1 entry, must have 2"),
            (numpy.array([1, 2]), "kv_lens: dtype is int64, must be int32"),
            (numpy.array([[1, 2]], "int32"), "kv_lens: shape is [1, 2]"),
        ):
            self.rejects(attnlab.InvalidArgument, text, q, k, v, kv_lens=lens)
        self.rejects(attnlab.InvalidArgument, "max_seqlen_q: is given without cu_seqlens", q, k, v,
                     max_seqlen_q=9)  # fmt: skip


@needs_numpy
class MemoryTest(unittest.TestCase):
    def test_an_output_that_cannot_be_allocated_is_named(self):
        def huge(d):
            return numpy.broadcast_to(numpy.ones(1, "f4"), (1 << 18, 1 << 18, 8, d))

        q, kv = huge(512), huge(512)[:, :1]
        for options in ({}, {"q_lens": numpy.ones(1 << 18, "int32")}):
            with self.assertRaises(attnlab.ResourceExhausted) as caught:
                attnlab.attention(q, kv, kv, **options)
            self.assertIn(f"out: {2**50} bytes for the shape [262144, 262144, 8, 512] cannot be "
                          "allocated on cpu", str(caught.exception))  # fmt: skip
            self.assertIsInstance(caught.exception.__cause__, (MemoryError, ValueError))

    def test_an_lse_too(self):
        x = numpy.broadcast_to(numpy.ones(1, "f4"), (1 << 21, 1 << 21, 64, 1))
        # More than the address space of a process: some machines grant any smaller request.
        with self.assertRaisesRegex(attnlab.ResourceExhausted, f"lse: {2**50} bytes for the shape"):
            out = numpy.broadcast_to(numpy.ones(1, "f4"), x.shape).view()
            out.flags.writeable = True
            attnlab.attention(x, x, x, out=out, return_lse=True)


@needs_numpy
class BadPlanUseTest(unittest.TestCase):
    def test_arrays_of_another_problem(self):
        q, k, v = arrays()
        plan = attnlab.plan("b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dv=8,dtype=fp32")
        plan.forward(q, k, v)
        ends = numpy.array([0, 9, 9], "int32")
        for bad, text in (
            (lambda: plan.forward(q[:, :8], k, v), "q: shape is [2, 8, 4, 16], must be [2, 9, 4, 16]"),
            (lambda: plan.forward(*(x.astype("f2") for x in (q, k, v))), "q: dtype is fp16"),
            (lambda: plan.forward(q, k, v, kv_lens=ends[:2]), "kv_lens: is given"),
            (lambda: plan.forward(q[0], k[0], v[0], cu_seqlens_q=ends, cu_seqlens_kv=ends),
             "the plan is for lens=fixed, but the arrays are for lens=packed"),
        ):  # fmt: skip
            with self.assertRaises(attnlab.InvalidArgument) as caught:
                bad()
            self.assertIn(text, str(caught.exception))
        with self.assertRaises(TypeError):
            plan.forward(q, k, v, mask="causal")  # the plan has it already


if __name__ == "__main__":
    support.main()
