"""The command tools/compare_torch.py; its help describes it."""

import argparse
import math
import os
import pathlib
import sys
import time
from typing import Dict, List

import torch

import attnlab

from . import clock as clocks
from . import contenders, machine, oracle, report
from .suites import SCALE_BLOCK, SUITES, Case

ROOT = pathlib.Path(__file__).resolve().parents[3]
_SETS_AT_MOST = 8
_BUDGET_S = {"cpu": 0.0, "cuda": 150.0}


def cases_of(problems: List[str]) -> List[Case]:
    """The problems of --problem. Raises ValueError for those that are not compared
    here."""
    cases = []
    for text in problems:
        if "=" not in text.partition(",")[0]:
            raise ValueError(f"--problem: {text}: is not key=value; only the attnlab command takes "
                             "presets (`attnlab list`)")  # fmt: skip
        p = attnlab.Problem.parse(text)
        for key, plain in (
            ("lens", p.lens == "fixed"),
            ("scale", p.scale is None),
            ("softcap", p.softcap == 0),
            ("kv_dtype", p.kv_dtype in (None, "fp8_e4m3")),
            ("v_dtype", p.v_dtype is None),
            ("dtype", p.dtype in ("fp32", "fp16", "bf16") or p.scale_block == SCALE_BLOCK),
            ("dv", p.dv == p.d),
            ("mask", p.mask in ("none", "causal")),
            ("sq", p.sq > 0),
            ("skv", p.skv > 0),
        ):
            if not plain:
                raise ValueError(f"--problem: {text}: {key}: {getattr(p, key)} is not compared")
        cases.append(Case(p.b, p.hq, p.hkv, p.sq, p.skv, p.d, p.dtype, p.mask == "causal",
                          p.kv_dtype or "", p.page))  # fmt: skip
    return cases


def check_kernels(specs: List[contenders.KernelSpec], device: str) -> None:
    """Raises ValueError unless attnlab has the kernels, for that kind of device."""
    kind = device.partition(":")[0]
    known = {kernel.name: kernel for kernel in attnlab.kernels()}
    for spec in specs:
        if spec.name and spec.name not in known:
            raise ValueError(f"--kernel: {spec.name!r} is not one of {', '.join(known)}")
        if spec.name and known[spec.name].device != kind:
            raise ValueError(f"--kernel: {spec.name}: runs on {known[spec.name].device}, not on "
                             f"{device}; set --device")  # fmt: skip


def cache_bytes(device: str) -> int:
    found = attnlab.devices("cuda" if device.startswith("cuda") else "cpu")
    ordinal = torch.device(device).index or 0
    return found[ordinal].last_level_cache_bytes


def sets_for(case: Case, cache: int) -> int:
    """Enough input sets for twice the size of the last-level cache."""
    return max(2, min(_SETS_AT_MOST, math.ceil(2 * cache / max(case.bytes(), 1))))


# Of the last case: with other pages, a case has the same inputs. How fast memory is depends on where it lies, by up
# to 15 % on an H200.
_kept: Dict[Case, List] = {}


def inputs_of(case: Case, sets: int, options):
    unpaged = case._replace(page=0)
    if unpaged not in _kept:
        _kept.clear()
        _kept[unpaged] = contenders.make_inputs(unpaged, options.device, options.layout, sets, options.seed)
    return _kept[unpaged]


def compare(case: Case, entrants, clock, options, seconds) -> Dict:
    """The row of a case: checks every contender, then times it, for about so many seconds if they are
    not None."""
    results: Dict[str, Dict] = {}
    row = {"problem": case.line(), "flops": case.flops(), "results": results}
    sets = sets_for(case, options.cache)
    try:
        inputs = inputs_of(case, sets, options)
        q, k, v = inputs[0]
        judge = oracle.Oracle(
            *contenders.values_of(case, q, k, v), case.causal, options.oracle_rows, q.dtype
        )
    except torch.cuda.OutOfMemoryError as error:
        for entrant in entrants:
            results[entrant.name] = {"reason": f"inputs: out of memory: {error}".split("\n")[0]}
        return row
    row["input_sets"] = sets
    calls: Dict[str, List] = {}
    verdicts: Dict[str, Dict] = {}
    for entrant in entrants:
        try:
            calls[entrant.name] = entrant.prepare(case, inputs)
            with entrant.context():
                verdict = judge.judge(calls[entrant.name][0]())
        except (contenders.Unable, torch.cuda.OutOfMemoryError) as error:
            calls.pop(entrant.name, None)
            results[entrant.name] = {"reason": str(error).split("\n")[0]}
        if entrant.name not in calls:
            if options.device != "cpu":
                torch.cuda.empty_cache()  # free what it allocated before it failed
            continue
        verdicts[entrant.name] = {
            "error": verdict.error if math.isfinite(verdict.error) else None,
            "bound": verdict.bound,
            "part_of_bound": verdict.part if math.isfinite(verdict.part) else None,
            "agrees": verdict.part <= 1,
        }
    del judge
    if options.read:
        read = contenders.PlainRead()
        calls[read.name] = read.prepare(inputs)
        entrants = [*entrants, read]
        verdicts[read.name] = {}
    clock.settle()
    # From here on: the first case's inputs and checks also wait for libraries to load.
    deadline = None if seconds is None else time.monotonic() + seconds
    samples, failed = clocks.rounds_of(
        clock, entrants, calls, options.rounds, options.seed, deadline
    )
    for name, reason in failed.items():
        results[name] = {"reason": f"while it was timed: {reason}"}
    for name, seconds in samples.items():
        results[name] = {**report.result(case.flops(), seconds), **verdicts[name]}
    return row


def run(cases: List[Case], kernels, backends, options) -> Dict:
    """Compares all cases and prints each when it is done. Returns the complete JSON."""
    entrants = kernels + backends
    ours, theirs = [k.name for k in kernels], [b.name for b in backends]
    made = {
        "machine": machine.describe(options.device, options.threads, ROOT, attnlab.library_path()),
        "settings": {
            "suite": options.suite,
            "timing": options.timing,
            "rounds": options.rounds,
            "layout": options.layout,
            "seed": options.seed,
            "flops": "4 b hq sq skv d, less half a square of sq where causal",
            "bound": oracle.RULE,
        },
        "complete": False,
        "rows": [],
    }
    print(", ".join(f"{key} {value}" for key, value in made["machine"].items()))
    print(f"{options.timing}, medians of up to {options.rounds} rounds; TFLOP/s of 4 b hq sq skv d,"
          " less half a square of sq where causal; a ratio above 1 means that attnlab is faster\n")  # fmt: skip
    print(report.header(ours, theirs, options.read), flush=True)
    start = time.monotonic()
    with machine.Monitor(options.device) as monitor:
        if options.device == "cpu":
            clock = clocks.CpuClock()
        else:
            clock = clocks.CudaClock(options.device, options.timing)
        try:
            for i, case in enumerate(cases):
                seconds = None
                if options.budget_s > 0:  # an equal share of the remaining time
                    left = options.budget_s - (time.monotonic() - start)
                    seconds = max(left, 0) / (len(cases) - i)
                row = compare(case, entrants, clock, options, seconds)
                row["ratios"] = report.ratios(row, ours, theirs)
                if options.read:
                    row["of_read"] = report.of_read(row, ours)
                made["rows"].append(row)
                print(report.line(row, ours, theirs), flush=True)
                if options.device != "cpu":
                    torch.cuda.empty_cache()
            made["complete"] = True
        finally:
            made["seconds"] = round(time.monotonic() - start, 1)
            made["summary"] = report.summary(made["rows"], ours, theirs)
            if options.json and not made["complete"]:
                report.write_json(options.json, made)
    made["machine"]["clocks"] = monitor.result
    if options.json:
        report.write_json(options.json, made)
    return made


def disagreements(rows: List[Dict], names: List[str]) -> List[str]:
    return [
        f"{name}: {row['problem']}: error {row['results'][name]['error']} takes "
        f"{row['results'][name]['part_of_bound']} of its bound"
        for row in rows
        for name in names
        if row["results"].get(name, {}).get("agrees") is False
    ]


def parse(description: str, argv: List[str]):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    suites = "; ".join(f"{name}: {len(suite.cases)} cases, {suite.summary}"
                       for name, suite in SUITES.items())  # fmt: skip
    add = parser.add_argument
    add("--suite", choices=sorted(SUITES), help=f"{suites} (default: cpu)")
    add("--problem", action="append", help="a problem instead of a suite, such as"
        " hq=8,sq=512,d=64; repeatable. No presets")  # fmt: skip
    add("--page", help="tokens per page of K and V for all cases: 16, or 0,16,128; 0: not paged")
    add("--kv_dtype", choices=("fp8_e4m3",), help="dtype of K and V for all cases (default: that of Q)")
    add("--library", help="libattnlab.so (default: $ATTNLAB_LIBRARY, or the one in bazel-bin)")
    add("--kernel", help="attnlab's, such as baseline,cpu:threads=4; \"\" is attnlab's choice (default:"
                         " cpu on the CPU, attnlab's choice on a GPU)")  # fmt: skip
    add("--backends", help=f"PyTorch's, of {', '.join(contenders.BACKENDS)}; and"
                           f" {', '.join(contenders.LIBRARIES)}, if installed (default: auto, which"
                           " is PyTorch's choice, on the CPU; all others on a GPU)")  # fmt: skip
    add("--device", help="cpu or cuda:N (default: the suite's)")
    add("--layout", choices=("bshd", "bhsd"), help="order in memory (default: the suite's)")
    add("--timing", choices=clocks.TIMINGS, default="device", help="on a GPU (default: %(default)s)")
    add("--threads", type=int, default=contenders.usable_threads(), help="CPU threads, for both")
    add("--rounds", type=int, default=16, help="timed calls of each (default: %(default)s)")
    add("--budget_s", type=float, help="seconds for all cases; may cut rounds down to 3, or to"
                                       " one per set of inputs (default: 150 on a GPU; 0: no limit)")  # fmt: skip
    add("--oracle_rows", type=int, default=32, help="checked rows per head (default: %(default)s)")
    add("--seed", type=int, default=1)
    add("--json", help="file for the figures")
    add("--read", action="store_true", help="also time a plain read of as many bytes as K and V have,"
                                            " and print which part of its rate kernels reach")
    add("--at_least", type=float, help="geometric mean of ratios to the best back end per case"
                                       " that the first kernel must reach")  # fmt: skip
    options = parser.parse_args(argv)
    if min(options.threads, options.rounds, options.oracle_rows) < 1:
        parser.error("--threads, --rounds and --oracle_rows must be at least 1")
    if options.json and not os.access(os.path.dirname(options.json) or ".", os.W_OK):
        parser.error(f"--json: {options.json}: cannot create a file in its directory")
    if options.suite and options.problem:
        parser.error("--suite and --problem exclude each other")
    if options.budget_s is not None and not 0 <= options.budget_s < math.inf:
        parser.error(f"--budget_s: {options.budget_s} is not a number of seconds")
    if options.at_least is not None and not 0 < options.at_least < math.inf:
        parser.error(f"--at_least: {options.at_least} is not a ratio")
    options.suite = options.suite or "cpu"
    suite = SUITES[options.suite]
    options.device = options.device or suite.device
    if options.device == "cuda":
        options.device = "cuda:0"
    options.layout = options.layout or suite.layout
    kind = options.device.partition(":")[0]
    if kind not in _BUDGET_S:
        parser.error(f"--device: {options.device!r} is not cpu or cuda:N")
    options.budget_s = _BUDGET_S[kind] if options.budget_s is None else options.budget_s
    if kind == "cpu":
        options.timing = "wall clock"
    options.parser = parser
    return options


def main(description: str, argv: List[str]) -> int:
    options = parse(description, argv)
    on_cpu = options.device == "cpu"
    if not on_cpu:
        gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (torch.device(options.device).index or 0) >= gpus:
            options.parser.exit(2, f"compare_torch: --device={options.device}: PyTorch sees {gpus}"
                                   " GPU(s); --device=cpu runs on the CPU\n")  # fmt: skip
        torch.cuda.set_device(options.device)
    try:
        specs = contenders.parse_kernels(
            ("cpu" if on_cpu else "") if options.kernel is None else options.kernel
        )
        cases = cases_of(options.problem) if options.problem else SUITES[options.suite].cases
        if options.kv_dtype:
            cases = [case._replace(kv_dtype=options.kv_dtype) for case in cases]
        if options.page:
            if not all(page.isdecimal() for page in options.page.split(",")):
                raise ValueError(f"--page: {options.page!r} is not integers separated by commas")
            pages = [int(page) for page in options.page.split(",")]
            cases = [case._replace(page=page) for case in cases for page in pages]
        for case in cases:
            if case.page and (case.skv % case.page or options.layout != "bshd"):
                raise ValueError(f"--page: {case.line()}: must be whole pages, in layout bshd")
        backends = options.backends.split(",") if options.backends else (
            contenders.default_backends("cpu" if on_cpu else "cuda"))  # fmt: skip
        known = [*contenders.BACKENDS, *contenders.LIBRARIES]
        if not set(backends) <= set(known) or len(set(backends)) != len(backends):
            raise ValueError(f"--backends: must name each of {', '.join(known)} at most once")
        check_kernels(specs, options.device)
        options.cache = cache_bytes(options.device)
    except (ValueError, attnlab.Error) as error:
        options.parser.exit(2, f"compare_torch: {error}\n")
    if options.problem:
        options.suite = None
    torch.set_num_threads(options.threads)
    torch.set_float32_matmul_precision("highest")
    kernels = [contenders.AttnlabKernel(spec, options.threads) for spec in specs]
    with torch.no_grad():
        made = run(cases, kernels, [contenders.backend(name) for name in backends], options)

    print("\n" + report.summary_table(made["summary"]))
    for text in report.reasons(made["rows"]):
        print(f"- {text}")
    names = [kernel.name for kernel in kernels]
    for text in disagreements(made["rows"], backends):
        print(f"note: {text}")
    wrong = disagreements(made["rows"], names)
    for text in wrong:
        print(f"WRONG: {text}")
    ran = [name for name in names if any("ms" in row["results"][name] for row in made["rows"])]
    for name in set(names) - set(ran):
        print(f"FAILED: {name} ran none of the cases")
    if not report.reached(made["summary"], names[0], len(cases), options.at_least):
        print(f"FAILED: {names[0]} does not reach {options.at_least} in all cases")
        return 1
    return 1 if wrong or len(ran) < len(names) else 0


if __name__ == "__main__":
    sys.exit(main(__doc__, sys.argv[1:]))
