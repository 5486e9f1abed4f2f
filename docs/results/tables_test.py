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
        lines = [line for path in tables.DOCS.glob("*.md") for line in path.read_text(encoding="utf-8").split("\n")]
        names = [mark.group(1) for mark in map(tables.MARK.fullmatch, lines) if mark]
        self.assertEqual(sorted(names), sorted(tables.TABLES))


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

    def test_pages_that_are_not_right(self):
        mark = "<!-- table: squares -->"
        for page, message in (
            (PAGE.replace(mark, "<!-- table: cubes -->"), "line 3: there is no table cubes; there are squares"),
            (PAGE.replace(mark, mark + " "), "line 3: '<!-- table: squares --> ' is not a line of its own"),
            (PAGE.replace(mark, "Squares: " + mark), "line 3: 'Squares: <!-- table: squares -->' is not a line of its own"),
            (PAGE.replace(mark, "<!-- table:squares -->"), "line 3: '<!-- table:squares -->' is not"),
            (PAGE.replace(mark, mark + "\n"), "line 4: a table begins on the line after its name"),
        ):
            status, said, after = self.run_main(page)
            self.assertEqual((status, after), (1, page))
            self.assertIn("page.md: " + message, said)

    def test_a_page_that_cannot_be_read_does_not_stop_the_others(self):
        (self.docs / "a.md").write_bytes(b"\xff")
        status, said, page = self.run_main(PAGE)
        self.assertEqual(status, 1)
        self.assertIn("a.md: 'utf-8' codec", said)
        self.assertIn("| 3 | 9 |", page)

    def test_a_link_stays_a_link(self):
        target = self.docs / "elsewhere"
        target.write_text(PAGE, encoding="utf-8")
        self.page.symlink_to(target)
        self.run_main(PAGE)
        self.assertTrue(self.page.is_symlink())
        self.assertIn("| 3 | 9 |", target.read_text(encoding="utf-8"))

    def test_results_that_cannot_be_used(self):
        form = "page.md: squares: its results have another form than it expects: "
        for make, message in (
            (refuses, "page.md: squares: results.json: cannot be read"),
            (lambda: {}["rows"], form + "KeyError('rows')"),
            (lambda: tables.digits(float("nan")), form + "IndexError"),
            (lambda: tables.one([]), form + "ValueError"),
        ):
            status, said, after = self.run_main(PAGE, made=make)
            self.assertEqual((status, after), (1, PAGE))
            self.assertIn(message, said)

    def test_missing_results(self):
        with self.assertRaisesRegex(tables.Error, "h200/nothing.json: .*No such file"):
            tables.results("h200/nothing")

    def test_results_that_say_they_are_wrong(self):
        good = {"rows": [{"verdict": "ok", "correct": True}, {"results": {"fa2": {"agrees": True}}}], "complete": True}
        tables.check_good(good, "file")
        for bad, message in (
            ({**good, "complete": False}, "file: complete is False"),
            ({"rows": [good, {"verdict": "WRONG"}]}, "file.rows[1]: verdict is WRONG"),
            ({"rows": [{"results": {"fa2": {"agrees": False}}}]}, "file.rows[0].results.fa2: agrees is False"),
        ):
            with self.assertRaises(tables.Error) as caught:
                tables.check_good(bad, "file")
            self.assertEqual(str(caught.exception), message)


class FormsTest(unittest.TestCase):
    def test_rows_by_what_they_are_of(self):
        rows = [{"step": "S", "block": 64}, {"step": "S", "block": 32}]
        self.assertEqual(tables.by(rows, "step", "block")["S", 32], rows[1])
        self.assertEqual(tables.by(rows, "block")[64], rows[0])
        with self.assertRaisesRegex(tables.Error, "two rows of S"):
            tables.by(rows, "step")

    def test_digits(self):
        for value, text in ((0.06114, "0.0611"), (2.836, "2.84"), (9.996, "10.0"), (224.4, "224"), (1074.2, "1074")):
            self.assertEqual(tables.digits(value), text)
        for value, text in ((1881.3, "1881 M"), (16.777, "16.8 M"), (9.96, "10.0 M"), (0.0556, "0.1 M"), (0, "0")):
            self.assertEqual(tables.millions(1e6 * value), text)

    def test_problem(self):
        self.assertEqual(tables.keys_of("b=4,d=64,mask=causal"), {"b": 4, "d": 64, "mask": "causal"})

    def test_reads_beside_model(self):
        row = {"counted": {"hbm_bytes_read": 150}, "expected_bytes_read": 100}
        self.assertEqual(tables.reads_beside_model({**row, "l2_decides": False}), "1.50")
        self.assertEqual(tables.reads_beside_model({**row, "l2_decides": True}), "(1.50)")
        row.update(expected_bytes_read_least=100, expected_bytes_read_most=100)
        self.assertEqual(tables.reads_beside_model(row), "1.50")
        row.update(expected_bytes_read_most=400)
        self.assertEqual(tables.reads_beside_model(row), "(1.50)")


if __name__ == "__main__":
    unittest.main()
