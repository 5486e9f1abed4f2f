#include "tools/lib/terminal.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace attnlab {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

// A pseudo terminal: what is written to `file` can be read from `master`.
struct Terminal {
  Terminal() {
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master >= 0 && grantpt(master) == 0 && unlockpt(master) == 0) {
      file = std::fopen(ptsname(master), "w");
    }
  }
  ~Terminal() {
    if (file != nullptr) std::fclose(file);
    if (master >= 0) close(master);
  }
  std::string Read() const {
    std::fflush(file);
    char block[4096];
    const ssize_t n = read(master, block, sizeof(block));
    return std::string(block, n > 0 ? n : 0);
  }
  int master = -1;
  std::FILE* file = nullptr;
};

TEST(TerminalTest, ColoursOnATerminalAlone) {
  Terminal terminal;
  if (terminal.file == nullptr) GTEST_SKIP() << "no pseudo terminals here";
  setenv("TERM", "xterm", 1);
  unsetenv("NO_COLOR");
  EXPECT_TRUE(ColoursWanted(fileno(terminal.file)));
  setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(ColoursWanted(fileno(terminal.file)));
  setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ColoursWanted(fileno(terminal.file)));
  unsetenv("NO_COLOR");
  setenv("TERM", "dumb", 1);
  EXPECT_FALSE(ColoursWanted(fileno(terminal.file)));
  setenv("TERM", "xterm", 1);
  std::FILE* plain = std::tmpfile();
  EXPECT_FALSE(ColoursWanted(fileno(plain)));
  std::fclose(plain);
}

TEST(TerminalTest, ProgressIsShownAndErasedOnATerminal) {
  Terminal terminal;
  if (terminal.file == nullptr) GTEST_SKIP() << "no pseudo terminals here";
  setenv("TERM", "xterm", 1);
  {
    Progress progress(terminal.file, 4);
    progress.Show(2, "cpu", 100);
    EXPECT_EQ(terminal.Read(),
              "\r\033[K[==========>         ] 2/4, 0 s, about 1 min 40 s left: cpu");
    EXPECT_THAT(terminal.Read(), HasSubstr(" left: cpu"));  // again, by itself
  }
  EXPECT_THAT(terminal.Read(), EndsWith("\r\033[K"));
}

std::string Text(std::FILE* file) {
  std::rewind(file);
  std::string text(1000, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  std::fclose(file);
  return text;
}

TEST(TerminalTest, ProgressOfShortWorkIsSilentElsewhere) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 4);
    progress.Show(1, "cpu");
  }
  EXPECT_EQ(Text(file), "");
}

TEST(TerminalTest, ElsewhereALineNowAndThen) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 4, {std::chrono::milliseconds(200), std::chrono::milliseconds(400)});
    progress.Show(0, "verifying cpu");
    usleep(400000);
    progress.Show(1, "timing", 7200);
    usleep(400000);
  }
  EXPECT_EQ(Text(file),
            "attnlab: 0/4, 0 s: verifying cpu\n"
            "attnlab: 1/4, 1 s, about 2 h left: timing\n");
}

// What is left goes as what is done, where nobody knows better.
TEST(TerminalTest, TimeLeftWithoutAnEstimate) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 4, {std::chrono::milliseconds(1200), std::chrono::hours(1)});
    usleep(1000000);
    progress.Show(1, "timing");
    usleep(400000);
  }
  EXPECT_EQ(Text(file), "attnlab: 1/4, 1 s, about 3 s left: timing\n");
}

TEST(TerminalTest, Durations) {
  EXPECT_EQ(Duration(0.4), "0 s");
  EXPECT_EQ(Duration(59.4), "59 s");
  EXPECT_EQ(Duration(59.6), "1 min");
  EXPECT_EQ(Duration(200), "3 min 20 s");
  EXPECT_EQ(Duration(1234), "20 min");
  EXPECT_EQ(Duration(7500), "2 h 5 min");
  EXPECT_EQ(Duration(360000), "100 h");
}

TEST(TerminalTest, WidthCountsCodePoints) {
  EXPECT_EQ(DisplayWidth("µs"), 2);
  EXPECT_EQ(DisplayWidth(""), 0);
}

TEST(TerminalTest, Coloured) {
  EXPECT_EQ(Coloured("ok", Colour::kGreen), "\033[32mok\033[0m");
  EXPECT_EQ(Coloured("ok", Colour::kNone), "ok");
}

}  // namespace
}  // namespace attnlab
