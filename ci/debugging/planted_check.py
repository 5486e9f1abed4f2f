"""Runs a session of sessions.py on a GPU and checks its output.

    planted_check.py --session=memcheck --planted=FILE --planted_debug=FILE [--tool=FILE]
"""

import argparse
import sys

from ci.debugging import sessions


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--session", choices=sorted(sessions.SESSIONS), required=True)
    parser.add_argument("--planted", required=True)
    parser.add_argument("--planted_debug", required=True)
    parser.add_argument("--tool", default="", help="compute-sanitizer or cuda-gdb")
    options = parser.parse_args()
    programs = {
        "planted": options.planted,
        "planted_debug": options.planted_debug,
        "sanitizer": options.tool,
        "cuda_gdb": options.tool,
    }
    wrong = []
    for step in sessions.SESSIONS[options.session]:
        exit_code, output = sessions.run(step, programs)
        print("=== %s: exit code %d\n%s" % (step.name, exit_code, output), flush=True)
        wrong += sessions.faults(step, exit_code, output)
    for line in wrong:
        print("FAILED: " + line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
