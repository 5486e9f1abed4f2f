"""What the tools say about the planted bugs: commands, and what their output must contain.

planted_check.py checks the output, and transcribe.py writes it to files for docs/debugging.md.
"""

import collections
import os
import re
import subprocess
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))

# `command` contains {sanitizer}, {cuda_gdb}, {planted}, {planted_debug}, and {script} if `script`
# is set, a file beside this one. `wanted`: regular expressions that the output must match; @NAME@
# in them stands for the line of planted.cu marked BUG(NAME) or LINE(NAME). `unwanted`: those that
# it must not match. `exit_codes`: the allowed ones.
Step = collections.namedtuple("Step", "name command wanted unwanted exit_codes script")
Step.__new__.__defaults__ = ([], [], (0,), None)

RIGHT = r"o: 0 of 320 elements are wrong"
FOUND = 42


def _tool(tool, bug, wanted=(), options="", unwanted=(), exit_codes=(FOUND,), name=None):
    command = "{sanitizer} --tool %s %s--error-exitcode %d {planted} %s" % (tool, options, FOUND, bug)
    return Step(name or "%s_%s" % (tool, bug), command, list(wanted), list(unwanted), exit_codes)


def _plain(bug, wanted=(), exit_codes=(0,)):
    return Step("plain_" + bug, "{planted} " + bug, list(wanted), [], exit_codes)


KERNEL = r"AttentionRow<"
AT = r" at .*AttentionRow<.* in planted\.cu:"
CALLED_BY = r"Device Frame: .*AttentionRow<.* in planted\.cu:"  # of an inlined function

SESSIONS = {
    "sound": [
        _plain("none", [RIGHT]),
        _tool("memcheck", "none", [RIGHT, "ERROR SUMMARY: 0 errors"], "--leak-check full ", exit_codes=(0,)),
        _tool("initcheck", "none", [RIGHT, "ERROR SUMMARY: 0 errors"], exit_codes=(0,)),
        _tool(
            "racecheck", "none", [RIGHT, "RACECHECK SUMMARY: 0 hazards"], "--racecheck-report all ", exit_codes=(0,)
        ),
        _tool("synccheck", "none", [RIGHT, "ERROR SUMMARY: 0 errors"], exit_codes=(0,)),
    ],
    "memcheck": [
        # The scores of the extra keys are masked, so the result is right and only the tool sees the
        # bug.
        _plain("out_of_bounds", [RIGHT]),
        _tool(
            "memcheck",
            "out_of_bounds",
            # The compiler decides which load of LoadKey() comes first; the bug is in the line that
            # calls it.
            [r"Invalid __global__ read of size (4|16) bytes", r"LoadKey<", CALLED_BY + r"@out_of_bounds@\b"],
        ),
        _plain("misaligned", [r"misaligned address"], (3,)),
        _tool(
            "memcheck",
            "misaligned",
            [
                r"Invalid __global__ read of size 16 bytes",
                r"is misaligned",
                CALLED_BY,
                r"planted\.cu:@misaligned@\b",
            ],
        ),
    ],
    "initcheck": [
        # Zero times what was there, which is right unless that is infinite or NaN.
        _plain("uninitialized", exit_codes=(0, 1)),
        _tool(
            "initcheck",
            "uninitialized",
            [r"Uninitialized __global__ memory read of size 4 bytes", KERNEL, r"planted\.cu:@uninitialized@\b"],
        ),
        # Needs 5 GiB of memory; exit code 4 with less.
        _plain("index_overflow", [r"^o: row 0, dim 0: "], (1,)),
        _tool("memcheck", "index_overflow", [r"ERROR SUMMARY: 0 errors"], exit_codes=(1,)),
        _tool(
            "initcheck",
            "index_overflow",
            [r"Uninitialized __global__ memory read of size 16 bytes", CALLED_BY, r"planted\.cu:@vector_load@\b"],
        ),
    ],
    "racecheck": [
        _plain("missing_barrier", exit_codes=(0, 1)),
        _tool(
            "racecheck",
            "missing_barrier",
            [
                r"Race reported between",
                KERNEL,
                r"planted\.cu:@missing_barrier@\b",
                r"planted\.cu:@tile_store@\b",
            ],
        ),
    ],
    "synccheck": [
        _tool(
            "synccheck",
            "divergent_barrier",
            [r"Barrier error detected\. Divergent thread", AT + r"@divergent_barrier@\b"],
            # No other barrier is left that the tool could name instead.
            unwanted=[AT + r"(?!@divergent_barrier@\b)\d"],
        ),
        _tool(
            "synccheck",
            "warp_mask",
            [r"Barrier error detected\. Invalid arguments", CALLED_BY + r"@warp_mask@\b"],
        ),
    ],
    "printf": [
        _plain("stale_maximum", [r"^o: row 0, dim 0: -?nan, where ", r"o: 320 of 320 elements are wrong"], (1,)),
        Step(
            "printf_stale_maximum",
            "{planted} stale_maximum --print_row=3",
            [
                r"^row 3, keys from 0: maximum -?\d\S*, was -inf; tile sum inf$",
                r"^row 3, keys from 64: ",
            ],
            [r"^row [^3]"],
            (1,),
        ),
        Step(
            "printf_none",
            "{planted} none --print_row=3",
            [r"^row 3, keys from 0: maximum -?\d\S*, was -inf; tile sum \d\S*$", RIGHT],
            [r"tile sum -?(inf|nan)"],
        ),
    ],
    "cuda_gdb": [
        Step(
            "cuda_gdb_stale_maximum",
            "{cuda_gdb} -batch -x {script} --args {planted_debug} stale_maximum",
            [
                r"AttentionRow<.*planted\.cu:@stale_maximum@\b",
                r"^\$1 = 0$",  # begin: the first tile
                r"^\$3 = -?\d\S*$",  # new_max
                r"^\$4 = -inf",  # relative_to
                r"^\$5 = inf",  # weight
            ],
            script="stale_maximum.gdb",
        ),
    ],
}


def lines_of_markers():
    """Line numbers in planted.cu, by the name in BUG(name) or LINE(name)."""
    lines = {}
    with open(os.path.join(HERE, "planted.cu"), encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            for name in re.findall(r"// (?:BUG|LINE)\((\w+)\)$", line.rstrip()):
                if name in lines:
                    raise ValueError("planted.cu: %s is marked twice" % name)
                lines[name] = number
    return lines


def with_lines(text, pattern=r"@(\w+)@"):
    lines = lines_of_markers()
    return re.sub(pattern, lambda m: str(lines[m.group(1)]), text)


def run(step, programs):
    """(exit code, output) of a step. `programs`: what replaces the names in braces."""
    programs = dict(programs)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as scratch:
        if step.script:
            with open(os.path.join(HERE, step.script), encoding="utf-8") as f:
                text = with_lines(f.read(), r"@LINE\((\w+)\)@")
            programs["script"] = os.path.join(scratch, step.script)
            with open(programs["script"], "w", encoding="utf-8") as f:
                f.write(text)
        # Split before formatting, because paths may contain spaces.
        command = [word.format(**programs) for word in step.command.split()]
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
        )
    return done.returncode, done.stdout.decode("utf-8", "replace")


def faults(step, exit_code, output):
    """What differs from the step's requirements, one line each."""
    wrong = []
    for pattern in step.wanted:
        if not re.search(with_lines(pattern), output, re.MULTILINE):
            wrong.append("%s: the output lacks %s" % (step.name, with_lines(pattern)))
    for pattern in step.unwanted:
        if re.search(with_lines(pattern), output, re.MULTILINE):
            wrong.append("%s: the output has %s" % (step.name, with_lines(pattern)))
    if exit_code not in step.exit_codes:
        wrong.append("%s: exit code %d, not %s" % (step.name, exit_code, " or ".join(map(str, step.exit_codes))))
    return wrong
