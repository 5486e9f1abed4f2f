"""attention() on NumPy arrays compared with the definition in double; and nothing is copied."""

import threading
import unittest

import support
from support import assert_close, ml_dtypes, needs_numpy, numpy

import attnlab

if numpy is not None:
    import numpy_attention


def random(seed, shape, dtype="float32"):
    values = numpy.random.default_rng(seed).standard_normal(shape)
    return values.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def qkv(seed, b=2, sq=9, skv=13, hq=4, hkv=2, d=16, dv=8, dtype="float32"):
    return (
        random(seed, (b, sq, hq, d), dtype),
        random(seed + 1, (b, skv, hkv, d), dtype),
        random(seed + 2, (b, skv, hkv, dv), dtype),
    )


def mask_line(mask):
    return mask if isinstance(mask, str) else f"window:{mask[0]}:{mask[1]}"


@needs_numpy
class ValuesTest(unittest.TestCase):
    def check(self, got, want, v, dtype="float32", what=""):
        o, lse = want
        o_bound, lse_bound = numpy_attention.bounds(support.EPSILON[dtype], v, lse)
        assert_close(self, got[0], o, o_bound, what)
        assert_close(self, got[1], lse, lse_bound, what)

    def test_masks_heads_and_dtypes(self):
        dtypes = ["float32", "float16"] + (["bfloat16"] if ml_dtypes else [])
        for dtype in dtypes:
            for mask in ("none", "causal", (3, 2), (0, 0), (100, 100)):
                for hq, hkv in ((4, 4), (4, 2), (4, 1), (1, 1)):
                    for sq, skv in ((9, 13), (13, 9), (1, 30), (30, 1)):
                        with self.subTest(dtype=dtype, mask=mask, heads=(hq, hkv), s=(sq, skv)):
                            q, k, v = qkv(7, sq=sq, skv=skv, hq=hq, hkv=hkv, dtype=dtype)
                            got = attnlab.attention(q, k, v, mask=mask, return_lse=True)
                            self.assertEqual(got[0].dtype, q.dtype)
                            self.assertEqual(got[1].dtype, numpy.float32)
                            want = numpy_attention.padded(q, k, v, mask=mask_line(mask))
                            self.check(got, want, v, dtype)

    def test_masks_in_the_words_of_flash_attention(self):
        q, k, v = qkv(8)  # 9 queries, 13 keys
        same = (
            ({}, "none"),
            ({"causal": True}, "causal"),
            ({"window_size": (-1, -1)}, "none"),
            ({"window_size": (3, 2)}, (3, 2)),
            ({"window_size": (3, -1)}, (3, 13)),
            ({"window_size": [-1, 0]}, "causal"),
            ({"causal": True, "window_size": (3, -1)}, (3, 0)),
            ({"causal": True, "window_size": (3, 0)}, (3, 0)),
        )
        for given, mask in same:
            with self.subTest(**given):
                want = attnlab.attention(q, k, v, mask=mask)
                self.assertTrue((attnlab.attention(q, k, v, **given) == want).all())
        for given, message in (
            ({"causal": 1}, "causal: 1 is not True or False"),
            ({"window_size": 3}, r"window_size: 3 is not a pair \(left, right\)"),
            ({"window_size": (3, -2)}, r"window_size: \(3, -2\) has a side below -1"),
            ({"causal": True, "window_size": (3, 1)}, "window_size: right is 1, but causal=True"),
            ({"causal": True, "mask": "causal"}, "mask, causal: both are given"),
            ({"window_size": (3, 1), "mask": (3, 1)}, "mask, window_size: both are given"),
        ):
            with self.subTest(**given), self.assertRaisesRegex(attnlab.InvalidArgument, message):
                attnlab.attention(q, k, v, **given)

    def test_scale_and_softcap(self):
        q, k, v = qkv(11)
        for options in ({"scale": 0.3}, {"softcap": 2.0}, {"scale": 0.0}, {"scale": 2, "softcap": 5}):
            with self.subTest(**options):
                got = attnlab.attention(q, k, v, return_lse=True, **options)
                self.check(got, numpy_attention.padded(q, k, v, **options), v)

    def test_every_kernel_of_the_cpu(self):
        q, k, v = qkv(12)
        want = numpy_attention.padded(q, k, v, mask="causal")
        names = [kernel.name for kernel in attnlab.kernels() if kernel.device == "cpu"]
        self.assertIn("cpu", names)
        for name in names:
            got = attnlab.attention(q, k, v, mask="causal", return_lse=True, kernel=name)
            self.check(got, want, v, what=name)
        got = attnlab.attention(
            q, k, v, mask="causal", return_lse=True, kernel="cpu", config="threads=1"
        )
        self.check(got, want, v)

    def test_layouts_and_strides(self):
        q, k, v = qkv(13)
        want = numpy_attention.padded(q, k, v, mask="causal")
        by_head = [x.swapaxes(1, 2) for x in (q, k, v)]  # other strides, same memory
        o, lse = attnlab.attention(*by_head, mask="causal", layout="bhsd", return_lse=True)
        self.assertEqual(o.shape, (2, 4, 9, 8))
        self.check((o.swapaxes(1, 2), lse), want, v)
        contiguous = [numpy.ascontiguousarray(x) for x in by_head]
        o, lse = attnlab.attention(*contiguous, mask="causal", layout="bhsd", return_lse=True)
        self.check((o.swapaxes(1, 2), lse), want, v)
        # Every other row of a larger array, and a head dim that is a slice of a longer one.
        wide = [numpy.full(x.shape[:1] + (2 * x.shape[1],) + x.shape[2:3] + (40,), numpy.nan, "f4")
                for x in (q, k, v)]  # fmt: skip
        for large, x in zip(wide, (q, k, v)):
            large[:, ::2, :, 5 : 5 + x.shape[3]] = x
        views = [
            large[:, ::2, :, 5 : 5 + x.shape[3]] for large, x in zip(wide, (q, k, v))
        ]
        self.check(attnlab.attention(*views, mask="causal", return_lse=True), want, v)

    def test_fused_projection_and_broadcast(self):
        qkv_memory = random(14, (2, 9, 3, 4, 16))  # [B, S, 3, H, D]
        q, k, v = (qkv_memory[:, :, i] for i in range(3))
        got = attnlab.attention(q, k, v, return_lse=True)
        self.check(got, numpy_attention.padded(q, k, v), v)
        one = k[:1, :, :1]  # one head of one sequence, broadcast to all
        k, v = (numpy.broadcast_to(one, k.shape) for _ in range(2))
        got = attnlab.attention(q, k, v, return_lse=True)
        self.check(got, numpy_attention.padded(q, k, v), v)

    def in_pages(self, rows, lens, page, order):
        """Pages [pages, page, H, D] with the rows of sequences, and the page table."""
        table = numpy.full((len(lens), -(-rows.shape[1] // page)), 2**31 - 1, "int32")
        pages = numpy.full((len(order), page) + rows.shape[2:], numpy.nan, rows.dtype)
        free = iter(order)
        for i, length in enumerate(lens):
            for j in range(-(-length // page)):
                table[i, j] = next(free)
                part = rows[i, j * page : min((j + 1) * page, length)]
                pages[table[i, j], : len(part)] = part
        return pages, table

    def test_pages(self):
        q, k, v = qkv(18, b=3)
        lens = numpy.array([13, 0, 5], "int32")
        order = [4, 0, 6, 2, 5, 3, 1]  # a page of no sequence, too
        k_pages, table = self.in_pages(k, lens, 4, order)
        v_pages, _ = self.in_pages(v, lens, 4, order)
        options = {"kv_lens": lens, "max_seqlen_kv": 13, "return_lse": True}
        for mask in ("none", "causal"):
            want = attnlab.attention(q, k, v, mask=mask, kv_lens=lens, return_lse=True)
            got = attnlab.attention(q, k_pages, v_pages, mask=mask, page_table=table, **options)
            for a, b in zip(got, want):
                self.assertTrue((a == b).all())
            by_head = [x.swapaxes(1, 2) for x in (q, k_pages, v_pages)]
            o, lse = attnlab.attention(
                *by_head, mask=mask, layout="bhsd", page_table=table, **options
            )
            self.assertTrue((o.swapaxes(1, 2) == want[0]).all() and (lse == want[1]).all())
            # Packed queries: 9, 0 and 2 tokens.
            packed = numpy.concatenate([q[0], q[2, :2]])
            ends = numpy.array([0, 9, 9, 11], "int32")
            o, lse = attnlab.attention(
                packed, k_pages, v_pages, mask=mask, cu_seqlens_q=ends, page_table=table, **options
            )
            self.assertTrue((o[:9] == want[0][0]).all() and (lse[:, :9] == want[1][0]).all())
        # Without lengths, all sequences have every key of the table.
        k_pages, table = self.in_pages(k, [12, 12, 12], 4, list(range(9)))
        v_pages, _ = self.in_pages(v, [12, 12, 12], 4, list(range(9)))
        got = attnlab.attention(q, k_pages, v_pages, page_table=table[:, :3])
        self.assertTrue((got == attnlab.attention(q, k[:, :12], v[:, :12])).all())

    def test_bad_pages(self):
        q, k, v = qkv(19, b=2, skv=8)
        table = numpy.array([[0, 1], [1, 2]], "int32")
        for bad, message in (
            ({"page_table": table.astype("int64")}, "page_table: dtype is int64, must be int32"),
            ({"page_table": table[0]}, r"page_table: shape is \[2\] with strides"),
            ({"page_table": table[:1]}, "page_table: has 1 rows, must have 2"),
            ({"page_table": table}, r"page_table: entry \[1, 1\] is 2, not one of the 2 pages of k"),
            ({"page_table": table, "max_seqlen_kv": 17}, r"page_table: shape is \[2, 2\], must be"),
            ({"page_table": table, "cu_seqlens_kv": table[0]}, "cu_seqlens_kv: is given, but with"),
            ({"k_scale": table}, "k_scale: dtype is int32, must be fp32"),
        ):
            with self.assertRaisesRegex(attnlab.InvalidArgument, message):
                attnlab.attention(q, k, v, **bad)

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_fp8_cache(self):
        q, k, v = qkv(20, dtype="float16")
        k, v = (x.astype(ml_dtypes.float8_e4m3fn) for x in (k, v))
        scales = [numpy.array([[0.5, 2], [1, 4]], "float32") * x for x in (1, 0.5)]
        scaled = [
            (x.astype("float32") * s[:, None, :, None]).astype("float16")  # exact
            for x, s in zip((k, v), scales)
        ]
        got = attnlab.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], return_lse=True)
        self.check(got, numpy_attention.padded(q, *scaled), scaled[1], "float16")

    @unittest.skipIf(ml_dtypes is None, "ml_dtypes is not installed")
    def test_fp8(self):
        q, k, v = (x.astype(ml_dtypes.float8_e4m3fn) for x in qkv(21))
        self.check_fp8(q, k, v)
        self.check_fp8(q, k, v.astype(ml_dtypes.float8_e5m2))

    def check_fp8(self, *fp8):
        scales = [
            numpy.ones((x.shape[0], 1, x.shape[2]), "float32") * factor
            for x, factor in zip(fp8, (0.5, 0.25, 2))
        ]
        exact = [x.astype("float32") * s[:, :, :, None] for x, s in zip(fp8, scales)]
        want = numpy_attention.padded(*exact)[0]
        for out in (None, numpy.empty(want.shape, "float16"), numpy.empty(want.shape, "float32")):
            o = attnlab.attention(*fp8, q_scale=scales[0], k_scale=scales[1], v_scale=scales[2],
                                  scale_block=64, out=out)  # fmt: skip
            self.assertEqual(o.dtype, ml_dtypes.bfloat16 if out is None else out.dtype)
            self.assertLess(abs(o.astype("float64") - want).max(), 0.1 * abs(want).max())
        with self.assertRaisesRegex(attnlab.InvalidArgument, "q_scale: has 1 axes, must have 2"):
            attnlab.attention(*fp8, q_scale=scales[0][0, 0])

    def test_packed(self):
        q_ends = numpy.array([0, 5, 5, 12], "int32")
        kv_ends = numpy.array([0, 4, 9, 30], "int32")
        q, k, v = (x[0] for x in qkv(15, b=1, sq=14, skv=30))  # two tokens of no sequence
        options = {"cu_seqlens_q": q_ends, "cu_seqlens_kv": kv_ends, "return_lse": True}
        for mask in ("none", "causal", (2, 1)):
            want = numpy_attention.packed(q, k, v, q_ends, kv_ends, mask=mask_line(mask))
            got = attnlab.attention(q, k, v, mask=mask, **options)
            self.check(got, want, v)
            got = attnlab.attention(
                q, k, v, mask=mask, max_seqlen_q=7, max_seqlen_kv=25, **options
            )
            self.check(got, want, v)
        o, lse = attnlab.attention(
            *(x.swapaxes(0, 1) for x in (q, k, v)), mask=(2, 1), layout="bhsd", **options
        )
        self.check((o.swapaxes(0, 1), lse), want, v)

    def test_packed_leaves_unused_rows_of_given_arrays(self):
        ends = numpy.array([0, 3, 7], "int32")
        q, k, v = (x[0] for x in qkv(16, b=1, sq=10, skv=10))
        o, lse = numpy.full((10, 4, 8), 5.0, "f4"), numpy.full((4, 10), 6.0, "f4")
        attnlab.attention(q, k, v, cu_seqlens_q=ends, cu_seqlens_kv=ends, out=o, lse=lse)
        self.assertTrue((o[7:] == 5).all() and (lse[:, 7:] == 6).all())
        self.check((o[:7], lse[:, :7]),
                   numpy_attention.packed(q[:7], k, v, ends, ends), v)  # fmt: skip

    def test_padded(self):
        q, k, v = qkv(17, b=3)
        q_lens, kv_lens = numpy.array([9, 0, 4], "int32"), numpy.array([13, 5, 0], "int32")
        for i in range(3):  # data beyond a length has no influence
            k[i, kv_lens[i] :] = numpy.nan
            v[i, kv_lens[i] :] = numpy.nan
        for given in ({"q_lens": q_lens, "kv_lens": kv_lens}, {"kv_lens": kv_lens}):
            got = attnlab.attention(q, k, v, mask="causal", return_lse=True, **given)
            lengths = {name.replace("lens", "len"): x for name, x in given.items()}
            want = numpy_attention.padded(q, k, v, mask="causal", **lengths)
            self.check(got, want, numpy.nan_to_num(v))

    def test_empty(self):
        q, k, v = qkv(18, skv=0)
        o, lse = attnlab.attention(q, k, v, return_lse=True)
        self.assertTrue((o == 0).all() and numpy.isneginf(lse).all())
        q, k, v = qkv(19, sq=0)
        o, lse = attnlab.attention(q, k, v, return_lse=True)
        self.assertEqual((o.shape, lse.shape), ((2, 0, 4, 8), (2, 4, 0)))


@needs_numpy
class MemoryTest(unittest.TestCase):
    def test_given_outputs_are_written_and_returned(self):
        q, k, v = qkv(20)
        want, want_lse = attnlab.attention(q, k, v, return_lse=True)
        out, lse = numpy.full_like(want, numpy.nan), numpy.full_like(want_lse, numpy.nan)
        self.assertIs(attnlab.attention(q, k, v, out=out, lse=lse), out)
        self.assertTrue((out == want).all() and (lse == want_lse).all())
        lse[:] = numpy.nan
        pair = attnlab.attention(q, k, v, out=out, lse=lse, return_lse=True)
        self.assertTrue(pair[0] is out and pair[1] is lse and (lse == want_lse).all())
        # With strides: a slice of a larger array, whose other elements stay unchanged.
        large = numpy.full((2, 9, 4, 20), 7.0, "f4")
        rows = numpy.full((2, 4, 9, 3), 7.0, "f4")
        attnlab.attention(q, k, v, out=large[..., 4:12], lse=rows[..., 1])
        self.assertTrue((large[..., 4:12] == want).all() and (rows[..., 1] == want_lse).all())
        large[..., 4:12] = rows[..., 1] = 7
        self.assertTrue((large == 7).all() and (rows == 7).all())

    def test_inputs_are_read_where_they_are(self):
        inputs = qkv(21)
        before = [x.copy() for x in inputs]
        for x in inputs:
            x.flags.writeable = False
        out = numpy.empty((2, 9, 4, 8), "f4")
        plan = attnlab.plan("b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dv=8,dtype=fp32")
        call = plan.bind(*inputs, out=out)
        call()
        first = out.copy()
        for x, y in zip(inputs, before):
            self.assertTrue((x == y).all())
        # A bound call sees later writes to its inputs, because it has no copy of them.
        inputs[2].flags.writeable = True
        inputs[2][:] = 3
        call()
        self.assertFalse((first == out).all())
        self.assertTrue((numpy.abs(out - 3) < 1e-6).all())

    def test_peak_memory_is_that_of_output_and_scratch(self):
        import tracemalloc  # sees NumPy's memory

        q, k, v = qkv(22, b=1, sq=2048, skv=2048, hq=8, hkv=8, d=64, dv=64, dtype="float16")
        options = {"kernel": "cpu", "config": "threads=1"}
        attnlab.attention(q, k, v, **options)
        plan = attnlab.plan("hq=8,sq=2048,d=64,dtype=fp16", **options)
        tracemalloc.start()
        out = attnlab.attention(q, k, v, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.assertGreater(peak, out.nbytes)
        self.assertLess(peak, out.nbytes + plan.info.workspace_bytes + 100_000)

    def test_given_workspace(self):
        q, k, v = qkv(23)
        plan = attnlab.plan("b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dv=8,dtype=fp32", kernel="cpu")
        needed = plan.info.workspace_bytes
        self.assertGreater(needed, 0)
        memory = numpy.full(needed + 256 + 64, 0xAB, "uint8")
        start = -memory.ctypes.data % 256
        want = attnlab.attention(q, k, v, kernel="cpu")
        got = attnlab.attention(q, k, v, kernel="cpu", workspace=memory[start : start + needed])
        self.assertTrue((got == want).all())
        self.assertTrue((memory[start + needed :] == 0xAB).all())
        self.assertFalse((memory[start : start + needed] == 0xAB).all())  # the workspace was used


@needs_numpy
class ThreadsTest(unittest.TestCase):
    def test_many_threads_at_once(self):
        cases = [qkv(30 + i, sq=20 + i, skv=20 + i) for i in range(8)]
        wants = [attnlab.attention(*case, mask="causal") for case in cases]
        wrong = []

        def work(i):
            for j in range(50):
                n = (i + j) % len(cases)
                q, k, v = cases[n]
                if not (attnlab.attention(q, k, v, mask="causal") == wants[n]).all():
                    wrong.append((i, j))
                try:
                    attnlab.attention(q, k[:, :, : n % 2 + 1], v, mask="causal")
                except attnlab.InvalidArgument as error:  # the message belongs to this thread
                    if not str(error).startswith("v: shape is ["):
                        wrong.append(str(error))
                else:
                    if n % 2 == 0:
                        wrong.append("k and v with different heads")

        threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


if __name__ == "__main__":
    support.main()
