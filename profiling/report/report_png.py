#!/usr/bin/env python3
"""Draws the figures of a report as pictures, for pages that run no scripts.

    profiling/report/report_png.py REPORT.html DIRECTORY [--width=900] [--scheme=light]

Writes roofline.png, traffic.png, time.png and ladder.png with headless Chromium, at two pixels per
point. A figure that the report does not draw gets no file, and a line on stderr. An example is time
against length for problems of one length. Exit status: 0; 1 if parts of the page could not be
drawn; 2 for bad arguments, a page that is not from `attnlab profile --html`, or a file that cannot
be read or written; 3 if Chromium or Selenium is not installed.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import browser  # noqa: E402  beside this file, after sys.path, so that it also works in a checkout

FIGURES = ("roofline", "traffic", "time", "ladder")
WIDTHS = (320, 4096)  # narrower, figures do not fit; wider, Chromium may draw nothing
# In every page of `attnlab profile --html`, and hardly anywhere else.
MARK = '<script type="application/json" id="profile">'


def width(text):
    least, most = WIDTHS
    if not text.isdigit() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text} is not an integer in {least}..{most}")
    return int(text)


def is_report(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return MARK in file.read()


def sentence(error):
    """A sentence for an OSError, without Python's error numbers."""
    name = error.filename if error.filename is not None else "a file"
    if isinstance(error, (FileExistsError, NotADirectoryError)):
        return f"{name}: is a file or under a file, not a directory"
    if isinstance(error, FileNotFoundError):
        return f"{name}: there is no such file"
    if isinstance(error, IsADirectoryError):
        return f"{name}: is a directory, not a file"
    if isinstance(error, PermissionError):
        return f"{name}: permission denied"
    return f"{name}: {error.strerror or error}"


def write_figures(chromium, report, directory, width=900, scheme="light"):
    """Returns the files written, and the figures that the report does not have."""
    chromium.open(report, width=width, scheme=scheme, scale=2)
    # Hides hints that need a pointer. This may reduce the height, so it comes before asking for it.
    chromium.run("document.head.append(document.createElement('style')); "
                 "document.head.lastChild.textContent = '.pointing { display: none; }'")
    # A screenshot of an element is cut off at the end of the viewport.
    chromium.resize(width, height=chromium.run("return document.documentElement.scrollHeight"), scale=2)
    written, absent = [], []
    for name in FIGURES:
        figures = chromium.find(f"#{name}")
        if not figures or not chromium.count(f"#{name} > svg"):
            absent.append(name)
            continue
        path = pathlib.Path(directory) / f"{name}.png"
        path.write_bytes(figures[0].screenshot_as_png)
        written.append(path)
    return written, absent


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", metavar="REPORT.html", help="what attnlab profile --html wrote")
    parser.add_argument("directory", metavar="DIRECTORY", help="where pictures go; created if missing")
    parser.add_argument("--width", type=width, default=900, metavar="N",
                        help=f"of the page, in points, {WIDTHS[0]} to {WIDTHS[1]} [%(default)s]")
    parser.add_argument("--scheme", choices=("light", "dark"), default="light", help="[%(default)s]")
    arguments = parser.parse_args(words)
    if browser.missing():
        print(f"report_png: {browser.missing()}", file=sys.stderr)
        return 3
    try:
        if not is_report(arguments.report):
            print(f"report_png: {arguments.report}: is not a page of `attnlab profile --html`", file=sys.stderr)
            return 2
        pathlib.Path(arguments.directory).mkdir(parents=True, exist_ok=True)
        with browser.Browser() as chromium:
            written, absent = write_figures(chromium, arguments.report, arguments.directory, arguments.width,
                                            arguments.scheme)
            errors = chromium.run("return document.documentElement.dataset.errors")
    except OSError as error:
        print(f"report_png: {sentence(error)}", file=sys.stderr)
        return 2
    for path in written:
        print(f"{path}: {path.stat().st_size} bytes")
    for name in absent:
        print(f"report_png: {arguments.report} has no figure {name}", file=sys.stderr)
    if errors != "0":
        print(f"report_png: {arguments.report}: {errors} parts could not be drawn", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
