"""Checks the form of BUILD, WORKSPACE and .bzl files.

    python3 tools/dev/check_build_files.py FILE...

The form is that of buildifier, as far as it matters to a reader: every rule is loaded, loads and
labels are sorted, strings have double quotes, and multi-line lists have one item per line and a
comma after the last. Prints FILE:LINE and the problem, and exits with 1 if there is one.

Starlark here is a subset of Python, so Python's own parser reads it.
"""

import ast
import io
import os
import sys
import tokenize

# What BUILD and WORKSPACE files may use without a load, even in a Bazel without built-in language
# rules.
BUILT_IN = {
    "alias", "bind", "config_setting", "constraint_setting", "constraint_value", "environment",
    "exports_files", "filegroup", "genquery", "genrule", "licenses", "package", "package_group",
    "platform", "select", "test_suite", "toolchain", "toolchain_type",
    "glob", "local_repository", "new_local_repository", "register_execution_platforms",
    "register_toolchains", "workspace",
    "all", "any", "bool", "depset", "dict", "enumerate", "fail", "int", "len", "list", "max", "min",
    "print", "range", "repr", "reversed", "sorted", "str", "struct", "tuple", "type", "zip",
}  # yapf: disable

# Attributes whose value is a list of labels or file names whose order has no meaning.
SORTED_ATTRIBUTES = {
    "data", "deps", "exports", "hdrs", "implementation_deps", "srcs", "tags", "textual_hdrs", "tools",
    "visibility",
}  # yapf: disable

# Prefixes of built-in rules that have moved to separate rule sets.
MOVED = ("cc_", "java_", "objc_", "proto_", "py_", "sh_")


def label_key(label):
    """Buildifier's order: file names, then ":x", then "//x", then "@x"; compared by parts, not
    characters."""
    phase = 0
    for n, prefix in enumerate((":", "//", "@"), start=1):
        if label.startswith(prefix):
            phase = n
    return phase, label.replace(":", ".").split("."), label


class File:
    """A file and its problems, as (line, message)."""

    def __init__(self, path, text):
        self.path = path
        self.text = text
        self.lines = text.split("\n")
        self.problems = []
        name = os.path.basename(path)
        self.is_bzl = name.endswith(".bzl")
        self.is_workspace = name == "WORKSPACE"

    def report(self, line, message):
        self.problems.append((line, message))

    def check(self):
        self.check_lines()
        try:
            tree = ast.parse(self.text)
        except SyntaxError as error:
            self.report(error.lineno or 1, "does not parse: %s" % error.msg)
            return
        self.check_strings()
        self.check_brackets(tree)
        self.check_loads(tree)
        if self.is_bzl:
            if self.text.strip() and not ast.get_docstring(tree):
                self.report(1, "a .bzl file begins with a docstring that says what it is for")
        else:
            self.check_rules(tree)
        self.check_names(tree)

    def check_lines(self):
        if self.text and not self.text.endswith("\n"):
            self.report(len(self.lines), "no newline at the end")
        if self.text.endswith("\n\n"):
            self.report(len(self.lines) - 1, "empty lines at the end")
        for number, line in enumerate(self.lines, start=1):
            if "\t" in line:
                self.report(number, "a tab")
            if line != line.rstrip():
                self.report(number, "space at the end of the line")

    def check_strings(self):
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type != tokenize.STRING:
                continue
            quoted = token.string.lstrip("rb")
            # Triple single quotes are for text that contains double quotes.
            if quoted.startswith("'") and not quoted.startswith("'''"):
                self.report(token.start[0], "single quotes; use double quotes")

    def check_brackets(self, tree):
        """A closing bracket on its own line follows a comma, and is indented like the line that
        opened it."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                opened = node.func.end_lineno
                items = node.args + [k.value for k in node.keywords]
                starred = bool(node.keywords) and node.keywords[-1].arg is None
            elif isinstance(node, (ast.List, ast.Tuple)):
                opened, items, starred = node.lineno, node.elts, False
            elif isinstance(node, ast.Dict):
                opened, items, starred = node.lineno, node.values, False
            else:
                continue
            closing = self.lines[node.end_lineno - 1]
            closes_alone = not closing[: node.end_col_offset - 1].strip()
            if not items or not closes_alone or not self.lines[opened - 1].rstrip().endswith(("(", "[", "{")):
                continue
            last = max(items, key=lambda item: (item.end_lineno, item.end_col_offset))
            rest = self.lines[last.end_lineno - 1][last.end_col_offset :]
            if not starred and not rest.partition("#")[0].strip().endswith(","):
                self.report(last.end_lineno, "no comma after the last item")
            indent = len(self.lines[opened - 1]) - len(self.lines[opened - 1].lstrip())
            if node.end_col_offset - 1 != indent:
                self.report(node.end_lineno, "the bracket is not below the line that opens it")

    def check_loads(self, tree):
        loads = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call)
            and getattr(node.value.func, "id", "") == "load"
        ]
        keys = []
        used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
        for load in loads:
            plain = [a.value for a in load.args[1:]]
            symbols = plain + [k.arg for k in load.keywords]
            if plain != sorted(plain):
                self.report(load.lineno, "symbols of a load are not sorted: %s" % ", ".join(plain))
            for symbol in symbols:
                if symbol not in used:
                    self.report(load.lineno, "%s is loaded but not used" % symbol)
            label = load.args[0].value
            rank = 0 if label.startswith("@") else 1 if label.startswith("//") else 2
            keys.append(((rank, label_key(label)), load.lineno))
        # In WORKSPACE files a load needs the definitions before it, so the order is free.
        if not self.is_workspace:
            for (before, _), (after, line) in zip(keys, keys[1:]):
                if after < before:
                    self.report(line, "loads are not sorted (@..., then //..., then :...)")

    def check_rules(self, tree):
        known = set(BUILT_IN)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "load":
                known.update(a.value for a in node.args[1:])
                known.update(k.arg for k in node.keywords)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                known.add(node.id)
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
                continue
            name = node.func.id
            if name != "load" and name not in known:
                self.report(node.lineno, "%s is not loaded" % name)
            keywords = [k.arg for k in node.keywords]
            if "name" in keywords and keywords[0] != "name":
                self.report(node.lineno, "name is not the first attribute")
            for keyword in node.keywords:
                if keyword.arg in SORTED_ATTRIBUTES:
                    self.check_sorted(keyword)

    def check_sorted(self, keyword):
        for node in ast.walk(keyword.value):
            if not isinstance(node, ast.List):
                continue
            last = getattr(node, "end_lineno", node.lineno)
            # Comments divide a list into groups.
            if any("#" in line for line in self.lines[node.lineno - 1 : last]):
                continue
            values = [e.value for e in node.elts if isinstance(e, ast.Constant)]
            if len(values) != len(node.elts) or not all(isinstance(v, str) for v in values):
                continue
            wanted = sorted(values, key=label_key)
            if values != wanted:
                for value, want in zip(values, wanted):
                    if value != want:
                        self.report(node.lineno, "%s is not sorted: %r before %r" % (keyword.arg, want, value))
                        break
            if len(set(values)) != len(values):
                self.report(node.lineno, "%s has an item twice" % keyword.arg)
            if last != node.lineno and len({e.lineno for e in node.elts}) != len(values):
                self.report(node.lineno, "%s spans lines; put one item on each line" % keyword.arg)

    def check_names(self, tree):
        # The stand-ins for rule sets use the built-in rules.
        if "third_party/rules_" in self.path.replace(os.sep, "/"):
            return
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "native"
                and node.attr.startswith(MOVED)
            ):
                self.report(node.lineno, "native.%s; load %s from its rule set" % (node.attr, node.attr))


def check_text(path, text):
    """The problems of one file, as sorted (line, message)."""
    file = File(path, text)
    file.check()
    return sorted(set(file.problems))


def main(paths):
    failed = False
    for path in paths:
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for line, message in check_text(path, text):
            print("%s:%d: %s" % (path, line, message), file=sys.stderr)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
