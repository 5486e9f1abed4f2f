"""Rules for CUDA: cuda_library, cuda_binary, cuda_test. README.md beside this file says how to use them."""

load("//third_party/cuda/private:cuda_library.bzl", _cuda_library = "cuda_library")
load("//third_party/cuda/private:macros.bzl", _cuda_binary = "cuda_binary", _cuda_test = "cuda_test")
load("//third_party/cuda/private:toolkit.bzl", _CudaToolkitInfo = "CudaToolkitInfo")

CudaToolkitInfo = _CudaToolkitInfo
cuda_binary = _cuda_binary
cuda_library = _cuda_library
cuda_test = _cuda_test
