"""The package attnlab, from the directory of this repository in Bazel's runfiles.

That directory is also called "attnlab", and is first on sys.path. Bazel makes it an empty package
for every program that does not set legacy_create_init = False, and `import attnlab` would find that
one. With this file as its __init__.py (//:python_package) it is the package of tools/python for
every program.
"""

import os

_repository = os.path.dirname(os.path.abspath(__file__))
# Also the repository, so that `from attnlab.ci import gpu_slot` works as it does without this file.
__path__ = [os.path.join(_repository, "tools", "python", "attnlab"), _repository]
__file__ = os.path.join(__path__[0], "__init__.py")
with open(__file__, encoding="utf-8") as _source:
    exec(compile(_source.read(), __file__, "exec"))
