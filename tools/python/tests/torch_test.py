"""attention() on PyTorch tensors: on the CPU, and on a GPU with its streams, graphs and memory.

Run it with a Python that has PyTorch; otherwise everything is skipped:

    python3 tools/python/tests/torch_test.py
"""

import multiprocessing
import threading
import unittest
import warnings

import support
from support import EPSILON, needs_cuda, needs_torch, torch

import attnlab

DEVICES = ["cpu"] + (["cuda"] if support.gpus() else [])


def qkv(seed, b=2, sq=9, skv=13, hq=4, hkv=2, d=16, dv=16, dtype="float32", device="cpu"):
    generator = torch.Generator().manual_seed(seed)
    shapes = ((b, sq, hq, d), (b, skv, hkv, d), (b, skv, hkv, dv))
    values = (torch.randn(shape, generator=generator) for shape in shapes)
    return [x.to(getattr(torch, dtype)).to(device) for x in values]


def exact(q, k, v, mask="none", scale=None):
    """(O [B, S, H, D], LSE [B, H, S]) in double, from tensors [B, S, H, D]."""
    q, k, v = (x.detach().double().transpose(1, 2) for x in (q, k, v))
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    i = torch.arange(q.shape[2], device=q.device)[:, None] + k.shape[2] - q.shape[2]
    distance = torch.arange(k.shape[2], device=q.device)[None, :] - i
    if mask == "causal":
        s = s.masked_fill(distance > 0, float("-inf"))
    elif mask != "none":
        s = s.masked_fill((distance < -mask[0]) | (distance > mask[1]), float("-inf"))
    lse = s.logsumexp(-1)
    p = torch.exp(s - lse.masked_fill(lse.isinf(), 0)[..., None])
    return (p @ v).transpose(1, 2), lse


class TorchTest(unittest.TestCase):
    def check(self, got, want, what=""):
        o, lse = got if isinstance(got, tuple) else (got, None)
        bound = 4 * EPSILON[str(o.dtype).rpartition(".")[2]] * 3 + 1e-5  # |V| is rarely above 3
        self.assertEqual(o.shape, want[0].shape, what)
        self.assertLessEqual(float((o.double() - want[0]).abs().max()), bound, what)
        if lse is not None:
            same = lse.isinf() & want[1].isinf()
            error = (lse.double() - want[1]).masked_fill(same, 0).abs().max()
            self.assertLessEqual(float(error), 2e-5, what)

    def rejects(self, error, text, *arguments, **options):
        with self.assertRaises(error) as caught:
            attnlab.attention(*arguments, **options)
        self.assertIn(text, str(caught.exception))


@needs_torch
class ValuesTest(TorchTest):
    def test_dtypes_masks_and_layouts(self):
        for device in DEVICES:
            for dtype in ("float32", "float16", "bfloat16"):
                for mask in ("none", "causal", (3, 2)):
                    with self.subTest(device=device, dtype=dtype, mask=mask):
                        q, k, v = qkv(1, dtype=dtype, device=device)
                        want = exact(q, k, v, mask)
                        got = attnlab.attention(q, k, v, mask=mask, return_lse=True)
                        self.assertEqual((got[0].dtype, got[0].device), (q.dtype, q.device))
                        self.assertEqual((got[1].dtype, got[1].device), (torch.float32, q.device))
                        self.check(got, want)
                        o, lse = attnlab.attention(
                            *(x.transpose(1, 2) for x in (q, k, v)),
                            mask=mask, layout="bhsd", return_lse=True,
                        )  # fmt: skip
                        self.check((o.transpose(1, 2), lse), want)

    def test_every_kernel_of_the_device(self):
        for device in DEVICES:
            q, k, v = qkv(2, sq=65, skv=65, d=64, dv=64, device=device)
            want = exact(q, k, v, "causal")
            names = [kernel.name for kernel in attnlab.kernels() if kernel.device == device]
            self.assertGreater(len(names), 0, f"no kernel for {device}")
            for name in names:
                got = attnlab.attention(q, k, v, mask="causal", kernel=name, return_lse=True)
                self.check(got, want, name)

    def test_lengths(self):
        for device in DEVICES:
            q, k, v = qkv(3, b=1, sq=14, skv=14, device=device)
            ends = torch.tensor([0, 5, 5, 12], dtype=torch.int32, device=device)
            o, lse = attnlab.attention(
                q[0], k[0], v[0], cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=7,
                max_seqlen_kv=7, mask="causal", return_lse=True,
            )  # fmt: skip
            for a, b in ((0, 5), (5, 12)):
                want = exact(q[:, a:b], k[:, a:b], v[:, a:b], "causal")
                self.check((o[None, a:b], lse[None, :, a:b]), want)
            self.assertTrue((o[12:] == 0).all() and lse[:, 12:].isneginf().all())
            q, k, v = qkv(4, device=device)
            kv_lens = torch.tensor([13, 4], dtype=torch.int32, device=device)
            k[1, 4:] = v[1, 4:] = float("nan")
            got = attnlab.attention(q, k, v, kv_lens=kv_lens)
            self.check(got[:1], exact(q[:1], k[:1], v[:1]))
            self.check(got[1:], exact(q[1:], k[1:, :4], v[1:, :4]))

    def test_given_outputs_and_fused_projection(self):
        for device in DEVICES:
            memory = torch.randn(2, 9, 3, 4, 16, device=device)
            q, k, v = memory.unbind(2)
            out = torch.full((2, 9, 4, 16), float("nan"), device=device)
            lse = torch.full((2, 4, 9), float("nan"), device=device)
            before = memory.clone()
            self.assertIs(attnlab.attention(q, k, v, out=out, lse=lse), out)
            self.check((out, lse), exact(q, k, v))
            self.assertTrue(torch.equal(memory, before))

    def test_workspace(self):
        for device in DEVICES:
            q, k, v = qkv(5, device=device)
            line = "b=2,hq=4,hkv=2,sq=9,skv=13,d=16,dtype=fp32"
            needed = attnlab.plan(line, device).info.workspace_bytes
            memory = torch.empty(max(needed, 1) + 256, dtype=torch.uint8, device=device)
            start = -memory.data_ptr() % 256
            got = attnlab.attention(q, k, v, workspace=memory[start : start + max(needed, 1)])
            self.check(got, exact(q, k, v))
            if needed:
                self.rejects(
                    attnlab.InvalidArgument, f"{needed - 1} bytes, but {needed} are needed",
                    q, k, v, workspace=memory[start : start + needed - 1],
                )  # fmt: skip


@needs_torch
class BadTensorsTest(TorchTest):
    def test_gradients(self):
        q, k, v = qkv(6)
        q.requires_grad_()
        self.rejects(attnlab.InvalidArgument, "q: requires grad, and attnlab has no backward pass",
                     q, k, v)  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "v: requires grad",
                     q.detach(), k, torch.nn.Parameter(v))  # fmt: skip
        want = exact(q, k, v)
        with torch.no_grad():
            self.check(attnlab.attention(q, k, v), want)
        with torch.inference_mode():
            self.check(attnlab.attention(q, k, v), want)
        self.check(attnlab.attention(q.detach(), k, v), want)

    def test_what_is_not_plain_memory(self):
        q, k, v = qkv(7)
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "q: on meta; attention is for cpu and cuda", q.to("meta"), k, v)
        self.rejects(invalid, "k: layout torch.sparse_coo", q, k.to_sparse(), v)
        negated = torch.complex(q, q).conj().imag
        self.rejects(invalid, "q: is a lazy negation", negated, k, v)
        self.rejects(invalid, "q: dtype is float64, must be one of fp32, fp16, bf16", q.double(), k, v)
        self.rejects(invalid, "q: dtype is int64, must be", q.long(), k, v)
        self.rejects(invalid, "k: dtype is bf16, must be fp32", q, k.bfloat16(), v)
        self.rejects(invalid, "q: has 3 axes", q[0], k, v)
        last = torch.randn(2, 9, 16, 4).transpose(2, 3)
        self.rejects(invalid, "q: stride 4 of the dim axis is not 1", last, k, v)
        self.rejects(invalid, "q_lens: dtype is int64, must be int32", q, k, v,
                     q_lens=torch.tensor([1, 2]))  # fmt: skip
        out = torch.empty(1).expand(2, 9, 4, 16)
        self.rejects(invalid, "out: ", q, k, v, out=torch.zeros(2, 9, 4))
        self.rejects(invalid, "out: ", q, k, v, out=out)

    def test_tensor_without_memory(self):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            fake = torch.empty(2, 9, 4, 16)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns of the same mistake
            self.rejects(attnlab.InvalidArgument, "q: ", fake, fake, fake)

    @unittest.skipIf(support.gpus() > 0, "there is a GPU")
    def test_cuda_without_a_gpu(self):
        with self.assertRaises((attnlab.Unavailable, attnlab.Unimplemented)):
            attnlab.plan("hq=2,sq=4,d=8,dtype=fp16", "cuda")


@needs_torch
class LoadedTogetherTest(TorchTest):
    def test_threads_of_both(self):
        """PyTorch's threads and attnlab's in one process."""
        q, k, v = qkv(8, sq=100, skv=100, d=64, dv=64)
        want = exact(q, k, v)
        for _ in range(20):
            self.check(attnlab.attention(q, k, v), want)
            torch.matmul(torch.randn(300, 300), torch.randn(300, 300))


def gpu_problem(seed, dtype="float16", device="cuda"):
    return qkv(seed, b=2, sq=130, skv=130, hq=4, hkv=4, d=64, dv=64, dtype=dtype, device=device)


@needs_cuda
class StreamsTest(TorchTest):
    def test_work_goes_to_the_current_stream(self):
        q, k, v = gpu_problem(20)
        source = [x.clone() for x in (q, k, v)]
        want = exact(*source, "causal")
        attnlab.attention(q, k, v, mask="causal")  # loads the library and the kernels
        for x in (q, k, v):
            x.fill_(float("nan"))
        torch.cuda.synchronize()
        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            torch.cuda._sleep(200_000_000)  # clock cycles: about 0.1 s
            for x, y in zip((q, k, v), source):
                x.copy_(y)
            out = attnlab.attention(q, k, v, mask="causal")
            done = torch.cuda.Event()
            done.record()
            # In another stream, or after a wait, it would be done, and would have read NaN.
            self.assertFalse(done.query())
        torch.cuda.current_stream().wait_stream(side)
        self.check(out, want)

    def test_two_streams_with_their_own_scratch(self):
        cases = [gpu_problem(seed) for seed in range(30, 34)]
        wants = [exact(*case) for case in cases]
        torch.cuda.synchronize()
        streams = [torch.cuda.Stream() for _ in cases]
        outs = [[] for _ in cases]
        for _ in range(10):
            for i, (case, stream) in enumerate(zip(cases, streams)):
                with torch.cuda.stream(stream):
                    outs[i].append(attnlab.attention(*case))
        torch.cuda.synchronize()
        for results, want in zip(outs, wants):
            for out in results:
                self.check(out, want)

    def test_a_bound_call_uses_the_stream_of_each_call(self):
        q, k, v = gpu_problem(21)
        plan = attnlab.plan("b=2,hq=4,sq=130,d=64,dtype=fp16", "cuda")
        call = plan.bind(q, k, v)
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(100_000_000)
            out = call()
            done = torch.cuda.Event()
            done.record()
            self.assertFalse(done.query())
        torch.cuda.synchronize()
        self.check(out, exact(q, k, v))

    def test_threads(self):
        cases = [gpu_problem(40 + i) for i in range(4)]
        wants = [exact(*case) for case in cases]
        torch.cuda.synchronize()
        wrong = []

        def work(i):
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(20):
                    out = attnlab.attention(*cases[i])
                    torch.cuda.current_stream().synchronize()
                    if not float((out.double() - wants[i][0]).abs().max()) < 2e-2:
                        wrong.append(i)

        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])


@needs_cuda
class GraphsTest(TorchTest):
    def test_capture_and_replay(self):
        q, k, v = gpu_problem(50)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # as PyTorch requires: one call before, in a side stream
            attnlab.attention(q, k, v, mask="causal")
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):  # output and scratch from the graph's pool
            out, lse = attnlab.attention(q, k, v, mask="causal", return_lse=True)
        for seed in (51, 52):
            for x, y in zip((q, k, v), gpu_problem(seed)):
                x.copy_(y)
            out.fill_(float("nan"))
            junk = torch.full((1 << 22,), float("nan"), device="cuda")  # not in the graph's pool
            graph.replay()
            torch.cuda.synchronize()
            self.check((out, lse), exact(q, k, v, "causal"))
            del junk


@needs_cuda
class MemoryTest(TorchTest):
    def test_scratch_is_of_the_caching_allocator(self):
        q, k, v = gpu_problem(60)
        plan = attnlab.plan("b=2,hq=4,sq=130,d=64,dtype=fp16", "cuda")
        out = torch.empty_like(q)
        attnlab.attention(q, k, v, out=out)
        torch.cuda.synchronize()
        before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
        torch.cuda.reset_peak_memory_stats()
        for _ in range(50):
            attnlab.attention(q, k, v, out=out)
        torch.cuda.synchronize()
        self.assertEqual(torch.cuda.memory_allocated(), before)
        peak = torch.cuda.max_memory_allocated() - before
        self.assertLessEqual(peak, plan.info.workspace_bytes + (2 << 20))  # it rounds up
        self.assertGreaterEqual(peak, plan.info.workspace_bytes)
        self.assertEqual(torch.cuda.mem_get_info()[0], free)  # nothing beside it

    def test_values_and_poisoned_outputs(self):
        q, k, v = gpu_problem(61)
        out = torch.full_like(q, float("nan"))
        lse = torch.full((2, 4, 130), float("nan"), device="cuda")
        attnlab.attention(q, k, v, out=out, lse=lse)
        self.check((out, lse), exact(q, k, v))


@needs_cuda
class BadCudaTensorsTest(TorchTest):
    def test_mixed_devices(self):
        q, k, v = gpu_problem(70)
        invalid = attnlab.InvalidArgument
        self.rejects(invalid, "k: on cpu, but q is on cuda:0", q, k.cpu(), v)
        self.rejects(invalid, "k: on cuda:0, but q is on cpu", q.cpu(), k, v)
        self.rejects(invalid, "out: on cpu, but q is on cuda:0", q, k, v, out=torch.empty(q.shape,
                     dtype=q.dtype))  # fmt: skip
        self.rejects(invalid, "lse: on cpu, but", q, k, v, lse=torch.empty(2, 4, 130))
        lens = torch.ones(2, dtype=torch.int32)
        self.rejects(invalid, "kv_lens: on cpu, but q is on cuda:0", q, k, v, kv_lens=lens)
        memory = torch.empty(1 << 24, dtype=torch.uint8)
        self.rejects(invalid, "workspace: on cpu, but q is on cuda:0", q, k, v, workspace=memory)
        self.rejects(attnlab.Unimplemented, "cpu: runs on the CPU", q, k, v, kernel="cpu")
        for kernel in attnlab.kernels():
            if kernel.device == "cuda":
                self.rejects(attnlab.Unimplemented, "runs on CUDA devices",
                             *(x.cpu() for x in (q, k, v)), kernel=kernel.name)  # fmt: skip
        self.check(attnlab.attention(q, k, v), exact(q, k, v))  # nothing is left behind

    def test_lengths_need_their_maximum(self):
        q, k, v = (x[0] for x in gpu_problem(71))
        ends = torch.tensor([0, 60, 130], dtype=torch.int32, device="cuda")
        self.rejects(attnlab.InvalidArgument, "max_seqlen_q: is missing; on a GPU", q, k, v,
                     cu_seqlens_q=ends, cu_seqlens_kv=ends)  # fmt: skip
        self.rejects(attnlab.InvalidArgument, "max_seqlen_kv: is missing", q, k, v,
                     cu_seqlens_q=ends, cu_seqlens_kv=ends, max_seqlen_q=70)  # fmt: skip

    def test_no_such_device(self):
        with self.assertRaisesRegex(attnlab.NotFound, "there is no cuda:99"):
            attnlab.plan("hq=2,sq=4,d=8,dtype=fp16", "cuda:99")

    def test_out_of_memory_is_pythons(self):
        q = torch.empty((1, 1, 1, 64), dtype=torch.float16, device="cuda")
        huge = q.expand(1, 1 << 26, 512, 64)  # O would have 4 TiB
        for kernel in attnlab.kernels():
            if kernel.device == "cuda":
                with self.assertRaises((attnlab.ResourceExhausted, torch.cuda.OutOfMemoryError)):
                    attnlab.attention(huge, huge, huge, kernel=kernel.name)
        torch.cuda.synchronize()

    def test_fork(self):
        q, k, v = gpu_problem(72)
        attnlab.attention(q, k, v)
        context = multiprocessing.get_context("fork")
        queue = context.SimpleQueue()

        def child():
            try:
                attnlab.attention(q, k, v)
                queue.put("no error")
            except Exception as error:  # PyTorch's own error, or ours
                queue.put(f"{type(error).__name__}: {error}")

        process = context.Process(target=child)
        process.start()
        process.join(60)
        self.assertEqual(process.exitcode, 0)
        self.assertRegex(queue.get(), "^FailedPrecondition|^RuntimeError: .*fork")


@unittest.skipIf(support.gpus() < 2, "fewer than two GPUs")
class SeveralGpusTest(TorchTest):
    def test_device_of_the_tensors_counts(self):
        q, k, v = gpu_problem(80, device="cuda:1")
        torch.cuda.set_device(0)
        out, lse = attnlab.attention(q, k, v, mask="causal", return_lse=True)
        self.assertEqual(torch.cuda.current_device(), 0)
        self.assertEqual(out.device, torch.device("cuda:1"))
        torch.cuda.synchronize(1)
        self.check((out, lse), exact(q, k, v, "causal"))
        side = torch.cuda.Stream(1)
        side.wait_stream(torch.cuda.current_stream(1))
        with torch.cuda.stream(side):  # also makes device 1 current
            out = attnlab.attention(q, k, v)
        torch.cuda.synchronize(1)
        self.check(out, exact(q, k, v))

    def test_mixed(self):
        q, k, v = gpu_problem(81)
        self.rejects(attnlab.InvalidArgument, "k: on cuda:1, but q is on cuda:0", q,
                     k.to("cuda:1"), v)  # fmt: skip


if __name__ == "__main__":
    support.main()
