// attnlab run: attention on files and on generated inputs.
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"
#include "tools/lib/files.h"
#include "tools/tensor_files/npy.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// The kernels of the command that do the problem, by name.
Words KernelsFor(const std::string& problem) {
  Words names;
  const ProcessResult r = Attnlab({"verify", "--problem=" + problem, "--device=cpu", "--json"});
  const json parsed = ParseJson(r.out);
  for (const json& row : parsed["rows"]) {
    if (row["verdict"] == "ok") names.push_back(row["kernel"]);
  }
  return names;
}

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
  if (HasNoGpu()) GTEST_SKIP() << "no GPU here";
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

TEST_F(AttnlabTest, RelativePathsAreThoseOfTheCaller) {
  ProcessOptions options;
  options.environment["BUILD_WORKING_DIRECTORY"] = directory();
  const ProcessResult r = Attnlab(Causal({"--out=o 1.npy", "--lse=./lse.npy"}), options);
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(Names(), UnorderedElementsAre("o 1.npy", "lse.npy"));
}

TEST_F(AttnlabTest, NoInputIsEverOverwritten) {
  const std::string before = *ReadFile(Data("causal_q"), 1 << 20);
  ASSERT_EQ(symlink(Data("causal_q").c_str(), Path("link.npy").c_str()), 0);
  for (const std::string& out : {Data("causal_q"), Path("link.npy")}) {
    for (const char* flag : {"--out=", "--lse=", "--json="}) {
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
  const json run = ParseJson(r.out);
  EXPECT_EQ(run["problem"], "b=2,hq=4,hkv=2,sq=5,skv=9,d=8,dv=6,dtype=fp32,mask=causal");
  EXPECT_EQ(run["kernel"], "reference");
  EXPECT_EQ(run["o"]["shape"], json({2, 5, 4, 6}));
  EXPECT_EQ(run["lse"]["shape"], json({2, 4, 5}));
  EXPECT_EQ(run["o"]["nan"], 0);
  EXPECT_GT(run["seconds"], 0);
}

TEST_F(AttnlabTest, RunComparesItsOwnOutputsWithTheOracle) {
  const Words generated = {"run", "--problem=b=3,hq=2,sq=9,d=8,lens=packed,dtype=bf16",
                           "--device=cpu", "--verify"};
  for (Words words : {generated, Causal({"--verify", "--lse"})}) {
    const ProcessResult r = Attnlab(words);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("\nverify   ok, "));
  }
  Words padded = {"run", "--verify", "--softcap=2", "--json", "--kernel=reference"};
  for (const char* input : {"q", "k", "v", "q_len", "kv_len"}) {
    padded.push_back(absl::StrCat("--", input, "=", Data(absl::StrCat("padded_", input))));
  }
  const json right = ParseJson(TestAttnlab(padded).out);
  EXPECT_EQ(right["verdict"], "ok");
  EXPECT_LE(right["error"], right["bound"]);
  EXPECT_LE(right["lse_error"], right["lse_bound"]);
  EXPECT_EQ(right["rows"], right["rows_checked"]);

  const ProcessResult wrong = TestAttnlab(Causal({"--verify", "--kernel=wrong"}));
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, AllOf(HasSubstr("verify   WRONG, 40 of 40 rows; O error "),
                               HasSubstr(" where the oracle has ")));
  EXPECT_EQ(TestAttnlab(Causal({"--kernel=wrong"})).exit_code, 0);
}

// Through pipes, on which nobody can seek.
TEST_F(AttnlabTest, RunIsPartOfAPipe) {
  const auto run = [this](const std::string& flags) {
    return RunProcess(
        "/bin/sh", {"-c",
                    absl::StrCat("cat \"$1\" | \"$0\" run --device=cpu --k=\"$2\" ",
                                 "--v=\"$3\" --mask=causal --q=- ", flags, " | cat > \"$4\""),
                    Runfile("tools/attnlab"), Data("causal_q"), Data("causal_k"), Data("causal_v"),
                    Path("piped.npy")});
  };
  const ProcessResult out = run("--out=-");
  EXPECT_THAT(out.err, AllOf(HasSubstr("problem  b=2,hq=4"), HasSubstr("the standard output")));
  ExpectNear(Path("piped.npy"), Data("causal_o"), 1e-5);
  run("--lse=- --json=\"$4\".json");
  ExpectNear(Path("piped.npy"), Data("causal_lse"), 1e-5);
  EXPECT_EQ(ParseJson(*ReadFile(Path("piped.npy.json"), 1 << 20))["lse"]["file"], "-");
}

TEST_F(AttnlabTest, WhatStandardInputAndOutputCannotBe) {
  const std::string o = Path("o.npy");
  const struct {
    Words flags;
    std::string says;
  } kCases[] = {
      {Causal({"--kv_len=-", "--q_len=-"}), "--q_len and --kv_len are both the standard input"},
      {Causal({"--out=-", "--lse=-"}), "--out and --lse both go to the standard output"},
      {Causal({"--lse=-", "--json"}), "--lse and --json both go to the standard output"},
      {Causal({"--kv_len=-"}), "standard input: is empty, not a .npy file"},
  };
  for (const auto& c : kCases) {
    const ProcessResult r = Attnlab(c.flags);
    EXPECT_EQ(r.exit_code, 2);
    EXPECT_THAT(r.err, HasSubstr(c.says));
    EXPECT_EQ(r.out, "");
  }
  const auto run = [](const std::string& script) {
    const ProcessResult r =
        RunProcess("/bin/sh", {"-c", script, Runfile("tools/attnlab"), Data("qkv_qkv"),
                               Data("causal_k"), Data("padded_kv_len")});
    EXPECT_EQ(r.exit_code, 2);
    return r.err;
  };
  EXPECT_THAT(run("cat \"$1\" \"$1\" | \"$0\" run --qkv=-"),
              HasSubstr("standard input: is too long: expected "));
  EXPECT_THAT(
      run("\"$0\" run --q=- --k=\"$2\" --v=\"$2\" < \"$1\""),
      HasSubstr("attnlab run: standard input: shape: [2, 11, 3, 3, 8] is not [B, S, H, D]"));
  EXPECT_THAT(run("\"$0\" run --q=\"$2\" --k=\"$2\" --v=\"$2\" --kv_len=- < \"$3\""),
              HasSubstr("--kv_len: standard input: has 3 entries, must have 2"));
  ProcessOptions terminal;
  terminal.terminal = true;
  const ProcessResult shown = Attnlab(Causal({"--out=-"}), terminal);
  if (shown.exit_code == -1) GTEST_SKIP() << "no pseudo terminals here: " << shown.err;
  EXPECT_EQ(shown.exit_code, 2);
  EXPECT_THAT(shown.out, HasSubstr("--out: the standard output is a terminal, and .npy is binary"));
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
  const auto run = [this](const char* seed, const char* out, const std::string& page = "none") {
    const ProcessResult r =
        Attnlab({"run", "--problem=b=2,hq=2,sq=9,d=8,lens=packed,dtype=fp32,page=" + page, seed,
                 "--out=" + Path(out)});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return *ReadFile(Path(out), 1 << 20);
  };
  const std::string first = run("--seed=5", "a.npy");
  EXPECT_EQ(run("--seed=5", "b.npy"), first);
  EXPECT_NE(run("--seed=6", "c.npy"), first);
  EXPECT_EQ(run("--seed=5", "d.npy", "4"), first);
}

}  // namespace
}  // namespace attnlab
