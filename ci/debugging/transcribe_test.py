"""transcribe.py says what is missing before it does anything. Needs no GPU."""

import contextlib
import io
import os
import sys
import tempfile
import unittest
from unittest import mock

from ci.debugging import sessions, transcribe


class TranscribeTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.root = scratch.name
        os.mkdir(os.path.join(self.root, "bin"))
        self.out = os.path.join(self.root, "out")

    def program(self, name, text="exit 0"):
        path = os.path.join(self.root, name)
        with open(path, "w", encoding="utf-8") as f:
            f.write("#!/bin/sh\n%s\n" % text)
        os.chmod(path, 0o755)

    def transcribe(self):
        """(exit code, standard error) with the programs in the test's directory."""
        arguments = ["transcribe", self.out, "--cuda=" + self.root]
        with mock.patch.object(sessions, "HERE", self.root), mock.patch.object(sys, "argv", arguments):
            with contextlib.redirect_stderr(io.StringIO()) as err:
                code = transcribe.main()
        return code, err.getvalue()

    def test_a_tool_that_is_missing_is_named_and_nothing_is_written(self):
        for name in ["bin/cuda-gdb", "planted", "planted_debug", "bin/compute-sanitizer"]:
            path = os.path.join(self.root, name)
            code, err = self.transcribe()
            self.assertEqual(code, 2)
            self.assertEqual(err, "transcribe: %s: is not a program; set --cuda=DIRECTORY to the toolkit\n" % path)
            self.assertFalse(os.path.exists(self.out))
            self.program(name)

    def test_without_a_gpu_nothing_is_written(self):
        for name in ["bin/cuda-gdb", "bin/compute-sanitizer", "planted_debug"]:
            self.program(name)
        self.program("planted", "echo 'cudaMalloc: no CUDA-capable device is detected' >&2; exit 3")
        code, err = self.transcribe()
        self.assertEqual(code, 2)
        self.assertEqual(
            err,
            "transcribe: the sessions need a GPU that this was built for: "
            "cudaMalloc: no CUDA-capable device is detected\n",
        )
        self.assertFalse(os.path.exists(self.out))

    def test_with_all_there_it_begins(self):
        for name in ["bin/cuda-gdb", "bin/compute-sanitizer", "planted_debug", "planted"]:
            self.program(name, "echo said")
        with mock.patch.dict(sessions.SESSIONS, {"one": [sessions.Step("one", "{planted} none")]}, clear=True):
            self.assertEqual(self.transcribe(), (0, ""))
        with open(os.path.join(self.out, "one.txt"), encoding="utf-8") as f:
            self.assertEqual(f.read(), "$ planted none\nsaid\n(exit code 0)\n")


if __name__ == "__main__":
    unittest.main()
