"""compile_commands: actions of gcc and nvcc become commands that clangd can use in the
workspace."""

import unittest

from tools.dev import compile_commands

GCC = {
    "mnemonic": "CppCompile",
    "arguments": [
        "/usr/bin/gcc", "-Wall", "-fno-canonical-system-headers", "-iquote", ".", "-iquote", "bazel-out/k8-opt/bin", "-isystem",
        "external/com_google_absl/include", "-c", "attention/core/problem.cc", "-o", "problem.o",
    ],
}  # yapf: disable
NVCC = {
    "mnemonic": "CudaCompile",
    "arguments": [
        "/opt/cuda/bin/nvcc", "-x", "cu", "-c", "attention/fa2/kernel.cu", "-o", "kernel.o",
        "--frandom-seed=1", "-ccbin", "/usr/bin/gcc", "-std=c++17", "-gencode",
        "arch=compute_90a,code=sm_90a", "-Xcompiler", "-Wl\\,x", "-DN=1", "-I", ".", "-isystem",
        "/opt/cuda/include", "--extended-lambda",
    ],
}  # yapf: disable


def convert(*actions, clangd_major=14):
    return compile_commands.convert({"actions": list(actions)}, "/src/attnlab", "/base/execroot/attnlab", clangd_major)


class CompileCommandsTest(unittest.TestCase):
    def test_gcc(self):
        (entry,) = convert(GCC)
        self.assertEqual(entry["file"], "attention/core/problem.cc")
        self.assertEqual(entry["directory"], "/src/attnlab")
        self.assertEqual(
            entry["arguments"],
            [
                "/usr/bin/gcc", "-Wall", "-iquote", "/src/attnlab", "-iquote",
                "/base/execroot/attnlab/bazel-out/k8-opt/bin", "-isystem",
                "/base/external/com_google_absl/include", "-c", "attention/core/problem.cc", "-o",
                "problem.o",
            ],
        )  # yapf: disable

    def test_nvcc(self):
        (entry,) = convert(NVCC)
        self.assertEqual(
            entry["arguments"],
            [
                "clang++", "-x", "cuda", "--cuda-gpu-arch=sm_86", "--cuda-path=/opt/cuda",
                "-Wno-unknown-cuda-version", "-c", "attention/fa2/kernel.cu", "-std=c++17", "-Wl,x",
                "-DN=1", "-I", "/src/attnlab", "-isystem", "/opt/cuda/include",
            ],
        )  # yapf: disable

    def test_a_newer_clang_knows_hopper(self):
        (entry,) = convert(NVCC, clangd_major=16)
        self.assertIn("--cuda-gpu-arch=sm_90", entry["arguments"])

    def test_a_source_of_two_targets_is_there_once_and_external_sources_are_not(self):
        external = dict(GCC, arguments=["gcc", "-c", "external/x/x.cc"])
        self.assertEqual([e["file"] for e in convert(NVCC, GCC, GCC, external)],
                         ["attention/core/problem.cc", "attention/fa2/kernel.cu"])


if __name__ == "__main__":
    unittest.main()
