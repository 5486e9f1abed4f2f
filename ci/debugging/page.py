"""Puts the text files of transcribe.py into docs/debugging.md, shortened.

    python3 ci/debugging/page.py DIRECTORY docs/debugging.md

A comment `<!-- output: STEP -->` in the page names a file; its text becomes the code block after
the comment. Blocks whose file is missing stay as they are.
"""

import os
import re
import sys

BLOCK = re.compile(r"^<!-- output: (\w+) -->\n(?:\n```text\n(.*?)```\n)?", re.MULTILINE | re.DOTALL)

MARGIN = "========="
MORE = "…"

# Lines of the tools about the host. They differ from machine to machine and do not concern the
# kernel.
OF_THE_HOST = re.compile(
    MARGIN + r" +(Saved host backtrace|Host Frame:)|"
    r"\[(New Thread|Thread debugging|Detaching after|Inferior)|Using host libthread_db|No symbol table is loaded"
)
NAMESPACES = re.compile(r"attnlab::debugging::|(<unnamed>|\(anonymous namespace\))::")
# Further pairs of accesses in one finding.
ANOTHER_ACCESS = re.compile(MARGIN + r" +and (Read|Write) access at")


def _without_repetition(lines):
    """Keeps the first finding in full, with one of its accesses; MORE stands for the rest."""
    shorter, findings, accesses = [], 0, 0
    for line in lines:
        text = line[len(MARGIN) :] if line.startswith(MARGIN) else ""
        if line.startswith(MARGIN) and not text.strip():
            findings += 1  # the empty line at the end of a finding
            accesses = 0
            continue
        if findings and text.startswith("     "):
            continue  # belongs to a later finding
        if findings and re.match(r" (Error|Warning|Invalid|Uninitialized|Barrier|Leaked)\b", text):
            if shorter[-1] != MORE:
                shorter.append(MORE)
            continue
        if ANOTHER_ACCESS.match(line):
            accesses += 1
            if accesses > 1:
                if accesses == 2:
                    shorter.append(MARGIN + "     " + MORE)
                continue
        shorter.append(line)
    return shorter


def shortened(output):
    lines = [NAMESPACES.sub("", line) for line in output.splitlines() if not OF_THE_HOST.match(line)]
    # A table of cuda-gdb.
    lines = [re.sub(r" {9,}", "  ", line).rstrip() if line.startswith(("*", " ")) else line for line in lines]
    return "".join(line + "\n" for line in _without_repetition(lines))


def blocks(page):
    """(step, block) for each such comment in a page; block is None if the comment has none yet."""
    return [(match.group(1), match.group(2)) for match in BLOCK.finditer(page)]


def filled(page, texts):
    """The page with the text of each step in `texts` filled in."""

    def fill(match):
        step = match.group(1)
        if step not in texts:
            return match.group(0)
        return "<!-- output: %s -->\n\n```text\n%s```\n" % (step, shortened(texts[step]))

    return BLOCK.sub(fill, page)


def main(directory, path):
    if not os.path.isdir(directory):
        sys.exit("page.py: %s: is not a directory" % directory)
    with open(path, encoding="utf-8") as f:
        page = f.read()
    texts = {}
    for step, _ in blocks(page):
        file = os.path.join(directory, step + ".txt")
        if os.path.exists(file):
            with open(file, encoding="utf-8") as f:
                texts[step] = f.read()
        else:
            print("%s: left as it is" % step)
    with open(path + ".new", "w", encoding="utf-8") as f:
        f.write(filled(page, texts))
    os.replace(path + ".new", path)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
