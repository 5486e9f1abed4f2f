"""A runner that goes wrong: faulty_runner.py FAULT RUN_TESTS FLAG... For farm_test.

It runs run_tests.py, and does what FAULT says once that has recorded a result:

    dies        is killed, with its tests, while the next one runs
    kills       the same, when cpu_0's shard 3 begins
    hangs       stops for ever
    truncates   leaves the last line of its results half written, and dies
    forges      says that a test passed whose test.xml says otherwise
    swaps       replaces a test.log after it was recorded
    gpu         ends as if a GPU no longer answered
    oom         a test is killed; the others run
    late        dies before it has done anything
"""

import glob
import json
import os
import signal
import subprocess
import sys
import time


def out_of(flags):
    return next(flag[len("--out="):] for flag in flags if flag.startswith("--out="))


def wait_for_result(path, child):
    while child.poll() is None:
        try:
            with open(path, encoding="utf-8") as f:
                if f.read().count("\n") >= 1:
                    return
        except OSError:
            pass
        time.sleep(0.005)


def wait_for_next(results, child):
    """Until one more test has begun than has a result."""
    out = os.path.dirname(results)
    while child.poll() is None:
        with open(results, encoding="utf-8") as f:
            ended = f.read().count("\n")
        if len(glob.glob(os.path.join(out, "tests", "*", "*", "*", "*"))) > ended:
            return
        time.sleep(0.005)


def spoil(results, fault):
    """Changes the first record, or a file of it, once the runner has ended."""
    with open(results, encoding="utf-8") as f:
        lines = f.readlines()
    record = json.loads(lines[0])
    directory = os.path.join(os.path.dirname(results), record["directory"])
    if fault == "truncates":
        lines[-1] = lines[-1][: len(lines[-1]) // 2]
    elif fault == "forges":
        with open(os.path.join(directory, "test.xml"), "w", encoding="utf-8") as f:
            f.write("<testsuites><testcase name='x'><failure/></testcase></testsuites>")
    else:
        with open(os.path.join(directory, "test.log"), "a", encoding="utf-8") as f:
            f.write("one more line\n")
    with open(results, "w", encoding="utf-8") as f:
        f.writelines(lines)



def tests_of(pid):
    """The processes that a runner has started, each from a thread of its own."""
    found = []
    for path in glob.glob("/proc/%d/task/*/children" % pid):
        try:
            with open(path, encoding="ascii") as f:
                found += [int(x) for x in f.read().split()]
        except OSError:
            pass
    return found


def main(fault, command):
    if fault == "late":
        return 1
    results = os.path.join(out_of(command), "results.jsonl")
    child = subprocess.Popen([sys.executable] + command)
    signal.signal(signal.SIGTERM, lambda *_: (child.terminate(), child.wait(), sys.exit(1)))
    if fault == "kills":
        while child.poll() is None:
            if os.path.exists(os.path.join(out_of(command), "tests", "ci", "farm", "cpu_0", "3")):
                child.kill()
                return child.wait()
            time.sleep(0.002)
        return child.returncode
    wait_for_result(results, child)
    if fault in ("dies", "gpu", "hangs"):
        wait_for_next(results, child)
        child.terminate()
        child.wait()
        if os.path.exists(os.path.join(out_of(command), "ended.json")):
            os.unlink(os.path.join(out_of(command), "ended.json"))
    if fault == "gpu":
        print("run_tests: stopped: GPUs were lost: there were 1, 0 answer")
        return 4
    if fault == "dies":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hangs":
        while True:
            time.sleep(60)
    while fault == "oom" and child.poll() is None:
        tests = tests_of(child.pid)
        if tests:
            os.kill(tests[0], signal.SIGKILL)
            break
    child.wait()
    if fault in ("truncates", "forges", "swaps"):
        spoil(results, fault)
    return child.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
