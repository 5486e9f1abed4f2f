// @nccl//:nccl: the header and the library have the same version.
#include <nccl.h>

#include "gtest/gtest.h"

namespace {

TEST(NcclLabelTest, Version) {
  int version = 0;
  ASSERT_EQ(ncclGetVersion(&version), ncclSuccess);
  EXPECT_EQ(version, NCCL_VERSION_CODE);
}

}  // namespace
