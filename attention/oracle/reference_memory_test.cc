// The oracle when memory runs out.
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "attention/core/device.h"
#include "attention/core/problem.h"
#include "attention/core/tensor.h"
#include "attention/core/tensors.h"
#include "attention/oracle/reference.h"
#include "gtest/gtest.h"

namespace attnlab::oracle {
namespace {

// While it exists, the process gets at most so many more bytes from the system.
class MemoryLimit {
 public:
  explicit MemoryLimit(int64_t bytes) {
    int64_t pages = 0;  // in use: the first number in the file
    std::ifstream("/proc/self/statm") >> pages;
    getrlimit(RLIMIT_AS, &before_);
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(pages * sysconf(_SC_PAGE_SIZE) + bytes);
    setrlimit(RLIMIT_AS, &limit);
  }
  ~MemoryLimit() { setrlimit(RLIMIT_AS, &before_); }

 private:
  rlimit before_ = {};
};

TEST(ReferenceMemoryTest, MemoryThatIsNotThereIsAStatus) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "AddressSanitizer takes address space of its own, which the limit would deny it";
#endif
  // All keys share one address, so the views take no memory.
  const AttentionProblem p = *AttentionProblem::Parse("hq=1,sq=64,skv=1000000,d=1,dtype=fp32");
  std::vector<float> q(64, 1), kv(1, 1);
  AttentionTensors t;
  t.q = BshdView(q.data(), p.dtype, Device::Cpu(), 1, p.sq, 1, p.d);
  t.k = BshdView(kv.data(), p.dtype, Device::Cpu(), 1, p.skv, 1, p.d);
  t.k.strides = {0, 0, 0, 1};
  t.v = t.k;
  const std::vector<Row> rows = AllRows(p, t);
  ASSERT_TRUE(Exact(p, t, {rows[0]}).ok());  // starts the threads
  const auto message = [&](int64_t limit, int threads) {
    const MemoryLimit memory(limit);
    const absl::Status exact = Exact(p, t, rows, threads).status();
    const absl::Status plain = Straightforward(p, t, rows, Factors::kAsTheyAre, threads).status();
    EXPECT_EQ(exact.code(), absl::StatusCode::kResourceExhausted) << exact;
    EXPECT_EQ(plain.code(), absl::StatusCode::kResourceExhausted) << plain;
    return std::string(exact.message());
  };
  // K takes 64 MB in double and 32 MB in float; scores take 8 and 4 MB per thread.
  EXPECT_EQ(message(int64_t{10} << 20, 1), "oracle: no memory for 8000000 numbers of K");
  EXPECT_EQ(message(int64_t{120} << 20, 64), "oracle: no memory for 64000576 numbers of scratch");
}

}  // namespace
}  // namespace attnlab::oracle
