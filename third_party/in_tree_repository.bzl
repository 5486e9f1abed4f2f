"""in_tree_repository: a directory under //third_party as an external repository.

local_repository takes its path from the workspace being built. This rule takes it from the
repository that contains this file, so it also works if attnlab itself is external.
"""

def _in_tree_repository_impl(rctx):
    root = rctx.path(rctx.attr._anchor).dirname.get_child(rctx.attr.directory)
    if not root.exists:
        fail("@%s: no directory %s" % (rctx.name, root))
    for entry in root.readdir():
        rctx.symlink(entry, entry.basename)

in_tree_repository = repository_rule(
    implementation = _in_tree_repository_impl,
    attrs = {
        "directory": attr.string(
            doc = "The directory's name under //third_party.",
            mandatory = True,
        ),
        "_anchor": attr.label(default = "//third_party:BUILD"),
    },
    local = True,
)
