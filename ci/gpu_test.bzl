"""gpu_test: a test on a GPU, or one target per compute capability. See README.md in this
directory."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//ci:gpu.bzl", "GPUS", "by_gpu", "requires_gpu")
load("//ci:sanitizer.bzl", "sanitizer_tests")
load("//ci/private:capability_test.bzl", _capability_test = "capability_test")

capability_test = _capability_test

# Attributes for running: only the tests get them, not the program.
_RUN_ATTRS = ["args", "env", "exec_properties", "flaky", "local", "shard_count", "size", "timeout"]

# Attributes that the tests and the program get.
_COMMON_ATTRS = ["data", "deprecation", "visibility"]

def gpu_test(
        name,
        rule = cc_test,
        capabilities = [],
        minimum = 75,
        also_native = False,
        older_args = None,
        gpus = 1,
        exclusive = False,
        sanitizers = [],
        sanitizer_args = None,
        tags = [],
        **kwargs):
    """A test on a GPU: one target, or one for each of several compute capabilities.

        gpu_test(
            name = "softmax_test",
            srcs = ["softmax_test.cc"],
            deps = […],
        )

    This test has device code as configured, and runs on whatever GPU there is. For code that
    differs by capability:

        gpu_test(
            name = "mma_test",       # mma_test_sm_75, mma_test_sm_80, and mma_test for both
            capabilities = [75, 80],
            …

    NAME_sm_XX has device code for that capability alone, and runs on a GPU of that capability or
    later. Its ATTNLAB_COMPUTE_CAPABILITY makes devices report at most that capability. The test
    program, with code as configured, is NAME_program.

    Args:
      name: name of the test, or of the suite of tests.
      rule: the rule of the program: cc_test, cuda_test, or any other rule for executables.
      capabilities: compute capabilities times ten, from GPUS; empty: one target for all GPUs.
      minimum: the least capability of the GPU, if there are no capabilities.
      also_native: whether to add NAME_native, with code for the GPU itself. It is for GPUs later than the
        first of the capabilities that have none of them.
      older_args: the test's arguments, in place of args, on GPUs later than the target's capability. PTX runs
        there, and fewer cases are enough. Such a test has one shard.
      gpus: how many GPUs the test needs.
      exclusive: whether it needs them to itself: it measures time or memory, or takes more than 4 GiB.
      sanitizers: the tools of compute-sanitizer to run it under, from SANITIZERS in sanitizer.bzl; adds
        targets NAME_memcheck and so on.
      sanitizer_args: the arguments under these tools, in place of args.
      tags: as in cc_test.
      **kwargs: attributes of the rule, and of the tests: args, env, shard_count, size and so on.
    """
    unknown = [c for c in capabilities if c not in GPUS]
    if unknown:
        fail("gpu_test: %s: capabilities %s: must be some of %s" % (name, capabilities, GPUS))
    run = {"size": "medium", "timeout": "long"}
    run.update({k: kwargs.pop(k) for k in _RUN_ATTRS if k in kwargs})
    run.update({k: kwargs[k] for k in _COMMON_ATTRS if k in kwargs})
    least = min(capabilities or [minimum])
    program = name + "_program"
    rule(
        name = program,
        tags = tags + ["manual"],
        target_compatible_with = requires_gpu(minimum = least),
        **kwargs
    )
    for capability in capabilities:
        here = dict(run)
        if older_args != None:
            here["args"] = by_gpu({capability: run.get("args", [])}, older_args)
            here["shard_count"] = by_gpu({capability: run.get("shard_count", 1)}, 1)
        capability_test(
            name = "%s_sm_%d" % (name, capability),
            capability = capability,
            gpus = gpus,
            exclusive = exclusive,
            program = ":" + program,
            tags = tags,
            **here
        )
    if also_native or not capabilities:
        capability_test(
            name = name + "_native" if capabilities else name,
            gpus = gpus,
            exclusive = exclusive,
            minimum = least,
            other_than = capabilities,
            program = ":" + program,
            tags = tags,
            **run
        )
    if sanitizers:
        watched = {k: v for k, v in run.items() if k not in ["args", "shard_count", "visibility"]}
        sanitizer_tests(
            name = name,
            program = ":" + program,
            tools = sanitizers,
            args = run.get("args", []) if sanitizer_args == None else sanitizer_args,
            gpus = gpus,
            exclusive = exclusive,
            minimum = least,
            tags = tags,
            visibility = run.get("visibility"),
            **watched
        )
    if capabilities:
        native.test_suite(
            name = name,
            tags = [tag for tag in tags if tag == "manual"],
            tests = [":%s_sm_%d" % (name, c) for c in capabilities] + ([":%s_native" % name] if also_native else []),
        )
