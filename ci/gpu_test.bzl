"""gpu_test: a test on a GPU, also as one target for each compute capability. README.md beside this says how it works."""

load("@rules_cc//cc:cc_test.bzl", "cc_test")
load("//ci:gpu.bzl", "GPUS", "by_gpu", "requires_gpu")
load("//ci:sanitizer.bzl", "sanitizer_tests")
load("//ci/private:capability_test.bzl", _capability_test = "capability_test")

capability_test = _capability_test

# Attributes that are about running: the tests get them, the program does not.
_RUN_ATTRS = ["args", "env", "exec_properties", "flaky", "local", "shard_count", "size", "timeout"]

# Attributes that both get.
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
    """A test on a GPU: one target, or one for each of some compute capabilities.

        gpu_test(
            name = "softmax_test",
            srcs = ["softmax_test.cc"],
            deps = […],
        )

    With device code as configured, on whatever GPU there is. Where code differs by capability:

        gpu_test(
            name = "mma_test",       # mma_test_sm_75, mma_test_sm_80, and mma_test for both
            capabilities = [75, 80],
            …

    NAME_sm_XX has device code for that capability alone and runs on a GPU of that capability or later;
    ATTNLAB_COMPUTE_CAPABILITY, which it gets, makes devices look as if they had no more. The test
    itself, with code as configured, is NAME_program.

    Args:
      name: of the tests together.
      rule: what makes the program: cc_test, cuda_test, or any other rule of executables.
      capabilities: compute capabilities times ten, of GPUS; none: one target, for all.
      minimum: without capabilities, the least that the GPU has.
      also_native: whether there is a target NAME_native for GPUs that have none of the capabilities but a later
        one than the first: with the code that this GPU gets.
      older_args: the test's arguments on GPUs later than the target's capability, where they are not args:
        there PTX runs, of which fewer cases are enough. Such a test has one shard.
      gpus: how many GPUs the test needs.
      exclusive: whether it needs them to itself: it measures time or memory, or takes more than 4 GiB.
      sanitizers: the tools of compute-sanitizer that it is run under, of SANITIZERS of sanitizer.bzl: targets
        NAME_memcheck and so on.
      sanitizer_args: the test's arguments there, where they are not args.
      tags: as of cc_test.
      **kwargs: attributes of the rule, and of the tests: args, env, shard_count, size and so on.
    """
    unknown = [c for c in capabilities if c not in GPUS]
    if unknown:
        fail("gpu_test: %s: capabilities %s: want some of %s" % (name, capabilities, GPUS))
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
            tests = [":%s_sm_%d" % (name, c) for c in capabilities] + ([":%s_native" % name] if also_native else []),
        )
