"""Repository rules for libraries that are installed on this machine.

Each rule gives an installed library the labels of the library's own Bazel project. The libraries
are looked up again when the environment variables below change, and at `bazel sync --configure`.
"""

_PREFIXES = ["/usr/local", "/usr"]

# ATTNLAB_PREFIX_PATH: further prefixes, separated by ":", searched first.
ENVIRON = ["ATTNLAB_PREFIX_PATH"]

def prefixes(rctx):
    """Installation prefixes, in search order."""
    return [p for p in rctx.os.environ.get("ATTNLAB_PREFIX_PATH", "").split(":") if p] + _PREFIXES

def library_directories(rctx):
    """Possible library directories: for each prefix, Debian's multiarch directory, then the
    others."""
    machine = rctx.execute(["uname", "-m"]).stdout.strip()
    directories = []
    for prefix in prefixes(rctx):
        for place in ["/lib/%s-linux-gnu" % machine, "/lib64", "/lib"]:
            if rctx.path(prefix + place).exists:
                directories.append(prefix + place)
    return directories

def find_header(rctx, header):
    """Returns the include directory that has `header`, or None."""
    for prefix in prefixes(rctx):
        if rctx.path(prefix + "/include/" + header).exists:
            return prefix + "/include"
    return None

def _soname(rctx, library):
    """The SONAME under which the dynamic loader looks for `library`."""
    result = rctx.execute(["readelf", "-d", str(library)])
    for line in result.stdout.split("\n"):
        if "(SONAME)" in line:
            return line.partition("[")[2].partition("]")[0]
    return library.basename

def link_library(rctx, name, directories, suffixes = [".a", ".so"]):
    """Symlinks lib<name> into the repository's lib/.

    An archive is preferred, because the program then runs without this machine's packages. A shared
    library is linked under its SONAME, so that programs find it in their runfiles.

    Args:
      rctx: the repository context.
      name: the library's name, as after -l.
      directories: where to look, in this order.
      suffixes: what to look for, in this order.

    Returns:
      Its path in the repository, or None if it is not installed.
    """
    for suffix in suffixes:
        for directory in directories:
            path = rctx.path("%s/lib%s%s" % (directory, name, suffix))
            if path.exists:
                base = path.basename if suffix == ".a" else _soname(rctx, path)
                rctx.symlink(path.realpath, "lib/" + base)
                return "lib/" + base
    return None

def not_found(rctx, what, hint):
    """Fails, with what is missing and how to get it."""
    fail("@%s: %s is not on this machine. %s; or define @%s in WORKSPACE before attnlab_deps()." %
         (rctx.name, what, hint, rctx.name))

def _system_library_impl(rctx):
    hint = "On Debian or Ubuntu: apt-get install " + rctx.attr.package
    for header in rctx.attr.headers:
        directory = find_header(rctx, header)
        if not directory:
            not_found(rctx, "<%s>" % header, hint)
        rctx.symlink(directory + "/" + header, "include/" + header)
    directories = library_directories(rctx)
    libraries = {}
    for name in rctx.attr.libraries:
        libraries[name] = link_library(rctx, name, directories)
        if not libraries[name]:
            not_found(rctx, "lib%s.a or lib%s.so" % (name, name), hint)
    shared = [path for path in libraries.values() if not path.endswith(".a")]
    substitutions = {"{%s}" % name: path for name, path in libraries.items()}
    substitutions["{shared_defines}"] = repr(rctx.attr.shared_defines if shared else [])
    rctx.template("BUILD.bazel", rctx.attr.build_file, substitutions)

system_library = repository_rule(
    implementation = _system_library_impl,
    attrs = {
        "build_file": attr.label(
            doc = "The repository's BUILD file. {NAME} in it becomes the path of library NAME, and " +
                  "{shared_defines} the list shared_defines, or [] where all libraries are archives.",
            allow_single_file = True,
            mandatory = True,
        ),
        "headers": attr.string_list(doc = "Headers or header directories, below an include directory."),
        "libraries": attr.string_list(doc = "Libraries, as after -l."),
        "package": attr.string(doc = "Debian packages that have them."),
        "shared_defines": attr.string_list(doc = "Macros for users of the shared libraries."),
    },
    configure = True,
    environ = ENVIRON,
    local = True,
)

def _system_starlark_impl(rctx):
    for prefix in prefixes(rctx):
        root = rctx.path(prefix + "/share/bazel/tools/" + rctx.attr.directory)
        if root.exists:
            for entry in root.readdir():
                rctx.symlink(entry, entry.basename)
            return
    not_found(rctx, rctx.attr.package, "On Debian or Ubuntu: apt-get install " + rctx.attr.package)

# Starlark libraries as Debian packages them, below share/bazel/tools.
system_starlark = repository_rule(
    implementation = _system_starlark_impl,
    attrs = {
        "directory": attr.string(mandatory = True),
        "package": attr.string(mandatory = True),
    },
    configure = True,
    environ = ENVIRON,
    local = True,
)
