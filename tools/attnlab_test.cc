// The command as a process: what it prints, what it writes, and what it ends with.
#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/files.h"
#include "tools/npy.h"
#include "tools/process.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

using Words = std::vector<std::string>;

// The command with all kernels of this tree, and one with the oracle and the kernels of
// test_kernels.cc, some of them wrong on purpose.
ProcessResult Attnlab(const Words& words, const ProcessOptions& options = {}) {
  return RunProcess(Runfile("tools/attnlab"), words, options);
}
ProcessResult TestAttnlab(const Words& words, const ProcessOptions& options = {}) {
  return RunProcess(Runfile("tools/attnlab_with_test_kernels"), words, options);
}

std::string Data(const std::string& name) { return Runfile("tools/testdata/" + name + ".npy"); }

class AttnlabTest : public testing::Test {
 protected:
  AttnlabTest() {
    std::string name = absl::StrCat(testing::TempDir(), "/attnlab test XXXXXX");
    directory_ = mkdtemp(&name[0]);
  }

  std::string Path(absl::string_view name) const { return absl::StrCat(directory_, "/", name); }

  Words Names() const {
    Words names;
    DIR* dir = opendir(directory_.c_str());
    while (const dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') names.push_back(entry->d_name);
    }
    closedir(dir);
    return names;
  }

  // Flags for the inputs of tools/testdata/causal_*.npy.
  static Words Causal(const Words& more = {}) {
    Words words = {"run", "--q=" + Data("causal_q"), "--k=" + Data("causal_k"),
                   "--v=" + Data("causal_v"), "--mask=causal"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }

  std::string directory_;  // with blanks in its name
};

json Parse(const std::string& text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  EXPECT_FALSE(parsed.is_discarded()) << text;
  return parsed;
}

// The kernels of the command that do the problem, by name.
Words KernelsFor(const std::string& problem) {
  Words names;
  const ProcessResult r = Attnlab({"verify", "--problem=" + problem, "--device=cpu", "--json"});
  const json parsed = Parse(r.out);
  for (const json& row : parsed["rows"]) {
    if (row["verdict"] == "ok") names.push_back(row["kernel"]);
  }
  return names;
}

// Help.

TEST_F(AttnlabTest, HelpGoesToTheOutputAndHasExamples) {
  for (const Words& words : std::vector<Words>{{"--help"},
                                               {"-h"},
                                               {"help"},
                                               {"list", "--help"},
                                               {"run", "--help"},
                                               {"verify", "-h"},
                                               {"bench", "--help"},
                                               {"help", "bench"}}) {
    const ProcessResult r = Attnlab(words);
    EXPECT_EQ(r.exit_code, 0) << words[0];
    EXPECT_THAT(r.out, HasSubstr("Usage: attnlab"));
    EXPECT_THAT(r.out, HasSubstr("Examples:\n"));
    EXPECT_THAT(r.out, HasSubstr("Exit codes:\n  0  "));
    EXPECT_THAT(r.err, IsEmpty());
  }
}

TEST_F(AttnlabTest, WithoutASubcommandItSaysHow) {
  const ProcessResult r = Attnlab({});
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.out, IsEmpty());
  EXPECT_THAT(r.err, HasSubstr("Usage: attnlab SUBCOMMAND"));
}

// Bad input.

TEST_F(AttnlabTest, BadInputIsExitCode2AndAMessage) {
  const std::string q = "--q=" + Data("causal_q"), k = "--k=" + Data("causal_k"),
                    v = "--v=" + Data("causal_v");
  const struct {
    Words words;
    std::string message;
  } kCases[] = {
      {{"benhc"}, "attnlab: unknown subcommand \"benhc\"; did you mean bench?"},
      {{"list", "--jsn"}, "attnlab list: unknown flag --jsn; did you mean --json?"},
      {{"list", "x"}, "attnlab list: unexpected argument \"x\"; flags begin with --"},
      {{"run"}, "attnlab run: no inputs; give --q, --k and --v, or --qkv, or --problem"},
      {{"run", q, k}, "--v is missing"},
      {{"run", q, "--problem=hq=1,sq=1,d=1"}, "give one of these"},
      {{"run", q, k, v, "--seed=1"}, "--seed goes with --problem or --preset"},
      {{"run", "--preset=gpt2", "--mask=none"}, "--mask goes with files"},
      {{"run", "--q", "--k"}, "--q needs a value: --q=FILE"},
      {{"run", q, k, "--v=" + Path("none.npy")}, "none.npy: cannot open: No such file"},
      {{"run", q, k, "--v=" + directory_}, "is a directory, not a .npy file"},
      {{"run", q, k, "--v=" + Data("packed_cu_seqlens_q")}, "has int32 elements where fp16"},
      {{"run", q, k, "--v=" + Data("npy_fuzz/fortran")}, "fortran_order: True is not supported"},
      {{"run", q, k, "--v=" + Data("npy_fuzz/big")}, "descr: '>f4' is big endian"},
      {{"run", q, k, "--v=" + Data("npy_fuzz/f4")}, "shape: [2, 3] is not [B, S, H, D]"},
      {{"run", q, k, "--v=" + Data("window_v")}, "window_v.npy: batch 1 where "},
      {{"run", q, k, "--v=" + Data("padded_v")}, "padded_v.npy: batch 3 where "},
      {{"run", q, q, k}, "--q is given twice"},
      {{"run", k, "--q=" + Data("causal_v"), v}, "causal_k.npy: head dim 8 where "},
      {{"run", q, k, "--v=" + Data("causal_q")}, "causal_q.npy: length 5 where "},
      {{"run", "--qkv=" + Data("causal_q")}, "is not [B, T, 3, H, D]"},
      {{"run", q, k, v, "--layout=hbsd"}, "--layout: \"hbsd\" is not one of bshd, bhsd"},
      {{"run", q, k, v, "--mask=causl"}, "mask: \"causl\" is not one of none, causal"},
      {{"run", q, k, v, "--mask=none,b=7"}, "--mask: \"none,b=7\" has a comma"},
      {{"run", q, k, v, "--scale=nan"}, "scale: nan is not 0 or in 1e-12..1e12"},
      {{"run", q, k, v, "--softcap=-1"}, "softcap: -1 is not in 1e-12..1e12"},
      {{"run", q, k, v, "--dtype=fp64"}, "--dtype: \"fp64\" is not one of fp32"},
      {{"run", q, k, v, "--out_dtype=x"}, "--out_dtype: \"x\" is not one of auto, fp16"},
      {{"run", q, k, v, "--kernel=referenc"}, "did you mean reference?"},
      {{"run", q, k, v, "--kernel=all"}, "--kernel: run does one, as in --kernel="},
      {{"run", q, k, v, "--kernel=cpu,reference"}, "\"cpu,reference\" names several"},
      {{"run", q, k, v, "--device=gpu"}, "--device: \"gpu\" is not one of auto, cpu, cuda"},
      {{"run", q, k, v, "--config=tile"}, "--config: \"tile\" is not of the form key=value"},
      {{"run", q, k, v, "--kv_len=" + Data("padded_kv_len")}, "kv_len: 3 entries where 2"},
      {{"run", q, k, v, "--kv_len=" + Data("causal_q")}, "where int32 or int64 are wanted"},
      {{"run", q, k, v, "--cu_seqlens_q=" + Data("packed_cu_seqlens_q")},
       "--cu_seqlens_kv is missing"},
      {{"run", q, k, v, "--out=" + Path("no/o.npy")}, "--out: "},
      {{"run", q, k, v, "--out=" + directory_}, "is a directory"},
      {{"run", q, k, v, "--out=" + Path("o"), "--lse=" + Path("o")}, "--out and --lse are both"},
      {{"run", q, k, v, "--out=" + Path("o"), "--lse=" + Path("./o")}, "--out and --lse are both"},
      {{"run", "--preset=gpt2,b=1/2"}, "run does one problem, and the flags give 2"},
      {{"run", "--preset=gpt3"},
       "--preset: \"gpt3\" is not known; there are the presets gpt2 and MODEL"},
      {{"verify", "--problem=hq=8,hkv=3,sq=1,d=1"}, "hkv: 3 does not divide hq = 8"},
      {{"verify", "--problem="}, "--problem: the value is empty"},
      {{"verify", "--problem=hq=1,sq=1,d=1;"}, "--problem: problem: empty key"},
      {{"verify", "--layout=x"}, "layout: \"x\" is not one of"},
      {{"verify", "--values=x"}, "values: \"x\" is not one of"},
      {{"verify", "--json", "--csv"}, "--json and --csv exclude each other"},
      {{"verify", "--dtype=fp13"}, "--dtype: \"fp13\" is not one of"},
      {{"bench", "--baseline=x"}, "--baseline: \"x\" is not among the kernels"},
      {{"bench", "--seconds=0"}, "--seconds: \"0\" is not a number in 0.001..3600"},
      {{"bench", "--repetitions=many"}, "--repetitions: \"many\" is not an integer"},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Attnlab(c.words);
    EXPECT_EQ(r.exit_code, 2) << c.message << "\n" << r.err;
    EXPECT_THAT(r.err, HasSubstr(c.message));
    EXPECT_THAT(r.err, StartsWith("attnlab"));
    EXPECT_THAT(r.out, IsEmpty());
  }
  EXPECT_THAT(Names(), IsEmpty());
}

TEST_F(AttnlabTest, AConfigurationThatNoKernelTakesIsExitCode2) {
  for (const char* config : {"--config=threads=0", "--config=nokey=1"}) {
    for (const char* subcommand : {"run", "verify", "bench"}) {
      const ProcessResult r =
          Attnlab({subcommand, "--problem=hq=1,sq=4,d=8", "--kernel=cpu", config});
      EXPECT_EQ(r.exit_code, 2) << subcommand << " " << config << "\n" << r.out << r.err;
    }
  }
  const ProcessResult bench = Attnlab({"bench", "--device=cpu", "--config=nokey=1"});
  EXPECT_EQ(bench.exit_code, 2) << bench.err;
  EXPECT_THAT(bench.err, HasSubstr("attnlab bench: no kernel takes these flags"));
}

TEST_F(AttnlabTest, WhatThisMachineCannotDoIsExitCode3) {
  const struct {
    Words words;
    std::string message;
  } kCases[] = {
      {{"run", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
      {{"verify", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
      {{"bench", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
      {{"run", "--problem=hq=1,sq=1,d=1,dtype=fp8_e4m3"}, "reference: dtype: fp8_e4m3"},
      {{"verify", "--problem=hq=1,sq=1,d=1,dtype=fp8_e4m3"}, "no kernel here does any"},
      {{"bench", "--problem=hq=1,sq=1,d=1,dtype=fp8_e4m3"}, "no kernel here does any"},
      {{"run", "--problem=b=1k,hq=1k,sq=1m,d=512", "--kernel=reference"}, "memory: reference on"},
      {{"bench", "--problem=b=1k,hq=1k,sq=1m,d=512", "--kernel=reference"}, "memory: reference on"},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Attnlab(c.words);
    EXPECT_EQ(r.exit_code, 3) << c.message << "\n" << r.err;
    EXPECT_THAT(r.err, HasSubstr(c.message));
  }
}

TEST_F(AttnlabTest, AFullDiskIsNotSilent) {
  ProcessOptions options;
  options.stdout_path = "/dev/full";
  const ProcessResult r = Attnlab({"list"}, options);
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_THAT(r.err, HasSubstr("cannot write to the standard output"));
  const ProcessResult run = Attnlab(Causal({"--out=/dev/full"}));
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_THAT(run.err, HasSubstr("/dev/full: cannot write: No space left on device"));
}

TEST_F(AttnlabTest, AFileAboveTheLimitOnSizesIsAnError) {
  const ProcessResult r = RunProcess(
      "/bin/sh", {"-c", "ulimit -f 1; exec \"$0\" run --problem=hq=1,sq=64,d=64 --out=\"$1\"",
                  Runfile("tools/attnlab"), Path("o.npy")});
  EXPECT_EQ(r.exit_code, 2) << r.err;
  EXPECT_THAT(r.err, HasSubstr("o.npy: cannot write: File too large"));
  EXPECT_THAT(Names(), IsEmpty());
}

// list

TEST_F(AttnlabTest, ListsKernelsDevicesAndPresets) {
  const ProcessResult r = Attnlab({"list"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, AllOf(HasSubstr("| cpu"), HasSubstr("| reference"), HasSubstr("| gpt2"),
                           HasSubstr("| llama3-8b-PHASE-LENGTH")));
}

TEST_F(AttnlabTest, ListAsJson) {
  const ProcessResult r = Attnlab({"list", "--json"});
  EXPECT_EQ(r.exit_code, 0);
  const json list = Parse(r.out);
  EXPECT_EQ(list["devices"][0]["device"], "cpu");
  EXPECT_GE(list["devices"][0]["threads"], 1);
  bool found = false;
  for (const json& kernel : list["kernels"]) {
    if (kernel["name"] != "reference") continue;
    found = true;
    EXPECT_EQ(kernel["device"], "cpu");
    EXPECT_EQ(kernel["preference"], 0);
    EXPECT_EQ(kernel["supports"]["dtypes"], json({"fp32", "fp16", "bf16"}));
    EXPECT_EQ(kernel["supports"]["masks"], json({"none", "causal", "window"}));
    EXPECT_EQ(kernel["supports"]["lengths"], json({"fixed", "packed", "padded"}));
    EXPECT_EQ(kernel["supports"]["head_dims"].size(), 512u);
  }
  EXPECT_TRUE(found);
}

TEST_F(AttnlabTest, ListAsksKernelsWhatTheySupport) {
  const json list = Parse(TestAttnlab({"list", "--json"}).out);
  bool found = false;
  for (const json& kernel : list["kernels"]) {
    if (kernel["name"] != "picky") continue;
    found = true;
    EXPECT_EQ(kernel["supports"]["dtypes"], json({"fp16"}));
    EXPECT_EQ(kernel["supports"]["head_dims"], json({64, 128}));
    EXPECT_EQ(kernel["supports"]["lengths"], json({"fixed"}));
  }
  EXPECT_TRUE(found);
  const std::string table = TestAttnlab({"list"}).out;
  EXPECT_THAT(table, HasSubstr("| 64, 128 "));
  EXPECT_THAT(table, HasSubstr("--config tile_q: rows of Q in a tile"));
}

// run

// Holds O and LSE of two files to what NumPy computed in double.
void ExpectNear(const std::string& got_path, const std::string& want_path, double bound) {
  const auto got = ReadNpy(got_path);
  const auto want = ReadNpy(want_path);
  ASSERT_TRUE(got.ok()) << got.status();
  ASSERT_TRUE(want.ok()) << want.status();
  ASSERT_EQ(got->header.shape, want->header.shape) << want_path;
  for (int64_t i = 0; i < want->header.NumElements(); ++i) {
    const double g = LoadAsDouble(*got, i), w = LoadAsDouble(*want, i);
    if (std::isinf(w)) {
      ASSERT_EQ(g, w) << want_path << " at " << i;
    } else {
      ASSERT_LE(std::abs(g - w), bound) << want_path << " at " << i << ": " << g << ", " << w;
    }
  }
}

struct Fixture {
  const char* name;
  std::vector<const char*> inputs;
  Words flags;
  const char* problem;  // for which kernels
  double o_bound;       // twice the dtype's epsilon times the largest V, and a little fp32
  NpyType type;
};

class FixtureTest : public AttnlabTest, public testing::WithParamInterface<Fixture> {};

TEST_P(FixtureTest, GivesWhatNumPyComputesInDouble) {
  const Fixture& f = GetParam();
  const Words kernels = KernelsFor(f.problem);
  EXPECT_THAT(kernels, Contains("reference"));
  for (const std::string& kernel : kernels) {
    Words words = {"run", "--device=cpu", "--kernel=" + kernel, "--out=" + Path("o.npy"),
                   "--lse=" + Path("lse.npy")};
    for (const char* input : f.inputs) {
      words.push_back(absl::StrCat("--", input, "=", Data(absl::StrCat(f.name, "_", input))));
    }
    words.insert(words.end(), f.flags.begin(), f.flags.end());
    const ProcessResult r = Attnlab(words);
    ASSERT_EQ(r.exit_code, 0) << kernel << "\n" << r.err;
    EXPECT_THAT(r.out, HasSubstr(kernel + " on cpu"));
    ExpectNear(Path("o.npy"), Data(absl::StrCat(f.name, "_o")), f.o_bound);
    ExpectNear(Path("lse.npy"), Data(absl::StrCat(f.name, "_lse")), 1e-5);
    EXPECT_EQ(ReadNpy(Path("o.npy"))->header.type, f.type);
    EXPECT_EQ(ReadNpy(Path("lse.npy"))->header.type, NpyType::kFloat32);
  }
}

INSTANTIATE_TEST_SUITE_P(
    NumPy, FixtureTest,
    testing::Values(Fixture{"causal",
                            {"q", "k", "v"},
                            {"--mask=causal"},
                            "hq=4,hkv=2,sq=5,skv=9,d=8,dv=6,dtype=fp32,mask=causal",
                            1e-5,
                            NpyType::kFloat32},
                    Fixture{"window",
                            {"q", "k", "v"},
                            {"--mask=window:2:1", "--layout=bhsd"},
                            "hq=2,sq=12,skv=7,d=16,dtype=fp16,mask=window:2:1",
                            6e-3,
                            NpyType::kFloat16},
                    Fixture{"qkv",
                            {"qkv"},
                            {"--scale=0.25"},
                            "hq=3,sq=11,d=8,dtype=bf16,scale=0.25",
                            5e-2,
                            NpyType::kBFloat16},
                    Fixture{"packed",
                            {"q", "k", "v", "cu_seqlens_q", "cu_seqlens_kv"},
                            {"--mask=causal"},
                            "b=3,hq=2,hkv=1,sq=5,d=8,dtype=fp32,mask=causal,lens=packed",
                            1e-5,
                            NpyType::kFloat32},
                    Fixture{"padded",
                            {"q", "k", "v", "q_len", "kv_len"},
                            {"--softcap=2"},
                            "b=3,hq=2,sq=6,skv=7,d=8,dtype=fp32,softcap=2,lens=padded",
                            1e-5,
                            NpyType::kFloat32}),
    [](const testing::TestParamInfo<Fixture>& info) { return info.param.name; });

// On a machine with a GPU: that inputs get there and outputs back.
TEST_P(FixtureTest, GivesTheSameByWayOfAGpu) {
  if (TestAttnlab({"run", "--problem=hq=1,sq=1,d=1", "--device=cuda:0"}).exit_code == 3) {
    GTEST_SKIP() << "no GPU here";
  }
  const Fixture& f = GetParam();
  Words words = {"run", "--device=cuda:0", "--kernel=via_host", "--out=" + Path("o.npy"),
                 "--lse=" + Path("lse.npy")};
  for (const char* input : f.inputs) {
    words.push_back(absl::StrCat("--", input, "=", Data(absl::StrCat(f.name, "_", input))));
  }
  words.insert(words.end(), f.flags.begin(), f.flags.end());
  const ProcessResult r = TestAttnlab(words);
  ASSERT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, HasSubstr("via_host on cuda:0"));
  ExpectNear(Path("o.npy"), Data(absl::StrCat(f.name, "_o")), f.o_bound);
  ExpectNear(Path("lse.npy"), Data(absl::StrCat(f.name, "_lse")), 1e-5);
}

TEST_F(AttnlabTest, BenchAndVerifyOnAGpu) {
  const Words problem = {"--problem=b=2,hq=2,sq=64,d=64,dtype=fp16,lens=padded"};
  const ProcessResult verify =
      TestAttnlab({"verify", "--kernel=via_host", "--device=cuda:0", "--json", problem[0]});
  if (verify.exit_code == 3) GTEST_SKIP() << "no GPU here";
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_EQ(Parse(verify.out)["rows"][0]["machine"]["device"], "cuda:0");
  const ProcessResult bench = TestAttnlab({"bench", "--kernel=via_host", "--json", problem[0],
                                           "--seconds=0.01", "--repetitions=3", "--input_mib=1"});
  EXPECT_EQ(bench.exit_code, 0) << bench.err;
  const json rows = Parse(bench.out)["rows"];
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["machine"]["device"], "cuda:0");
  EXPECT_EQ(rows[0]["verdict"], "ok");
  EXPECT_GT(rows[0]["median_seconds"], 0);
  // With a GPU kernel for it, the GPU is the default.
  const ProcessResult run = TestAttnlab({"run", problem[0]});
  EXPECT_THAT(run.out, HasSubstr("via_host on cuda:0"));
}

TEST_F(AttnlabTest, RelativePathsAreThoseOfTheCaller) {
  ProcessOptions options;
  options.environment["BUILD_WORKING_DIRECTORY"] = directory_;
  const ProcessResult r = Attnlab(Causal({"--out=o 1.npy", "--lse=./lse.npy"}), options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(Names(), UnorderedElementsAre("o 1.npy", "lse.npy"));
}

TEST_F(AttnlabTest, NoInputIsEverOverwritten) {
  const std::string before = *ReadFile(Data("causal_q"), 1 << 20);
  ASSERT_EQ(symlink(Data("causal_q").c_str(), Path("link.npy").c_str()), 0);
  for (const std::string& out : {Data("causal_q"), Path("link.npy")}) {
    for (const char* flag : {"--out=", "--lse="}) {
      const ProcessResult r = Attnlab(Causal({flag + out}));
      EXPECT_EQ(r.exit_code, 2);
      EXPECT_THAT(r.err, HasSubstr("which stays as it is"));
    }
  }
  EXPECT_EQ(*ReadFile(Data("causal_q"), 1 << 20), before);
}

TEST_F(AttnlabTest, AFailedRunLeavesTheOldOutputAndNothingElse) {
  ASSERT_EQ(Attnlab(Causal({"--out=" + Path("o.npy")})).exit_code, 0);
  const std::string before = *ReadFile(Path("o.npy"), 1 << 20);
  EXPECT_EQ(
      Attnlab(Causal({"--out=" + Path("o.npy"), "--kv_len=" + Data("padded_kv_len")})).exit_code,
      2);
  EXPECT_EQ(TestAttnlab(Causal({"--out=" + Path("o.npy"), "--kernel=failing"})).exit_code, 1);
  EXPECT_EQ(*ReadFile(Path("o.npy"), 1 << 20), before);
  EXPECT_THAT(Names(), ElementsAre("o.npy"));
}

TEST_F(AttnlabTest, RunAsJson) {
  const ProcessResult r = Attnlab(Causal({"--json", "--kernel=reference", "--device=cpu"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json run = Parse(r.out);
  EXPECT_EQ(run["problem"], "b=2,hq=4,hkv=2,sq=5,skv=9,d=8,dv=6,dtype=fp32,mask=causal");
  EXPECT_EQ(run["kernel"], "reference");
  EXPECT_EQ(run["o"]["shape"], json({2, 5, 4, 6}));
  EXPECT_EQ(run["lse"]["shape"], json({2, 4, 5}));
  EXPECT_EQ(run["o"]["nan"], 0);
  EXPECT_GT(run["seconds"], 0);
}

TEST_F(AttnlabTest, DtypesOfComputationAndOfTheFile) {
  const auto type = [this](const Words& flags) {
    Words words = Causal({"--out=" + Path("o.npy")});
    words.insert(words.end(), flags.begin(), flags.end());
    const ProcessResult r = Attnlab(words);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return ReadNpy(Path("o.npy"))->header.type;
  };
  EXPECT_EQ(type({}), NpyType::kFloat32);
  EXPECT_EQ(type({"--dtype=fp16"}), NpyType::kFloat16);
  EXPECT_EQ(type({"--dtype=bf16"}), NpyType::kBFloat16);
  EXPECT_EQ(type({"--dtype=bf16", "--out_dtype=fp32"}), NpyType::kFloat32);
  ExpectNear(Path("o.npy"), Data("causal_o"), 5e-2);
  EXPECT_EQ(type({"--out_dtype=fp64"}), NpyType::kFloat64);
  ExpectNear(Path("o.npy"), Data("causal_o"), 1e-5);
}

TEST_F(AttnlabTest, TheSameSeedGivesTheSameBytes) {
  const auto run = [this](const char* seed, const char* out) {
    const ProcessResult r = Attnlab(
        {"run", "--problem=b=2,hq=2,sq=9,d=8,lens=packed,dtype=fp32", seed, "--out=" + Path(out)});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return *ReadFile(Path(out), 1 << 20);
  };
  const std::string first = run("--seed=5", "a.npy");
  EXPECT_EQ(run("--seed=5", "b.npy"), first);
  EXPECT_NE(run("--seed=6", "c.npy"), first);
}

// verify

TEST_F(AttnlabTest, VerifyPassesOnEveryLinkedKernel) {
  const ProcessResult r = Attnlab({"verify", "--json"});
  EXPECT_EQ(r.exit_code, 0) << r.out;
  const json rows = Parse(r.out)["rows"];
  EXPECT_GE(rows.size(), 9u);
  for (const json& row : rows) {
    if (row["verdict"] == "skipped") continue;
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_LE(row["error"], row["bound"]);
    EXPECT_LE(row["lse_error"], row["lse_bound"]);
    EXPECT_GT(row["rows_checked"], 0);
    EXPECT_FALSE(row["machine"]["name"].get<std::string>().empty());
  }
}

TEST_F(AttnlabTest, AWrongKernelIsExitCode1AndAWayToSeeItAgain) {
  const Words problem = {"--problem=hq=2,sq=16,d=8,dtype=fp32", "--seed=3"};
  for (const char* kernel : {"wrong", "failing"}) {
    const ProcessResult r = TestAttnlab(
        {"verify", absl::StrCat("--kernel=", kernel), problem[0], problem[1], "--device=cpu"});
    EXPECT_EQ(r.exit_code, 1) << kernel;
    EXPECT_THAT(r.out, HasSubstr("1 wrong"));
  }
  const ProcessResult r = TestAttnlab({"verify", "--kernel=wrong", problem[0], problem[1]});
  EXPECT_THAT(r.out,
              AllOf(StartsWith("b=1,hq=2,hkv=2,sq=16"), HasSubstr("| WRONG"),
                    HasSubstr("verify --kernel=wrong --problem=b=1,"), HasSubstr("--seed=3")));
}

TEST_F(AttnlabTest, WhatAKernelDoesNotDoIsSkippedNotPassed) {
  const ProcessResult r = TestAttnlab(
      {"verify", "--kernel=picky", "--problem=hq=1,sq=4,d=64/32,dtype=fp16/fp32", "--json"});
  EXPECT_EQ(r.exit_code, 0);
  const json rows = Parse(r.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0]["verdict"], "ok");
  for (int i = 1; i < 4; ++i) EXPECT_EQ(rows[i]["verdict"], "skipped");
  EXPECT_EQ(rows[1]["message"], "picky: dtype: is not fp16");
  const ProcessResult none =
      TestAttnlab({"verify", "--kernel=picky", "--problem=hq=1,sq=4,d=32,dtype=fp16"});
  EXPECT_EQ(none.exit_code, 3);
  EXPECT_THAT(none.out, HasSubstr("0 ok, 0 wrong, 1 skipped\n"
                                  "skipped 1: picky: d: is neither 64 nor 128"));
}

TEST_F(AttnlabTest, VerifyAsCsv) {
  const ProcessResult r =
      Attnlab({"verify", "--kernel=reference", "--problem=hq=1,sq=1..4,d=8", "--csv"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, StartsWith("problem,kernel,config,machine.device,"));
  EXPECT_EQ(std::count(r.out.begin(), r.out.end(), '\n'), 4);
}

TEST_F(AttnlabTest, ConfigurationsAreRowsOfTheirOwn) {
  const json rows =
      Parse(TestAttnlab({"verify", "--kernel=picky", "--config=tile_q=16", "--config=tile_k=16",
                         "--json", "--problem=hq=1,sq=4,d=64,dtype=fp16"})
                .out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0]["config"], "tile_q=16");
  EXPECT_EQ(rows[1]["verdict"], "skipped");
  EXPECT_THAT(rows[1]["message"].get<std::string>(), HasSubstr("unknown key \"tile_k\""));
}

// bench

const Words kQuickBench = {"bench", "--seconds=0.01", "--repetitions=3", "--input_mib=1",
                           "--device=cpu"};

Words QuickBench(const Words& more) {
  Words words = kQuickBench;
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_F(AttnlabTest, BenchAsJson) {
  ProcessOptions options;
  options.environment["ATTNLAB_COMMIT"] = "abc123";
  const ProcessResult r = TestAttnlab(
      QuickBench({"--kernel=picky,reference", "--problem=hq=2,sq=16/32,d=64,dtype=fp16", "--json"}),
      options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = Parse(r.out)["rows"];
  ASSERT_EQ(rows.size(), 4u);
  for (const json& row : rows) {
    EXPECT_EQ(row["verdict"], "ok");
    EXPECT_GT(row["median_seconds"], 0);
    EXPECT_LE(row["p10_seconds"], row["median_seconds"]);
    EXPECT_LE(row["median_seconds"], row["p90_seconds"]);
    EXPECT_GE(row["repetitions"], 3);
    EXPECT_GT(row["tflop_per_second"], 0);
    EXPECT_GT(row["gb_per_second"], 0);
    EXPECT_GT(row["moved_gb_per_second"], 0);
    EXPECT_GT(row["speed_up"], 0);
    EXPECT_EQ(row["baseline"], "picky");
    EXPECT_LE(row["error"], row["bound"]);
    EXPECT_GE(row["input_sets"], 1);
    EXPECT_EQ(row["commit"], "abc123");
    EXPECT_EQ(row["date"].get<std::string>().size(), 20u);
    EXPECT_GE(row["machine"]["threads"], 1);
  }
  EXPECT_EQ(rows[0]["problem"], "b=1,hq=2,hkv=2,sq=16,skv=16,d=64,dtype=fp16,mask=none");
  EXPECT_EQ(rows[0]["speed_up"], 1);
  EXPECT_EQ(rows[3]["kernel"], "reference");
}

TEST_F(AttnlabTest, BenchWithoutAProblemTakesOne) {
  const ProcessResult r = Attnlab(QuickBench({}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(StartsWith("b=1,hq=8,hkv=8,sq="), HasSubstr("| reference"),
                           HasSubstr("| ok"), HasSubstr("repetitions, kernels in random order")));
}

TEST_F(AttnlabTest, BenchWithoutAProblemTakesDtypes) {
  const ProcessResult r =
      Attnlab(QuickBench({"--dtype=bf16/fp32", "--kernel=reference", "--json"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  const json rows = Parse(r.out)["rows"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_THAT(rows[0]["problem"].get<std::string>(), HasSubstr("dtype=bf16"));
  EXPECT_THAT(rows[1]["problem"].get<std::string>(), HasSubstr("dtype=fp32"));
}

TEST_F(AttnlabTest, BenchSaysWhatIsWrong) {
  const Words problem = {"--problem=hq=2,sq=16,d=64,dtype=fp16"};
  const ProcessResult wrong = TestAttnlab(QuickBench({"--kernel=reference,wrong", problem[0]}));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("| WRONG"));
  EXPECT_THAT(wrong.out, HasSubstr("vs reference"));
  const ProcessResult unchecked =
      TestAttnlab(QuickBench({"--kernel=wrong", "--verify=false", problem[0]}));
  EXPECT_EQ(unchecked.exit_code, 0);
  EXPECT_THAT(unchecked.out, AllOf(HasSubstr("| not checked"), Not(HasSubstr("| ok"))));
  const ProcessResult failing = TestAttnlab(QuickBench({"--kernel=failing", problem[0]}));
  EXPECT_EQ(failing.exit_code, 1);
  EXPECT_THAT(failing.out, AllOf(HasSubstr("| FAILED"), HasSubstr("out of luck")));
  const ProcessResult both =
      TestAttnlab(QuickBench({"--kernel=failing,reference", problem[0], "--json"}));
  EXPECT_EQ(both.exit_code, 1);
  const json rows = Parse(both.out)["rows"];
  EXPECT_EQ(rows[0]["verdict"], "failed");
  EXPECT_TRUE(rows[0]["median_seconds"].is_null());
  EXPECT_EQ(rows[1]["verdict"], "ok");
  EXPECT_EQ(rows[1]["baseline"], "reference");
}

TEST_F(AttnlabTest, BenchComparesConfigurationsWithTheBaseline) {
  const ProcessResult r =
      TestAttnlab(QuickBench({"--kernel=reference,picky", "--baseline=picky", "--config=tile_q=1",
                              "--config=tile_q=2", "--problem=hq=2,sq=16,d=64,dtype=fp16"}));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out,
              AllOf(HasSubstr("| tile_q=1 |"), HasSubstr("| tile_q=2 |"), HasSubstr("vs picky")));
  EXPECT_THAT(r.err, HasSubstr("reference: config: unknown key \"tile_q\""));
}

// Terminals.

TEST_F(AttnlabTest, ColoursAndProgressOnATerminalAlone) {
  const Words words = {"verify", "--kernel=reference", "--problem=hq=1,sq=4,d=8"};
  ProcessOptions options;
  options.environment["TERM"] = "xterm";
  const ProcessResult piped = Attnlab(words, options);
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_THAT(piped.out, Not(HasSubstr("\033")));
  EXPECT_THAT(piped.err, IsEmpty());

  options.terminal = true;
  const ProcessResult shown = Attnlab(words, options);
  if (shown.exit_code == -1) GTEST_SKIP() << "no pseudo terminals here: " << shown.err;
  EXPECT_EQ(shown.exit_code, 0);
  EXPECT_THAT(shown.out, HasSubstr("\033[32mok\033[0m"));
  EXPECT_THAT(shown.out, HasSubstr("] 0/1 reference"));

  options.environment["NO_COLOR"] = "1";
  EXPECT_THAT(Attnlab(words, options).out, Not(HasSubstr("\033[32m")));
}

}  // namespace
}  // namespace attnlab
