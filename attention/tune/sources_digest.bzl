"""A digest of the sources that targets are made of, as a C++ source."""

_Sources = provider(fields = ["files"])

def _sources_of(target, ctx):
    own = []
    if target.label.package.startswith("attention"):
        for attribute in ("srcs", "hdrs", "textual_hdrs"):
            own += getattr(ctx.rule.files, attribute, [])
    below = [dep[_Sources].files for dep in getattr(ctx.rule.attr, "deps", []) if _Sources in dep]
    return [_Sources(files = depset([file for file in own if file.is_source], transitive = below))]

_sources = aspect(implementation = _sources_of, attr_aspects = ["deps"])

def _sources_digest_impl(ctx):
    files = depset(transitive = [dep[_Sources].files for dep in ctx.attr.of])
    by_path = {file.short_path: file for file in files.to_list()}
    arguments = ctx.actions.args()
    arguments.add(ctx.outputs.out)
    arguments.add_all([by_path[path] for path in sorted(by_path)])
    ctx.actions.run_shell(
        inputs = files,
        outputs = [ctx.outputs.out],
        arguments = [arguments],
        command = """out=$1; shift
digest=$(cat "$@" | sha256sum | cut -c1-16)
echo "extern const char kSourcesDigest[]; const char kSourcesDigest[] = \\"$digest\\";" >"$out"
""",
        mnemonic = "SourcesDigest",
    )

sources_digest = rule(
    implementation = _sources_digest_impl,
    attrs = {
        "of": attr.label_list(aspects = [_sources], doc = "with all that they depend on in //attention"),
        "out": attr.output(mandatory = True),
    },
)
