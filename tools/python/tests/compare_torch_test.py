"""The parts of compare that need PyTorch: the oracle and its bound, contenders, the command."""

import contextlib
import io
import json
import os
import tempfile
import unittest
import unittest.mock

import support
from support import needs_cuda, needs_torch, torch

import attnlab

if torch is not None:
    from compare import accuracy, contenders, main, oracle
    from compare.suites import Case


def inputs_of(line, seed=1, layout="bhsd", sets=1, device="cpu"):
    case = main.cases_of([line])[0]
    return case, contenders.make_inputs(case, device, layout, sets, seed)


@needs_torch
class AccuracyTest(unittest.TestCase):
    def test_a_hadamard_matrix_is_orthogonal(self):
        for d in (64, 96):
            rows = accuracy.hadamard(torch.eye(d), seed=3)
            self.assertLess((rows @ rows.T - torch.eye(d)).abs().max().item(), 1e-6)

    def test_scales_are_of_what_shares_them(self):
        x = torch.randn(2, 150, 3, 8)
        for per, shape in (("tensor", (2, 1, 3)), ("head", (2, 1, 3)), ("64", (2, 3, 3))):
            small, scales = accuracy.quantize(x, per)
            self.assertEqual(scales.shape, shape)
            of_rows = scales.repeat_interleave(64 if per == "64" else 150, 1)[:, :150, :, None]
            self.assertLess(((small.float() * of_rows - x).abs() / of_rows).max().item(), 16.1)
            self.assertEqual(small.float().abs().max().item(), 448)

    def test_blocks_and_hadamard_make_fp8_better(self):
        asked = []

        def fa3(q, k, v, **scales):
            asked.append(sorted(scales))
            return torch.zeros(q.shape)

        found = accuracy.measure(1, 512, 2, 64, "cpu", fa3=fa3)
        rmse = {row.name: row.rmse for row in found if row.kernel == "attnlab"}
        self.assertEqual(len(rmse), 10)
        self.assertLess(rmse["float16"], rmse["bfloat16"])
        best = rmse["fp8, a scale per 64 rows, Hadamard"]
        self.assertLess(rmse["bfloat16"], best)
        self.assertLess(best, rmse["fp8, a scale per tensor"])
        self.assertEqual(asked, [[]] + [["k_descale", "q_descale", "v_descale"]] * 4)


@needs_torch
class OracleTest(unittest.TestCase):
    LINES = [
        "b=2,hq=4,hkv=2,sq=70,d=32,dtype=fp32,mask=causal",
        "b=1,hq=2,sq=33,skv=50,d=64,dtype=fp32",
        "b=2,hq=4,hkv=1,sq=70,d=32,dtype=bf16,mask=causal",
        "b=1,hq=2,sq=100,d=64,dtype=fp16",
    ]

    def attend(self, case, q, k, v):
        return torch.nn.functional.scaled_dot_product_attention(
            q.double(), k.double(), v.double(), is_causal=case.causal, enable_gqa=True
        )

    def test_accepts_the_exact_result_and_what_rounds_it(self):
        for line in self.LINES:
            case, [(q, k, v)] = inputs_of(line)
            judge = oracle.Oracle(q, k, v, case.causal, rows=20)
            exact = self.attend(case, q, k, v)
            self.assertLess(judge.judge(exact).error, 1e-12, line)
            verdict = judge.judge(exact.to(q.dtype))
            self.assertLessEqual(verdict.part, 0.5, line)

    def test_rejects_what_is_wrong(self):
        for line in self.LINES:
            case, [(q, k, v)] = inputs_of(line)
            judge = oracle.Oracle(q, k, v, case.causal, rows=20)
            exact = self.attend(case, q, k, v)
            without_last = self.attend(case, q, k[:, :, :-1], v[:, :, :-1])
            self.assertGreater(judge.judge(exact * 1.05).part, 1, line)
            self.assertGreater(judge.judge(without_last).part, 1, line)
            broken = exact.clone()
            broken[0, 1, -1, 3] = float("nan")
            self.assertEqual(judge.judge(broken).part, float("inf"), line)
            far = exact.clone()
            far[0, 0, 0, 0] += 10
            verdict = judge.judge(far)
            self.assertGreater(verdict.part, 1, line)
            self.assertAlmostEqual(verdict.error, 10, 6)
            self.assertAlmostEqual(verdict.error / verdict.bound, verdict.part, 6)

    def test_chunks_make_no_difference(self):
        case, [(q, k, v)] = inputs_of(self.LINES[0])
        whole = oracle.Oracle(q, k, v, True, rows=9)
        bytes_then = oracle._CHUNK_BYTES
        try:
            oracle._CHUNK_BYTES = 1
            parts = oracle.Oracle(q, k, v, True, rows=9)
        finally:
            oracle._CHUNK_BYTES = bytes_then
        self.assertTrue(torch.allclose(whole.exact, parts.exact, 1e-12, 1e-12))
        # The fp32 part of the bound sums in another order.
        self.assertTrue(torch.allclose(whole.bound, parts.bound, 0.3, 0))


@needs_torch
class ContendersTest(unittest.TestCase):
    def test_kernel_specs(self):
        specs = contenders.parse_kernels("baseline,cpu:threads=4:tile_kv=96,")
        self.assertEqual([spec.label for spec in specs],
                         ["baseline", "cpu:threads=4:tile_kv=96", "attnlab"])  # fmt: skip
        self.assertEqual(specs[1], ("cpu", "threads=4,tile_kv=96"))
        for bad in ("cpu:threads", "cpu,cpu"):
            with self.assertRaises(ValueError):
                contenders.parse_kernels(bad)

    def test_inputs(self):
        for layout in ("bshd", "bhsd"):
            case, sets = inputs_of("b=2,hq=4,hkv=2,sq=8,skv=6,d=16,dtype=fp16", layout=layout, sets=2)
            self.assertEqual([x.shape for x in sets[0]],
                             [(2, 4, 8, 16), (2, 2, 6, 16), (2, 2, 6, 16)])  # fmt: skip
            self.assertEqual(sets[0][0].transpose(1, 2).is_contiguous(), layout == "bshd")
            self.assertFalse(torch.equal(sets[0][0], sets[1][0]))
            again = contenders.make_inputs(case, "cpu", layout, 2, 1)
            self.assertTrue(torch.equal(sets[1][2], again[1][2]))

    def test_both_do_the_same(self):
        for layout in ("bshd", "bhsd"):
            case, sets = inputs_of("b=2,hq=4,hkv=2,sq=40,d=32,dtype=fp32,mask=causal",
                                   layout=layout, sets=3)  # fmt: skip
            ours = contenders.AttnlabKernel(contenders.KernelSpec("cpu", ""), 2)
            theirs = contenders.TorchBackend("math")
            for name, contender in (("ours", ours), ("theirs", theirs)):
                calls = contender.prepare(case, sets)
                self.assertEqual(len(calls), 3)
                for call, (q, k, v) in zip(calls, sets):
                    with contender.context():
                        out = call()
                    self.assertLessEqual(oracle.Oracle(q, k, v, True, 9).judge(out).part, 1, name)

    def test_pages_fp8_and_causal_chunks(self):
        for more in (",page=16", ",dtype=bf16,kvdtype=fp8_e4m3", ",dtype=fp16,kvdtype=fp8_e4m3,page=8",
                     ",dtype=fp8_e4m3,scaleblock=128"):  # fmt: skip
            line = f"b=2,hq=4,hkv=2,sq=5,skv=48,d=32,mask=causal{more}"
            case, sets = inputs_of(line, layout="bshd", sets=2)
            self.assertEqual(case, main.cases_of([case.line()])[0])
            ours = contenders.AttnlabKernel(contenders.KernelSpec("cpu", ""), 2)
            for call, (q, k, v) in zip(ours.prepare(case, sets), sets):
                judge = oracle.Oracle(*contenders.values_of(case, q, k, v), True, 9, q.dtype)
                self.assertLessEqual(judge.judge(call()).part, 1, line)
                self.assertGreater(judge.judge(torch.zeros_like(q)).part, 1, line)
            with self.assertRaises(contenders.Unable):
                contenders.TorchBackend("math").prepare(case, sets)

    def test_reasons(self):
        case, sets = inputs_of("hq=2,sq=8,d=16,dtype=fp32")
        with self.assertRaisesRegex(contenders.Unable, 'kernel: "none" is not linked'):
            contenders.AttnlabKernel(contenders.KernelSpec("none", ""), 1).prepare(case, sets)
        with self.assertRaisesRegex(contenders.Unable, "(?i)no (viable|available)"):
            contenders.TorchBackend("cudnn").prepare(case, sets)


@needs_torch
class LibraryTest(unittest.TestCase):
    """Each library is replaced by a module with the same functions, which knows PyTorch's answer."""

    LINE = "b=2,hq=4,hkv=2,sq=40,d=32,dtype=fp32,mask=causal"

    @staticmethod
    def attend(q, k, v, causal):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        group = q.shape[1] // k.shape[1]
        k, v = (x.repeat_interleave(group, 1) for x in (k, v))
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)

    def check(self, name, modules, line=LINE, layouts=("bshd", "bhsd")):
        for layout in layouts:
            case, sets = inputs_of(line, layout=layout, sets=2)
            with unittest.mock.patch.dict("sys.modules", modules):
                calls = contenders.backend(name).prepare(case, sets)
                for call, (q, k, v) in zip(calls, sets):
                    judge = oracle.Oracle(q, k, v, case.causal, 9)
                    self.assertLessEqual(judge.judge(call()).part, 1, name)

    def test_fa3(self):
        for with_lse in (False, True):
            def flash_attn_func(q, k, v, causal):
                out = self.attend(q, k, v, causal)
                return (out, None) if with_lse else out  # noqa: B023

            self.check("fa3", {"fa3_fwd_interface": unittest.mock.Mock(flash_attn_func=flash_attn_func)})

    def test_flashinfer(self):
        class Prefill:
            def __init__(self, memory, layout):
                assert layout == "NHD"

            def plan(self, q_begins, kv_begins, hq, hkv, d, causal, q_data_type, kv_data_type):
                self.batch, self.causal = len(q_begins) - 1, causal
                assert q_begins[-1] == kv_begins[-1] == 80 and (hq, hkv, d) == (4, 2, 32)

            def run(self, q, k, v):
                split = (x.view(self.batch, -1, *x.shape[1:]) for x in (q, k, v))
                return LibraryTest.attend(*split, self.causal).flatten(0, 1)

        module = unittest.mock.Mock(BatchPrefillWithRaggedKVCacheWrapper=Prefill)
        with unittest.mock.patch.dict(os.environ):
            self.check("flashinfer", {"flashinfer": module})

    def test_flashinfer_decode(self):
        class Decode:
            def __init__(self, memory, layout, use_tensor_cores):
                assert layout == "NHD" and use_tensor_cores

            def plan(self, begins, pages, last, hq, hkv, d, page, q_data_type, kv_data_type):
                assert begins.tolist() == [0, 3, 6] and pages.tolist() == [0, 1, 2, 3, 4, 5]
                assert last.tolist() == [16, 16] and (hq, hkv, d, page) == (4, 2, 32, 16)

            def run(self, q, kv):
                k, v = (x.reshape(2, 48, *x.shape[2:]) for x in kv)
                return LibraryTest.attend(q.unsqueeze(1), k, v, False).squeeze(1)

        modules = {"flashinfer": unittest.mock.Mock(BatchDecodeWithPagedKVCacheWrapper=Decode)}
        line = "b=2,hq=4,hkv=2,sq=1,skv=48,d=32,dtype=fp32"
        with unittest.mock.patch.dict(os.environ):
            self.check("flashinfer-page16", modules, line, ["bshd"])
            for other in (line.replace("sq=1", "sq=2"), line.replace("skv=48", "skv=49")):
                case, sets = inputs_of(other)
                with unittest.mock.patch.dict("sys.modules", modules):
                    with self.assertRaisesRegex(contenders.Unable, "whole pages of 16 tokens"):
                        contenders.backend("flashinfer-page16").prepare(case, sets)

    def test_plain_read(self):
        case, sets = inputs_of(self.LINE, sets=2)
        calls = contenders.PlainRead().prepare(sets)
        self.assertEqual([int(call()) for call in calls], [2 * sets[0][1].numel() // 2] * 2)

    def test_what_is_not_installed_says_how(self):
        case, sets = inputs_of(self.LINE)
        with unittest.mock.patch.dict("sys.modules", {"fa3_fwd_interface": None}):
            with self.assertRaisesRegex(contenders.Unable, "pip install fa3-fwd"):
                contenders.backend("fa3").prepare(case, sets)


@needs_torch
class CommandTest(unittest.TestCase):
    def run_command(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main.main("what it does", list(arguments))
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), err.getvalue()

    PROBLEM = "--problem=b=2,hq=2,sq=64,d=32,dtype=fp32,mask=causal"

    def test_compares(self):
        with tempfile.TemporaryDirectory() as name:
            path = os.path.join(name, "x.json")
            status, out, err = self.run_command(
                self.PROBLEM, "--problem=hq=4,hkv=2,sq=20,skv=50,d=16,dtype=bf16",
                "--kernel=cpu,reference", "--backends=auto,math,cudnn", "--rounds=4",
                f"--json={path}",
            )  # fmt: skip
            with open(path, encoding="utf-8") as file:
                made = json.load(file)
        self.assertEqual((status, err), (0, ""))
        self.assertTrue(made["complete"])
        self.assertEqual(len(made["rows"]), 2)
        for row in made["rows"]:
            self.assertIn(f"| {row['problem']} |", out)
            for name in ("cpu", "reference", "auto", "math"):
                self.assertEqual(row["results"][name]["rounds"], 4)
                self.assertTrue(row["results"][name]["agrees"])
            self.assertIn("reason", row["results"]["cudnn"])
            self.assertGreaterEqual(row["input_sets"], 2)
            ratio = row["results"]["math"]["ms"] / row["results"]["cpu"]["ms"]
            self.assertAlmostEqual(row["ratios"]["cpu"]["math"], ratio)
        self.assertIn("- cudnn: 2 case(s)", out)
        self.assertEqual(made["machine"]["torch"], torch.__version__)
        self.assertEqual(
            {(one["kernel"], one["against"]) for one in made["summary"]},
            {(k, b) for k in ("cpu", "reference") for b in ("auto", "math", "best")},
        )

    def test_a_wrong_output_is_an_error(self):
        class Wrong(contenders.AttnlabKernel):
            def prepare(self, case, inputs):
                return [lambda call=call: call() + 0.1 for call in super().prepare(case, inputs)]

        real = contenders.AttnlabKernel
        contenders.AttnlabKernel = Wrong
        try:
            status, out, _ = self.run_command(self.PROBLEM, "--rounds=2")
        finally:
            contenders.AttnlabKernel = real
        self.assertEqual(status, 1)
        self.assertIn("WRONG: cpu: b=2,hq=2", out)

    def test_at_least(self):
        self.assertEqual(self.run_command(self.PROBLEM, "--rounds=2", "--at_least=0.0001")[0], 0)
        status, out, _ = self.run_command(self.PROBLEM, "--rounds=2", "--at_least=1e9")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: cpu does not reach", out)

    def test_a_kernel_that_does_nothing_is_an_error(self):
        status, out, _ = self.run_command(self.PROBLEM, "--rounds=2", "--kernel=cpu,cpu:x=1")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: cpu:x=1 ran none of the cases", out)

    def test_bad_arguments(self):
        for arguments, text in (
            (["--rounds=0"], "must be at least 1"),
            (["--suite=none"], "invalid choice: 'none'"),
            (["--device=gpu"], "'gpu' is not cpu or cuda:N"),
            (["--device=cuda:77"], "PyTorch sees"),
            (["--backends=x"], "--backends: must name each of"),
            (["--backends=math,math"], "at most once"),
            (["--kernel=cpu:x"], "is not NAME or NAME:KEY=VALUE"),
            (["--problem=hq=0,sq=1,d=1"], "hq: 0"),
            (["--problem=hq=1,sq=4,d=8,mask=window:1:1"], ": mask: (1, 1) is not compared"),
            (["--problem=hq=1,sq=4,d=8,dtype=fp8_e4m3"], ": dtype: fp8_e4m3 is not compared"),
            (["--problem=hq=1,sq=4,d=8,dv=4"], ": dv: 4 is not compared"),
            (["--problem=hq=1,sq=4,d=8,softcap=2"], ": softcap: 2.0 is not compared"),
            (["--problem=hq=1,sq=4,d=8,scale=2"], ": scale: 2.0 is not compared"),
            (["--problem=hq=1,sq=4,d=8,lens=packed"], ": lens: packed is not compared"),
            (["--problem=hq=1,sq=0,skv=4,d=8"], ": sq: 0 is not compared"),
            (["--problem=gpt2"], "only the attnlab command takes presets"),
            (["--problem=gpt2,b=2"], "only the attnlab command takes presets"),
            (["--kernel=no-such"], "--kernel: 'no-such' is not one of "),
            (["--kernel=cpu,no-such:x=1"], "--kernel: 'no-such' is not one of"),
            (["--at_least=nan"], "--at_least: nan is not a ratio"),
            (["--at_least=0"], "--at_least: 0.0 is not a ratio"),
            (["--budget_s=-1"], "--budget_s: -1.0 is not a number of seconds"),
            (["--budget_s=nan"], "--budget_s: nan is not a number of seconds"),
            (["--suite=cpu", self.PROBLEM], "--suite and --problem exclude each other"),
            (["--problem=hq=1,sq=4,skv=50,d=8,page=16"], "skv=50,d=8,dtype=bf16,mask=none,page=16: must be"),
            (["--problem=hq=1,sq=4,skv=48,d=8", "--page=0,32"], "page=32: must be whole pages"),
            (["--problem=hq=1,sq=4,skv=48,d=8,page=16", "--layout=bhsd"], "in layout bshd"),
            (["--page=x"], "--page: 'x' is not"),
        ):
            status, out, err = self.run_command(*arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(text, err)

    def test_a_kernel_of_another_device_is_known_at_once(self):
        other = [attnlab.Kernel("far", "", "cuda", (75,), (), 1)]
        with unittest.mock.patch.object(attnlab, "kernels", lambda: other):
            status, out, err = self.run_command(self.PROBLEM, "--kernel=far")
        self.assertEqual((status, out), (2, ""))
        self.assertIn("--kernel: far: runs on cuda, not on cpu", err)

    def test_input_sets_exceed_the_cache(self):
        case = Case(1, 8, 8, 1024, 1024, 64, "bf16", False)
        self.assertEqual(main.sets_for(case, 8 * case.bytes() // 4), 4)
        self.assertEqual(main.sets_for(case, 0), 2)
        self.assertEqual(main.sets_for(case, 1 << 40), 8)


@needs_cuda
class CudaTest(unittest.TestCase):
    def test_on_a_gpu(self):
        kernels = [kernel.name for kernel in attnlab.kernels() if kernel.device == "cuda"]
        for timing in ("device", "latency", "throughput"):
            with tempfile.TemporaryDirectory() as name:
                path = os.path.join(name, "x.json")
                with contextlib.redirect_stdout(io.StringIO()) as out:
                    status = main.main("", [
                        "--device=cuda", "--problem=b=2,hq=4,sq=512,d=64,dtype=bf16,mask=causal",
                        f"--kernel={','.join(kernels)}", "--rounds=5", f"--json={path}",
                        f"--timing={timing}",
                    ])  # fmt: skip
                with open(path, encoding="utf-8") as file:
                    made = json.load(file)
            self.assertEqual(status, 0, out.getvalue())
            results = made["rows"][0]["results"]
            for one in kernels + ["cudnn", "flash", "efficient", "math"]:
                self.assertIn("ms", results[one], results[one])
                self.assertTrue(0 < results[one]["ms"] < 100)
                self.assertTrue(results[one]["agrees"])
            self.assertIn("gpu", made["machine"])


if __name__ == "__main__":
    support.main()
