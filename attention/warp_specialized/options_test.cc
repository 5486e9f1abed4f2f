#include "attention/warp_specialized/options.h"

#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::warp_specialized {
namespace {

using ::testing::HasSubstr;

DeviceInfo Gpu(int capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = capability;
  gpu.multiprocessors = 132;
  gpu.last_level_cache_bytes = 60 << 20;
  gpu.shared_memory_per_block = 227 * 1024;
  return gpu;
}

absl::StatusOr<Options> For(const std::string& line, int capability = 90) {
  return OptionsFor(*AttentionProblem::Parse(line), Gpu(capability), capability, {});
}

absl::StatusOr<Options> With(const char* line, const char* key, const char* value) {
  LaunchConfig config;
  config.Set(key, value);
  return OptionsFor(*AttentionProblem::Parse(line), Gpu(90), 90, config);
}

TEST(OptionsTest, ATileForEachHeadDim) {
  const struct {
    const char* dims;
    int head_dim, head_dim_v;
  } kCases[] = {
      {"d=1", 64, 64},        {"d=64", 64, 64},          {"d=65", 96, 96},
      {"d=64,dv=96", 96, 96}, {"d=128", 128, 128},       {"d=192,dv=128", 192, 128},
      {"d=160", 192, 192},    {"d=64,dv=129", 192, 192}, {"d=193", 256, 256},
  };
  for (const auto& c : kCases) {
    const auto options = For(std::string("hq=1,sq=1000,dtype=bf16,") + c.dims);
    ASSERT_TRUE(options.ok()) << c.dims << ": " << options.status();
    EXPECT_EQ(options->tile.head_dim, c.head_dim) << c.dims;
    EXPECT_EQ(options->tile.head_dim_v, c.head_dim_v) << c.dims;
    EXPECT_EQ(options->tile.adds, c.head_dim > 64) << c.dims;
  }
}

TEST(OptionsTest, TilesOfFp8) {
  const struct {
    const char* dims;
    int head_dim, head_dim_v, keys;
  } kCases[] = {
      {"d=64", 64, 64, 128},    {"d=96", 128, 128, 128},  {"d=192,dv=128", 192, 128, 128},
      {"d=192", 256, 256, 128}, {"d=256", 256, 256, 128},
  };
  for (const auto& c : kCases) {
    const auto options = For(std::string("hq=1,sq=1000,dtype=fp8_e4m3,") + c.dims);
    ASSERT_TRUE(options.ok()) << c.dims << ": " << options.status();
    EXPECT_EQ(options->tile.bytes, 1) << c.dims;
    EXPECT_FALSE(options->tile.adds) << c.dims;
    EXPECT_EQ(options->tile.head_dim, c.head_dim) << c.dims;
    EXPECT_EQ(options->tile.head_dim_v, c.head_dim_v) << c.dims;
    // A tile begins where a block of 64 keys with one scale does.
    EXPECT_EQ(options->tile.keys, c.keys) << c.dims;
    EXPECT_FALSE(options->tile.e5m2_v) << c.dims;
    const auto e5m2 = For(std::string("hq=1,sq=1000,dtype=fp8_e4m3,vdtype=fp8_e5m2,") + c.dims);
    ASSERT_TRUE(e5m2.ok()) << c.dims << ": " << e5m2.status();
    EXPECT_TRUE(e5m2->tile.e5m2_v) << c.dims;
    EXPECT_EQ(e5m2->tile.shared_bytes, options->tile.shared_bytes) << c.dims;
  }
  EXPECT_THAT(std::string(For("hq=1,sq=8,d=64,dtype=fp8_e4m3,odtype=fp32").status().message()),
              HasSubstr("odtype: fp32 is not one of fp16 and bf16"));
}

TEST(OptionsTest, ShortQueriesShareTiles) {
  const auto decode = For("b=3,hq=32,hkv=8,sq=1,skv=4096,d=128,dtype=bf16");
  ASSERT_TRUE(decode.ok()) << decode.status();
  EXPECT_EQ(decode->grid.pack, 4);
  EXPECT_EQ(decode->grid.units, 3 * 8);
  EXPECT_EQ(decode->grid.tiles, 1);
  EXPECT_EQ(For("hq=32,hkv=8,sq=1000,d=128,dtype=bf16")->grid.pack, 1);  // fills tiles by itself
  EXPECT_EQ(For("hq=6,hkv=2,sq=1,skv=9,d=128,dtype=bf16")->grid.pack,
            1);  // 3 does not divide 128 rows
  const auto prefill = For("b=2,hq=4,sq=1000,d=128,dtype=bf16");
  EXPECT_EQ(prefill->grid.units, 8);
  EXPECT_EQ(prefill->grid.tiles, 8);
}

TEST(OptionsTest, OOfFp8AndFewKeysIsStoredByTma) {
  const std::string line = "b=32,hq=8,sq=512,dtype=fp8_e4m3";
  EXPECT_TRUE(For(line + ",d=256")->stores_by_tma);
  EXPECT_TRUE(For(line + ",d=256,dv=208,lens=padded")->stores_by_tma);
  EXPECT_TRUE(For("b=32,hq=64,hkv=4,sq=40,skv=512,d=256,dtype=fp8_e4m3")->stores_by_tma);
  // Warps of 16 rows have no whole tokens of 32 heads.
  EXPECT_FALSE(For("b=32,hq=64,hkv=2,sq=40,skv=512,d=256,dtype=fp8_e4m3")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=256,mask=causal")->stores_by_tma);
  EXPECT_TRUE(For(line + ",d=256,skv=1024")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=256,skv=1025")->stores_by_tma);
  EXPECT_FALSE(With("b=32,hq=8,sq=512,d=256,dtype=fp8_e4m3", "pairs", "true")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=256,dv=203")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=256,softcap=20")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=256,vdtype=fp8_e5m2")->stores_by_tma);
  EXPECT_FALSE(For(line + ",d=128")->stores_by_tma);
  EXPECT_FALSE(For("b=32,hq=8,sq=512,d=256,dtype=bf16")->stores_by_tma);
}

TEST(OptionsTest, BlocksTakeTilesInTurnUnlessTilesDiffer) {
  const auto full = For("b=4,hq=16,sq=4096,d=128,dtype=bf16");
  EXPECT_FALSE(full->dynamic);
  EXPECT_EQ(full->grid.group_units[1].Value(), 1u);
  EXPECT_EQ(full->blocks, 132);
  EXPECT_TRUE(For("b=4,hq=16,sq=4096,d=128,dtype=bf16,lens=packed")->dynamic);
  const auto causal = For("b=4,hq=16,sq=4096,d=128,dtype=bf16,mask=causal");
  EXPECT_TRUE(causal->dynamic);
  // A quarter of the L2 cache holds K and V of 7 heads, 6 of this group and the first of the next.
  // But 9 have two tiles per block.
  EXPECT_EQ(causal->grid.group_units[1].Value(), 8u);  // 64 in eight groups
  const auto grouped = For("b=4,hq=64,hkv=16,sq=4096,d=128,dtype=bf16,mask=causal");
  EXPECT_EQ(grouped->grid.group_units[0].Value(), 24u);  // K and V of 6 heads
  // One head fits, but three have two tiles per block.
  EXPECT_EQ(For("hq=8,sq=16384,d=256,dtype=bf16,mask=causal")->grid.group_units[0].Value(), 3u);
  // Two heads and the next fit. An eighth of the blocks is 16.5.
  EXPECT_EQ(For("b=8,hq=16,sq=2048,d=256,dtype=bf16,mask=causal")->grid.group_units[1].Value(),
            16u);
  const auto few = For("hq=16,sq=1000,d=128,dtype=bf16,mask=causal");
  EXPECT_FALSE(few->dynamic);  // a block for each tile
  EXPECT_EQ(few->blocks, 128);
}

TEST(OptionsTest, BoxesLieInOnePage) {
  const struct {
    const char* line;
    int box_keys;
  } kCases[] = {
      {"d=128,page=8", 8},
      {"d=128,page=16", 16},
      {"d=128,page=64", 64},
      {"d=128,page=128", 128},
      {"d=128,page=256", 128},  // a whole tile
      {"d=64,page=1024", 128},
      {"d=192,page=8", 8},
      {"d=192,page=64", 16},   // of 112 keys
      {"d=256,page=256", 16},  // of 80 keys
      {"d=192,dv=128,page=256", 128},
      {"d=128", 128},  // not paged
      {"d=192", 112},
      {"d=256", 80},
  };
  for (const auto& c : kCases) {
    const auto options = For(std::string("b=2,hq=4,sq=1000,dtype=bf16,") + c.line);
    ASSERT_TRUE(options.ok()) << c.line << ": " << options.status();
    EXPECT_EQ(options->box_keys, c.box_keys) << c.line;
    EXPECT_EQ(options->tile.keys % c.box_keys, 0) << c.line;
    // A lane of a warp per box, and boxes begin where the swizzle does.
    EXPECT_LE(options->tile.keys / c.box_keys, 32) << c.line;
    EXPECT_EQ(c.box_keys % 8, 0) << c.line;
  }
}

TEST(OptionsTest, LongContextsTakePairsOfBlocks) {
  const struct {
    const char* line;
    bool pairs;
  } kCases[] = {
      {"sq=4096,d=128", true},
      {"sq=4096,d=128,mask=causal", true},
      {"sq=4096,d=128,page=128", true},
      {"sq=8192,d=256", true},
      {"sq=4096,d=256", false},  // is slower
      {"sq=2048,d=128", false},
      {"sq=128,skv=9000,d=128", false},  // one tile
      {"sq=384,skv=9000,d=128", false},  // three
      {"sq=5000,d=128", true},           // 40
      {"sq=4097,d=128", false},          // 33 of each head: 132 at once, 68 pairs in two rounds
      {"sq=8300,d=128", true},           // 65: the second block misses one of 66
      {"sq=8192,d=64", false},           // three consumers leave no registers
      {"sq=4096,d=128,softcap=3", false},
      {"sq=4096,d=128,page=8", true},
      {"sq=4096,d=128,page=16", true},
      {"sq=4096,d=128,page=32", false},  // is slower
      {"sq=4096,d=128,page=64", false},
      {"sq=8192,d=256,page=8", false},
      {"sq=8192,d=256,page=16", false},  // 5 boxes of a tile
      {"sq=8192,d=128,dtype=fp8_e4m3,page=16", false},
      {"sq=4096,d=128,mask=window:8000:0", false},
      {"sq=4096,d=128,lens=packed", false},
      {"sq=2048,d=128,dtype=fp8_e4m3", true},
      {"sq=4096,d=128,dtype=fp8_e4m3,mask=causal", false},
      {"sq=8192,d=128,dtype=fp8_e4m3,mask=causal", true},
      {"sq=8192,d=256,dtype=fp8_e4m3", false},
  };
  for (const auto& c : kCases) {
    const auto options = For(std::string("hq=4,") + c.line);
    ASSERT_TRUE(options.ok()) << c.line << ": " << options.status();
    EXPECT_EQ(options->pairs, c.pairs) << c.line;
  }
  const auto full = For("hq=4,sq=5000,d=128,dtype=bf16");
  EXPECT_EQ(full->grid.tiles, 20);  // of 256 rows
  EXPECT_EQ(full->blocks, 132);
  EXPECT_EQ(full->box_keys, 64);
  EXPECT_EQ(For("hq=1,sq=5000,d=128,dtype=bf16")->blocks, 40);
  // A pair halves a tile's only box, but not a page.
  for (const auto& [page, box_keys] : {std::pair(8, 8), {16, 16}, {64, 64}, {128, 64}, {256, 64}}) {
    const std::string line = "hq=4,sq=4096,d=128,dtype=bf16,page=" + std::to_string(page);
    EXPECT_EQ(With(line.c_str(), "pairs", "true")->box_keys, box_keys) << line;
  }
  const auto with = [](const char* line, const char* value) { return With(line, "pairs", value); };
  EXPECT_FALSE(with("hq=1,sq=5000,d=128,dtype=bf16", "false")->pairs);
  EXPECT_TRUE(with("hq=1,sq=1,skv=7,d=128,dtype=bf16,mask=window:3:1,lens=padded", "true")->pairs);
  EXPECT_THAT(std::string(with("hq=1,sq=8,d=64,dtype=bf16", "true").status().message()),
              HasSubstr("pairs: for head dims above 96 only"));
  EXPECT_THAT(std::string(with("hq=1,sq=8,d=256,dtype=bf16,page=16", "true").status().message()),
              HasSubstr("pairs: not for pages of 16, as a tile of 80 keys has 5 boxes"));
  EXPECT_THAT(std::string(with("hq=1,sq=8,d=128,dtype=bf16", "1").status().message()),
              HasSubstr("pairs=1 is neither true nor false"));
}

TEST(OptionsTest, BlocksShareTheLastTilesWhereThatSavesTime) {
  const struct {
    const char* line;
    bool shares;
  } kCases[] = {
      {"b=2,hq=16,sq=8192,d=128", true},    // 1024 tiles on 66 pairs
      {"b=8,hq=16,sq=2048,d=128", true},    // 2048 on 132: half a round, of 16 tiles of keys
      {"b=16,hq=16,sq=1024,d=128", false},  // of 8
      {"b=2,hq=33,sq=8192,d=128", false},   // 2112 on 66
      {"hq=1,sq=4096,d=64", false},         // 22 on 132
      {"b=2,hq=16,sq=8192,d=128,dtype=fp8_e4m3", true},
      {"b=2,hq=16,sq=8192,d=128,mask=causal", false},
      {"b=2,hq=16,sq=8192,d=128,lens=padded", false},
  };
  for (const auto& c : kCases) {
    const auto options = For(c.line);
    ASSERT_TRUE(options.ok()) << c.line << ": " << options.status();
    EXPECT_EQ(options->HasShares(), c.shares) << c.line;
    EXPECT_FALSE(options->dynamic && options->HasShares()) << c.line;  // both begin the workspace
  }
  const auto pairs = For("b=2,hq=16,sq=8192,d=128,dtype=bf16");
  EXPECT_EQ(pairs->shares.blocks, 66);
  EXPECT_EQ(pairs->shares.whole, 924);
  EXPECT_EQ(pairs->shares.key_tiles.Value(), 64);
  const auto with = [](const char* line, const char* value) { return With(line, "shares", value); };
  EXPECT_FALSE(with("b=2,hq=16,sq=8192,d=128,dtype=bf16", "false")->HasShares());
  EXPECT_TRUE(with("b=16,hq=16,sq=1024,d=128,dtype=bf16", "true")->HasShares());
  EXPECT_THAT(std::string(with("hq=1,sq=4096,d=64,dtype=bf16", "true").status().message()),
              HasSubstr("shares: 22 query tiles on 22 blocks leave none to share"));
  EXPECT_THAT(std::string(with("hq=1,sq=9,d=64,mask=causal,dtype=bf16", "true").status().message()),
              HasSubstr("shares: only without mask and lengths"));
}

TEST(OptionsTest, VIsTransposedBeforeWhereThatSavesTime) {
  const struct {
    const char* line;
    bool before;
  } kCases[] = {
      {"b=2,hq=16,sq=8192,d=128", true},
      {"b=4,hq=16,sq=4096,d=128", false},
      {"b=2,hq=16,sq=8192,d=128,mask=causal", true},
      {"b=4,hq=16,sq=4096,d=128,mask=causal", false},
      {"b=4,hq=16,hkv=4,sq=4096,d=128,mask=causal", true},  // four heads need the same V
      {"b=8,hq=8,sq=2048,d=256", true},
      {"b=1,hq=8,sq=2048,d=256", false},  // a kernel more takes as long
      {"b=16,hq=8,sq=1024,d=256", false},
      {"b=4,hq=8,sq=4096,d=256,mask=causal", true},
      {"b=8,hq=8,sq=2048,d=256,mask=causal", false},
      {"b=2,hq=8,sq=8192,skv=77,d=256", false},
      {"b=16,hq=4,sq=8192,skv=1024,d=256,mask=causal", false},  // 7168 queries see nothing
      {"b=1,hq=8,sq=1024,skv=65536,d=256,mask=causal", false},
      {"b=1,hq=8,sq=2048,skv=65536,d=256,mask=causal", true},
      {"b=8,hq=128,hkv=1,sq=1,skv=100000,d=256", false},     // a query tile per sequence
      {"b=2,hq=8,sq=8192,d=256,mask=window:9000:0", false},  // not measured
      {"b=2,hq=32,sq=8192,d=64", false},                     // is slower
      {"b=2,hq=16,sq=8192,d=192,dv=128", false},
      {"b=2,hq=8,sq=8192,d=256,vdtype=fp8_e5m2", false},
      {"b=2,hq=8,sq=8192,d=256,softcap=3", false},
      {"b=2,hq=8,sq=8192,d=256,lens=padded", false},
      {"b=2,hq=8,sq=8192,d=256,page=128", false},
      {"b=2,hq=8,sq=8192,d=256,dv=248", false},
  };
  for (const auto& c : kCases) {
    const auto options = For(std::string("dtype=fp8_e4m3,") + c.line);
    ASSERT_TRUE(options.ok()) << c.line << ": " << options.status();
    EXPECT_EQ(options->tile.pretransposed, c.before) << c.line;
    EXPECT_EQ(options->transposed_bytes > 0, c.before) << c.line;
  }
  const auto with = [](const char* line, const char* value) {
    return With(line, "pretransposed", value);
  };
  const auto small = with("b=3,hq=2,sq=7,skv=300,d=256,dv=240,dtype=fp8_e4m3", "true");
  ASSERT_TRUE(small.ok()) << small.status();
  EXPECT_EQ(small->key_tiles, 3);
  EXPECT_EQ(small->transposed_bytes, 3 * 2 * 3 * 240 * 128);  // sequences, heads, tiles of 128 keys
  const auto not_before = with("b=2,hq=8,sq=8192,d=256,dtype=fp8_e4m3", "false");
  ASSERT_TRUE(not_before.ok()) << not_before.status();
  EXPECT_FALSE(not_before->tile.pretransposed);
  for (const auto& [line, message] :
       {std::pair("d=128,dtype=bf16",
                  "pretransposed: for fp8_e4m3 and tiles of head dim 128 or 256, not b=1"),
        {"d=64,dtype=fp8_e4m3", "tiles of head dim 128 or 256"},
        {"d=128,dtype=fp8_e4m3,lens=packed", "pretransposed: not for lengths and pages"},
        {"d=128,dtype=fp8_e4m3,skv=0", "pretransposed: not for 8 queries and 0 keys"},
        {"d=256,dtype=fp8_e4m3,b=2147483647,skv=257",
         "pretransposed: b: 2147483647 sequences with 1 heads of 257 keys have more than "
         "2147483647"},
        {"d=128,dv=120,dtype=fp8_e4m3", "pretransposed: dv: 120 is not a multiple of 16"}}) {
    const absl::Status s = with((std::string("hq=1,sq=8,") + line).c_str(), "true").status();
    EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented) << line;
    EXPECT_THAT(std::string(s.message()), HasSubstr(message));
  }
}

TEST(OptionsTest, DeclinesWithValueAndLimit) {
  const struct {
    const char* line;
    int capability;
    const char* message;
  } kCases[] = {
      {"hq=1,sq=8,d=64,dtype=bf16", 80,
       "device: 8.0 with code for 8.0; this kernel's wgmma is that of 9.0 alone"},
      {"hq=1,sq=8,d=64,dtype=bf16", 100, "device: 10.0 with code for 10.0"},
      {"hq=1,sq=8,d=64,dtype=fp32", 90, "dtype: wgmma multiplies fp16, bf16 and fp8, not fp32"},
      {"hq=1,sq=8,d=64,dtype=bf16,page=1", 90, "page: 1; TMA copies whole pages"},
      {"hq=1,sq=8,d=64,dtype=fp16,page=4", 90, "pages of at least 8 keys"},
      {"hq=1,sq=8,d=257,dtype=bf16", 90, "d: 257 is above 256"},
      {"hq=1,sq=8,d=8,dv=300,dtype=bf16", 90, "dv: 300 is above 256"},
      {"hq=1,sq=8,skv=131073,d=64,dtype=fp16", 90, "skv: a row sees 131073 keys, above 131072"},
      {"b=1048576,hq=4096,sq=1,d=64,dtype=bf16", 90,
       "b: 1048576 sequences with 4096 heads of 1 query tiles"},
  };
  for (const auto& c : kCases) {
    const absl::Status s = For(c.line, c.capability).status();
    EXPECT_EQ(s.code(), absl::StatusCode::kUnimplemented) << c.line;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message)) << c.line;
  }
  const AttentionProblem small = *AttentionProblem::Parse("hq=1,sq=8,d=64,dtype=bf16");
  EXPECT_THAT(std::string(OptionsFor(small, Gpu(90), 75, {}).status().message()),
              HasSubstr("device: 9.0 with code for 7.5"));
  DeviceInfo small_gpu = Gpu(90);
  small_gpu.shared_memory_per_block = 99 * 1024;
  const absl::Status large = OptionsFor(small, small_gpu, 90, {}).status();
  EXPECT_EQ(large.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(large.message()), HasSubstr("per block, but cuda:0 has 101376"));
  EXPECT_TRUE(For("hq=1,sq=200000,d=64,dtype=fp16,mask=window:1000:0").ok());
  LaunchConfig config;
  config.Set("tile_q", "64");
  EXPECT_EQ(OptionsFor(small, Gpu(90), 90, config).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace attnlab::warp_specialized
