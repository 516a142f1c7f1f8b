// The same keys, symbols, options, sources and entry bytes from every process, wherever and however
// it runs. (A cache without this property recompiled on every second run.)
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace tilewright {
namespace {

namespace fs = std::filesystem;

struct Surroundings {
  std::string probe = TILEWRIGHT_KEY_PROBE;
  std::vector<std::string> arguments = {};
  std::map<std::string, std::string> environment = {};  ///< all of it
  std::string folder = "/";
  bool fixed_addresses = false;
  uid_t user = 0;  ///< 0: as we are
};

class KeyMatrix : public testing::Test {
 protected:
  KeyMatrix() {
    std::string pattern = testing::TempDir() + "key_matrix_XXXXXX";
    root_ = mkdtemp(pattern.data());
    fs::permissions(root_, fs::perms::owner_all | fs::perms::others_exec | fs::perms::others_read |
                               fs::perms::group_exec | fs::perms::group_read);
  }
  ~KeyMatrix() override { fs::remove_all(root_); }

  std::string Folder(const std::string& name) {
    fs::create_directories(root_ / name);
    return (root_ / name).string();
  }

  /// What the probe prints, "" where it failed.
  std::string Run(const Surroundings& in) {
    std::vector<std::string> words = {in.probe, "keys"};
    words.insert(words.end(), in.arguments.begin(), in.arguments.end());
    std::vector<std::string> pairs;
    for (const auto& [name, value] : in.environment) pairs.push_back(name + "=" + value);
    const auto pointers = [](std::vector<std::string>& strings) {
      std::vector<char*> out;
      for (std::string& s : strings) out.push_back(s.data());
      out.push_back(nullptr);
      return out;
    };
    const std::vector<char*> argv = pointers(words), envp = pointers(pairs);
    int pipe_ends[2];
    if (pipe2(pipe_ends, O_CLOEXEC) != 0) return "";
    const pid_t child = fork();
    if (child == 0) {
      if (in.fixed_addresses) personality(ADDR_NO_RANDOMIZE);
      if (chdir(in.folder.c_str()) != 0) _exit(120);
      if (in.user != 0 && setuid(in.user) != 0) _exit(121);
      dup2(pipe_ends[1], STDOUT_FILENO);
      execve(argv[0], argv.data(), envp.data());
      _exit(122);
    }
    close(pipe_ends[1]);
    std::string text;
    char buffer[4096];
    for (ssize_t n; (n = read(pipe_ends[0], buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(n));
    }
    close(pipe_ends[0]);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    return text;
  }

  void ExpectSame(const char* what, const Surroundings& in) {
    EXPECT_EQ(Run(in), reference_) << what;
  }

  fs::path root_;
  std::string reference_ = Run({});
};

std::vector<std::string> InstalledLocales() {
  std::vector<std::string> names = {"C", "POSIX", "C.UTF-8"};
  // Locales with a decimal comma, where the system has them; --comma-locale needs none.
  for (const char* name : {"de_DE.UTF-8", "fr_FR.UTF-8", "tr_TR.UTF-8", "nl_NL.UTF-8"}) {
    names.emplace_back(name);
  }
  return names;
}

TEST_F(KeyMatrix, TheProbeShowsEverySpecAndNoTwoAlike) {
  std::istringstream lines(reference_);
  std::vector<std::string> requests;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, request;
    words >> name >> request;
    EXPECT_EQ(request.size(), 64u) << line;
    requests.push_back(request);
  }
  ASSERT_EQ(requests.size(), 10u);
  std::sort(requests.begin(), requests.end());
  EXPECT_EQ(std::unique(requests.begin(), requests.end()), requests.end());
}

TEST_F(KeyMatrix, WorkingDirectoryHomeAndTemporaryFolderDoNotMatter) {
  const std::string a = Folder("a place with spaces"), b = Folder("b");
  ExpectSame("cwd", {.folder = a});
  ExpectSame("HOME", {.environment = {{"HOME", a}}});
  ExpectSame("no HOME that exists", {.environment = {{"HOME", "/nonexistent"}}});
  ExpectSame("TMPDIR", {.environment = {{"TMPDIR", b}}});
  ExpectSame("XDG_CACHE_HOME", {.environment = {{"XDG_CACHE_HOME", b}}});
  ExpectSame("user", {.environment = {{"USER", "nobody"}, {"LOGNAME", "nobody"}}});
}

TEST_F(KeyMatrix, FilesInTheWorkingDirectoryUnderVirtualNamesDoNotMatter) {
  const std::string folder = Folder("shadow");
  for (const char* name :
       {"keys/inner.cuh", "keys/unit.cu", "spec.cuh", "device/cuda/kernels/types.cuh"}) {
    fs::create_directories((fs::path(folder) / name).parent_path());
    std::ofstream(fs::path(folder) / name) << "#error another file\n";
  }
  ExpectSame("files", {.folder = folder});
}

TEST_F(KeyMatrix, LocaleAndTimeZoneDoNotMatter) {
  for (const std::string& name : InstalledLocales()) {
    ExpectSame(name.c_str(), {.environment = {{"LC_ALL", name}, {"LANG", name}}});
  }
  ExpectSame("decimal comma", {.arguments = {"--comma-locale"}});
  ExpectSame("TZ", {.environment = {{"TZ", "Pacific/Chatham"}}});
}

TEST_F(KeyMatrix, LogLevelAndEveryVariableOfOursDoNotMatter) {
  for (const char* level : {"debug", "info", "off", "nonsense"}) {
    ExpectSame(level, {.environment = {{"TILEWRIGHT_LOG", level}}});
  }
  ExpectSame("others", {.environment = {{"TILEWRIGHT_CACHE", "strict"},
                                        {"TILEWRIGHT_CACHE_DIR", "/nonexistent"},
                                        {"TILEWRIGHT_NVRTC", "/nonexistent"},
                                        {"TILEWRIGHT_THREADS", "3"},
                                        {"CUDA_HOME", "/opt/cuda"},
                                        {"CUDA_PATH", "/opt/cuda"},
                                        {"NVCC_APPEND_FLAGS", "-lineinfo"},
                                        {"CPATH", "/usr/include"},
                                        {"LD_BIND_NOW", "1"}}});
}

TEST_F(KeyMatrix, AddressesDoNotMatter) {
  ExpectSame("fixed", {.fixed_addresses = true});
  ExpectSame("a larger environment moves the stack",
             {.environment = {{"PADDING", std::string(20000, 'x')}}});
  for (int i = 0; i < 5; ++i) ExpectSame("again", {});
}

TEST_F(KeyMatrix, OrderRepetitionAndThreadsDoNotMatter) {
  ExpectSame("reverse", {.arguments = {"--reverse"}});
  ExpectSame("first and later", {.arguments = {"--twice"}});
  for (const char* threads : {"2", "7", "16"}) {
    ExpectSame(threads, {.arguments = {"--threads", threads, "--twice"}});
  }
}

TEST_F(KeyMatrix, TheInstallPrefixAndTheProgramsNameDoNotMatter) {
  const fs::path copy = fs::path(Folder("opt/another prefix/bin")) / "other-name";
  fs::copy_file(TILEWRIGHT_KEY_PROBE, copy);
  fs::permissions(copy, fs::perms::others_exec | fs::perms::others_read, fs::perm_options::add);
  ExpectSame("copy", {.probe = copy.string()});
  if (geteuid() == 0) {
    constexpr uid_t kNobody = 65534;
    ExpectSame("another user", {.probe = copy.string(), .user = kNobody});
  }
}

}  // namespace
}  // namespace tilewright
