#include "tools/lib/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>

namespace attnlab {
namespace {

struct Close {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, Close>;

// The rest of the file. A pseudo terminal ends with an error.
std::string Rest(std::FILE* file) {
  std::string text;
  char block[4096];
  while (const size_t n = std::fread(block, 1, sizeof(block), file)) text.append(block, n);
  return text;
}

// Waits until the child has ended, without taking its status, and kills it when the time is over.
void KillAfter(double seconds, pid_t child) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  siginfo_t info;
  do {
    info.si_pid = 0;
    const int error = waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT);
    if ((error != 0 && errno != EINTR) || info.si_pid != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  } while (std::chrono::steady_clock::now() < end);
  kill(child, SIGKILL);
}

}  // namespace

ProcessResult RunProcess(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options) {
  ProcessResult result;
  // What the child prints is read from `out` and `err`, or from `out` on the other side of
  // `screen`.
  File out, err(std::tmpfile()), screen;
  if (options.terminal) {
    const int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (master >= 0) out.reset(fdopen(master, "r"));
    if (out != nullptr && grantpt(master) == 0 && unlockpt(master) == 0) {
      screen.reset(std::fopen(ptsname(master), "we"));
    }
  } else {
    out.reset(std::tmpfile());
  }
  if (out == nullptr || err == nullptr || (options.terminal && screen == nullptr)) {
    result.err = std::string("cannot open where it prints to: ") + strerror(errno);
    return result;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  const int target = fileno(options.terminal ? screen.get() : out.get());
  if (options.stdout_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, target, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.stdout_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
  }
  posix_spawn_file_actions_adddup2(&actions, options.terminal ? target : fileno(err.get()),
                                   STDERR_FILENO);

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> environment = options.environment;
  for (const char* name : {"PATH", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* const value = getenv(name)) environment.emplace(name, value);
  }
  for (char** v = environ; options.inherit_environment && *v != nullptr; ++v) {
    const char* const equals = strchr(*v, '=');
    if (equals != nullptr) environment.emplace(std::string(*v, equals - *v), equals + 1);
  }
  std::vector<std::string> variables;
  for (const auto& [name, value] : environment) variables.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (std::string& word : words) argv.push_back(&word[0]);
  for (std::string& variable : variables) envp.push_back(&variable[0]);
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  // Ctrl-C is for the child to handle, whether or not this process was started to ignore it.
  posix_spawnattr_t attributes;
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGINT);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);

  pid_t child = 0;
  const int error =
      posix_spawn(&child, program.c_str(), &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) {
    result.err = program + ": " + strerror(error);
    return result;
  }
  screen.reset();
  // A terminal holds little: it is read while the child runs.
  if (options.terminal) result.out = Rest(out.get());
  int status = 0;
  if (options.timeout_seconds > 0) KillAfter(options.timeout_seconds, child);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (options.terminal) return result;
  std::rewind(out.get());
  std::rewind(err.get());
  result.out = Rest(out.get());
  result.err = Rest(err.get());
  return result;
}

std::string Runfile(const std::string& path) {
  const char* directory = getenv("TEST_SRCDIR");
  const char* workspace = getenv("TEST_WORKSPACE");
  if (directory == nullptr || workspace == nullptr) return path;
  return std::string(directory) + "/" + workspace + "/" + path;
}

}  // namespace attnlab
