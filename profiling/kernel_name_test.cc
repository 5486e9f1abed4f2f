#include "profiling/kernel_name.h"

#include "gtest/gtest.h"

namespace attnlab::profiling {
namespace {

TEST(KernelNameTest, DemanglesWhatIsMangled) {
  EXPECT_EQ(Demangled("_ZN1a6KernelEi"), "a::Kernel(int)");
  EXPECT_EQ(Demangled("nvjet_tst_128x256_64x4"), "nvjet_tst_128x256_64x4");
  EXPECT_EQ(Demangled(""), "");
}

TEST(KernelNameTest, ShortNamesAreThoseOfTheFunction) {
  EXPECT_EQ(ShortName("void a::b::Kernel<64, true>(float const*, a::C<int>)"), "Kernel");
  EXPECT_EQ(ShortName("a::Kernel(int)"), "Kernel");
  EXPECT_EQ(ShortName("void (anonymous namespace)::Kernel<(a::Mask)1, std::pair<int, int> >()"),
            "Kernel");
  EXPECT_EQ(ShortName("void a::(anonymous namespace)::Copy(uint4 const*)"), "Copy");
  EXPECT_EQ(ShortName("a::B<c::D>::Run<3>(int)"), "Run");
  EXPECT_EQ(ShortName("nvjet_tst_128x256_64x4"), "nvjet_tst_128x256_64x4");
  EXPECT_EQ(ShortName(""), "");
  EXPECT_EQ(ShortName("<lambda>"), "<lambda>");
}

}  // namespace
}  // namespace attnlab::profiling
