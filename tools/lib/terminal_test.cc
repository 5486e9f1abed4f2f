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
    progress.Show(1, "cpu");
    EXPECT_THAT(terminal.Read(), HasSubstr("1/4 cpu"));
  }
  EXPECT_EQ(terminal.Read(), "\r\033[K");
}

TEST(TerminalTest, ProgressIsSilentElsewhere) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file, 4);
    progress.Show(1, "cpu");
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
}

TEST(TerminalTest, ElsewhereOneLineForEachStepThatTakesLong) {
  std::FILE* file = std::tmpfile();
  const auto wait_for_more = [file](int64_t than) {
    for (int i = 0; i < 1000 && std::ftell(file) <= than; ++i) usleep(10000);
    return std::ftell(file);
  };
  {
    Progress progress(file, 4, std::chrono::milliseconds(50));
    progress.Show(0, "verifying cpu");
    const int64_t first = wait_for_more(0);
    usleep(200000);  // no second line for the same step
    EXPECT_EQ(std::ftell(file), first);
    progress.Show(1, "timing");
    wait_for_more(first);
  }
  std::rewind(file);
  std::string text(200, ' ');
  text.resize(std::fread(text.data(), 1, text.size(), file));
  EXPECT_EQ(text,
            "attnlab: 0.05 s so far, 0/4 verifying cpu\nattnlab: 0.05 s so far, 1/4 timing\n");
  std::fclose(file);
}

TEST(TerminalTest, ProgressLine) {
  EXPECT_EQ(Progress::Line(0, 4, "cpu", 80), "[>                   ] 0/4 cpu");
  EXPECT_EQ(Progress::Line(2, 4, "cpu", 80), "[==========>         ] 2/4 cpu");
  EXPECT_EQ(Progress::Line(4, 4, "done", 80), "[====================] 4/4 done");
  EXPECT_EQ(Progress::Line(0, 0, "", 80), "[====================] 0/0 ");
  EXPECT_EQ(Progress::Line(2, 4, "µµµµ", 30), "[==========>         ] 2/4 µµµ");
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
