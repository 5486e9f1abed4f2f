"""Tests ncu_steps.py with fake attnlab and ncu programs."""

import contextlib
import io
import json
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import support  # of //tools/python/tests: reports skipped cases as skipped

from profiling.ncu import ncu_steps

DEVICES = json.dumps({"devices": [{"device": "cpu", "name": "CPU"}, {"device": "cuda:0", "name": "GPU"}]})
KERNELS = [f"void attnlab::<unnamed>::{part}<float, 8>(attnlab::Task)" if part else "sgemm_128x128" for _, part, _, _ in ncu_steps.STEPS]


def table(kernels=tuple(KERNELS), read="201.5"):
    lines = ['==PROF== Connected\n"ID","Kernel Name","Metric Name","Metric Unit","Metric Value"']
    for index, kernel in enumerate(kernels):
        for metric, unit, value in (
            (ncu_steps.TIME, "us", "96.5"), (ncu_steps.READ, "Mbyte", read), (ncu_steps.WRITTEN, "byte", "175,060,480"),
        ):  # yapf: disable
            lines.append(f'"{index}","{kernel}","{metric}","{unit}","{value}"')
    return "\n".join(lines) + "\n"


class NcuStepsTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.json = self.directory / "out.json"
        self.json.write_text("before")

    def program(self, name, out, code=0):
        path = self.directory / name
        (self.directory / f"{name}.out").write_text(out)
        path.write_text(f'#!/bin/sh\necho "$@" > {path}.said; cat {path}.out; exit {code}\n')
        path.chmod(0o755)

    def run_with(self, attnlab=DEVICES, ncu=table(), ncu_code=0):
        """The exit status, stdout and stderr."""
        self.program("attnlab", attnlab)
        if ncu is not None:
            self.program("ncu", ncu, ncu_code)
        out, err = io.StringIO(), io.StringIO()
        path = {"PATH": f"{self.directory}:/usr/bin:/bin"}
        with mock.patch.dict(os.environ, path), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            arguments = [f"--attnlab={self.directory / 'attnlab'}", f"--json={self.json}", "--commit=abc"]
            status = ncu_steps.main(arguments)
        return status, out.getvalue(), err.getvalue()

    def test_steps_beside_their_models(self):
        status, out, err = self.run_with()
        self.assertEqual((status, err), (0, ""))
        self.assertIn("| S = Q K^T | 0.097 | 201.5 | 402.7 | 175.1 | 3221.2 |\n", out)
        written = json.loads(self.json.read_text())
        self.assertEqual((written["gpu"], written["commit"]), ("GPU", "abc"))
        self.assertEqual([row["step"] for row in written["steps"]], [step for step, _, _, _ in ncu_steps.STEPS])
        self.assertEqual(
            written["steps"][0],
            {"step": "permute Q", "kernel": "attnlab::<unnamed>::PermuteKernel<float, 8>", "milliseconds": 0.0965,
             "dram_bytes_read": 201500000, "dram_bytes_written": 175060480, "model_bytes_read": 201326592,
             "model_bytes_written": 201326592},
        )  # yapf: disable
        said = (self.directory / "ncu.said").read_text()
        self.assertIn(f"--launch-count {len(ncu_steps.STEPS)}", said)
        self.assertIn("attnlab verify --kernel=baseline --problem=gpt2,b=64 --layout=qkv", said)

    def test_what_is_not_as_it_should_be(self):
        for options, status, says in (
            ({"ncu": None}, 3, "ncu is not on PATH"),
            ({"ncu": table(KERNELS[:-1])}, 1, "launch 8, permute O, must be PermuteKernel, is missing"),
            ({"ncu": table(KERNELS[1:])}, 1, "launch 3, permute V, must be PermuteKernel, is sgemm_128x128"),
            ({"ncu": table(read="n/a")}, 1, "dram__bytes_read.sum is 'n/a' 'Mbyte'"),
            ({"ncu": "it broke", "ncu_code": 9}, 1, "ended with 9: it broke"),
            ({"attnlab": "no JSON"}, 1, "list --json printed no list: 'no JSON'"),
            ({"attnlab": '{"devices": []}'}, 3, "there is no GPU here"),
        ):
            got, out, err = self.run_with(**options)
            self.assertEqual((got, out), (status, ""), says)
            self.assertIn(says, err)
            self.assertEqual(self.json.read_text(), "before")


if __name__ == "__main__":
    support.main()
