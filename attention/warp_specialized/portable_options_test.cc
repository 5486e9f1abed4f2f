#include "attention/warp_specialized/portable_options.h"

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
  gpu.last_level_cache_bytes = 50 << 20;
  gpu.shared_memory_per_block = (capability == 75   ? 64
                                 : capability == 80 ? 163
                                 : capability == 90 ? 227
                                                    : 99) *
                                1024;
  gpu.registers_per_multiprocessor = 65536;
  return gpu;
}

absl::StatusOr<PortableOptions> For(const std::string& line, const std::string& config = "",
                                    int capability = 90) {
  return PortableOptionsFor(*AttentionProblem::Parse(line), Gpu(capability), capability,
                            *LaunchConfig::Parse(config));
}

TEST(PortableOptionsTest, DefaultsFitEveryGpu) {
  for (const char* dims : {"d=1", "d=64", "d=65", "d=128", "d=8,dv=129", "d=256"}) {
    for (const char* dtype : {"fp16", "bf16", "fp32"}) {
      for (const int capability : {75, 80, 86, 90}) {
        const std::string line = std::string("hq=4,sq=4096,dtype=") + dtype + "," + dims;
        const auto o = For(line, "", capability);
        if (capability == 75 && std::string(dtype) == "bf16") {
          EXPECT_EQ(o.status().code(), absl::StatusCode::kUnimplemented);
          continue;
        }
        ASSERT_TRUE(o.ok()) << line << ": " << o.status();
        EXPECT_LE(o->tile.shared_bytes(o->block), Gpu(capability).shared_memory_per_block) << line;
        EXPECT_LE(o->block.Threads(), 32 * o->tile.most_warps) << line;
        EXPECT_GE(o->block.stages, 2) << line;
        EXPECT_GE(o->block.loaders, 1) << line;
        EXPECT_EQ(o->block.stages % o->block.loaders, 0) << line;
        EXPECT_EQ(o->grid.tiles, (4096 + o->Rows() - 1) / o->Rows()) << line;
      }
    }
  }
}

TEST(PortableOptionsTest, ConfigurationChoosesBlock) {
  const struct {
    const char* line;
    const char* config;
    int rows, keys, threads, loaders, stages;
  } kCases[] = {
      {"d=64,dtype=bf16", "", 224, 64, 256, 1, 6},
      {"d=64,dtype=bf16", "tile_m=160", 160, 64, 192, 1, 6},
      {"d=64,dtype=bf16", "tile_m=128", 128, 64, 160, 1, 6},
      {"d=64,dtype=bf16", "tile_m=352", 352, 64, 384, 1, 6},
      {"d=64,dtype=bf16", "tile_m=96,loaders=3,stages=3", 96, 64, 192, 3, 3},
      {"d=64,dtype=bf16", "loaders=4", 128, 64, 256, 4, 4},
      {"d=64,dtype=bf16", "block=256", 224, 64, 256, 1, 6},
      {"d=128,dtype=fp16", "", 224, 64, 256, 1, 6},
      {"d=128,dtype=fp16", "tile_m=96,block=192", 96, 64, 192, 3, 6},
      {"d=256,dtype=bf16", "", 96, 64, 256, 2, 4},
      {"d=256,dtype=bf16", "tile_n=32,stages=4", 96, 32, 256, 2, 4},
      {"d=256,dtype=bf16", "loaders=1,stages=3", 96, 64, 224, 1, 3},
      {"d=256,dtype=bf16", "tile_m=32,loaders=1", 32, 64, 96, 1, 6},
      {"d=64,dtype=fp32", "", 64, 32, 192, 2, 2},
      {"d=64,dtype=fp32", "block=160", 64, 32, 160, 1, 2},
      {"d=256,dtype=fp32", "loaders=1", 16, 16, 96, 1, 2},
  };
  for (const auto& c : kCases) {
    const auto o = For(std::string("hq=1,sq=4096,") + c.line, c.config);
    ASSERT_TRUE(o.ok()) << c.line << " " << c.config << ": " << o.status();
    EXPECT_EQ(o->Rows(), c.rows) << c.line << " " << c.config;
    EXPECT_EQ(o->tile.keys, c.keys) << c.line << " " << c.config;
    EXPECT_EQ(o->block.Threads(), c.threads) << c.line << " " << c.config;
    EXPECT_EQ(o->block.loaders, c.loaders) << c.line << " " << c.config;
    EXPECT_EQ(o->block.stages, c.stages) << c.line << " " << c.config;
  }
}

TEST(PortableOptionsTest, TilesAreNoLargerThanTheQueryNeeds) {
  EXPECT_EQ(For("hq=1,sq=512,d=128,dtype=bf16")->Rows(), 192);  // three tiles in any case
  EXPECT_EQ(For("hq=1,sq=33,d=128,dtype=bf16")->Rows(), 64);
  EXPECT_EQ(For("hq=1,sq=4095,d=64,dtype=bf16")->Rows(), 128);  // see ForLongQueries()
  EXPECT_EQ(For("hq=1,sq=70,d=40,dtype=bf16", "tile_m=160")->Rows(), 160);
  EXPECT_EQ(For("hq=1,sq=70,d=40,dtype=bf16", "block=256")->Rows(), 224);
  const auto decode = For("b=3,hq=32,hkv=8,sq=1,skv=4096,d=128,dtype=bf16");
  EXPECT_EQ(decode->Rows(), 32);
  EXPECT_EQ(decode->grid.pack, 4);
  EXPECT_EQ(decode->grid.units, 3u * 8);
}

TEST(PortableOptionsTest, DeclinesWithValueAndLimit) {
  using Code = absl::StatusCode;
  const struct {
    const char* line;
    const char* config;
    int capability;
    Code code;
    const char* message;
  } kCases[] = {
      {"d=257,dtype=bf16", "", 90, Code::kUnimplemented, "d: 257 is above 256"},
      {"dv=300,d=8,dtype=fp32", "", 90, Code::kUnimplemented, "dv: 300 is above 256"},
      {"d=64,dtype=bf16", "", 75, Code::kUnimplemented, "for 7.5"},
      {"d=64,skv=131073,dtype=fp16", "", 90, Code::kUnimplemented, "131073 keys"},
      {"d=64,dtype=bf16", "tile_q=64", 90, Code::kInvalidArgument, "tile_q"},
      {"d=64,dtype=bf16", "tile_m=48", 90, Code::kInvalidArgument,
       "tile_m=48 does not exist for 16 bits and head dims up to 64; there are the multiples of 32 "
       "from 32 to 352"},
      {"d=64,dtype=fp32", "tile_m=128", 90, Code::kInvalidArgument, "there is 64"},
      {"d=256,dtype=bf16", "tile_n=128", 90, Code::kInvalidArgument, "there is 64, 32"},
      {"d=64,dtype=bf16", "block=100", 90, Code::kInvalidArgument, "warps of 32"},
      {"d=128,dtype=bf16", "block=288", 90, Code::kInvalidArgument, "64 to 256 threads"},
      {"d=128,dtype=bf16", "tile_m=224,loaders=2", 90, Code::kInvalidArgument, "loaders=2"},
      {"d=256,dtype=bf16", "block=128,loaders=1", 90, Code::kInvalidArgument, "block=128"},
      {"d=128,dtype=bf16", "loaders=8", 90, Code::kInvalidArgument, "loaders=8"},
      {"d=64,dtype=bf16", "stages=1", 90, Code::kInvalidArgument, "stages=1"},
      {"d=64,dtype=bf16", "stages=7", 90, Code::kInvalidArgument, "there are 2 to 6"},
      {"d=64,dtype=fp32", "stages=3", 90, Code::kInvalidArgument, "there are 2 to 2"},
      {"d=64,dtype=fp32", "loaders=3", 90, Code::kInvalidArgument, "1 to 2 loaders"},
      {"d=64,dtype=fp32", "block=256", 90, Code::kInvalidArgument, "1 to 2 loaders"},
      {"d=64,dtype=bf16", "tile_m=32,block=256", 90, Code::kInvalidArgument, "1 to 6 loaders"},
      {"d=64,dtype=bf16", "loaders=2,stages=3", 90, Code::kInvalidArgument,
       "there are multiples of loaders=2"},
      {"d=128,dtype=fp16", "tile_m=128", 75, Code::kResourceExhausted,
       "tile_m=128,tile_n=64,stages=2 needs"},
      {"d=256,dtype=bf16", "stages=6,tile_m=96,tile_n=64", 90, Code::kResourceExhausted,
       "but cuda:0 has 232448"},
  };
  for (const auto& c : kCases) {
    const absl::Status s =
        For(std::string("hq=1,sq=4096,") + c.line, c.config, c.capability).status();
    EXPECT_EQ(s.code(), c.code) << c.line << " " << c.config << ": " << s;
    EXPECT_THAT(std::string(s.message()), HasSubstr(c.message)) << c.line << " " << c.config;
  }
}

}  // namespace
}  // namespace attnlab::warp_specialized
