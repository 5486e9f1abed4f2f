#include "attention/multi_gpu/communicator.h"

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "attention/multi_gpu/on_ranks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab::multi_gpu {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

TEST(CommunicatorTest, MessagesArriveInOrderAtWhomTheyAreFor) {
  constexpr int kRanks = 5, kSteps = 200;
  const auto statuses = OnRanks(kRanks, absl::Seconds(60), [](Communicator& c) -> absl::Status {
    const int next = (c.rank() + 1) % kRanks, previous = (c.rank() + kRanks - 1) % kRanks;
    for (int step = 0; step < kSteps; ++step) {
      // Lengths differ from rank to rank.
      std::vector<int> mine(c.rank() + 1, 1000 * c.rank() + step), others(previous + 1);
      const int64_t bytes = static_cast<int64_t>(mine.size() * sizeof(int)),
                    others_bytes = static_cast<int64_t>(others.size() * sizeof(int));
      absl::Status s = c.Start({mine.data(), next, others.data(), previous, bytes, others_bytes});
      if (s.ok()) s = c.Wait("a step");
      if (!s.ok()) return s;
      EXPECT_THAT(others, Each(1000 * previous + step));
    }
    return absl::OkStatus();
  });
  EXPECT_THAT(statuses, Each(absl::OkStatus()));
}

TEST(CommunicatorTest, GathersInTheOrderOfRanks) {
  for (const int ranks : {1, 2, 7}) {
    const auto statuses = OnRanks(ranks, absl::Seconds(60), [&](Communicator& c) {
      const int64_t mine = 10 + c.rank();
      std::vector<int64_t> all(ranks);
      const absl::Status s = Gather(c, "numbers", &mine, sizeof(mine), all.data());
      for (int i = 0; i < ranks; ++i) EXPECT_EQ(all[i], 10 + i);
      return s;
    });
    EXPECT_THAT(statuses, Each(absl::OkStatus()));
  }
}

TEST(CommunicatorTest, SaysWhoDiffers) {
  const auto statuses = OnRanks(4, absl::Seconds(60), [](Communicator& c) {
    return Agree(c, "problem", c.rank() == 2 ? "other" : std::string(3000, 'x'));
  });
  for (const absl::Status& s : statuses) {
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(s.message()),
                HasSubstr("problem: rank 2 has other, but rank 0 has xxx"));
  }
}

TEST(CommunicatorTest, ErrorsNameTheRankAndWhatItWaitedFor) {
  const auto receive = [](Communicator& c, int from, int64_t bytes) {
    std::vector<char> memory(bytes);
    absl::Status s = c.Start({nullptr, c.rank(), memory.data(), from, 0, bytes});
    return s.ok() ? c.Wait("K and V of step 3") : s;
  };
  const auto left = OnRanks(2, absl::Seconds(60), [&](Communicator& c) {
    return c.rank() == 1 ? absl::OkStatus() : receive(c, 1, 8);
  });
  EXPECT_EQ(left[0],
            absl::UnavailableError("K and V of step 3: rank 0 waited for rank 1, which has left"));
  const auto hung = OnRanks(2, absl::Milliseconds(50), [&](Communicator& c) {
    if (c.rank() == 1) absl::SleepFor(absl::Milliseconds(400));
    return c.rank() == 1 ? absl::OkStatus() : receive(c, 1, 8);
  });
  EXPECT_EQ(hung[0],
            absl::DeadlineExceededError("K and V of step 3: rank 0 waited for rank 1 for 50ms"));
  const auto other = OnRanks(1, absl::Seconds(60), [&](Communicator& c) {
    EXPECT_EQ(c.Start({nullptr, 1, nullptr, 0, 0, 0}),
              absl::InvalidArgumentError("rank: 1 is not one of 0 to 0"));
    return receive(c, 0, 8);  // of 0 bytes that it sends itself
  });
  EXPECT_EQ(other[0], absl::InvalidArgumentError(
                          "K and V of step 3: rank 0 sends 0 bytes, but rank 0 expects 8"));
}

}  // namespace
}  // namespace attnlab::multi_gpu
