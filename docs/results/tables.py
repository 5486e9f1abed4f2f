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
import pathlib
import re
import sys

RESULTS = pathlib.Path(__file__).absolute().parent
DOCS = RESULTS.parent
sys.path.insert(0, str(DOCS.parent / "tools" / "python"))

import whole_file  # noqa: E402  also in a checkout

MARK = re.compile(r"<!-- table: (\w+) -->")

# What files say of their own figures, and what they say of good ones.
GOOD = {"agrees": True, "as_expected": True, "complete": True, "correct": True, "verdict": "ok"}


class Error(Exception):
    """What is wrong with a page or a file of results, for people."""


@functools.lru_cache(maxsize=None)
def results(name):
    """What the file of results says: results("h200/fp32-peak")."""
    path = RESULTS / (name + ".json")
    try:
        contents = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Error(f"{path}: {error}") from error
    check_good(contents, path)
    return contents


def check_good(contents, where):
    """An Error where a file says that a figure is wrong, or not of all that was to be measured."""
    if isinstance(contents, list):
        for index, item in enumerate(contents):
            check_good(item, f"{where}[{index}]")
    elif isinstance(contents, dict):
        for key, value in contents.items():
            if key in GOOD and value != GOOD[key]:
                raise Error(f"{where}: {key} is {value}")
            check_good(value, f"{where}.{key}")


def keys_of(problem):
    """{"d": 64, "mask": "causal", …} of a problem in the one-line form."""
    pairs = (item.split("=", 1) for item in problem.split(","))
    return {key: int(value) if value.isdigit() else value for key, value in pairs}


def by_problem(rows, *keys):
    """The rows by the values that those keys of their problems have."""
    found = {}
    for row in rows:
        of_problem = keys_of(row["problem"])
        found.setdefault(tuple(of_problem.get(key) for key in keys), []).append(row)
    return found


def one(rows):
    (row,) = rows
    return row


def by(rows, *keys):
    """The rows by values of their own, of which no two may be the same."""
    found = {}
    for row in rows:
        value = tuple(row[key] for key in keys) if len(keys) > 1 else row[keys[0]]
        if value in found:
            raise Error(f"two rows of {value}")
        found[value] = row
    return found


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
        kernels = by(rows[sq, d, mask], "kernel")
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


# docs/fa2_measurements.md


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
    rows = by(results("h200/bench-ladder")["rows"], "problem", "kernel")
    problems = dict.fromkeys(problem for problem, _ in rows)
    return table(
        ["problem", "baseline", "FA1", "FA2"],
        [
            [f"`{p}`", *(digits(1e3 * rows[p, kernel]["median_seconds"]) for kernel in ("baseline", "fa1", "fa2"))]
            for p in problems
        ],
    )


# docs/warp_specialized.md


def shapes():
    rows = by_problem(results("h200/bench-shapes")["rows"], "b", "hkv", "sq", "skv", "lens", "d", "mask")
    # What is uneven, and the even shape of the same work: b, hkv, sq, skv, lens.
    pairs = {
        "8 KV heads for 32 query heads; 32": ((4, 8, 4096, 4096, None), (4, 32, 4096, 4096, None)),
        "s = 1000; 1024": ((16, 16, 1000, 1000, None), (16, 16, 1024, 1024, None)),
        "s = 4097; 4096": ((4, 16, 4097, 4097, None), (4, 16, 4096, 4096, None)),
        "16 sequences of 256 to 4096; 15 of 2560": ((16, 16, 4096, 4096, "packed"), (15, 16, 2560, 2560, None)),
        "1024 queries over 8192 keys; 4096 over 4096": ((4, 16, 1024, 8192, None), (2, 16, 4096, 4096, None)),
    }

    def cell(uneven, even, d, mask):
        if (*even, d, mask) not in rows:
            return ""
        rate, of_even = (one(rows[(*shape, d, mask)])["tflop_per_second"] for shape in (uneven, even))
        return f"{rate:.0f} ({rate / of_even:.2f})"

    columns = [(64, "none"), (64, "causal"), (128, "none"), (128, "causal")]
    return table(
        ["shape; the even one", *(f"{d}, {'full' if mask == 'none' else mask}" for d, mask in columns)],
        [[name, *(cell(*pair, d, mask) for d, mask in columns)] for name, pair in pairs.items()],
    )


# docs/split_k.md


def decode():
    def micro(row, kernel):
        return 1e3 * row["results"][kernel]["ms"]

    def best(row):
        return min(micro(row, name) for name in row["results"] if name.startswith("flashinfer") and "ms" in
                   row["results"][name])  # fmt: skip

    rows = by_problem(results("h200/compare-decode")["rows"], "b", "skv")
    fp8 = by_problem(results("h200/compare-decode-paged-fp8")["rows"], "b", "skv", "page")
    paged = by_problem(results("h200/compare-decode-paged")["rows"], "b", "skv", "page")
    lines = []
    for b, skv in rows:
        row, row8, row16 = one(rows[b, skv]), one(fp8[b, skv, 16]), one(paged[b, skv, 16])
        lines.append([
            str(b), f"{skv // 1024}k",
            f"{micro(row, 'split_k'):.1f} ({best(row):.1f})", f"{row['of_read']['split_k']:.2f}",
            f"{micro(row, 'split_k:batch_invariant=true') / micro(row, 'split_k'):.2f}",
            f"{micro(row16, 'split_k'):.1f} ({best(row16):.1f})",
            f"{micro(row8, 'split_k'):.1f} ({best(row8):.1f})", f"{row8['of_read']['split_k']:.2f}",
        ])  # fmt: skip
    return table(["batch", "context", "bf16", "of a plain read", "batch_invariant", "pages of 16", "fp8, pages of 16",
                  "of a plain read"], lines)  # fmt: skip


def short_queries():
    rows = by_problem(results("h200/compare-short-queries")["rows"], "b", "skv", "sq")
    queries = sorted({sq for _, _, sq in rows})
    lines = []
    for b, skv in dict.fromkeys((b, skv) for b, skv, _ in rows):
        micros = [[1e3 * one(rows[b, skv, sq])["results"][kernel]["ms"] for kernel in ("split_k", "warp_specialized")]
                  for sq in queries]  # fmt: skip
        lines.append([f"{b}, {skv // 1024}k"] + [f"{split:.0f} / {whole:.0f}" for split, whole in micros])
    return table(["batch, context"] + [f"{sq} token" + "s" * (sq > 1) for sq in queries], lines)


# docs/profiling.md


def megabytes(value):
    return digits(value * 1e-6)


def reads_beside_model(row):
    """What was read in times of the model, in brackets where L2 decides and the model only guesses."""
    ratio = f"{row['counted']['hbm_bytes_read'] / row['expected_bytes_read']:.2f}"
    # Profiles of before have an interval in place of l2_decides.
    guess = row.get("expected_bytes_read_least") != row.get("expected_bytes_read_most")
    return f"({ratio})" if row.get("l2_decides", guess) else ratio


def profile():
    rows = by(results("h200/profile-llama3-8b-prefill-4k")["rows"], "kernel")
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
        kernels = by(rows[64, sq], "kernel")
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
    variants = by(results("h200/microbench")["lessons"], "lesson")[name]["variants"]
    return [
        (v["variant"], 1e6 * v["seconds"], {count["counted"]: count["value"] for count in v["counts"]}) for v in variants
    ]


def millions(value):
    """1881 M, 16.8 M, 1.7 M, 0.1 M: counters of a whole GPU are not the same each time to more. Nothing is 0."""
    value *= 1e-6
    return "0" if value == 0 else f"{digits(value) if value > 10 else f'{value:.1f}'} M"


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
            (variant[len(who) :].removesuffix(" MiB"), counts["hbm_bytes_read"])
            for variant, _, counts in lesson("l2_capacity")
            if variant.startswith(who)
        ]

    lines = []
    for (mib, of_all), (shares_mib, of_shares) in zip(windows("all read "), windows("a share each of "), strict=True):
        lines.append([mib if mib == shares_mib else f"{mib} ({shares_mib})", megabytes(of_all), megabytes(of_shares)])
    return table(["window, MiB", "HBM read where all read it, MB", "where each reads a share, MB"], lines)


def matrix_product():
    names = {
        "naive": "naive: each thread walks two rows",
        "tiled": "tiles of 32 x 32 in shared memory",
        "tiled, padded": "the same, rows padded",
        "tensor cores": "tensor cores, fragments from memory",
    }
    counted = ("smsp__inst_executed_op_global_ld.sum", "shared_bank_conflicts")
    return table(
        ["way", "loads of a warp", "bank conflicts", "tensor cores, GFLOP", "ms"],
        [
            [
                names[variant],
                *(millions(counts[name]) if name in counts else "not counted" for name in counted),
                f"{1e-9 * counts['tensor_flops_fp16']:.1f}",
                digits(1e-3 * us, 2 if us < 10e3 else 3),
            ]
            for variant, us, counts in lesson("matrix_product")
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
    contents = results("h200/bandwidth")
    rows = by(contents["rows"], "step", "block")
    blocks = sorted({block for _, block in rows})
    lines = []
    for step in dict.fromkeys(step for step, _ in rows):
        of_step = [rows[step, block] for block in blocks]
        default = one([row for row in of_step if row["default"]])
        cells = [f"{'**' * (row is default)}{row['of_copy']:.2f}{'**' * (row is default)}" for row in of_step]
        lines.append([step, *cells, f"{default['gb_per_s']:.0f}"])
    lines.append(["the copy", *[""] * len(blocks), f"{contents['copy_gb_per_s']:.0f}"])
    titles = ["step", f"{blocks[0]} threads", *map(str, blocks[1:]), "GB/s at the default"]
    return table(titles, lines)


DTYPES = ("fp32", "bf16")


def configs():
    rows = by_problem(results("h200/bench-baseline-configs")["rows"], "dtype")
    times = [{config: row["median_seconds"] for config, row in by(rows[dtype,], "config").items()} for dtype in DTYPES]
    return table(
        ["configuration", *(f"{dtype}, ms" for dtype in DTYPES)],
        [
            [f"`{config}`", *(f"{1e3 * of[config]:.2f}" if config in of else "" for of in times)]
            for config in dict.fromkeys(config for of in times for config in of)
        ],
    )


TABLES = {
    make.__name__: make
    for make in (
        bandwidth, bank_conflicts, coalescing, configs, decode, fa3_paper, fp32, fp32_peak, fp32_peak_long, l2_capacity, ladder,
        lengths, matrix_product, ncu, profile, shapes, short_queries, steps,
    )
}  # yapf: disable


def made(name, make):
    try:
        return make()
    except Error as error:
        raise Error(f"{name}: {error}") from error
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Error(f"{name}: its results have another form than it expects: {error!r}") from error


def with_tables(text, tables):
    """The page with its tables made anew, and the names of those that were others."""
    lines = text.split("\n")
    page, changed = [], []
    at = 0
    while at < len(lines):
        line = lines[at]
        page.append(line)
        at += 1
        if "<!-- table" not in line:
            continue
        mark = MARK.fullmatch(line)
        if not mark:
            raise Error(f"line {at}: {line!r} is not a line of its own such as <!-- table: ladder -->")
        name = mark.group(1)
        if name not in tables:
            raise Error(f"line {at}: there is no table {name}; there are {', '.join(sorted(tables))}")
        begin = at
        while at < len(lines) and lines[at].startswith("|"):
            at += 1
        # Else the old table would stay, below the new one.
        if begin == at and any(lines[at:]) and next(filter(None, lines[at:])).startswith("|"):
            raise Error(f"line {begin + 1}: a table begins on the line after its name")
        rows = made(name, tables[name])
        if lines[begin:at] != rows:
            changed.append(name)
        page += rows
    return "\n".join(page), changed


def main(arguments, docs=DOCS, tables=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 1 where a table differs")
    flags = parser.parse_args(arguments)
    status = 0
    for path in sorted(docs.glob("*.md")):
        try:
            page, changed = with_tables(path.read_text(encoding="utf-8"), TABLES if tables is None else tables)
            if changed and not flags.check:
                with whole_file.replacing(path) as file:
                    file.write(page)
        except (Error, OSError, UnicodeError) as error:
            print(f"{path}: {error}", file=sys.stderr)
            status = 1
            continue
        for name in changed:
            print(f"{path}: {name} {'differs from' if flags.check else 'is made anew of'} its results")
        if changed and flags.check:
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
