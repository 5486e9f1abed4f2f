"""tables: pages say what the results say, and what is no table of results stays as it is."""

import contextlib
import io
import pathlib
import tempfile
import unittest

from docs.results import tables

PAGE = """Before, with | bars |.

<!-- table: squares -->
| n | n² |
|---|---|
| 2 | 4 |

| another | table |
|---|---|
"""


def squares():
    return tables.table(["n", "n²"], [["2", "4"], ["3", "9"]])


def refuses():
    raise tables.Error("results.json: cannot be read")


class PagesTest(unittest.TestCase):
    def test_pages_of_this_project(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = tables.main(["--check"])
        self.assertEqual((status, said.getvalue()), (0, ""), "docs/results/tables.py writes them anew")

    def test_each_table_is_on_a_page(self):
        pages = "".join(path.read_text(encoding="utf-8") for path in tables.DOCS.glob("*.md"))
        for name in tables.TABLES:
            self.assertEqual(pages.count(f"<!-- table: {name} -->"), 1, name)


class MainTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.docs = pathlib.Path(directory.name)
        self.page = self.docs / "page.md"

    def run_main(self, page, *arguments, made=squares):
        self.page.write_text(page, encoding="utf-8")
        said = io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            status = tables.main(list(arguments), docs=self.docs, tables={"squares": made})
        return status, said.getvalue(), self.page.read_text(encoding="utf-8")

    def test_writes_the_table_and_nothing_else(self):
        status, said, page = self.run_main(PAGE)
        self.assertEqual(status, 0)
        self.assertIn("page.md: squares is made anew", said)
        self.assertEqual(page, PAGE.replace("| 2 | 4 |\n", "| 2 | 4 |\n| 3 | 9 |\n"))
        self.assertEqual(self.run_main(page), (0, "", page))
        self.assertEqual([path.name for path in self.docs.iterdir()], ["page.md"])

    def test_writes_a_table_where_there_is_none_yet(self):
        _, _, page = self.run_main("<!-- table: squares -->\n\nAfter.\n")
        self.assertEqual(page, "<!-- table: squares -->\n" + "\n".join(squares()) + "\n\nAfter.\n")

    def test_check_changes_nothing(self):
        status, said, page = self.run_main(PAGE, "--check")
        self.assertEqual((status, page), (1, PAGE))
        self.assertIn("squares differs", said)

    def test_unknown_table(self):
        page = PAGE.replace("table: squares", "table: cubes")
        status, said, after = self.run_main(page)
        self.assertEqual((status, after), (1, page))
        self.assertIn("page.md: line 3: there is no table cubes; there are squares", said)

    def test_results_that_cannot_be_used(self):
        for made, message in (
            (refuses, "page.md: results.json: cannot be read"),
            (lambda: {}["rows"], "page.md: results have another form than a table expects: KeyError('rows')"),
        ):
            status, said, after = self.run_main(PAGE, made=made)
            self.assertEqual((status, after), (1, PAGE))
            self.assertIn(message, said)

    def test_missing_results(self):
        with self.assertRaisesRegex(tables.Error, "h200/nothing.json: .*No such file"):
            tables.results("h200/nothing")


class FormsTest(unittest.TestCase):
    def test_digits(self):
        for value, text in ((0.06114, "0.0611"), (2.836, "2.84"), (9.996, "10.0"), (224.4, "224"), (1074.2, "1074")):
            self.assertEqual(tables.digits(value), text)
        self.assertEqual(tables.digits(0.0541, 1), "0.05")

    def test_problem(self):
        self.assertEqual(tables.keys_of("b=4,d=64,mask=causal"), {"b": 4, "d": 64, "mask": "causal"})

    def test_reads_beside_model(self):
        row = {"counted": {"hbm_bytes_read": 150}, "expected_bytes_read": 100}
        row.update(expected_bytes_read_least=100, expected_bytes_read_most=100)
        self.assertEqual(tables.reads_beside_model(row), "1.50")
        row.update(expected_bytes_read_most=400)
        self.assertEqual(tables.reads_beside_model(row), "1.50 of 1.00–4.00")


if __name__ == "__main__":
    unittest.main()
