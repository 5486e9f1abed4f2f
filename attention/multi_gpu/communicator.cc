#include "attention/multi_gpu/communicator.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"

namespace attnlab::multi_gpu {

absl::Status CheckTransfer(const Transfer& t, int ranks) {
  for (const int other : {t.to, t.from}) {
    if (other >= 0 && other < ranks) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("rank: ", other, " is not one of 0 to ", ranks - 1));
  }
  if (t.send_bytes < 0 || t.receive_bytes < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("bytes: ", std::min(t.send_bytes, t.receive_bytes), " is negative"));
  }
  return absl::OkStatus();
}

absl::Status OtherSize(absl::string_view what, const Transfer& t, int rank, int64_t sent) {
  return absl::InvalidArgumentError(absl::StrCat(what, ": rank ", t.from, " sends ", sent,
                                                 " bytes, but rank ", rank, " expects ",
                                                 t.receive_bytes));
}

absl::Status Gather(Communicator& c, absl::string_view what, const void* mine, int64_t bytes,
                    void* all) {
  char* const to = static_cast<char*>(all);
  const int n = c.ranks(), rank = c.rank();
  std::memcpy(to + rank * bytes, mine, bytes);
  for (int i = 1; i < n; ++i) {
    const int from = (rank + n - i) % n;
    const Transfer transfer = {mine, (rank + i) % n, to + from * bytes, from, bytes, bytes};
    if (absl::Status s = c.Start(transfer); !s.ok()) return s;
  }
  return c.Wait(what);
}

absl::Status Agree(Communicator& c, absl::string_view what, absl::string_view text) {
  std::vector<char> mine(kMostAgreed), all(kMostAgreed * c.ranks());
  std::copy_n(text.begin(), std::min<size_t>(text.size(), kMostAgreed), mine.begin());
  if (absl::Status s = Gather(c, what, mine.data(), kMostAgreed, all.data()); !s.ok()) return s;
  const auto of = [&](int rank) {
    const char* const begin = all.data() + rank * kMostAgreed;
    return absl::string_view(begin, std::find(begin, begin + kMostAgreed, '\0') - begin);
  };
  for (int rank = 1; rank < c.ranks(); ++rank) {
    if (of(rank) == of(0)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": rank ", rank, " has ", of(rank), ", but rank 0 has ", of(0)));
  }
  return absl::OkStatus();
}

absl::Status Agree(Communicator& c, absl::string_view what, absl::string_view text,
                   const absl::Status& mine) {
  const absl::Status all = Agree(c, what, mine.ok() ? text : mine.message());
  return mine.ok() ? all : mine;
}

}  // namespace attnlab::multi_gpu
