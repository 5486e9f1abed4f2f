"""sanitizer_tests: a test under the tools of compute-sanitizer. gpu_test() calls it."""

load("//ci/private:capability_test.bzl", "capability_test")

# In this order they find: out-of-bounds or misaligned accesses, and leaks; reads of unwritten
# memory; races in shared memory; barriers that not all required threads reach.
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
    """One test NAME_TOOL for each tool: the program under compute-sanitizer.

    The tests have device code as configured, run on any GPU, and are skipped if the toolkit has no
    compute-sanitizer. //ci:sanitizer.py says when they fail.

    Args:
      name: name of the test.
      program: the test as an executable.
      tools: some of SANITIZERS.
      args: arguments of the program. Kernels run many times slower, so choose few and small cases.
      data: as in cc_test.
      tags: as in cc_test; "sanitizer" and the tool's name are added.
      timeout: as in cc_test.
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
