"""sanitizer_tests: a test under the tools of compute-sanitizer. gpu_test() calls it."""

load("//ci/private:capability_test.bzl", "capability_test")

# What the tools look for: accesses out of bounds or misaligned, and leaks; reads of memory that nobody
# wrote; races in shared memory; barriers that not all who must come to.
SANITIZERS = ["memcheck", "initcheck", "racecheck", "synccheck"]

_SANITIZER = Label("@local_cuda//:compute_sanitizer")
_KNOWN = Label("//ci:sanitizer_known.ini")
_PLANTED = Label("//ci/debugging:planted")

def sanitizer_tests(
        name,
        program,
        tools = SANITIZERS,
        args = [],
        data = [],
        tags = [],
        timeout = "long",
        **kwargs):
    """A test NAME_TOOL for each tool: the program under compute-sanitizer.

    It has device code as configured, runs on any GPU, and is skipped where the toolkit has no
    compute-sanitizer. //ci:sanitizer.py says when it fails.

    Args:
      name: of the test.
      program: the test as an executable.
      tools: of SANITIZERS.
      args: of the program: kernels take many times as long, so those for few and small cases.
      data: as of cc_test.
      tags: as of cc_test; "sanitizer" and the tool's name are added.
      timeout: as of cc_test.
      **kwargs: env, minimum, size and the like of capability_test.
    """
    unknown = [t for t in tools if t not in SANITIZERS]
    if unknown:
        fail("sanitizer_tests: %s: %s: want some of %s" % (name, unknown, SANITIZERS))
    for tool in tools:
        capability_test(
            name = "%s_%s" % (name, tool),
            args = [
                "--tool=" + tool,
                "--sanitizer=$(rootpath %s)" % _SANITIZER,
                "--known=$(rootpath %s)" % _KNOWN,
                "--planted=$(rootpath %s)" % _PLANTED,
                "--",
                "$(rootpath %s)" % program,
            ] + args,
            data = data + [program, _SANITIZER, _KNOWN, _PLANTED],
            program = Label("//ci:sanitizer"),
            tags = tags + ["sanitizer", tool],
            timeout = timeout,
            **kwargs
        )
