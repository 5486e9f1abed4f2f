// A function on several threads at once.
#ifndef ATTENTION_MULTI_GPU_ON_THREADS_H_
#define ATTENTION_MULTI_GPU_ON_THREADS_H_

#include <functional>
#include <thread>
#include <vector>

#include "absl/status/status.h"

namespace attnlab::multi_gpu {

// Calls of_thread(0) to of_thread(count - 1), and returns what they return.
inline std::vector<absl::Status> OnThreads(int count,
                                           const std::function<absl::Status(int)>& of_thread) {
  std::vector<absl::Status> statuses(count);
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) {
    threads.emplace_back([&, i] { statuses[i] = of_thread(i); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace attnlab::multi_gpu

#endif  // ATTENTION_MULTI_GPU_ON_THREADS_H_
