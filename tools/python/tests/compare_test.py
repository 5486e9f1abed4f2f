"""The parts of compare that need no PyTorch: suites, turns, statistics, table, JSON."""

import contextlib
import json
import os
import pathlib
import tempfile
import time
import types
import unittest
from unittest import mock

import support

from compare import clock, machine, report
from compare.suites import SUITES, Case


class SuitesTest(unittest.TestCase):
    def test_fa3_paper_is_the_grid_of_the_paper(self):
        cases = SUITES["fa3-paper"].cases
        self.assertEqual(len(set(cases)), 36)
        for case in cases:
            self.assertEqual(case.b * case.sq, 16384)
            self.assertEqual(case.hq * case.d, 2048)
            self.assertEqual((case.hq, case.sq, case.dtype), (case.hkv, case.skv, "bf16"))
        self.assertEqual({case.d for case in cases}, {64, 128, 256})
        self.assertEqual({case.sq for case in cases}, {512 << i for i in range(6)})
        self.assertEqual(sum(case.causal for case in cases), 18)

    def test_the_others(self):
        self.assertEqual(len(SUITES["cpu"].cases), 16)
        self.assertEqual([case.b for case in SUITES["gpt2"].cases], [8, 64])
        self.assertEqual(len(set(SUITES["fp32"].cases)), 12)
        for name in ("cpu", "gpt2", "fp32"):
            self.assertEqual({case.dtype for case in SUITES[name].cases}, {"fp32"})
        self.assertEqual([case._replace(dtype="bf16") for case in SUITES["fp8"].cases],
                         SUITES["fa3-paper"].cases)  # fmt: skip
        for name in ("decode", "decode-shapes"):
            self.assertEqual({case.sq for case in SUITES[name].cases}, {1})
        self.assertEqual(len(set(SUITES["decode"].cases)), 12)
        self.assertEqual(len(set(SUITES["decode-shapes"].cases)), 16)
        for suite in SUITES.values():
            self.assertIn(suite.device, ("cpu", "cuda"))
            self.assertIn(suite.layout, ("bshd", "bhsd"))

    def test_lines_are_attnlabs(self):
        import attnlab

        for suite in SUITES.values():
            for case in suite.cases:
                self.assertEqual(str(attnlab.Problem.parse(case.line())), case.line())

    def test_flops_and_bytes(self):
        case = Case(2, 4, 2, 10, 20, 8, "bf16", False)
        self.assertEqual(case.flops(), 4 * 2 * 4 * 10 * 20 * 8)
        # The last query sees all 20 keys, the first 11.
        self.assertEqual(case._replace(causal=True).flops(), 4 * 2 * 4 * 10 * 15 * 8)
        square = case._replace(skv=10)
        self.assertEqual(square._replace(causal=True).flops(), square.flops() / 2)
        self.assertEqual(case.bytes(), 2 * 2 * 8 * (4 * 10 * 2 + 2 * 20 * 2))
        fp8 = case._replace(kv_dtype="fp8_e4m3")
        self.assertEqual(fp8.bytes(), 2 * 2 * 8 * (4 * 10 * 2 + 2 * 20))
        self.assertEqual(case._replace(dtype="fp32").bytes(), 2 * case.bytes())


class Contender:
    def __init__(self, name):
        self.name = name
        self.inside = False

    @contextlib.contextmanager
    def context(self):
        self.inside = True
        yield
        self.inside = False


class FakeClock:
    """Takes 1 s for the first contender and 2 s for the second."""

    def __init__(self, contenders, slow=0.0):
        self.contenders = {contender.name: contender for contender in contenders}
        self.log, self.slow, self.waits = [], slow, 0

    def warm_up(self, name, calls):
        self.log.append(("warm", name))

    def time(self, name, calls, turn):
        assert self.contenders[name].inside
        self.log.append((turn, name))
        calls[turn % len(calls)]()
        time.sleep(self.slow)
        return lambda: float(list(self.contenders).index(name) + 1)

    def wait(self):
        self.waits += 1


class TurnsTest(unittest.TestCase):
    def setUp(self):
        self.contenders = [Contender("a"), Contender("b"), Contender("c")]
        self.calls = {name: [lambda: None] for name in "ab"}  # c cannot do the case

    def test_every_one_once_a_round_in_changing_order(self):
        fake = FakeClock(self.contenders)
        samples, failed = clock.rounds_of(fake, self.contenders, self.calls, 20, seed=1)
        self.assertEqual(samples, {"a": [1.0] * 20, "b": [2.0] * 20})
        self.assertEqual((failed, fake.waits), ({}, 20))
        self.assertEqual(fake.log[:2], [("warm", "a"), ("warm", "b")])
        orders = set()
        for turn in range(20):
            order = tuple(name for of, name in fake.log if of == turn)
            self.assertEqual(sorted(order), ["a", "b"])
            orders.add(order)
        self.assertEqual(len(orders), 2)

    def test_input_sets_take_turns(self):
        used = []
        self.calls = {"a": [lambda i=i: used.append(i) for i in range(3)]}
        clock.rounds_of(FakeClock(self.contenders), self.contenders, self.calls, 5, seed=1)
        self.assertEqual(used, [0, 1, 2, 0, 1])

    def test_ends_at_the_deadline_but_not_before_three(self):
        for deadline, rounds in ((time.monotonic() - 1, 3), (time.monotonic() + 60, 8)):
            samples, _ = clock.rounds_of(
                FakeClock(self.contenders), self.contenders, self.calls, 8, 1, deadline
            )
            self.assertEqual(len(samples["a"]), rounds)

    def test_at_the_deadline_all_sets_have_had_as_many_rounds(self):
        for sets, rounds in ((2, 4), (3, 3), (5, 5)):
            self.calls = {"a": [lambda: None] * sets}
            samples, _ = clock.rounds_of(
                FakeClock(self.contenders), self.contenders, self.calls, 8, 1, time.monotonic() - 1
            )
            self.assertEqual(len(samples["a"]), rounds)

    def test_one_that_fails_is_left_out(self):
        turns = []

        def fails_later():
            turns.append(0)
            if len(turns) == 3:
                raise RuntimeError("out of memory\nat length")

        self.calls["b"] = [fails_later]
        samples, failed = clock.rounds_of(
            FakeClock(self.contenders), self.contenders, self.calls, 6, seed=1
        )
        self.assertEqual(samples, {"a": [1.0] * 6})
        self.assertEqual(failed, {"b": "out of memory"})
        self.assertEqual(len(turns), 3)


class FakeCuda:
    """A GPU whose operations each take a millisecond, seen through PyTorch's events."""

    def __init__(self):
        self.now, self.log = 0.0, []
        self.idle = []  # whether the GPU has reached an event, as the next calls are told
        gpu = self

        class Tensor:
            def zero_(self):
                gpu.work("fill")

            def view(self, dtype):
                return self

            def sum(self):
                gpu.work("read")

            def __matmul__(self, other):
                gpu.work("spin")

        class Event:
            def __init__(self, enable_timing):
                assert enable_timing

            def record(self):
                gpu.log.append("event")
                self.at = gpu.now

            def synchronize(self):
                pass

            def elapsed_time(self, other):
                return other.at - self.at

            def query(self):
                return bool(gpu.idle) and gpu.idle.pop(0)

        cuda = types.SimpleNamespace(
            Event=Event, mem_get_info=lambda device: (1 << 30, 1 << 31),
            synchronize=lambda device: gpu.log.append("wait"),
        )  # fmt: skip
        self.torch = types.SimpleNamespace(
            cuda=cuda, device=str, uint8=None, float32=None, randn=lambda *shape, device: Tensor(),
            empty=lambda *shape, dtype, device: Tensor(),
        )  # fmt: skip

    def work(self, what):
        self.now += 1.0
        self.log.append(what)


class CudaClockTest(unittest.TestCase):
    def time(self, timing, idle=()):
        gpu = FakeCuda()
        gpu.idle = list(idle)
        with mock.patch.dict("sys.modules", {"torch": gpu.torch}):
            with mock.patch.object(clock.time, "perf_counter", side_effect=range(100)):
                timed = clock.CudaClock("cuda:0", timing, calls_in_a_row=4)
        calls = [lambda: gpu.work("call 0"), lambda: gpu.work("call 1")]
        timed.warm_up("a", calls)
        gpu.log.clear()
        seconds = timed.time("a", calls, turn=1)
        timed.wait()
        return gpu.log, seconds()

    def test_device(self):
        log, seconds = self.time("device")
        self.assertEqual(log[0], "fill")  # the host runs ahead of the GPU
        # L2 has nothing to write back.
        self.assertEqual([x for x in log if x != "fill"], ["read", "event", "call 1", "event", "wait"])
        self.assertAlmostEqual(seconds, 1e-3)

    def test_a_call_that_outlasts_the_filler_is_timed_again(self):
        once = self.time("device")[0].count("fill")
        log, seconds = self.time("device", idle=[True, True])
        self.assertEqual(
            [x for x in log if x not in ("fill", "read")], ["event", "call 1", "event"] * 3 + ["wait"]
        )
        self.assertEqual(log.count("fill"), (1 + 2 + 4) * once)
        self.assertAlmostEqual(seconds, 1e-3)
        log, _ = self.time("device", idle=[True] * 100)  # a host that never comes in time
        self.assertLess(log.count("event"), 30)

    def test_latency(self):
        log, seconds = self.time("latency")
        self.assertEqual(log, ["wait", "event", "call 1", "event", "wait"])
        self.assertAlmostEqual(seconds, 1e-3)

    def test_throughput(self):
        log, seconds = self.time("throughput")
        calls = [x for x in log if x.startswith("call")]
        self.assertEqual(calls, ["call 0", "call 1", "call 0", "call 1"])
        self.assertAlmostEqual(seconds, 1e-3)


def row(problem, **ms):
    """Milliseconds of each contender by name; None: it could not do the case."""
    results = {
        name: {"reason": f"{name} cannot"} if x is None else report.result(1e9, [x / 1e3])
        for name, x in ms.items()
    }
    made = {"problem": problem, "flops": 1e9, "results": results}
    made["ratios"] = report.ratios(made, ["ours"], ["fast", "slow"])
    return made


class StatisticsTest(unittest.TestCase):
    def test_result(self):
        got = report.result(2e12, [0.001, 0.002, 0.003, 0.004, 0.010])
        self.assertEqual((got["ms"], got["rounds"]), (3.0, 5))
        self.assertAlmostEqual(got["tflops"], 2 / 0.003)
        self.assertAlmostEqual(got["p10_ms"], 1.4)
        self.assertAlmostEqual(got["p90_ms"], 7.6)
        self.assertEqual(report.result(2e12, [5.0])["p90_ms"], 5000)

    def test_geometric_mean(self):
        self.assertAlmostEqual(report.geometric_mean([0.5, 2.0, 8.0]), 2.0)

    def test_ratios(self):
        self.assertEqual(
            row("p", ours=2.0, fast=1.0, slow=8.0)["ratios"],
            {"ours": {"fast": 0.5, "slow": 4.0, "best": 0.5}},
        )
        self.assertEqual(row("p", ours=2.0, fast=None, slow=8.0)["ratios"]["ours"]["best"], 4.0)
        self.assertEqual(row("p", ours=2.0, fast=None, slow=None)["ratios"], {"ours": {}})
        self.assertEqual(row("p", ours=None, fast=1.0, slow=8.0)["ratios"], {})

    def test_summary(self):
        rows = [row("p", ours=2.0, fast=1.0, slow=8.0), row("q", ours=1.0, fast=2.0, slow=None)]
        found = {one["against"]: one for one in report.summary(rows, ["ours"], ["fast", "slow"])}
        self.assertAlmostEqual(found["fast"]["geometric_mean"], 1.0)
        self.assertEqual((found["fast"]["worst"], found["fast"]["worst_problem"]), (0.5, "p"))
        self.assertEqual((found["fast"]["below_1"], found["fast"]["cases"]), (1, 2))
        self.assertEqual((found["slow"]["below_1"], found["slow"]["cases"]), (0, 1))
        self.assertAlmostEqual(found["best"]["geometric_mean"], 1.0)

    def test_reached(self):
        rows = [row("p", ours=2.0, fast=1.0, slow=8.0), row("q", ours=1.0, fast=2.0, slow=None)]
        found = report.summary(rows, ["ours"], ["fast", "slow"])
        self.assertTrue(report.reached(found, "ours", 2, None))
        self.assertTrue(report.reached(found, "ours", 2, 0.999))
        self.assertFalse(report.reached(found, "ours", 2, 1.001))
        self.assertFalse(report.reached(found, "ours", 3, 0.5))  # one case was not done
        self.assertFalse(report.reached([], "ours", 2, 0.5))


class TableTest(unittest.TestCase):
    def test_lines(self):
        head = report.header(["ours"], ["fast", "slow"])
        columns = head.split("\n")[0].count("|")
        self.assertEqual(head.split("\n")[1].count("|"), columns)
        line = report.line(row("p", ours=2.0, fast=1.0, slow=8.0), ["ours"], ["fast", "slow"])
        self.assertEqual(
            line, "| p | 2.000 (0.5) | 1.000 (1) 0.50 | 8.000 (0.125) 4.00 | 0.50 (fast) |"
        )
        line = report.line(row("p", ours=2.0, fast=None, slow=8.0), ["ours"], ["fast", "slow"])
        self.assertEqual(line, "| p | 2.000 (0.5) | - | 8.000 (0.125) 4.00 | 4.00 (slow) |")
        line = report.line(row("p", ours=None, fast=1.0, slow=8.0), ["ours"], ["fast", "slow"])
        self.assertEqual(line, "| p | - | 1.000 (1) - | 8.000 (0.125) - | - (fast) |")
        self.assertEqual(line.count("|"), columns)

    def test_plain_read(self):
        one = row("p", ours=2.0, fast=1.0, slow=8.0)
        self.assertEqual(report.of_read(one, ["ours"]), {})
        one["results"]["read"] = {"ms": 0.5}
        one["of_read"] = report.of_read(one, ["ours", "none"])
        self.assertEqual(one["of_read"], {"ours": 0.25})
        line = report.line(one, ["ours"], ["fast", "slow"])
        self.assertTrue(line.endswith("| 0.50 (fast) | 0.5000 0.25 |"), line)
        head = report.header(["ours"], ["fast", "slow"], read=True)
        self.assertEqual(head.split("\n")[0].count("|"), line.count("|"))

    def test_reasons(self):
        rows = [row(p, ours=2.0, fast=None, slow=8.0) for p in ("p", "q")]
        self.assertEqual(report.reasons(rows), ["fast: 2 case(s), the first p: fast cannot"])

    def test_summary(self):
        found = report.summary([row("p", ours=2.0, fast=1.0, slow=8.0)], ["ours"], ["fast"])
        lines = report.summary_table(found).split("\n")
        self.assertEqual(lines[2], "| ours | fast | 1 | 0.500 | 0.500 | 1 | p |")


class JsonTest(unittest.TestCase):
    def test_whole_or_not_at_all(self):
        with tempfile.TemporaryDirectory() as name:
            path = pathlib.Path(name) / "ratios.json"
            report.write_json(str(path), {"a": 1})
            self.assertEqual(json.loads(path.read_text()), {"a": 1})
            with self.assertRaises(ValueError):  # JSON has no NaN
                report.write_json(str(path), {"a": float("nan")})
            with self.assertRaises(TypeError):
                report.write_json(str(path), {"a": 1, "b": object()})
            self.assertEqual(json.loads(path.read_text()), {"a": 1})
            self.assertEqual(os.listdir(name), ["ratios.json"])
            with self.assertRaises(OSError):
                report.write_json(str(pathlib.Path(name) / "none" / "x.json"), {})


class MachineTest(unittest.TestCase):
    def test_samples(self):
        text = "1980, 3201, 650.12, 61\n1500, 3201, [N/A], 60\n1410, 32"
        samples = machine.parse_samples(text)
        self.assertEqual(len(samples), 2)
        self.assertEqual(
            machine.summarize(samples),
            {
                "samples": 2,
                "sm_mhz": [1500, 1740, 1980],
                "memory_mhz": [3201, 3201, 3201],
                "power_w": [650.12, 650.12, 650.12],
                "temperature_c": [60, 60.5, 61],
            },
        )
        self.assertEqual(machine.summarize([]), {"samples": 0})

    def test_monitor_samples_and_ends_its_process(self):
        with tempfile.TemporaryDirectory() as name:
            program = pathlib.Path(name) / "nvidia-smi"
            program.write_text(
                "#!/bin/sh\necho 1980, 3201, 650.5, 61\n"
                'case "$*" in *--loop-ms*) echo 1900, 3201, 600.5, 60; exec sleep 60 ;; esac\n'
            )
            program.chmod(0o755)
            command = lambda device, fields: [str(program), fields]  # noqa: E731
            with mock.patch.object(machine, "_command", command):
                with machine.Monitor("cuda:0") as monitor:
                    time.sleep(0.5)
                    process = monitor._process
        self.assertIsNotNone(process.returncode)
        self.assertEqual(monitor.result["before"]["sm_mhz"], 1980)
        self.assertEqual(monitor.result["during"]["samples"], 2)
        self.assertEqual(monitor.result["during"]["sm_mhz"], [1900, 1940, 1980])
        self.assertEqual(monitor.result["after"]["temperature_c"], 61)

    def test_monitor_of_the_cpu(self):
        with machine.Monitor("cpu") as monitor:
            pass
        self.assertEqual(monitor.result, {"missing": "no GPU"})

    def test_commit(self):
        with mock.patch.dict(os.environ, {"ATTNLAB_COMMIT": "abc"}):
            self.assertEqual(machine.commit(pathlib.Path("/")), "abc")
        with mock.patch.dict(os.environ, {"ATTNLAB_COMMIT": ""}):
            self.assertEqual(machine.commit(pathlib.Path("/")), "")


if __name__ == "__main__":
    support.main()
