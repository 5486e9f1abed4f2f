"""Writes the sessions with the planted bugs to text files, one per step, for docs/debugging.md.

    bazel run --config=sm90 //ci/debugging:transcribe -- DIRECTORY [--cuda=/usr/local/cuda]

A file contains the command as one would type it, its output and its exit code; page.py puts it into
the page. Exit status: 1 if sessions.py does not accept the output, with what differs; 2 without a
GPU or one of the tools, and then nothing is written.
"""

import argparse
import os
import shutil
import subprocess
import sys

from ci.debugging import sessions

SHORT = {
    "planted": "planted",
    "planted_debug": "planted_debug",
    "sanitizer": "compute-sanitizer",
    "cuda_gdb": "cuda-gdb",
    "script": "stale_maximum.gdb",
}

NO_GPU = 3  # exit code of `planted` for a CUDA error


def lacking(programs):
    """A line on what the sessions need but is missing, or None."""
    for name, path in sorted(programs.items()):
        if shutil.which(path) is None:
            return "%s: is not a program; set --cuda=DIRECTORY to the toolkit" % path
    done = subprocess.run(
        [programs["planted"], "none"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if done.returncode == NO_GPU:
        text = done.stdout.decode("utf-8", "replace").strip().split("\n")[0]
        return "the sessions need a GPU that this was built for: " + text
    return None


def main():
    parser = argparse.ArgumentParser(description="Writes the sessions to text files.")
    parser.add_argument("directory")
    parser.add_argument("--cuda", default=os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    options = parser.parse_args()
    # `bazel run` starts programs in another directory.
    directory = os.path.join(os.environ.get("BUILD_WORKING_DIRECTORY", "."), options.directory)
    programs = {
        "planted": os.path.join(sessions.HERE, "planted"),
        "planted_debug": os.path.join(sessions.HERE, "planted_debug"),
        "sanitizer": os.path.join(options.cuda, "bin", "compute-sanitizer"),
        "cuda_gdb": os.path.join(options.cuda, "bin", "cuda-gdb"),
    }
    why_not = lacking(programs)
    if why_not:
        print("transcribe: " + why_not, file=sys.stderr)
        return 2
    os.makedirs(directory, exist_ok=True)
    wrong = []
    for steps in sessions.SESSIONS.values():
        for step in steps:
            try:
                exit_code, output = sessions.run(step, programs)
            except OSError as error:
                wrong.append("%s: %s" % (step.name, error))
                continue
            for name, path in programs.items():
                output = output.replace(path, SHORT[name])
            with open(os.path.join(directory, step.name + ".txt"), "w", encoding="utf-8") as f:
                f.write("$ %s\n%s(exit code %d)\n" % (step.command.format(**SHORT), output, exit_code))
            wrong += sessions.faults(step, exit_code, output)
    for line in wrong:
        print("FAILED: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
