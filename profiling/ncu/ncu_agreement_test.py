"""Tests ncu_agreement.py with fake attnlab and ncu programs."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import support  # of //tools/python/tests: reports skipped cases as skipped

from profiling.ncu import ncu_agreement

ROW = {"problem": "hq=1", "kernel": "fa2", "verdict": "not checked", "launches": [{"kernel": "Fa2"}],
       "counted": {"hbm_bytes_read": 4e9, "hbm_bytes_written": 1e9}}
TABLE = """==PROF== Connected
"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"
"0","Fa2","dram__bytes_read.sum","Gbyte","3.99"
"0","Fa2","dram__bytes_write.sum","Mbyte","1,000.5"
"""


def profile(*rows):
    return json.dumps({"machine": {"last_level_cache_bytes": 1 << 20}, "rows": list(rows)})


class NcuAgreementTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)

    def program(self, name, out, code=0, err=""):
        path = self.directory / name
        (self.directory / f"{name}.out").write_text(out)
        (self.directory / f"{name}.err").write_text(err)
        path.write_text(f"#!/bin/sh\ncat {path}.out; cat {path}.err >&2; exit {code}\n")
        path.chmod(0o755)
        return path

    def run_with(self, *arguments, attnlab=profile(ROW), code=0, err="", ncu=TABLE, ncu_code=0):
        """The exit status, stdout and stderr."""
        attnlab = self.program("attnlab", attnlab, code, err)
        if ncu is not None:
            self.program("ncu", ncu, ncu_code)
        return self.main(f"--attnlab={attnlab}", *arguments)

    def main(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        path = {"PATH": f"{self.directory}:/usr/bin:/bin"}
        with mock.patch.dict(os.environ, path), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = ncu_agreement.main(list(arguments))
            except SystemExit as exited:  # from argparse
                status = exited.code
        return status, out.getvalue(), err.getvalue()

    def test_what_agrees(self):
        path = self.directory / "out.json"
        status, out, err = self.run_with(f"--json={path}")
        self.assertEqual((status, err), (0, ""))
        self.assertIn("| `hq=1` | fa2 | 4000.00 | 3990.00 | +0.25 % | 1000.00 | 1000.50 |", out)
        self.assertEqual(json.loads(path.read_text())["rows"][0]["ncu_read"], 3.99e9)
        self.assertEqual(self.run_with("--within=0.002")[0], 1)
        self.assertEqual(self.run_with("--within=0")[0], 1)

    def test_bad_arguments(self):
        for arguments, says in [
            (["--within=-1"], "-1 is not a number from 0 on"),
            (["--within=nan"], "nan is not a number from 0 on"),
            (["--within=x"], "invalid fraction value"),
            (["--json=/no/such/out.json"], "--json: /no/such/out.json: No such file"),
            ([f"--json={self.directory}"], "is a directory"),
        ]:
            status, out, err = self.run_with(*arguments)
            self.assertEqual((status, out), (2, ""), arguments)
            self.assertIn(says, err)

    def test_what_cannot_be_run(self):
        status, _, err = self.run_with(ncu=None)
        self.assertEqual(status, 3)
        self.assertIn("ncu is not on PATH", err)
        self.program("ncu", TABLE)
        status, _, err = self.main("--attnlab=/no/such/attnlab")
        self.assertEqual(status, 2)
        self.assertIn("/no/such/attnlab: cannot be run: No such file", err)
        status, _, err = self.run_with(attnlab="", code=3, err="attnlab profile: there is no GPU")
        self.assertEqual(status, 3)
        self.assertIn("there is no GPU", err)

    def test_output_that_is_not_what_it_should_be(self):
        for options, says in [
            ({"attnlab": "no JSON"}, "printed no profile: 'no JSON'"),
            ({"attnlab": "[]"}, "printed no profile"),
            ({"ncu": "==ERROR== ERR_NVGPUCTRPERM"}, "no table: ==ERROR== ERR_NVGPUCTRPERM"),
            ({"ncu": ""}, "nothing at all"),
            ({"ncu": TABLE.replace("3.99", "n/a")}, "dram__bytes_read.sum is 'n/a'"),
            ({"ncu": TABLE.replace("Gbyte", "furlong")}, "'furlong'"),
            ({"ncu": TABLE.replace("bytes_read", "bytes_red")}, "dram__bytes_read.sum is not in its table"),
            ({"ncu": "out of order", "ncu_code": 9}, "ended with 9: out of order"),
        ]:
            path = self.directory / "out.json"
            path.write_text("before")
            status, _, err = self.run_with(f"--json={path}", **options)
            self.assertIn(status, (1, 3), says)
            self.assertIn(says, err)
            self.assertEqual(path.read_text(), "before")

    def test_rows_that_failed_are_told_and_others_compared(self):
        failed = {**ROW, "verdict": "failed", "message": "it broke", "launches": [], "counted": {}}
        status, out, err = self.run_with(attnlab=profile(failed, ROW), code=1)
        self.assertEqual(status, 1)
        self.assertIn("fa2 failed on hq=1: it broke", err)
        self.assertIn("+0.25 %", out)
        self.assertEqual(self.run_with(attnlab=profile(failed), code=1)[0], 1)

    def test_rows_that_say_nothing_are_left_out(self):
        for row in [{**ROW, "launches": ROW["launches"] * 2}, {**ROW, "counted": {"hbm_bytes_read": 1}},
                    {**ROW, "counted": {"hbm_bytes_read": None}}, {**ROW, "counted": {}}]:
            status, _, err = self.run_with(attnlab=profile(row))
            self.assertEqual(status, 2)
            self.assertIn("no call with one launch reads four times", err)


if __name__ == "__main__":
    support.main()
