// What holds for all subcommands of the command: help, bad input, exit codes, terminals. And list.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tools/attnlab_fixture.h"
#include "tools/lib/files.h"

namespace attnlab {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

// Help.

TEST_F(AttnlabTest, HelpGoesToTheOutputAndHasExamples) {
  for (const Words& words : std::vector<Words>{{"--help"},
                                               {"-h"},
                                               {"help"},
                                               {"list", "--help"},
                                               {"run", "--help"},
                                               {"verify", "-h"},
                                               {"bench", "--help"},
                                               {"replay", "--help"},
                                               {"simulate", "--help"},
                                               {"version", "--help"},
                                               {"completion", "--help"},
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
      {{"simulate", "--gpus=0"}, "--gpus: \"0\" is not a number from 1 to 4096"},
      {{"simulate", "--problem=hq=1,sq=0,d=8"}, "--problem: problem: no query sees a key"},
      {{"simulate", "--problem=hq=1,sq=8,d=8,lens=padded"}, "--problem: lens: "},
      {{"list", "x"}, "attnlab list: unexpected argument \"x\"; flags begin with --"},
      {{"run"}, "attnlab run: no inputs; give --q, --k and --v, or --qkv, or --problem"},
      {{"run", q, k}, "--v is missing"},
      {{"run", q, "--problem=hq=1,sq=1,d=1"}, "give one of these"},
      {{"run", q, k, v, "--seed=1"}, "--seed goes with --problem or --preset"},
      {{"run", "--preset=gpt2", "--mask=none"},
       "--mask goes with files; in --problem or --preset it is mask=VALUE in the line"},
      {{"run", "--preset=gpt2", "--q_len=f"},
       "--q_len goes with files; with --problem or --preset, lens=padded and lens=packed draw"},
      {{"run", "--q", "--k"}, "--q needs a value: --q=FILE"},
      {{"run", q, k, "--v=" + Path("none.npy")}, "none.npy: cannot open: No such file"},
      {{"run", q, k, "--v=" + directory()}, "is a directory, not a .npy file"},
      {{"run", q, k, "--v=" + Data("packed_cu_seqlens_q")}, "fp32 or fp64 elements, found int32"},
      {{"run", q, k, "--v=" + Data("qkv_qkv")}, " is not [B, S, H, D]"},
      {{"run", q, k, "--v=" + Data("padded_v")}, "padded_v.npy: batch: expected 2 as in "},
      {{"run", q, q, k}, "--q is given twice"},
      {{"run", k, "--q=" + Data("causal_v"), v}, "causal_k.npy: head dim: expected 6 as in "},
      {{"run", q, k, "--v=" + Data("causal_q")}, "causal_q.npy: length: expected 9 as in "},
      {{"run", "--qkv=" + Data("causal_q")}, "is not [B, T, 3, H, D]"},
      {{"run", q, k, v, "--layout=hbsd"}, "--layout: \"hbsd\" is not one of bshd, bhsd"},
      {{"run", q, k, v, "--mask=none,b=7"}, "--mask: \"none,b=7\" has a comma"},
      {{"run", q, k, v, "--mask=causl"}, "mask: \"causl\" is not one of none, causal"},
      {{"run", q, k, v, "--softcap=-1"}, "softcap: -1 is not in 1e-12..1e12"},
      {{"run", q, k, v, "--dtype=fp64"}, "--dtype: \"fp64\" is not one of fp32"},
      {{"run", q, k, v, "--dtype=fp8"}, "--dtype: \"fp8\" is not one of fp32, fp16, bf16\n"},
      {{"run", q, k, v, "--scale=1e-400"}, "scale: \"1e-400\" is too small: a float would be 0"},
      {{"run", q, k, v, "--out_dtype=x"}, "--out_dtype: \"x\" is not one of auto, fp16"},
      {{"run", q, k, v, "--kernel=all"}, "--kernel: run takes one kernel, as in --kernel="},
      {{"run", q, k, v, "--kernel=cpu,reference"}, "\"cpu,reference\" names several"},
      {{"run", q, k, v, "--device=gpu"}, "--device: \"gpu\" is not one of auto, cpu, cuda"},
      {{"run", q, k, v, "--config=tile"}, "--config: \"tile\" is not of the form key=value"},
      {{"run", q, k, v, "--kv_len=" + Data("padded_kv_len")},
       "kv_len.npy: has 3 entries, must have 2"},
      {{"run", q, k, v, "--kv_len=" + Data("causal_q")},
       "expected int32 or int64 elements, found fp32"},
      {{"run", q, k, v, "--cu_seqlens_q=" + Data("packed_cu_seqlens_q")},
       "--cu_seqlens_kv is missing"},
      {{"run", q, k, v, "--out=" + Path("no/o.npy")}, "--out: "},
      {{"run", q, k, v, "--out=" + directory()}, "is a directory"},
      {{"run", q, k, v, "--out=" + Path("o"), "--lse=" + Path("o")}, "--out and --lse are both"},
      {{"run", q, k, v, "--out=" + Path("o"), "--lse=" + Path("./o")}, "--out and --lse are both"},
      {{"run", "--preset=gpt2,b=1/2"}, "run takes one problem, and the flags give 2"},
      {{"run", "--preset=gpt3"},
       "--preset: \"gpt3\" is not known; there are the presets gpt2 and MODEL"},
      {{"verify", "--problem=hq=8,hkv=3,sq=1,d=1"}, "hkv: 3 does not divide hq = 8"},
      {{"verify", "--problem="}, "--problem: the value is empty"},
      {{"verify", "--layout=x"}, "layout: \"x\" is not one of"},
      {{"verify", "--values=x"}, "values: \"x\" is not one of"},
      {{"verify", "--json", "--csv"}, "--json and --csv both go to the standard output"},
      {{"bench", "--json=" + Path("f"), "--csv=" + Path("./f")}, "--json and --csv are both "},
      {{"bench", "--json=" + Path("no/f")}, "--json: " + Path("no/f")},
      {{"verify", "--csv=" + directory()}, "--csv: " + directory() + ": is a directory"},
      {{"run", "--preset=gpt2", "--json=" + Path("no/f")}, "--json: " + Path("no/f")},
      {{"list", "--csv"}, "unknown flag --csv"},
      {{"list", "--all"}, "attnlab list: --all goes with --json"},
      {{"bench", "--lse=" + Path("l")}, "is neither true nor false; only `attnlab run` writes"},
      {{"verify", "--dtype=fp13"}, "--dtype: \"fp13\" is not one of"},
      {{"verify", "--q_lens=1,x"}, "--q_lens: \"x\" in \"1,x\" is not a length in 0..2147483647"},
      {{"bench", "--kernel=all,x"}, "--kernel: there is no \"x\""},
      {{"run", "--preset=gpt2", "--config=tile_kv=32/64"},
       "--config: run takes one configuration, and \"tile_kv"},
      {{"bench", "--baseline=x"}, "--baseline: \"x\" is not among the kernels"},
      {{"bench", "--seconds=0"}, "--seconds: \"0\" is not a number in 0.001..3600"},
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

TEST_F(AttnlabTest, OnlyThoseThatDoSeveralProblemsPromiseLists) {
  EXPECT_THAT(Attnlab({"bench", "--help"}).out, HasSubstr("All combinations are done."));
  const std::string run = Attnlab({"run", "--help"}).out;
  EXPECT_THAT(run, HasSubstr("4k is 4096. One value each."));
  EXPECT_THAT(run, Not(HasSubstr("combinations")));
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
  EXPECT_THAT(bench.err, HasSubstr("attnlab bench: --config: unknown key \"nokey\"; "));
}

TEST_F(AttnlabTest, InputsThatCannotBeMadeAreExitCode2) {
  for (const char* subcommand : {"verify", "bench"}) {
    const ProcessResult r =
        Attnlab({subcommand, "--device=cpu", "--problem=hq=1,sq=1,skv=2147483647,d=1,lens=packed"});
    EXPECT_EQ(r.exit_code, 2) << subcommand << "\n" << r.out << r.err;
    EXPECT_THAT(r.out + r.err, HasSubstr("lens: 2147483647 packed tokens are more than"));
  }
}

TEST_F(AttnlabTest, WhatThisMachineCannotDoIsExitCode3) {
  const struct {
    Words words;
    std::string message;
  } kCases[] = {
      {{"run", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
      {{"verify", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
      {{"bench", "--problem=hq=1,sq=1,d=1", "--device=cuda:99"}, "--device: "},
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

// Version.

TEST_F(AttnlabTest, VersionSaysWhatThisIs) {
  ProcessOptions options;
  options.environment["ATTNLAB_COMMIT"] = "abc123";
  for (const char* word : {"--version", "version"}) {
    const ProcessResult r = Attnlab({word}, options);
    EXPECT_EQ(r.exit_code, 0);
    EXPECT_THAT(r.out, AllOf(StartsWith("attnlab 0.1.0\ncommit     abc123\nCUDA       "),
                             HasSubstr("\nbuilt for  CPU")));
  }
  const json version = ParseJson(Attnlab({"version", "--json"}, options).out);
  EXPECT_EQ(version["commit"], "abc123");
  for (const Words& words :
       std::vector<Words>{{"list", "--json"},
                          {"verify", "--json", "--kernel=reference", "--problem=hq=1,sq=1,d=8"},
                          {"run", "--json", "--kernel=reference", "--problem=hq=1,sq=1,d=8"}}) {
    EXPECT_EQ(ParseJson(Attnlab(words, options).out)["attnlab"], version) << words[0];
  }
  EXPECT_TRUE(ParseJson(Attnlab({"version", "--json"}).out)["commit"].is_null());
}

// Completion.

class CompletionTest : public AttnlabTest {
 protected:
  // What bash has for the last of the words, of which "=" is one.
  std::string Complete(const std::string& words) const {
    const ProcessResult r = RunProcess(
        "/bin/bash",
        {"--norc", "-c",
         "source <(\"$0\" completion bash) && COMP_WORDS=(" + words +
             ") COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _attnlab && echo \"${COMPREPLY[*]}\"",
         Runfile("tools/attnlab_with_test_kernels")});
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return r.out;
  }
};

TEST_F(CompletionTest, CompletesSubcommandsFlagsAndValues) {
  EXPECT_EQ(Complete("attnlab be"), "bench\n");
  EXPECT_EQ(Complete("attnlab completion --he"), "--help\n");
  EXPECT_EQ(Complete("attnlab bench --pr"), "--problem= --preset=\n");
  EXPECT_EQ(Complete("attnlab list --js"), "--json\n");
  EXPECT_EQ(Complete("attnlab verify --kernel = pi"), "picky\n");
  EXPECT_EQ(Complete("attnlab verify --kernel pi"), "picky\n");
  EXPECT_EQ(Complete("attnlab verify --kernel=pi"), "--kernel=picky\n");  // as zsh has it
  EXPECT_EQ(Complete("attnlab bench --preset = qwen3-8b-d"), "qwen3-8b-decode-4k\n");
  EXPECT_EQ(Complete("attnlab run --device = c").substr(0, 3), "cpu");
  EXPECT_EQ(Complete("attnlab run --dtype ="), "fp32 fp16 bf16\n");
  EXPECT_EQ(Complete("attnlab run --out_dtype ="), "auto fp32 fp16 bf16 fp64\n");
  EXPECT_EQ(Complete("attnlab bench --kernel = al"), "all\n");
  EXPECT_EQ(Complete("attnlab bench --baseline = al"), "\n");
  EXPECT_EQ(Complete("attnlab run --kernel = al"), "\n");
  EXPECT_EQ(Complete("attnlab profile --device = c").find("cpu"), std::string::npos);
  EXPECT_EQ(Complete("attnlab run --out ="), "\n");  // the shell completes files
}

TEST_F(CompletionTest, ScriptsAreForTwoShells) {
  const ProcessResult zsh = RunProcess(
      "/bin/sh", {"-c", "command -v zsh > /dev/null || exit 77; \"$0\" completion zsh | zsh -n",
                  Runfile("tools/attnlab")});
  EXPECT_THAT(zsh.exit_code, AnyOf(0, 77)) << zsh.err;
  EXPECT_THAT(Attnlab({"completion", "zsh"}).out, HasSubstr("bashcompinit\n"));
  const ProcessResult fish = Attnlab({"completion", "fish"});
  EXPECT_EQ(fish.exit_code, 2);
  EXPECT_THAT(fish.err, HasSubstr("attnlab completion: expected one shell: bash or zsh"));
}

// Results in files.

TEST_F(AttnlabTest, JsonAndCsvInFilesComeBesideTheTable) {
  const std::string problem = "--problem=hq=1,sq=4,d=8";
  const Words flags = {"--kernel=reference", "--device=cpu"};
  for (const char* command : {"list", "run", "verify", "bench"}) {
    Words words = {command, "--json=" + Path("r.json")};
    if (command != std::string("list")) {
      words.push_back(problem);
      words.insert(words.end(), flags.begin(), flags.end());
    }
    if (command == std::string("bench")) words.push_back("--seconds=0.01");
    const ProcessResult r = Attnlab(words);
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("reference"));
    EXPECT_THAT(r.out, Not(HasSubstr("{")));
    EXPECT_TRUE(ParseJson(*ReadFile(Path("r.json"), 1 << 20)).is_object());
  }
  const ProcessResult both =
      Attnlab({"verify", flags[0], problem, "--json=-", "--csv=" + Path("r.csv")});
  EXPECT_EQ(ParseJson(both.out)["command"], "verify");
  EXPECT_THAT(*ReadFile(Path("r.csv"), 1 << 20), StartsWith("problem,kernel,"));
}

TEST_F(AttnlabTest, SimulatesManyGpus) {
  const Words words = {"simulate", "--problem=hq=16,sq=1048576,d=128,dtype=bf16", "--gpus=2",
                       "--gpus=16"};
  Words as_json = words;
  as_json.push_back("--json");
  const auto rows = ParseJson(Attnlab(as_json).out)["rows"];
  ASSERT_EQ(rows.size(), 8u);  // four ways
  EXPECT_EQ(rows[0]["gpus"], 2);
  EXPECT_EQ(rows[0]["way"], "zigzag ring");
  EXPECT_NEAR(rows[0]["speedup"].get<double>(), 2, 0.05);
  EXPECT_NEAR(rows[7]["speedup"].get<double>(), 16, 0.05);
  EXPECT_THAT(Attnlab(words).out, HasSubstr("|   16 | all-to-all  |"));
}

TEST_F(AttnlabTest, FormatsAreTurnedOnAndOffAsBools) {
  for (const char* on : {"--json", "--json=true", "--json=-"}) {
    EXPECT_TRUE(ParseJson(Attnlab({"list", on}).out).is_object()) << on;
  }
  for (const char* off : {"--json=false", "--no-json"}) {
    EXPECT_THAT(Attnlab({"list", off}).out, StartsWith("Devices")) << off;
  }
}

// list

TEST_F(AttnlabTest, ListsKernelsDevicesAndPresets) {
  const ProcessResult r = Attnlab({"list"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, AllOf(HasSubstr("| cpu"), HasSubstr("| reference"), HasSubstr("| gpt2"),
                           HasSubstr("| llama3-8b-PHASE-LENGTH")));
}

const json& KernelOf(const json& list, const std::string& name) {
  for (const json& kernel : list["kernels"]) {
    if (kernel["name"] == name) return kernel;
  }
  static const json none;
  ADD_FAILURE() << "no kernel " << name;
  return none;
}

TEST_F(AttnlabTest, ListAsJson) {
  const ProcessResult r = Attnlab({"list", "--json"});
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_LT(r.out.size(), 1 << 13);
  const json list = ParseJson(r.out);
  EXPECT_EQ(list["attnlab"]["version"], "0.1.0");
  EXPECT_EQ(list["devices"][0]["device"], "cpu");
  EXPECT_GE(list["devices"][0]["threads"], 1);
  EXPECT_EQ(list["presets"][0]["name"], "gpt2");
  const json& reference = KernelOf(list, "reference");
  EXPECT_EQ(reference["device"], "cpu");
  EXPECT_EQ(reference["dtypes"], json({"fp32", "fp16", "bf16", "fp8_e4m3"}));
  EXPECT_EQ(reference["head_dims"], "1-512");
  EXPECT_EQ(reference["masks"], json({"none", "causal", "window"}));
}

TEST_F(AttnlabTest, ListOfAllAsJsonHasTheSameAndMore) {
  json list = ParseJson(Attnlab({"list", "--json", "--all"}).out);
  const json& reference = KernelOf(list, "reference");
  EXPECT_EQ(reference["preference"], 0);
  EXPECT_EQ(reference["lengths"], json({"fixed", "packed", "padded"}));
  EXPECT_EQ(reference["all_head_dims"].size(), 512u);
  for (json& kernel : list["kernels"]) {
    for (const char* key :
         {"preference", "config_keys", "variants", "needs_aligned_rows", "all_head_dims"}) {
      EXPECT_EQ(kernel.erase(key), 1u) << key;
    }
  }
  EXPECT_EQ(list["kernels"], ParseJson(Attnlab({"list", "--json"}).out)["kernels"]);
}

TEST_F(AttnlabTest, ListAsksKernelsWhatTheySupport) {
  const json list = ParseJson(TestAttnlab({"list", "--json", "--all"}).out);
  const json& picky = KernelOf(list, "picky");
  EXPECT_EQ(picky["dtypes"], json({"fp16"}));
  EXPECT_EQ(picky["all_head_dims"], json({64, 128}));
  EXPECT_EQ(picky["lengths"], json({"fixed"}));
  const std::string table = TestAttnlab({"list"}).out;
  EXPECT_THAT(table, HasSubstr("| 64, 128 "));
  EXPECT_THAT(table, HasSubstr("--config tile_q: rows of Q in a tile"));
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
  EXPECT_THAT(shown.out, HasSubstr("] 0/1, 0 s: reference"));

  options.environment["COLUMNS"] = "40";
  const std::string narrow = Attnlab(words, options).out;
  EXPECT_THAT(narrow, AllOf(HasSubstr("kernel        reference"),
                            HasSubstr("rows checked  all 4\r\n"), Not(HasSubstr("| reference"))));
  options.terminal = false;
  EXPECT_THAT(Attnlab(words, options).out, HasSubstr("| reference"));
  options.terminal = true;

  options.environment["NO_COLOR"] = "1";
  EXPECT_THAT(Attnlab(words, options).out, Not(HasSubstr("\033[32m")));
}

}  // namespace
}  // namespace attnlab
