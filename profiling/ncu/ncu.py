"""Shared by the scripts that run NVIDIA's ncu: running programs, parsing its tables, writing
files."""

import contextlib
import csv
import io
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "python"))

import whole_file  # noqa: E402  after sys.path, so that it also works in a checkout

# Factors to bytes and to seconds.
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12, "ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}


class CannotRun(Exception):
    """A message for the user, and the exit status."""

    def __init__(self, message, code=3):
        super().__init__(message)
        self.code = code


def ended(program, work):
    """The exit status: that of work(), or of a CannotRun, whose message is printed, or 130 after
    Ctrl-C."""
    try:
        return work()
    except CannotRun as error:
        print(f"{program}: {error}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return 130


def run(command, codes=(0,)):
    """The standard output of a command. Raises CannotRun if its exit status is not in `codes`."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise CannotRun(f"{command[0]}: cannot be run: {error.strerror}", 2) from error
    if done.returncode not in codes:
        said = done.stderr.strip() or done.stdout.strip() or "it says nothing"
        # attnlab's exit status says whose fault it is; ncu passes on that of the program it runs.
        code = done.returncode if done.returncode in (1, 2, 3) else 1
        raise CannotRun(f"{command[0]} ended with {done.returncode}: {said}", code)
    return done.stdout


def check_there():
    if shutil.which("ncu") is None:
        raise CannotRun("ncu is not on PATH; it comes with the CUDA toolkit")


def launches(out, metrics):
    """The table of `ncu --csv`: for each launch its "kernel", and each metric in bytes or
    seconds."""
    at = out.find('"ID"')
    if at < 0:
        raise CannotRun(f"ncu printed no table: {out.strip()[-500:] or 'nothing at all'}")
    by_id = {}
    for line in csv.DictReader(io.StringIO(out[at:])):
        metric, value, unit = line["Metric Name"], line["Metric Value"], line["Metric Unit"]
        if metric not in metrics:
            continue
        try:
            number = float(value.replace(",", "")) * UNITS[unit]
        except (ValueError, KeyError) as error:
            raise CannotRun(f"ncu: {metric} is {value!r} {unit!r}, not a number of bytes or a time", 1) from error
        by_id.setdefault(line["ID"], {"kernel": line["Kernel Name"]})[metric] = number
    for metric in metrics:
        if not by_id or any(metric not in launch for launch in by_id.values()):
            raise CannotRun(f"ncu: {metric} is not in its table, so it profiled no launch of the kernel", 1)
    return list(by_id.values())


@contextlib.contextmanager
def replacing(path):
    """whole_file.replacing() for --json; yields None if the flag was not given."""
    if path is None:
        yield None
        return
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(whole_file.replacing(path))
        except OSError as error:
            raise CannotRun(f"--json: {path}: {error.strerror}", 2) from error
        yield file
