#include "tools/command/selection.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/cuda/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::command {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::vector<std::string> Lines(const ProblemFlags& flags) {
  const auto problems = ProblemsOf(flags);
  if (!problems.ok()) return {std::string(problems.status().message())};
  std::vector<std::string> lines;
  for (const AttentionProblem& p : *problems) {
    lines.push_back(absl::StrCat(p.sq, " ", Name(p.dtype)));
  }
  return lines;
}

TEST(SelectionTest, ProblemsComeFromEveryFlagInOrder) {
  ProblemFlags flags;
  EXPECT_TRUE(ProblemsOf(flags)->empty());
  flags.presets = {"llama3-8b-prefill-512;gpt2"};
  flags.problems = {"hq=1,sq=1/2,d=8;hq=1,sq=3,d=8", "hq=1,sq=4,d=8"};
  EXPECT_THAT(Lines(flags),
              ElementsAre("1 bf16", "2 bf16", "3 bf16", "4 bf16", "512 bf16", "1024 fp32"));
  flags.problems = {"llama3-8b-decode-4k,sq=5/6", "gpt2"};
  flags.presets = {};
  EXPECT_THAT(Lines(flags), ElementsAre("5 bf16", "6 bf16", "1024 fp32"));
  flags.problems = {};
  flags.presets = {"llama3-8b-prefill-512;gpt2"};
  flags.dtype = "fp16/fp32";
  EXPECT_THAT(Lines(flags), ElementsAre("512 fp16", "512 fp32", "1024 fp16", "1024 fp32"));
}

TEST(SelectionTest, TheSameProblemIsDoneOnce) {
  ProblemFlags flags;
  flags.problems = {"gpt2;hq=1,sq=1/2/1,d=8", "hq=1,hkv=1,sq=2..4,skv=2,d=8,dtype=bf16"};
  flags.presets = {"gpt2", "gpt2,b=8"};
  EXPECT_THAT(Lines(flags), ElementsAre("1024 fp32", "1 bf16", "2 bf16", "4 bf16"));
  flags.problems = {"gpt2;gpt2,dtype=bf16"};
  flags.dtype = "fp16/fp16";
  EXPECT_THAT(Lines(flags), ElementsAre("1024 fp16"));
}

TEST(SelectionTest, BadProblemsNameTheFlag) {
  ProblemFlags flags;
  flags.problems = {"hq=1"};
  EXPECT_THAT(Lines(flags), ElementsAre("--problem: sq: is required and missing"));
  flags.problems = {"gpt3"};
  EXPECT_THAT(Lines(flags),
              ElementsAre(HasSubstr("--problem: \"gpt3\" is not known; there are the presets")));
  flags.problems = {""};
  EXPECT_THAT(Lines(flags), ElementsAre(StartsWith("--problem: empty key")));
  flags.problems = {};
  flags.presets = {"gpt2,b=x"};
  EXPECT_THAT(Lines(flags), ElementsAre("--preset: b: \"x\" is not a 64-bit integer"));
  flags.presets = {"gpt2"};
  flags.dtype = "fp32/x";
  EXPECT_THAT(Lines(flags), ElementsAre(HasSubstr("--dtype: \"x\" is not one of")));
  flags.dtype = "";
  flags.presets = {};
  flags.problems = {"hq=1,sq=1..512,d=1..512,b=1..8", "hq=2,sq=1..512,d=1..512,b=1..128"};
  EXPECT_THAT(Lines(flags), ElementsAre("--problem: 1200 problems are more than 1000"));
}

std::vector<std::string> KernelNames(absl::string_view names) {
  const auto kernels = KernelsOf(names);
  if (!kernels.ok()) return {std::string(kernels.status().message())};
  std::vector<std::string> result;
  for (const Kernel* kernel : *kernels) result.push_back(kernel->traits().name);
  return result;
}

TEST(SelectionTest, KernelsByNameOrByPreference) {
  EXPECT_THAT(KernelNames("all"), ElementsAre("reference", "ctrl_c", "failing", "tunable", "wrong",
                                              "picky", "via_host", "cpu"));
  EXPECT_THAT(KernelNames(""), ElementsAre("reference", "ctrl_c", "failing", "tunable", "wrong",
                                           "picky", "via_host", "cpu"));
  EXPECT_THAT(KernelNames("picky,reference,picky"), ElementsAre("picky", "reference"));
  EXPECT_THAT(KernelNames("picki"),
              ElementsAre("--kernel: there is no \"picki\"; there are cpu, ctrl_c, failing, picky, "
                          "reference, tunable, via_host, wrong; did you mean picky?"));
  EXPECT_THAT(KernelNames("picky,all"), ElementsAre("picky", "reference", "ctrl_c", "failing",
                                                    "tunable", "wrong", "via_host", "cpu"));
  EXPECT_THAT(KernelNames("all,picky"), KernelNames("all"));
  EXPECT_THAT(KernelNames("all,x"), ElementsAre(HasSubstr("there is no \"x\"")));
  EXPECT_THAT(KernelNames("reference,"), ElementsAre(HasSubstr("there is no \"\"")));
}

TEST(SelectionTest, KernelsThatAreNamed) {
  const Kernel& picky = *KernelsOf("picky")->front();
  EXPECT_TRUE(IsNamed(picky, "picky"));
  EXPECT_TRUE(IsNamed(picky, "all,picky"));
  EXPECT_FALSE(IsNamed(picky, "all"));
  EXPECT_FALSE(IsNamed(picky, ""));
  EXPECT_FALSE(IsNamed(picky, "pick,pickyer"));
}

TEST(SelectionTest, Configurations) {
  EXPECT_EQ(ConfigsOf({})->size(), 1u);
  EXPECT_EQ(ConfigsOf({"a=1..8", "a=8/16"})->size(), 5u);
  EXPECT_EQ((*ConfigsOf({"a=1..8", "a=8/16"}))[4].ToString(), "a=16");
  EXPECT_EQ(ConfigsOf({"a=1..8,b=1..8,c=1..8", "d=1..1m,e=1/2"}).status().message(),
            "--config: 106 configurations are more than 100");
  EXPECT_EQ(ConfigsOf({"a=8..1"}).status().message(),
            "--config: a: \"8..1\" ends before it begins");
  EXPECT_EQ((*ConfigsOf({"a=1", "b=2,c=3"}))[1].ToString(), "b=2,c=3");
  EXPECT_TRUE((*ConfigsOf({"a=1", "default"}))[1].empty());
  EXPECT_THAT(std::string(ConfigsOf({"a=1", "a"}).status().message()), HasSubstr("--config: "));
}

TEST(SelectionTest, KeysOfConfigurations) {
  const std::vector<const Kernel*> kernels = *KernelsOf("picky,reference");
  EXPECT_TRUE(ConfigsOf({}, kernels).ok());
  EXPECT_TRUE(ConfigsOf({"tile_q=1..4"}, kernels).ok());
  const absl::Status s = ConfigsOf({"tile_q=1", "tile_k=1"}, kernels).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(s.message(),
            "--config: unknown key \"tile_k\"; picky has tile_q; reference has none; did you mean "
            "tile_q?");
  const LaunchConfig config = (*ConfigsOf({"tile_q=999999"}))[0];
  EXPECT_TRUE(HasKeysOf(*kernels[0], config));
  EXPECT_FALSE(HasKeysOf(*kernels[1], config));
}

TEST(SelectionTest, Devices) {
  const AttentionProblem p = *AttentionProblem::Parse("hq=1,sq=1,d=1");
  EXPECT_EQ(DeviceOf("cpu", p, {}, {})->device, Device::Cpu());
  EXPECT_EQ(DeviceOf("auto", p, *KernelsOf("reference,wrong"), {})->device, Device::Cpu());
  EXPECT_EQ(DeviceOf("auto", p, *KernelsOf("all"), {})->device,
            CudaInfo().ok() ? Device::Cuda(0) : Device::Cpu());
  const auto gpu = DeviceOf("auto", p, *KernelsOf("via_host"), {});
  if (CudaInfo().ok()) {
    EXPECT_EQ(gpu->device, Device::Cuda(0));
  } else {
    EXPECT_EQ(gpu.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(gpu.status().message()), HasSubstr("via_host: runs on GPUs; "));
  }
  EXPECT_EQ(DeviceOf("auto", p, *KernelsOf("via_host,reference"), {}).ok(), true);
  EXPECT_EQ(DeviceOf("cuda:99", p, {}, {}).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DeviceOf("tpu", p, {}, {}).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SelectionTest, EachKernelHasItsDevice) {
  const Kernel& reference = *KernelsOf("reference")->front();
  const Kernel& via_host = *KernelsOf("via_host")->front();
  EXPECT_EQ(DeviceFor("auto", reference)->device, Device::Cpu());
  EXPECT_EQ(DeviceFor("cpu", via_host)->device, Device::Cpu());  // PlanFor() declines it
  const auto gpu = DeviceFor("auto", via_host);
  if (CudaInfo().ok()) {
    EXPECT_EQ(gpu->device, Device::Cuda(0));
  } else {
    EXPECT_EQ(gpu.status().code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(std::string(gpu.status().message()), HasSubstr("via_host: runs on GPUs; "));
  }
  EXPECT_EQ(DeviceFor("cuda:99", reference).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DeviceFor("tpu", reference).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(SelectionTest, FlagsAreToBlameUnlessSomethingIsLacking) {
  const absl::Status invalid = absl::InvalidArgumentError("x");
  Blame blame;
  EXPECT_FALSE(blame.Flags());
  blame.Add(absl::OkStatus());
  EXPECT_FALSE(blame.Flags());
  blame.Add(invalid);
  EXPECT_TRUE(blame.Flags());
  blame.Add(absl::UnavailableError("no GPU"));
  EXPECT_FALSE(blame.Flags());
  blame.AddInputs(absl::ResourceExhaustedError("x"));
  EXPECT_FALSE(blame.Flags());
  blame.AddInputs(invalid);
  EXPECT_TRUE(blame.Flags());
}

TEST(SelectionTest, WhatNothingDoneEndsWith) {
  const auto ends_with = [](std::vector<absl::Status> reasons) {
    Blame blame;
    for (const absl::Status& reason : reasons) blame.Add(reason);
    return blame.NothingDone();
  };
  const absl::Status invalid = absl::InvalidArgumentError("config: unknown key"),
                     no_gpu = absl::UnavailableError("fa2: runs on GPUs; there is none"),
                     declined = absl::UnimplementedError("cpu: dtype");
  EXPECT_EQ(ends_with({invalid}), absl::InvalidArgumentError("no kernel takes these flags"));
  const absl::Status no_device =
      absl::UnavailableError("this machine has no device for the kernels that might");
  EXPECT_EQ(ends_with({no_gpu}), no_device);
  EXPECT_EQ(ends_with({invalid, no_gpu}), no_device);
  const absl::Status no_kernel =
      absl::UnimplementedError("no kernel here does any of these problems");
  EXPECT_EQ(ends_with({declined, no_gpu}), no_kernel);
  EXPECT_EQ(ends_with({}), no_kernel);
  EXPECT_EQ(Blame().NothingDone(" on a GPU"),
            absl::UnimplementedError("no kernel here does any of these problems on a GPU"));
}

TEST(SelectionTest, WhatDoesNotFitIsNotPlanned) {
  const Kernel& kernel = *KernelsOf("reference")->front();
  DeviceInfo small = CpuInfo();
  small.memory_bytes = 1 << 20;
  EXPECT_TRUE(PlanFor(kernel, *AttentionProblem::Parse("hq=1,sq=64,d=8"), small, {}).ok());
  const auto plan = PlanFor(kernel, *AttentionProblem::Parse("hq=8,sq=4096,d=64"), small, {});
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(plan.status().message()),
              HasSubstr("of it workspace, and cpu has 1 MiB"));
  // Memory that others use is not free.
  DeviceInfo full = CpuInfo();
  full.memory_bytes = int64_t{1} << 60;
  const auto beyond =
      PlanFor(kernel, *AttentionProblem::Parse("b=1000,hq=1000,sq=1000000,d=512"), full, {});
  EXPECT_EQ(beyond.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(beyond.status().message()),
              MatchesRegex(".* and cpu has .*B, of which .*iB are free"));
  // The lengths of empty sequences take memory.
  for (const std::string lens : {"fixed", "packed", "padded"}) {
    const std::string line = "b=2147483647,hq=1,sq=0,d=8,lens=" + lens;
    EXPECT_EQ(PlanFor(kernel, *AttentionProblem::Parse(line), small, {}).status().code(),
              absl::StatusCode::kResourceExhausted)
        << lens;
  }
}

}  // namespace
}  // namespace attnlab::command
