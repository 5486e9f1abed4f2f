#include "attention/fa2/options.h"

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "attention/core/device.h"
#include "attention/core/launch_config.h"
#include "attention/core/problem.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::fa2 {
namespace {

using ::testing::HasSubstr;

DeviceInfo Gpu(int capability, int64_t shared_memory) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = capability;
  gpu.shared_memory_per_block = shared_memory;
  gpu.multiprocessors = 132;
  gpu.registers_per_multiprocessor = 65536;
  gpu.last_level_cache_bytes = 60 << 20;
  return gpu;
}
const DeviceInfo kHopper = Gpu(90, 227 << 10);
const DeviceInfo kAda = Gpu(89, 99 << 10);
const DeviceInfo kTuring = Gpu(75, 64 << 10);

absl::StatusOr<Options> OptionsOf(const std::string& line, const DeviceInfo& gpu = kHopper,
                                  const std::string& config = "", int code = 0) {
  return OptionsFor(*AttentionProblem::Parse(line), gpu, code == 0 ? gpu.compute_capability : code,
                    *LaunchConfig::Parse(config));
}

void ExpectError(const absl::StatusOr<Options>& options, absl::StatusCode code,
                 const std::string& text) {
  EXPECT_EQ(options.status().code(), code) << options.status();
  EXPECT_THAT(std::string(options.status().message()), HasSubstr(text));
}

TEST(OptionsTest, TheEngineGoesByDtypeAndCode) {
  EXPECT_EQ(OptionsOf("hq=2,sq=9,d=64,dtype=bf16")->engine, Engine::kMma);
  EXPECT_EQ(OptionsOf("hq=2,sq=9,d=64,dtype=fp32")->engine, Engine::kCudaCores);
  EXPECT_EQ(OptionsOf("hq=2,sq=9,d=64,dtype=fp16", kTuring)->engine, Engine::kMma);
  EXPECT_EQ(OptionsOf("hq=2,sq=9,d=64,dtype=fp32", kHopper, "mma=none")->engine,
            Engine::kCudaCores);
  // The second is a newer GPU with nothing but PTX for 7.5.
  for (const DeviceInfo& gpu : {kTuring, kHopper}) {
    ExpectError(OptionsOf("hq=2,sq=9,d=64,dtype=bf16", gpu, "", 75),
                absl::StatusCode::kUnimplemented, "bf16 from compute capability 8.0 on");
  }
}

TEST(OptionsTest, RowsThatSeeMoreKeysThanTensorCoresAddUp) {
  const std::string line = "hq=2,sq=9,d=64,skv=";
  EXPECT_EQ(OptionsOf(line + "1048576,dtype=bf16")->engine, Engine::kMma);
  ExpectError(
      OptionsOf(line + "1048577,dtype=bf16"), absl::StatusCode::kUnimplemented,
      "skv: a row sees 1048577 keys, above 1048576, the most for bf16 on tensor cores (they "
      "truncate sums instead of rounding)");
  EXPECT_EQ(OptionsOf(line + "131072,dtype=fp16")->engine, Engine::kMma);
  EXPECT_EQ(OptionsOf(line + "9000000,dtype=fp16,mask=window:131000:71")->engine, Engine::kMma);
  const char* const text = "skv: a row sees 131073 keys, above 131072";
  ExpectError(OptionsOf(line + "131073,dtype=fp16"), absl::StatusCode::kUnimplemented, text);
  ExpectError(OptionsOf(line + "9000000,dtype=fp16,mask=window:131000:72"),
              absl::StatusCode::kUnimplemented, text);
  // m16n8k8 takes twice as many products.
  EXPECT_EQ(OptionsOf(line + "65536,dtype=fp16", kTuring)->engine, Engine::kMma);
  ExpectError(OptionsOf(line + "65537,dtype=fp16", kTuring), absl::StatusCode::kUnimplemented,
              "skv: a row sees 65537 keys, above 65536");
  ExpectError(OptionsOf(line + "65537,dtype=fp16", kHopper, "", 75),
              absl::StatusCode::kUnimplemented, "skv: a row sees 65537 keys, above 65536");
}

TEST(OptionsTest, Tf32IsForFp32AndCodeFrom80On) {
  const absl::StatusOr<Options> options =
      OptionsOf("hq=2,sq=9,d=72,dtype=fp32", kHopper, "mma=tf32x3");
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->engine, Engine::kTf32x3);
  EXPECT_EQ(options->tf32_tile.head_dim, 96);
  EXPECT_EQ(options->Rows(), 64);
  EXPECT_EQ(options->blocks, 2);
  const std::string line = "hq=2,sq=9,d=64,dtype=";
  ExpectError(OptionsOf(line + "bf16", kHopper, "mma=tf32x3"), absl::StatusCode::kUnimplemented,
              "mma=tf32x3 is for fp32, but dtype is bf16");
  for (const DeviceInfo& gpu : {kTuring, kHopper}) {
    ExpectError(OptionsOf(line + "fp32", gpu, "mma=tf32x3", 75), absl::StatusCode::kUnimplemented,
                "8.0 or later; the code that runs here is for 7.5");
  }
  ExpectError(OptionsOf(line + "fp32", kHopper, "mma=tf32x3,tile_q=64"),
              absl::StatusCode::kInvalidArgument,
              "is not a tile of mma=tf32x3 for head dims up to 64; there is tile_q=128,tile_kv=32");
  // The least shared memory of a GPU of 8.0 or later.
  for (int d = 8; d <= 256; d += 8) {
    const absl::StatusOr<Options> small =
        OptionsOf("hq=2,sq=9,dtype=fp32,d=" + std::to_string(d), Gpu(86, 99 << 10), "mma=tf32x3");
    EXPECT_TRUE(small.ok()) << small.status();
  }
}

TEST(OptionsTest, TilesFitTheDevice) {
  for (const int d : {8, 32, 40, 64, 96, 128, 192, 200, 256}) {
    const std::string line = "hq=2,sq=999,dtype=fp16,d=" + std::to_string(d);
    const absl::StatusOr<Options> large = OptionsOf(line), small = OptionsOf(line, kTuring);
    ASSERT_TRUE(large.ok()) << large.status();
    ASSERT_TRUE(small.ok()) << small.status();
    EXPECT_GE(large->mma_tile.head_dim, d);
    EXPECT_LE(large->mma_tile.shared_bytes, kHopper.shared_memory_per_block);
    EXPECT_LE(small->mma_tile.shared_bytes, kTuring.shared_memory_per_block);
    EXPECT_GE(large->Rows(), small->Rows());
  }
}

TEST(OptionsTest, HeadsArePackedWhereOneDoesNotFillATile) {
  EXPECT_EQ(OptionsOf("hq=8,hkv=2,sq=1,skv=99,d=64")->grid.pack, 4);
  EXPECT_EQ(OptionsOf("hq=8,hkv=2,sq=999,d=64")->grid.pack, 1);
  EXPECT_EQ(OptionsOf("hq=8,hkv=8,sq=1,skv=99,d=64")->grid.pack, 1);
  const Grid packed = OptionsOf("b=3,hq=8,hkv=2,sq=999,d=64", kHopper, "pack=always")->grid;
  EXPECT_EQ(packed.units, 6u);
  EXPECT_EQ(packed.tiles, (999u * 4 + 127) / 128);
}

// On CUDA cores a short query gets the small tile. If heads are not packed, the query of one head
// counts.
TEST(OptionsTest, RowsOfATileAreThoseThatItWillHave) {
  const std::string line = "hq=64,hkv=1,sq=1,skv=999,d=64,dtype=fp32";
  EXPECT_EQ(OptionsOf(line, kHopper, "pack=never")->Rows(), 64);
  EXPECT_EQ(OptionsOf(line)->Rows(), 64);
  EXPECT_EQ(OptionsOf("hq=64,hkv=1,sq=2,skv=999,d=64,dtype=fp32")->Rows(), 128);
}

// The medium tile is for two or three blocks per multiprocessor, if registers and shared memory
// suffice.
TEST(OptionsTest, OnCudaCoresAMultiprocessorHasSeveralBlocks) {
  constexpr int64_t kA100 = 163 << 10;
  const auto rows = [](int dim, int64_t shared_bytes, const std::string& config = "") {
    const auto options =
        OptionsOf("hq=2,sq=999,dtype=fp32,d=" + std::to_string(dim), Gpu(90, shared_bytes), config);
    EXPECT_TRUE(options.ok()) << options.status();
    return options.ok() ? options->Rows() : 0;
  };
  EXPECT_EQ(rows(32, 227 << 10), 128);
  EXPECT_EQ(rows(64, 227 << 10), 128);
  EXPECT_EQ(rows(96, 227 << 10), 256);
  // The A100 holds two blocks of the medium tile of head dim 32 and one of 64. The large tile of 32
  // fits; that of 64 does not.
  EXPECT_EQ(rows(32, kA100), 256);
  EXPECT_EQ(rows(64, kA100), 64);
  EXPECT_EQ(rows(32, kA100, "tile_q=128"), 128);
  EXPECT_EQ(rows(32, kA100, "tile_kv=64"), 256);
  EXPECT_EQ(rows(64, 227 << 10, "tile_q=256"), 256);
}

TEST(OptionsTest, TheFirstTileThatFits) {
  const std::string line = "hq=2,sq=999,d=256,dtype=fp16";
  EXPECT_EQ(OptionsOf(line)->mma_tile.size, TileSize::kLarge);
  EXPECT_EQ(OptionsOf(line, kAda)->mma_tile.size, TileSize::kMedium);
  EXPECT_EQ(OptionsOf(line, kTuring)->mma_tile.size, TileSize::kSmall);
  EXPECT_EQ(OptionsOf(line, kHopper, "tile_kv=32,tile_q=64")->mma_tile.size, TileSize::kMedium);
}

TEST(OptionsTest, BlocksThatAMultiprocessorHasRoomFor) {
  EXPECT_EQ(OptionsOf("hq=2,sq=999,d=256,dtype=fp16")->blocks, 2);
  EXPECT_EQ(OptionsOf("hq=2,sq=999,d=32,dtype=fp16")->blocks, 3);
  EXPECT_EQ(OptionsOf("hq=2,sq=999,d=32,dtype=fp32")->blocks, 3);
  EXPECT_EQ(OptionsOf("hq=2,sq=999,d=64,dtype=fp32")->blocks, 2);
  EXPECT_EQ(OptionsOf("hq=2,sq=999,d=96,dtype=fp32")->blocks, 1);
  EXPECT_EQ(OptionsOf("hq=2,sq=64,d=64,dtype=fp32")->blocks, 2);
  EXPECT_EQ(OptionsOf("hq=2,sq=64,d=64,dtype=fp32", kTuring)->blocks, 1);
  EXPECT_EQ(OptionsOf("hq=2,sq=16,d=256,dtype=fp32")->blocks, 3);
}

// Units of the last group and of the first.
std::pair<uint32_t, uint32_t> GroupsOf(const std::string& line) {
  const Grid grid = OptionsOf(line)->grid;
  return {grid.group_units[1].Value(),
          grid.larger_units > 0 ? grid.group_units[0].Value() : grid.group_units[1].Value()};
}

TEST(OptionsTest, AGroupHasAsManyBlocksAsThereAreAtATime) {
  // 132 multiprocessors run 264 blocks at a time, two each. A head of 4096 queries has 32 tiles.
  EXPECT_EQ(GroupsOf("b=4,hq=16,sq=4096,d=128,mask=causal"), std::make_pair(8u, 8u));
  EXPECT_EQ(GroupsOf("b=3,hq=9,sq=4096,d=128,mask=causal"), std::make_pair(9u, 9u));
  EXPECT_EQ(GroupsOf("b=1,hq=29,sq=4096,d=128,mask=causal"), std::make_pair(7u, 8u));
  EXPECT_EQ(GroupsOf("hq=2,sq=128,d=128,mask=causal"), std::make_pair(2u, 2u));
  EXPECT_EQ(GroupsOf("hq=2,sq=100000,d=128,mask=causal"), std::make_pair(1u, 1u));
}

TEST(OptionsTest, KAndVOfAGroupFitHalfOfL2) {
  // 65536 keys with head dims 128 and 128 take 32 MiB per KV head. Half of L2 holds no such head.
  EXPECT_EQ(GroupsOf("b=8,hq=2,sq=128,skv=65536,d=128,mask=causal"), std::make_pair(1u, 1u));
  EXPECT_EQ(GroupsOf("b=8,hq=8,hkv=2,sq=128,skv=65536,d=128,mask=causal"), std::make_pair(4u, 4u));
}

TEST(OptionsTest, OnCudaCoresAGroupIsTwiceAsLargeWhereL2SurelyHoldsIt) {
  // 132 multiprocessors run 396 blocks at a time, three each, so 792 blocks make a group. Of a
  // head's 16 tiles, 4 come at the end, which leaves 66 heads per group. But K and V of a head take
  // 512 KiB, and 20 MiB hold only 40 heads. So there are four groups of 33.
  EXPECT_EQ(GroupsOf("b=4,hq=33,sq=2048,d=32,dtype=fp32,mask=causal"), std::make_pair(33u, 33u));
  // 2 MiB per head, and 20 MiB of L2's 60.
  EXPECT_EQ(GroupsOf("b=4,hq=33,sq=4096,d=64,dtype=fp32,mask=causal"), std::make_pair(9u, 10u));
  // 16 MiB per KV head.
  EXPECT_EQ(GroupsOf("b=8,hq=2,sq=128,skv=32768,d=64,dtype=fp32,mask=causal"),
            std::make_pair(1u, 1u));
}

TEST(OptionsTest, OnCudaCoresShortTilesComeAtTheEnd) {
  const auto tiles = [](const std::string& line) { return OptionsOf(line)->grid.end_tiles; };
  // One and a half times 396, 264 and 132 blocks.
  EXPECT_EQ(tiles("b=4,hq=33,sq=2048,d=32,dtype=fp32,mask=causal"), 4u);
  EXPECT_EQ(tiles("b=4,hq=33,sq=2048,d=64,dtype=fp32,mask=causal"), 3u);
  EXPECT_EQ(tiles("b=4,hq=33,sq=2048,d=256,dtype=fp32,mask=causal"), 2u);
  EXPECT_EQ(tiles("b=40,hq=33,sq=2048,d=32,dtype=fp32,mask=causal"), 1u);
  // Tiles of 128 rows that see at most a quarter of the keys.
  EXPECT_EQ(tiles("hq=1,sq=2048,d=64,dtype=fp32,mask=causal"), 4u);
  EXPECT_EQ(tiles("hq=1,sq=2048,skv=4096,d=64,dtype=fp32,mask=causal"), 0u);
  EXPECT_EQ(tiles("hq=1,sq=4096,d=64,dtype=fp32,mask=window:1023:0"), 2u);
  // None if there is only one tile, if all tiles take equally long, or on tensor cores.
  EXPECT_EQ(tiles("hq=1,sq=64,d=64,dtype=fp32,mask=causal"), 0u);
  EXPECT_EQ(tiles("b=4,hq=33,sq=2048,d=64,dtype=fp32"), 0u);
  EXPECT_EQ(tiles("b=4,hq=33,sq=2048,d=64,dtype=bf16,mask=causal"), 0u);
}

TEST(OptionsTest, WithoutAMaskEachUnitIsAGroup) {
  EXPECT_EQ(GroupsOf("b=4,hq=16,sq=4096,d=128"), std::make_pair(1u, 1u));
  EXPECT_EQ(GroupsOf("b=4,hq=16,hkv=4,sq=1,skv=4096,d=128"), std::make_pair(1u, 1u));
  EXPECT_EQ(GroupsOf("b=4,hq=33,sq=2048,d=64,dtype=fp32"), std::make_pair(1u, 1u));
}

TEST(OptionsTest, ErrorsNameFieldValueAndLimit) {
  using Code = absl::StatusCode;
  ExpectError(OptionsOf("hq=2,sq=9,d=264"), Code::kUnimplemented, "d: 264 is above 256");
  ExpectError(OptionsOf("hq=2,sq=9,d=64,dv=300"), Code::kUnimplemented, "dv: 300 is above 256");
  ExpectError(OptionsOf("hq=2,sq=9,d=64", kHopper, "mma=fast"), Code::kInvalidArgument,
              "mma=fast is not one of auto, tf32x3, none");
  ExpectError(OptionsOf("hq=2,sq=9,d=64,dtype=fp16", kHopper, "mma=none"), Code::kUnimplemented,
              "mma=none is for fp32, but dtype is fp16");
  ExpectError(OptionsOf("hq=2,sq=9,d=64", kHopper, "pack=2"), Code::kInvalidArgument,
              "pack=2 is not one of auto, always, never");
  ExpectError(OptionsOf("hq=2,sq=9,d=128,dtype=fp16", kHopper, "tile_q=100"),
              Code::kInvalidArgument, "there are tile_q=128,tile_kv=64 and tile_q=64,tile_kv=64");
  ExpectError(OptionsOf("hq=2,sq=9,d=256,dtype=fp16", kHopper, "tile_q=100"),
              Code::kInvalidArgument,
              "there are tile_q=64,tile_kv=64, tile_q=64,tile_kv=32 and tile_q=32,tile_kv=32");
  // The small tile is fp16 only.
  ExpectError(OptionsOf("hq=2,sq=9,d=128,dtype=bf16", kHopper, "tile_q=64"), Code::kInvalidArgument,
              "there is tile_q=128,tile_kv=64");
  ExpectError(OptionsOf("hq=2,sq=9,d=128,dtype=fp16", kTuring, "tile_q=128"),
              Code::kResourceExhausted, "tile_q=128,tile_kv=64 needs 99456 bytes");
  ExpectError(OptionsOf("hq=2,sq=9,d=64", kHopper, "block=128"), Code::kInvalidArgument, "block");
  ExpectError(OptionsOf("b=2147483647,hq=2,sq=1,d=8"), Code::kUnimplemented, "b: ");
}

}  // namespace
}  // namespace attnlab::fa2
