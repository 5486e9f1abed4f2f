"""test_bundle: one archive with tests, what they need, and a program that runs them without Bazel."""

load("//ci/farm:gpu_tests.bzl", "GPU_TESTS")
load("//ci/private:capability_test.bzl", "BundledTestInfo")

_PLATFORMS = "//command_line_option:platforms"

def _platform_transition_impl(settings, attr):
    return {_PLATFORMS: [attr.platform] if attr.platform else settings[_PLATFORMS]}

# A bundle is for its GPU, whichever one this machine has.
_platform_transition = transition(
    implementation = _platform_transition_impl,
    inputs = [_PLATFORMS],
    outputs = [_PLATFORMS],
)

def _paths_in_runfiles(ctx, file):
    """Below the directory of runfiles. Those of other repositories have a second one, by which $(rootpath) calls them."""
    if file.short_path.startswith("../"):
        path = file.short_path[3:]
        return [path, ctx.workspace_name + "/external/" + path]
    return [ctx.workspace_name + "/" + file.short_path]

def _test_bundle_impl(ctx):
    files = {}  # path in the archive: File
    tests = []
    for test in ctx.attr.tests:
        info, default = test[BundledTestInfo], test[DefaultInfo]
        for file in default.default_runfiles.files.to_list():
            for path in _paths_in_runfiles(ctx, file):
                files[path] = file
        tests.append(struct(
            label = str(test.label),
            program = _paths_in_runfiles(ctx, default.files_to_run.executable)[0],
            args = info.args,
            env = info.env,
            shards = info.shards,
            timeout = info.timeout,
            exclusive = info.exclusive,
            gpus = int(info.properties.get("gpus", "0")),
        ))
    manifest = ctx.actions.declare_file(ctx.label.name + ".tests.json")
    ctx.actions.write(manifest, struct(
        platform = ctx.attr.platform,
        workspace = ctx.workspace_name,
        tests = tests,
        others = ctx.attr.others,
    ).to_json())
    listing = ctx.actions.declare_file(ctx.label.name + ".files")
    lines = ["%s\t%s" % (path, file.path) for path, file in files.items()]
    ctx.actions.write(listing, "\n".join(lines) + "\n")
    archive = ctx.actions.declare_file(ctx.label.name + ".tar.gz")
    arguments = ctx.actions.args()
    arguments.add_all([archive, manifest, listing])
    arguments.add_all(ctx.files.runner)
    ctx.actions.run(
        executable = ctx.executable._pack,
        arguments = [arguments],
        inputs = depset([manifest, listing] + ctx.files.runner + files.values()),
        outputs = [archive],
        mnemonic = "TestBundle",
        progress_message = "Packing the tests of %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([archive, manifest]), runfiles = ctx.runfiles([archive]))]

test_bundle = rule(
    implementation = _test_bundle_impl,
    attrs = {
        "others": attr.string_list(doc = "Tests that are not for this GPU: a plan says if nobody runs them."),
        "platform": attr.string(doc = "For which the tests are built; none: as configured."),
        "runner": attr.label_list(
            allow_files = True,
            default = ["//ci/farm:run_tests.py", "//ci:gpu_slot.py"],
            doc = "Files beside the tests; the first one is the program to call.",
        ),
        "tests": attr.label_list(cfg = _platform_transition, providers = [BundledTestInfo]),
        "_allowlist_function_transition": attr.label(
            default = "@bazel_tools//tools/allowlists/function_transition_allowlist",
        ),
        "_pack": attr.label(cfg = "exec", default = "//ci/farm:pack", executable = True),
    },
)

def gpu_test_bundle(name, capability, visibility = None):
    """All tests that may run on a GPU of that compute capability, built for it."""
    tests, others = [], []
    for tool, labels in GPU_TESTS.items():
        others = others + [
            label
            for label, gpus in labels.items()
            if capability not in gpus and not label.endswith("_native")  # for GPUs without code of their own
        ]
        some = [label for label, gpus in labels.items() if capability in gpus]
        if tool:
            some = select({"@local_cuda//:has_" + tool: some, "//conditions:default": []})
        tests = tests + some
    test_bundle(
        name = name,
        testonly = True,
        others = others,
        platform = "//ci:linux_sm_%d" % capability,
        tags = ["manual"],
        tests = tests,
        visibility = visibility,
    )
