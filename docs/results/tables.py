#!/usr/bin/env python3
"""Writes the tables of docs/ that are made of results.

    docs/results/tables.py            writes them anew, after results were replaced
    docs/results/tables.py --check    changes nothing; says which differ, exits with 1 if any does

A table that is made here has its name in a comment above it, `<!-- table: ladder -->`, and a function of that name
below. Text around tables is written by hand: what it says of their figures has to be looked at when they change.
"""

import argparse
import functools
import json
import os
import pathlib
import re
import sys
import tempfile

RESULTS = pathlib.Path(__file__).absolute().parent
DOCS = RESULTS.parent

MARK = re.compile(r"^<!-- table: (.*) -->$")


class Error(Exception):
    """What is wrong with a page or a file of results, for people."""


@functools.lru_cache(maxsize=None)
def results(name):
    """What the file of results says: results("h200/fp32-peak")."""
    path = RESULTS / (name + ".json")
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"{path}: {error}") from error


def keys_of(problem):
    """{"d": 64, "mask": "causal", …} of a problem in the one-line form."""
    pairs = (item.split("=", 1) for item in problem.split(","))
    return {key: int(value) if value.isdigit() else value for key, value in pairs}


def by_problem(rows, *keys):
    """The rows by the values that those keys of their problems have."""
    found = {}
    for row in rows:
        of_problem = keys_of(row["problem"])
        found.setdefault(tuple(of_problem[key] for key in keys), []).append(row)
    return found


def one(rows):
    (row,) = rows
    return row


def digits(value, count=3):
    """So many significant digits, and those before the point, without an exponent: 0.0611, 14.3, 1074."""
    exponent = int(f"{value:.{count - 1}e}".split("e")[1])
    return f"{value:.{max(0, count - 1 - exponent)}f}"


def percent(fraction, decimals=0):
    return f"{100 * fraction:.{decimals}f} %"


def table(titles, rows):
    return ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"] + ["| " + " | ".join(row) + " |" for row in rows]


# docs/fa1.md


def fp32_peak():
    rows = by_problem(results("h200/fp32-peak")["rows"], "sq", "d", "mask")
    lines = []
    for sq, d, mask in sorted(rows, key=lambda key: (key[0], key[1], key[2] != "none")):
        kernels = {row["kernel"]: row for row in rows[sq, d, mask]}
        line = [str(d), str(sq), mask]
        for kernel in ("fa1", "fa2"):
            line += [f"{kernels[kernel]['tflops']:.1f}", percent(kernels[kernel]["fraction"])]
        lines.append(line)
    return table(["head dim", "s", "mask", "FA1 TFLOP/s", "of the rate", "FA2 TFLOP/s", "of the rate"], lines)


def fp32_peak_long():
    rows = by_problem(results("h200/fp32-peak-long")["rows"], "mask", "d")
    dims = sorted({d for _, d in rows})
    return table(
        ["head dim", *map(str, dims)],
        [[mask, *(percent(one(rows[mask, d])["fraction"], 1) for d in dims)] for mask in ("none", "causal")],
    )


# docs/fa2.md


def fa3_paper():
    rows = by_problem(results("h200/compare-fa3-paper-fa2")["rows"], "d", "mask", "sq")
    lengths = sorted({sq for _, _, sq in rows})

    def cell(row):
        return f"{row['results']['fa2']['tflops']:.0f} ({row['ratios']['fa2']['flash']:.2f})"

    return table(
        ["head dim", "mask", *(f"s = {sq}" for sq in lengths)],
        [
            [str(d), mask, *(cell(one(rows[d, mask, sq])) for sq in lengths)]
            for d in sorted({d for d, _, _ in rows})
            for mask in ("none", "causal")
        ],
    )


def fp32():
    rows = by_problem(results("h200/compare-fp32-fa2")["rows"], "d", "mask", "sq")
    lines = []
    for d, mask, sq in sorted(rows, key=lambda key: (key[0], key[1] != "none", key[2])):
        row = one(rows[d, mask, sq])
        rates = (row["results"][kernel]["tflops"] for kernel in ("fa2:mma=tf32x3", "fa2", "efficient"))
        ratio = row["ratios"]["fa2:mma=tf32x3"]["efficient"]
        lines.append([str(d), mask, str(sq), *(f"{rate:.1f}" for rate in rates), f"{ratio:.2f}"])
    return table(["head dim", "mask", "s", "3xTF32", "CUDA cores", "efficient", "3xTF32 is faster by"], lines)


def ladder():
    times = {}
    for row in results("h200/bench-ladder")["rows"]:
        times.setdefault(row["problem"], {})[row["kernel"]] = row["median_seconds"]
    return table(
        ["problem", "baseline", "FA1", "FA2"],
        [[f"`{p}`", *(digits(1e3 * t[kernel]) for kernel in ("baseline", "fa1", "fa2"))] for p, t in times.items()],
    )


# docs/profiling.md


def megabytes(value):
    return digits(value * 1e-6)


def reads_beside_model(row):
    """What was read in times of the model, with the interval of a model that cannot tell."""
    model, least, most = (row["expected_bytes_read" + end] for end in ("", "_least", "_most"))
    between = "" if least == most else f" of {least / model:.2f}–{most / model:.2f}"
    return f"{row['counted']['hbm_bytes_read'] / model:.2f}{between}"


def profile():
    rows = {row["kernel"]: row for row in results("h200/profile-llama3-8b-prefill-4k")["rows"]}
    lines = []
    for kernel in ("baseline", "fa1", "fa2"):
        row = rows[kernel]
        read, written = (row["counted"]["hbm_bytes_" + way] for way in ("read", "written"))
        lines.append(
            [
                kernel,
                digits(1e3 * row["seconds"]),
                digits(row["tflop_per_second"]),
                f"{read * 1e-6:.1f}",
                reads_beside_model(row),
                digits(read / row["compulsory_bytes_read"]),
                f"{written * 1e-6:.1f}",
                f"{written / row['expected_bytes_written']:.2f}",
                percent(row["fraction_of_roofline"], 1),
                percent(row["fraction_of_compulsory_roofline"], 1),
            ]
        )
    return table(
        [
            "kernel", "ms", "TFLOP/s", "read, MB", "× model", "× least", "written, MB", "× model", "of the roofline",
            "with the least",
        ],
        lines,
    )  # yapf: disable


def lengths():
    rows = by_problem(results("h200/profile-lengths")["rows"], "d", "sq")
    lines = []
    for sq in sorted(sq for d, sq in rows if d == 64):
        kernels = {row["kernel"]: row for row in rows[64, sq]}
        line = [str(sq)]
        for kernel in ("baseline", "fa1", "fa2"):
            row = kernels[kernel]
            line += [megabytes(row["counted"]["hbm_bytes_read"]), reads_beside_model(row)]
        lines.append([*line, megabytes(kernels["fa2"]["compulsory_bytes_read"])])
    return table(["s", "baseline", "× model", "FA1", "× model", "FA2", "× model", "least"], lines)


def ncu():
    return table(
        ["problem", "kernel", "read, MB", "ncu", "differs by"],
        [
            [
                f"`{row['problem']}`",
                row["kernel"],
                f"{row['read'] * 1e-6:.2f}",
                f"{row['ncu_read'] * 1e-6:.2f}",
                f"{100 * row['read_difference']:+.2f} %",
            ]
            for row in results("h200/ncu-agreement")["rows"]
        ],
    )


# docs/microbench.md


def lesson(name):
    """[(variant, microseconds, {counted: value}), …] of a teaching kernel."""
    lessons = {lesson["lesson"]: lesson for lesson in results("h200/microbench")["lessons"]}
    return [
        (v["variant"], 1e6 * v["seconds"], {count["counted"]: count["value"] for count in v["counts"]})
        for v in lessons[name]["variants"]
    ]


def millions(value):
    """16.8 M, 1.7 M, 0.05 M."""
    value *= 1e-6
    return f"{digits(value, 3 if value >= 10 else 2 if value >= 1 else 1)} M"


def coalescing():
    return table(
        ["floats apart", "sectors from L2", "HBM read, MB", "µs"],
        [
            [
                variant.split()[0],
                millions(counts["l2_sectors_read"]),
                f"{counts['hbm_bytes_read'] * 1e-6:.0f}",
                digits(us, 2 if us < 100 else 3),
            ]
            for variant, us, counts in lesson("coalescing")
        ],
    )


def bank_conflicts():
    return table(
        ["tile", "bank conflicts", "wavefronts", "µs"],
        [
            [variant, millions(counts["shared_bank_conflicts"]), millions(counts["shared_wavefronts"]), digits(us, 2)]
            for variant, us, counts in lesson("bank_conflicts")
        ],
    )


def l2_capacity():
    def windows(who):
        return [
            (int(variant[len(who) :].split()[0]), counts["hbm_bytes_read"])
            for variant, _, counts in lesson("l2_capacity")
            if variant.startswith(who)
        ]

    return table(
        ["window, MiB", "HBM read where all read it, MB", "where each reads a share, MB"],
        [
            [f"{mib}" if mib == own else f"{mib} ({own})", megabytes(all_read), megabytes(shares)]
            for (mib, all_read), (own, shares) in zip(windows("all read "), windows("a share each of "))
        ],
    )


# docs/baseline.md


def steps():
    rows = results("h200/ncu-baseline-gpt2-b64")["steps"]
    total = sum(row["milliseconds"] for row in rows)
    lines = []
    for row in rows:
        line = [row["step"].replace("K^T", "Kᵀ"), f"{row['milliseconds']:.2f}", percent(row["milliseconds"] / total)]
        for way in ("read", "written"):
            line.append(f"{1e-9 * row['dram_bytes_' + way]:.3f} ({1e-9 * row['model_bytes_' + way]:.3f})")
        lines.append(line)
    return table(["step", "ms", "share", "HBM read, GB (model)", "HBM written, GB (model)"], lines)


def bandwidth():
    steps_of = {}
    for row in results("h200/bandwidth")["rows"]:
        steps_of.setdefault(row["step"], {})[row["block"]] = row
    blocks = sorted(next(iter(steps_of.values())))
    lines = []
    for step, by_block in steps_of.items():
        cells = [f"{'**' * row['default']}{row['of_copy']:.2f}{'**' * row['default']}" for row in by_block.values()]
        default = one([row for row in by_block.values() if row["default"]])
        lines.append([step, *cells, f"{default['gb_per_s']:.0f}"])
    titles = ["step", f"{blocks[0]} threads", *map(str, blocks[1:]), "GB/s at the default"]
    return table(titles, lines)


def configs():
    times = {}
    for row in results("h200/bench-baseline-configs")["rows"]:
        dtype = keys_of(row["problem"])["dtype"]
        times.setdefault(row["config"], {})[dtype] = f"{1e3 * row['median_seconds']:.2f}"
    return table(
        ["configuration", "fp32, ms", "bf16, ms"],
        [[f"`{config}`", by_dtype["fp32"], by_dtype.get("bf16", "")] for config, by_dtype in times.items()],
    )


# docs/measuring.md


def cpu_beside_pytorch():
    runs = [results(name) for name in ("xeon-avx512-2-threads/compare-torch", "h200/host-compare-torch")]
    rows = [by_problem(run["rows"], "d", "mask", "sq") for run in runs]
    lines = []
    for d, mask, sq in sorted(rows[0], key=lambda key: (key[0], key[1] != "none", key[2])):
        line = [str(d), "full" if mask == "none" else mask, str(sq)]
        for run in rows:
            row = one(run[d, mask, sq])
            line += [f"{row['attnlab_ms']:.2f} / {row['torch_ms']:.2f}", f"{row['ratio']:.2f}"]
        lines.append(line)
    mean, worst = ([f"{run[what]:.2f}" for run in runs] for what in ("geometric_mean", "worst"))
    lines.append(["", "", "geometric mean", "", f"**{mean[0]}**", "", f"**{mean[1]}**"])
    lines.append(["", "", "worst", "", worst[0], "", worst[1]])
    titles = ["head dim", "mask", "sequence"]
    for threads in (2, 16):
        titles += [f"{threads} threads: attnlab / PyTorch ms", "ratio"]
    return table(titles, lines)


TABLES = {
    make.__name__: make
    for make in (
        bandwidth, bank_conflicts, coalescing, configs, cpu_beside_pytorch, fa3_paper, fp32, fp32_peak, fp32_peak_long,
        l2_capacity, ladder, lengths, ncu, profile, steps,
    )
}  # yapf: disable


def with_tables(text, tables):
    """The page with its tables made anew, and the names of those that were others."""
    lines = text.split("\n")
    page, changed = [], []
    at = 0
    while at < len(lines):
        page.append(lines[at])
        mark = MARK.match(lines[at])
        at += 1
        if not mark:
            continue
        name = mark.group(1)
        if name not in tables:
            raise Error(f"line {at}: there is no table {name}; there are {', '.join(sorted(tables))}")
        begin = at
        while at < len(lines) and lines[at].startswith("|"):
            at += 1
        made = tables[name]()
        if lines[begin:at] != made:
            changed.append(name)
        page += made
    return "\n".join(page), changed


def replace(path, text):
    """The file is the old one or the new one, whatever happens meanwhile."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=path.name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, path.stat().st_mode & 0o777)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def main(arguments, docs=DOCS, tables=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a table differs")
    flags = parser.parse_args(arguments)
    status = 0
    for path in sorted(docs.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        try:
            page, changed = with_tables(text, TABLES if tables is None else tables)
        except Error as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
            continue
        except (KeyError, TypeError, ValueError) as error:
            print(f"{path}: results have another form than a table expects: {error!r}", file=sys.stderr)
            status = 1
            continue
        for name in changed:
            print(f"{path}: {name} {'differs from' if flags.check else 'is made anew of'} its results")
        if changed and flags.check:
            status = 1
        elif changed:
            replace(path, page)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
