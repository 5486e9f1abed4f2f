"""Statistics, the table and the JSON. Needs no library.

A row is a dict: "problem", "flops", and "results" with an entry for each contender. An entry has
either "ms", "tflops", "error" and so on, or "reason".
"""

import json
import math
import statistics
from typing import Dict, List, Optional

import whole_file

BEST = "best"  # stands for a back end: the fastest that did the case


def result(flops: float, seconds: List[float]) -> Dict:
    median = statistics.median(seconds)
    deciles = statistics.quantiles(seconds, n=10, method="inclusive") if len(seconds) > 1 else seconds
    return {
        "ms": median * 1e3,
        "p10_ms": deciles[0] * 1e3,
        "p90_ms": deciles[-1] * 1e3,
        "rounds": len(seconds),
        "tflops": flops / median * 1e-12,
    }


def geometric_mean(values: List[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def ratios(row: Dict, kernels: List[str], backends: List[str]) -> Dict[str, Dict[str, float]]:
    """kernel -> back end -> time of the back end / time of the kernel; above 1 the kernel is
    faster."""
    found: Dict[str, Dict[str, float]] = {}
    for kernel in kernels:
        ours = row["results"].get(kernel, {}).get("ms")
        if ours is None:
            continue
        theirs = {b: row["results"].get(b, {}).get("ms") for b in backends}
        of = {b: ms / ours for b, ms in theirs.items() if ms is not None}
        if of:
            of[BEST] = min(of.values())
        found[kernel] = of
    return found


def of_read(row: Dict, kernels: List[str]) -> Dict[str, float]:
    """kernel -> time of a plain read of K and V / time of the kernel."""
    read = row["results"].get("read", {}).get("ms")
    ours = {kernel: row["results"].get(kernel, {}).get("ms") for kernel in kernels}
    return {kernel: read / ms for kernel, ms in ours.items() if read is not None and ms is not None}


def summary(rows: List[Dict], kernels: List[str], backends: List[str]) -> List[Dict]:
    """For each kernel and back end with common cases: mean, worst, how often below 1."""
    found = []
    for kernel in kernels:
        for backend in backends + [BEST]:
            values = {
                row["problem"]: row["ratios"][kernel][backend]
                for row in rows
                if backend in row["ratios"].get(kernel, {})
            }
            if values:
                worst = min(values, key=values.__getitem__)
                found.append(
                    {
                        "kernel": kernel,
                        "against": backend,
                        "cases": len(values),
                        "geometric_mean": geometric_mean(list(values.values())),
                        "worst": values[worst],
                        "worst_problem": worst,
                        "below_1": sum(ratio < 1 for ratio in values.values()),
                    }
                )
    return found


def _ms(value: float) -> str:
    return f"{value:.3f}" if value >= 1 else f"{value:.4f}"


def header(kernels: List[str], backends: List[str], read: bool = False) -> str:
    titles = ["problem"] + [f"{k} ms (TFLOP/s)" for k in kernels]
    titles += [f"{b} ms (TFLOP/s) ratio" for b in backends] + ["ratio to the best"]
    titles += ["read ms, of its rate"] if read else []
    return "| " + " | ".join(titles) + " |\n|" + "---|" * len(titles)


def line(row: Dict, kernels: List[str], backends: List[str]) -> str:
    """The row in the table, with one ratio per kernel, in their order. The last column names the
    fastest back end."""

    def timed(name: str) -> str:
        of = row["results"].get(name, {})
        return f"{_ms(of['ms'])} ({of['tflops']:.3g})" if "ms" in of else "-"

    def ratio(backend: str) -> str:
        of = [row["ratios"].get(kernel, {}).get(backend) for kernel in kernels]
        return " / ".join("-" if r is None else f"{r:.2f}" for r in of)

    cells = [row["problem"]] + [timed(kernel) for kernel in kernels]
    for backend in backends:
        text = timed(backend)
        cells.append(text if text == "-" else f"{text} {ratio(backend)}")
    ran = {b: row["results"].get(b, {}).get("ms", math.inf) for b in backends}
    best = min(ran, key=ran.__getitem__, default=None)
    named = f"{ratio(BEST)} ({best})" if best and ran[best] < math.inf else ratio(BEST)
    cells.append(named)
    if "of_read" in row:
        parts = [row["of_read"].get(kernel) for kernel in kernels]
        read = row["results"].get("read", {}).get("ms")
        text = " / ".join("-" if part is None else f"{part:.2f}" for part in parts)
        cells.append("-" if read is None else f"{_ms(read)} {text}")
    return "| " + " | ".join(cells) + " |"


def summary_table(found: List[Dict]) -> str:
    lines = ["| kernel | against | cases | geometric mean | worst | below 1 | worst case |",
             "|---|---|---|---|---|---|---|"]  # fmt: skip
    for one in found:
        lines.append(
            f"| {one['kernel']} | {one['against']} | {one['cases']} | {one['geometric_mean']:.3f} "
            f"| {one['worst']:.3f} | {one['below_1']} | {one['worst_problem']} |"
        )
    return "\n".join(lines)


def reasons(rows: List[Dict]) -> List[str]:
    """The reasons for "-": each once, with the number of cases and the first case."""
    found: Dict[tuple, List[str]] = {}
    for row in rows:
        for name, of in row["results"].items():
            if "reason" in of:
                found.setdefault((name, of["reason"]), []).append(row["problem"])
    return [
        f"{name}: {len(problems)} case(s), the first {problems[0]}: {reason}"
        for (name, reason), problems in found.items()
    ]


def reached(found: List[Dict], kernel: str, cases: int, at_least: Optional[float]) -> bool:
    """Whether the kernel's geometric mean ratio to the best back end, over all cases, reaches the
    goal."""
    if at_least is None:
        return True
    of = [one for one in found if one["kernel"] == kernel and one["against"] == BEST]
    return bool(of) and of[0]["cases"] == cases and of[0]["geometric_mean"] >= at_least


def write_json(path: str, value: Dict) -> None:
    """Writes the file completely or not at all, even if the process ends meanwhile."""
    with whole_file.replacing(path) as file:
        json.dump(value, file, indent=1, allow_nan=False)
        file.write("\n")
