#include "attention/bench/noise.h"

#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace attnlab::bench {
namespace {

TEST(NoiseTest, OfTheMedian) {
  EXPECT_EQ(MedianNoise({}), 1);
  EXPECT_EQ(MedianNoise({3}), 1);
  EXPECT_EQ(MedianNoise({2, 2, 2, 2, 2}), 0);
  EXPECT_DOUBLE_EQ(MedianNoise({9, 10, 11, 10, 10}), 0.1);  // of few values the whole range
  std::vector<double> many;
  for (int i = 0; i < 10000; ++i) many.push_back(90 + (i * 7919) % 2003 * 0.01);  // to 110
  EXPECT_LT(MedianNoise(many), 0.01);
  EXPECT_GT(MedianNoise(many), 0);
}

TEST(NoiseTest, AMachineThatChangesItsSpeed) {
  std::vector<double> values(1000, 10);
  EXPECT_EQ(MedianNoise(values), 0);
  for (int i = 500; i < 1000; ++i) values[i] = 12;
  EXPECT_NEAR(MedianNoise(values), 0.1, 0.01);
}

// `count` repetitions of as many seconds a call, on two threads that used so many processors.
void Add(int count, double seconds, double processors, std::vector<Repetition>* all) {
  for (int i = 0; i < count; ++i) all->push_back({seconds, processors, 2});
}

TEST(NoiseTest, DisturbedRepetitionsAreLeftOut) {
  std::vector<Repetition> all;
  Add(10, 1, 2, &all);
  Add(90, 7, 1, &all);
  const Timing idle = Evaluate(all, {2, 0.01}, 5);  // slow for another reason
  EXPECT_EQ(idle.median, 7);
  EXPECT_EQ(idle.disturbed, 0);
  const Timing busy = Evaluate(all, {2, 1.2}, 5);
  EXPECT_EQ(busy.median, 1);
  EXPECT_EQ(busy.repetitions, 10);
  EXPECT_EQ(busy.disturbed, 90);
  EXPECT_EQ(busy.noise, 0);
}

TEST(NoiseTest, WhereAllAreDisturbedTheNoiseSaysHowMuch) {
  std::vector<Repetition> all;
  Add(50, 40, 1.1, &all);
  const Timing busy = Evaluate(all, {2, 1}, 5);
  EXPECT_EQ(busy.median, 40);
  EXPECT_EQ(busy.disturbed, 0);
  // An idle machine may take 40 × half of the processors × 0.75.
  EXPECT_NEAR(busy.noise, 1 - 0.75 / 2, 1e-12);
}

TEST(NoiseTest, ADisturbedCallOfATimeSliceMayBeAllWaiting) {
  std::vector<Repetition> all;
  Add(50, 0.008, 1.1, &all);
  EXPECT_EQ(Evaluate(all, {2, 1}, 5).noise, 1);
  EXPECT_EQ(Evaluate(all, {2, 0}, 5).noise, 0);  // on an idle machine it is just a call
}

TEST(NoiseTest, ThreadClocksSeeEveryThread) {
  std::atomic<bool> stop = false;
  std::thread other([&stop] {
    while (!stop) {
    }
  });
  const ThreadClocks clocks;
  const std::clock_t start = std::clock();
  while (std::clock() - start < CLOCKS_PER_SEC / 5) {
  }
  const double both = clocks.Seconds();
  stop = true;
  other.join();
  EXPECT_NEAR(both, 0.2, 0.05);  // std::clock() counts both, too, but in ticks
}

TEST(NoiseTest, AThreadThatHasEndedCountsNoTime) {
  std::atomic<bool> spun = false, stop = false;
  std::thread other([&] {
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(20)) {
    }
    spun = true;
    while (!stop) std::this_thread::yield();
  });
  while (!spun) std::this_thread::yield();
  const ThreadClocks clocks;
  stop = true;
  other.join();
  EXPECT_GE(clocks.Seconds(), 0);
  EXPECT_LT(clocks.Seconds(), 0.02);
}

// Of one processor, so that the bounds are tight on a machine of many.
TEST(NoiseTest, TheMeterSeesOwnAndOtherUse) {
  cpu_set_t all, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(all), &all), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  const pid_t other = fork();  // inherits the one processor
  if (other == 0) {
    alarm(10);  // should the test be killed
    for (volatile bool busy = true; busy;) {
    }
  }
  ASSERT_GT(other, 0);
  const ProcessorMeter meter;
  const std::clock_t before = std::clock();
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(300)) {
  }
  const ProcessorUse use = meter.Use();
  const double own = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC / 0.3;
  kill(other, SIGKILL);
  waitpid(other, nullptr, 0);
  sched_setaffinity(0, sizeof(all), &all);
  if (use.available == 0) GTEST_SKIP() << "no /proc/stat here";
  EXPECT_EQ(use.available, 1);
  // Own use is not another's. /proc/stat counts in ticks of 10 ms.
  EXPECT_LE(use.others, 1 - own + 0.15);
  EXPECT_GT(use.others, 0.2);
}

}  // namespace
}  // namespace attnlab::bench
