"""capability_test: runs a program as a test, with device code for one compute capability."""

load("//ci:gpu.bzl", "GPUS", "GPU_EXCLUSIVE_ENV", "GPU_EXCLUSIVE_TAGS", "GPU_TAGS", "by_gpu", "native_arch", "requires_gpu")

# What a bundle (//ci/farm:bundle.bzl) knows of a test besides its files: as in any test, with labels in
# args and env replaced by paths.
BundledTestInfo = provider(fields = ["args", "env", "shards", "timeout", "exclusive", "properties"])

_ARCHS = str(Label("//third_party/cuda:archs"))
_BUILT_ONCE = str(Label("//ci:built_once"))

def _archs_transition_impl(settings, attr):
    configured = settings[_ARCHS]
    if not attr.archs or settings[_BUILT_ONCE]:
        return {_ARCHS: configured, _BUILT_ONCE: settings[_BUILT_ONCE]}

    # If the platform has this GPU, everything else is already built for it. Returning the same
    # value keeps the same configuration, so nothing is compiled twice.
    native = attr.archs[0].startswith("sm_")
    if native and (not configured or attr.archs[0] in configured):
        return {_ARCHS: configured, _BUILT_ONCE: settings[_BUILT_ONCE]}
    return {_ARCHS: attr.archs, _BUILT_ONCE: settings[_BUILT_ONCE]}

_archs_transition = transition(
    implementation = _archs_transition_impl,
    inputs = [
        _ARCHS,
        _BUILT_ONCE,
    ],
    # Outputs repeat the inputs: otherwise Bazel 4 takes a flag at its default for another
    # configuration than an unset flag, and builds everything twice, to the same files.
    outputs = [
        _ARCHS,
        _BUILT_ONCE,
    ],
)

def _capability_test_impl(ctx):
    # An attribute with a transition is a list.
    program = ctx.attr.program[0][DefaultInfo]
    executable = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(
        output = executable,
        target_file = program.files_to_run.executable,
        is_executable = True,
    )
    runfiles = ctx.runfiles(files = ctx.files.data).merge(program.default_runfiles)
    for target in ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    env = {name: ctx.expand_location(value, ctx.attr.data) for name, value in ctx.attr.env.items()}
    return [
        DefaultInfo(executable = executable, runfiles = runfiles),
        testing.TestEnvironment(env),
        BundledTestInfo(
            args = [ctx.expand_location(arg, ctx.attr.data) for arg in ctx.attr.args],
            env = env,
            shards = max(1, ctx.attr.shard_count),
            timeout = ctx.attr.timeout,
            exclusive = "exclusive" in ctx.attr.tags,
            properties = ctx.attr.exec_properties,
        ),
    ]

# Not tied to a GPU, so that tests of this rule need none.
program_test = rule(
    implementation = _capability_test_impl,
    test = True,
    attrs = {
        "archs": attr.string_list(doc = "Value of //third_party/cuda:archs; none: as configured."),
        "data": attr.label_list(allow_files = True, cfg = _archs_transition),
        "env": attr.string_dict(),
        "program": attr.label(cfg = _archs_transition, executable = True, mandatory = True),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
    },
)

def capability_test(
        name,
        program,
        capability = None,
        minimum = 75,
        other_than = [],
        gpus = 1,
        exclusive = False,
        env = {},
        exec_properties = {},
        tags = [],
        visibility = None,
        **kwargs):
    """A test that runs a program on a GPU. gpu_test() consists of these.

    Args:
      name: name of the test.
      program: an executable target. It and `data` are built with device code for the capability.
      capability: 75, 80, …: device code for it alone, run on GPUs of that capability or later: machine code
        if the platform has that GPU, otherwise PTX. None: any GPU, with code as configured.
      minimum: without a capability, the least that the GPU has.
      other_than: without a capability, entries of GPUS on which the test is left out.
      gpus: how many GPUs it needs; //ci:gpu_slot assigns them.
      exclusive: whether it needs them to itself; other tests share.
      env: as in cc_test.
      exec_properties: as in cc_test; "gpu" and "gpus", which a runner must have, are added.
      tags: as in cc_test; GPU_TAGS and the tag of the capability, such as "sm_75", are added.
      visibility: as in cc_test; //ci/farm, which bundles tests, sees it, too.
      **kwargs: args, data, size, timeout, shard_count and the like of any test.
    """
    environment = {"ATTNLAB_GPUS": str(gpus)}
    if exclusive:
        environment.update(GPU_EXCLUSIVE_ENV)
        tags = tags + GPU_EXCLUSIVE_TAGS
    archs = []
    if capability:
        environment["ATTNLAB_COMPUTE_CAPABILITY"] = str(capability)
        archs = by_gpu({capability: [native_arch(capability)]}, ["compute_%d" % capability])
    environment.update(env)
    properties = {"gpus": str(gpus)}
    properties.update(exec_properties)
    program_test(
        name = name,
        archs = archs,
        env = environment,
        exec_properties = by_gpu(
            {gpu: dict(properties, gpu = "sm_%d" % gpu) for gpu in GPUS},
            properties,
        ),
        program = program,
        tags = tags + GPU_TAGS + (["sm_%d" % capability] if capability else []),
        visibility = (visibility or []) + [str(Label("//ci/farm:__pkg__"))],
        target_compatible_with = requires_gpu(minimum = capability or minimum, other_than = other_than),
        **kwargs
    )
