"""The package attnlab, from the directory that Bazel gives this repository among runfiles.

That directory is called "attnlab" too and lies first on sys.path. Bazel makes a package of it, an empty
one, for every program that does not set legacy_create_init = False: `import attnlab` would get that. With
this file as its __init__.py (//:python_package) it is the package of tools/python, whoever asks.
"""

import os

_repository = os.path.dirname(os.path.abspath(__file__))
# The repository too, so that `from attnlab.ci import gpu_slot` finds what it would without this file.
__path__ = [os.path.join(_repository, "tools", "python", "attnlab"), _repository]
__file__ = os.path.join(__path__[0], "__init__.py")
with open(__file__, encoding="utf-8") as _source:
    exec(compile(_source.read(), __file__, "exec"))
