#include "tools/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

namespace attnlab {
namespace {

// A stream of the child: the end that it writes to, and the one that is read here.
struct Channel {
  int read_end = -1;
  int write_end = -1;
};

bool OpenPipe(Channel* channel) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  *channel = {ends[0], ends[1]};
  return true;
}

bool OpenTerminal(Channel* channel) {
  channel->read_end = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (channel->read_end < 0 || grantpt(channel->read_end) != 0 ||
      unlockpt(channel->read_end) != 0) {
    return false;
  }
  channel->write_end = open(ptsname(channel->read_end), O_RDWR | O_NOCTTY | O_CLOEXEC);
  return channel->write_end >= 0;
}

// Reads both until the child has closed them. A pseudo terminal ends with EIO.
void Drain(int out, int err, ProcessResult* result) {
  pollfd fds[] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  std::string* texts[] = {&result->out, &result->err};
  while (fds[0].fd >= 0 || fds[1].fd >= 0) {
    if (poll(fds, 2, -1) < 0 && errno != EINTR) return;
    for (int i = 0; i < 2; ++i) {
      if (fds[i].fd < 0 || fds[i].revents == 0) continue;
      char block[4096];
      const ssize_t n = read(fds[i].fd, block, sizeof(block));
      if (n > 0) {
        texts[i]->append(block, n);
      } else if (n == 0 || errno != EINTR) {
        fds[i].fd = -1;
      }
    }
  }
}

void Close(int fd) {
  if (fd >= 0) close(fd);
}

}  // namespace

ProcessResult RunProcess(const std::string& program, const std::vector<std::string>& arguments,
                         const ProcessOptions& options) {
  ProcessResult result;
  Channel out, err;
  if (options.terminal ? !OpenTerminal(&out) : !OpenPipe(&out) || !OpenPipe(&err)) {
    result.err = std::string("cannot open a pipe: ") + strerror(errno);
    return result;
  }
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  if (options.stdout_path.empty()) {
    posix_spawn_file_actions_adddup2(&actions, out.write_end, STDOUT_FILENO);
  } else {
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, options.stdout_path.c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0666);
  }
  posix_spawn_file_actions_adddup2(&actions, options.terminal ? out.write_end : err.write_end,
                                   STDERR_FILENO);

  std::vector<std::string> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::map<std::string, std::string> environment = options.environment;
  for (const char* name : {"PATH", "CUDA_VISIBLE_DEVICES"}) {
    if (const char* const value = getenv(name)) environment.emplace(name, value);
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
  Close(out.write_end);
  Close(err.write_end);
  if (error != 0) {
    result.err = program + ": " + strerror(error);
  } else {
    Drain(out.read_end, err.read_end, &result);
    int status = 0;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  Close(out.read_end);
  Close(err.read_end);
  return result;
}

std::string Runfile(const std::string& path) {
  const char* directory = getenv("TEST_SRCDIR");
  const char* workspace = getenv("TEST_WORKSPACE");
  if (directory == nullptr || workspace == nullptr) return path;
  return std::string(directory) + "/" + workspace + "/" + path;
}

}  // namespace attnlab
