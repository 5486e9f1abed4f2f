// Calls each library of the toolkit without a GPU: headers and libraries have the same version, and
// programs find the libraries at run time.
#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cupti.h>
#include <nvrtc.h>

#include <string>

#include "gtest/gtest.h"

namespace {

TEST(ToolkitLabelsTest, Runtime) {
  int version = 0;
  ASSERT_EQ(cudaRuntimeGetVersion(&version), cudaSuccess);
  EXPECT_EQ(version, CUDART_VERSION);
}

TEST(ToolkitLabelsTest, Cublas) {
  int version = 0;
  ASSERT_EQ(cublasGetProperty(MAJOR_VERSION, &version), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(version, CUBLAS_VER_MAJOR);
}

TEST(ToolkitLabelsTest, Cupti) {
  const char* text = nullptr;
  ASSERT_EQ(cuptiGetResultString(CUPTI_SUCCESS, &text), CUPTI_SUCCESS);
  EXPECT_EQ(std::string(text), "CUPTI_SUCCESS");
}

TEST(ToolkitLabelsTest, NvrtcCompiles) {
  int major = 0;
  int minor = 0;
  ASSERT_EQ(nvrtcVersion(&major, &minor), NVRTC_SUCCESS);
  EXPECT_EQ(1000 * major + 10 * minor, CUDART_VERSION);
  nvrtcProgram program;
  ASSERT_EQ(nvrtcCreateProgram(&program, "__global__ void Kernel(int* p) { *p = 1; }", "kernel.cu",
                               0, nullptr, nullptr),
            NVRTC_SUCCESS);
  EXPECT_EQ(nvrtcCompileProgram(program, 0, nullptr), NVRTC_SUCCESS);
  EXPECT_EQ(nvrtcDestroyProgram(&program), NVRTC_SUCCESS);
}

}  // namespace
