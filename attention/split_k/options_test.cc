#include "attention/split_k/options.h"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::split_k {
namespace {

using ::testing::HasSubstr;

DeviceInfo Gpu(int capability) {
  DeviceInfo gpu;
  gpu.device = Device::Cuda(0);
  gpu.compute_capability = capability;
  gpu.multiprocessors = 132;
  gpu.last_level_cache_bytes = 50 << 20;
  gpu.shared_memory_per_block = (capability == 90 ? 227 : 99) * 1024;
  gpu.registers_per_multiprocessor = 65536;
  return gpu;
}

absl::StatusOr<Options> For(const std::string& line, const std::string& config = "",
                            int capability = 90) {
  return OptionsFor(*AttentionProblem::Parse(line), Gpu(capability), capability,
                    *LaunchConfig::Parse(config));
}

TEST(SplitKOptionsTest, PartsFillTheGpuAndNoMore) {
  const auto blocks = [](const std::string& line) { return BlocksOf(For(line)->grid); };
  const auto parts = [](const std::string& line) { return For(line)->grid.parts.Value(); };
  // Few heads: about as many blocks as run at a time.
  EXPECT_GE(blocks("hq=32,hkv=8,sq=1,skv=16384,d=128"), 100u);
  EXPECT_LE(blocks("hq=32,hkv=8,sq=1,skv=16384,d=128"), 264u);
  EXPECT_GE(blocks("hq=32,hkv=8,sq=1,skv=131072,d=128"), 100u);
  // Many heads: none is divided.
  EXPECT_EQ(parts("b=128,hq=32,hkv=8,sq=1,skv=128,d=128"), 1u);
  // One step cannot be divided.
  EXPECT_EQ(parts("hq=1,sq=1,skv=64,d=128"), 1u);
  EXPECT_EQ(parts("hq=1,sq=1,skv=0,d=128"), 1u);
  // A window leaves few keys to divide.
  EXPECT_LE(parts("hq=8,sq=1,skv=131072,d=128,mask=window:127:0"), 3u);
}

TEST(SplitKOptionsTest, OneBlockPerMultiprocessorIfMemoryGivesNoMore) {
  const auto parts = [](const std::string& line, double memory) {
    DeviceInfo gpu = Gpu(90);
    gpu.memory_bytes_per_second = memory;
    return OptionsFor(*AttentionProblem::Parse("hq=32,hkv=8,sq=1,d=128,dtype=bf16," + line), gpu,
                      90, {})
        ->grid.parts.Value();
  };
  constexpr double kH100 = 3.35e12, kH200 = 4.92e12;
  for (const auto& [line, h100, h200] : std::vector<std::tuple<std::string, uint32_t, uint32_t>>{
           {"b=8,skv=32768,kvdtype=fp8_e4m3", 2, 4},
           {"b=1,skv=32768,kvdtype=fp8_e4m3", 16, 32},
           {"b=1,skv=131072,kvdtype=fp8_e4m3", 16, 33},
           {"b=8,skv=2048,kvdtype=fp8_e4m3", 2, 4},
           {"b=64,skv=8192,kvdtype=fp8_e4m3", 1, 1},
           {"b=1,skv=16384", 8, 16},
           {"b=8,skv=1024", 2, 2},
           {"b=8,skv=32768", 2, 2},
           {"b=64,skv=8192", 2, 2},
           // Nor more blocks on some multiprocessors than on others.
           {"b=5,skv=16384", 3, 3},
           {"b=3,skv=131072", 5, 5}}) {
    EXPECT_EQ(parts(line, kH100), h100) << line;
    EXPECT_EQ(parts(line, kH200), h200) << line;
  }
  EXPECT_EQ(parts("b=8,skv=32768,kvdtype=fp8_e4m3", /*memory=*/0), 4u);  // not known
}

TEST(SplitKOptionsTest, PrefetchedKeysAreThoseOfTheParts) {
  for (const std::string config : {"", "k_splits=5", "batch_invariant=true"}) {
    for (const std::string line : {"b=2,hq=8,hkv=2,sq=1,skv=3000,d=64,mask=causal",
                                   "hq=8,hkv=2,sq=4,skv=2100,d=64,mask=causal",
                                   "hq=8,sq=40,skv=900,d=64", "hq=8,sq=1,skv=20000,d=64,page=16"}) {
      const SplitGrid grid = For(line, config)->grid;
      const AttentionProblem p = *AttentionProblem::Parse(line);
      ASSERT_TRUE(grid.prefetches) << line;
      const auto q = static_cast<int32_t>(p.sq), kv = static_cast<int32_t>(p.skv);
      const SplitKeys tile = KeysOf(p.mask, 0, q - 1, q, kv);
      for (uint32_t part = 0; part < PartsOf(grid, tile); ++part) {
        EXPECT_EQ(static_cast<int32_t>((part >> grid.share_shift) *
                                       RangeKeys(grid, static_cast<uint32_t>(kv))),
                  RangeOf(grid, tile, part).begin);
      }
      // Blocks of a cluster wait for all its parts (Case::kPlain).
      if (grid.invariant == 0) EXPECT_EQ(PartsOf(grid, tile), grid.parts.Value()) << line;
    }
    for (const std::string line :
         {"hq=8,sq=128,skv=2100,d=64,mask=causal", "hq=8,sq=1,skv=900,d=64,mask=window:99:0",
          "hq=8,sq=1,skv=900,d=64,lens=padded"}) {
      EXPECT_FALSE(For(line, config)->grid.prefetches) << line;
    }
  }
}

TEST(SplitKOptionsTest, TheConfigurationDecides) {
  const auto o = For("b=2,hq=8,hkv=2,sq=5,skv=1000,d=100", "k_splits=3");
  ASSERT_TRUE(o.ok()) << o.status();
  EXPECT_EQ(o->tile.head_dim, 128);
  EXPECT_EQ(o->grid.units, 4u);
  EXPECT_EQ(o->grid.pack.Value(), 4u);
  EXPECT_EQ(o->grid.tiles.Value(), 2u);  // 20 rows
  EXPECT_EQ(o->grid.parts.Value(), 3u);
  EXPECT_EQ(o->grid.range_keys, 384u);  // whole steps of 64
  EXPECT_EQ(o->WorkspaceBytes(100), WorkspaceBytes(4 * 2, 4 * 2 * 3, 16, 100));
  EXPECT_EQ(WorkspaceBytes(8, 24, 16, 100), 256 + 3072 + 24 * 16 * 100 * 4);
  // Fewer, where there are not as many steps.
  EXPECT_EQ(For("hq=1,sq=1,skv=100,d=64", "k_splits=9")->grid.parts.Value(), 2u);
  EXPECT_EQ(For("hq=1,sq=1,skv=4096,d=64", "k_splits=1")->grid.parts.Value(), 1u);
  EXPECT_EQ(For("hq=1,sq=1,skv=4096,d=64", "k_splits=1")->WorkspaceBytes(64), 0);
}

TEST(SplitKOptionsTest, PartsAreWholeTilesOfKeys) {
  for (const std::string dtype : {"bf16", "fp32"}) {
    for (const std::string d : {"64", "128", "256"}) {
      const auto o = For("hq=1,sq=1,skv=200,d=" + d + ",dtype=" + dtype, "k_splits=9");
      ASSERT_TRUE(o.ok()) << o.status();
      EXPECT_EQ(o->grid.range_keys % kPartKeys, 0u) << dtype << " " << d;
    }
  }
}

TEST(SplitKOptionsTest, FewPartsOfFewTilesAreAClusterOnHopper) {
  const auto shift = [](const std::string& line, const std::string& config, int capability) {
    const auto o = For(line, config, capability);
    EXPECT_EQ(o->WorkspaceBytes(64) == 0, o->grid.cluster_shift > 0) << line;
    return o->grid.cluster_shift;
  };
  const std::string line = "hq=8,sq=1,skv=4096,d=64";
  EXPECT_EQ(shift(line, "k_splits=2", 90), 1);
  EXPECT_EQ(shift(line, "k_splits=4", 90), 2);
  EXPECT_EQ(shift(line, "k_splits=8", 90), 3);
  EXPECT_EQ(shift(line, "batch_invariant=true", 90), 3);
  EXPECT_EQ(shift(line, "k_splits=3", 90), 0);
  EXPECT_EQ(shift(line, "k_splits=16", 90), 0);
  EXPECT_EQ(shift(line, "k_splits=8", 80), 0);
  EXPECT_EQ(shift(line + ",dtype=fp32", "k_splits=8", 90), 0);
  // Not more blocks than multiprocessors, or half of them where only one fits each.
  EXPECT_EQ(shift(line + ",b=2", "k_splits=8", 90), 3);
  EXPECT_EQ(shift(line + ",b=3", "k_splits=8", 90), 0);
  EXPECT_EQ(shift("hq=8,sq=1,skv=4096,d=256", "k_splits=8", 90), 3);
  EXPECT_EQ(shift("b=2,hq=8,sq=1,skv=4096,d=256", "k_splits=8", 90), 0);
  EXPECT_EQ(shift("b=2,hq=8,sq=1,skv=4096,d=256,kvdtype=fp8_e4m3", "k_splits=8", 90), 0);
  // But many small ones.
  EXPECT_EQ(shift(line + ",b=50", "k_splits=4", 90), 2);
  EXPECT_EQ(shift(line + ",b=20", "k_splits=4", 90), 0);
  EXPECT_EQ(shift(line + ",b=50", "k_splits=8", 90), 0);
}

TEST(SplitKOptionsTest, ItIsTheBestForShortQueries) {
  const auto best = [](const std::string& line) {
    return IsBestFor(*AttentionProblem::Parse(line), Gpu(90));
  };
  // One tile of 16 rows: 4 queries of 4 heads; of 4 rows in fp32.
  EXPECT_TRUE(best("b=64,hq=32,hkv=8,sq=4,skv=4096,d=128"));
  EXPECT_FALSE(best("b=64,hq=32,hkv=8,sq=5,skv=4096,d=128"));
  EXPECT_TRUE(best("b=64,hq=32,hkv=8,sq=1,skv=4096,d=128,dtype=fp32"));
  EXPECT_FALSE(best("b=64,hq=32,hkv=8,sq=2,skv=4096,d=128,dtype=fp32"));
  // Several, if together they are half as many as the multiprocessors.
  EXPECT_TRUE(best("b=1,hq=32,hkv=8,sq=32,skv=4096,d=128"));
  EXPECT_FALSE(best("b=1,hq=32,hkv=8,sq=33,skv=4096,d=128"));
  EXPECT_FALSE(best("hq=8,sq=1,skv=4096,d=512"));
}

TEST(SplitKOptionsTest, HeadDim128FitsGpusWithLittleSharedMemory) {
  EXPECT_EQ(For("hq=8,sq=1,skv=1000,d=128", "", 86).status(), absl::OkStatus());
  EXPECT_EQ(For("hq=8,sq=1,skv=1000,d=128,kvdtype=fp8_e4m3", "", 86).status(), absl::OkStatus());
}

TEST(SplitKOptionsTest, BatchInvariantPartsDependOnTheSequenceAlone) {
  const SplitGrid one = For("hq=8,sq=1,skv=1000,d=64", "batch_invariant=true")->grid;
  const SplitGrid many = For("b=64,hq=8,sq=1,skv=9000,d=64", "batch_invariant=true")->grid;
  // With few tiles four blocks share a range, with many one has it.
  EXPECT_EQ(one.share_shift, 2);
  EXPECT_EQ(many.share_shift, 0);
  for (int64_t keys : {0, 1, 127, 128, 129, 1000, 2048, 2049, 16384, 16385, 1 << 20}) {
    EXPECT_EQ(RangeKeys(one, keys), RangeKeys(many, keys));
    EXPECT_EQ(RangeKeys(one, keys) % (16 * kPartKeys), 0u);
    // The grid has room for the parts of every tile that is not longer than the longest.
    for (const int64_t longest : {keys, keys + 1, keys + 5000, keys * 4 + 1}) {
      const std::string line = "hq=1,sq=1,d=64,skv=" + std::to_string(longest);
      const SplitGrid grid = For(line, "batch_invariant=true")->grid;
      EXPECT_GE(RangeKeys(grid, keys) * (grid.parts.Value() >> grid.share_shift), keys)
          << keys << " " << longest;
    }
  }
}

TEST(SplitKOptionsTest, ErrorsNameFieldValueAndLimit) {
  const auto expect = [](const absl::StatusOr<Options>& o, absl::StatusCode code,
                         const std::string& message) {
    EXPECT_EQ(o.status().code(), code) << o.status();
    EXPECT_THAT(std::string(o.status().message()), HasSubstr(message));
  };
  using Code = absl::StatusCode;
  expect(For("hq=2,sq=9,d=264"), Code::kUnimplemented, "d: 264 is above 256");
  expect(For("hq=2,sq=9,d=8,dv=300"), Code::kUnimplemented, "dv: 300 is above 256");
  expect(For("hq=2,sq=9,d=256", "", 86), Code::kResourceExhausted, "this device has 101376");
  expect(For("hq=2,sq=9,d=64", "", 75), Code::kUnimplemented,
         "for compute capability 8.0 and later");
  expect(For("hq=2,sq=9,d=64", "k_splits=0"), Code::kInvalidArgument, "k_splits");
  expect(For("hq=2,sq=9,d=64", "k_splits=4097"), Code::kInvalidArgument, "1..4096");
  expect(For("hq=2,sq=9,d=64", "splits=2"), Code::kInvalidArgument, "splits");
  expect(For("hq=2,sq=9,d=64", "batch_invariant=yes"), Code::kInvalidArgument,
         "batch_invariant=yes is neither true nor false");
  expect(For("hq=2,sq=9,d=64", "batch_invariant=true,k_splits=2"), Code::kInvalidArgument,
         "contradict");
  expect(For("b=2147483647,hq=2,sq=1,d=8"), Code::kUnimplemented, "b: 2147483647 sequences");
  expect(For("b=1000000000,hq=1,sq=1,skv=4096,d=1", "k_splits=64"), Code::kUnimplemented,
         "64 parts of 1000000000 query tiles");
  expect(For("hq=1,sq=1,skv=2147483647,d=8,dtype=fp16", "k_splits=1"), Code::kUnimplemented,
         "k_splits: a part has 2147483648 keys, more than the 524288");
  EXPECT_TRUE(For("hq=1,sq=1,skv=2147483647,d=8,dtype=fp16").ok());
}

TEST(SplitTest, RangesHaveEachKeyOnce) {
  SplitGrid grid;
  grid.units = 3;
  grid.heads = device::Divisor(3);
  grid.tiles = device::Divisor(2);
  grid.parts = device::Divisor(8);
  for (int64_t part_keys : {0, 64, 128}) {
    grid.invariant = part_keys == 0 ? 1 : 0;
    grid.range_keys = static_cast<uint32_t>(part_keys);
    for (int32_t length : {0, 1, 63, 64, 65, 200, 256, 1000, 2100}) {
      for (const Mask& mask : {Mask::None(), Mask::Causal(), Mask::SlidingWindow(70, 3)}) {
        const SplitKeys tiles = KeysOf(mask, 0, 7, 8, length);
        if (part_keys * 8 < tiles.end - tiles.begin && part_keys > 0) continue;
        int64_t next = tiles.begin;
        uint32_t with_keys = 0;
        for (uint32_t part = 0; part < 8; ++part) {
          const SplitKeys p = RangeOf(grid, tiles, part);
          if (p.begin == p.end) continue;
          EXPECT_EQ(part, with_keys);  // parts without keys come last
          ++with_keys;
          EXPECT_EQ(p.begin, next);
          next = p.end;
          // A tile needs a mask exactly if it does in the whole.
          for (int64_t key = p.begin; key < p.end; key += kPartKeys) {
            EXPECT_EQ(key >= p.full_begin && key < p.full_end,
                      key >= tiles.full_begin && key < tiles.full_end)
                << key;
          }
        }
        EXPECT_EQ(next, tiles.end);
        EXPECT_EQ(PartsOf(grid, tiles), with_keys);
      }
    }
  }
  for (uint32_t i = 0; i < BlocksOf(grid); ++i) {
    const SplitPlace place = PlaceOf(grid, i);
    EXPECT_EQ(((place.sequence * 3 + place.head) * 2 + place.tile) * 8 + place.part, i);
  }
}

// Which tile of keys has its state where: tile: (invariant part, slice of it).
std::map<int32_t, std::pair<uint32_t, int32_t>> StatesOf(const SplitGrid& grid,
                                                         const SplitKeys& tile) {
  std::map<int32_t, std::pair<uint32_t, int32_t>> states;
  const uint32_t keys = RangeKeys(grid, static_cast<uint32_t>(tile.end - tile.begin));
  const uint32_t parts = PartsOf(grid, tile);
  for (uint32_t part = 0; part < parts + 4; ++part) {
    const SplitKeys range = RangeOf(grid, tile, part);
    const int32_t tiles = (range.end - range.begin + kPartKeys - 1) / kPartKeys;
    bool has_keys = false;
    for (int32_t warp = 0; warp < 4; ++warp) {
      const WarpTiles own = WarpTiles::OfInvariant(grid, keys, tiles, part, warp);
      for (int32_t i = own.begin; i < own.end; i += 4) {
        const bool slices = own.slice > 0;
        const bool is_new =
            states
                .emplace(range.begin + i * kPartKeys,
                         slices
                             ? std::make_pair(4 * part + static_cast<uint32_t>(warp), i / own.slice)
                             : std::make_pair(part, warp))
                .second;
        EXPECT_TRUE(is_new) << part << " " << warp << " " << i;
        has_keys = true;
      }
    }
    EXPECT_EQ(has_keys, part < parts) << part;
  }
  return states;
}

TEST(SplitTest, TheSameKeysHaveAStateWhetherABlockHasOneInvariantPartOrFour) {
  SplitGrid one, four;
  one.invariant = four.invariant = 4;
  one.share_shift = 2;
  for (int32_t length :
       {0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 129, 500, 512, 513, 1000, 2100, 16384, 30000}) {
    for (const Mask& mask : {Mask::None(), Mask::Causal(), Mask::SlidingWindow(700, 3)}) {
      const SplitKeys tile = KeysOf(mask, 0, 7, 8, length);
      const auto states = StatesOf(one, tile);
      EXPECT_EQ(states, StatesOf(four, tile)) << length;
      EXPECT_EQ(states.size(), (tile.end - tile.begin + kPartKeys - 1) / kPartKeys) << length;
    }
  }
}

}  // namespace
}  // namespace attnlab::split_k
