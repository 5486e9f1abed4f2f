#include "tools/lib/interrupt.h"

#include <signal.h>

#include "gtest/gtest.h"

namespace attnlab {
namespace {

void (*Handler())(int) {
  struct sigaction now = {};
  sigaction(SIGINT, nullptr, &now);
  return now.sa_handler;
}

TEST(InterruptTest, NotesTheFirstAndLeavesTheSecondToTheSystem) {
  signal(SIGINT, SIG_DFL);
  {
    const Interrupt interrupt;
    EXPECT_FALSE(Interrupt::Pressed());
    raise(SIGINT);
    EXPECT_TRUE(Interrupt::Pressed());
    EXPECT_EQ(Handler(), SIG_DFL);
  }
  EXPECT_EQ(Handler(), SIG_DFL);
  {
    const Interrupt again;
    EXPECT_FALSE(Interrupt::Pressed());
    EXPECT_NE(Handler(), SIG_DFL);
  }
  EXPECT_EQ(Handler(), SIG_DFL);
}

TEST(InterruptTest, IsAcknowledgedAtOnce) {
  signal(SIGINT, SIG_DFL);
  const Interrupt interrupt("interrupted");
  ::testing::internal::CaptureStderr();
  raise(SIGINT);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "interrupted\n");
}

TEST(InterruptTest, WhatIsIgnoredStaysIgnored) {
  signal(SIGINT, SIG_IGN);
  const Interrupt interrupt;
  raise(SIGINT);
  EXPECT_FALSE(Interrupt::Pressed());
  EXPECT_EQ(Handler(), SIG_IGN);
}

}  // namespace
}  // namespace attnlab
