#include "gtest/gtest.h"
#include "paged/shared_prefix/check.h"

namespace attnlab::paged {
namespace {

TEST(SharedPrefixOnGpu, IsAsEachSequenceAlone) { CheckSharedPrefixes(Device::Cuda(0)); }

}  // namespace
}  // namespace attnlab::paged
