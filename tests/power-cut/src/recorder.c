// Preloaded into a program under test: writes down, in order, everything the program does to the files below one folder,
// and which of it was synced. From that every state can be made that a power cut may leave (lib.rs). The calls themselves
// are done as asked.
//
//   POWER_CUT_FOLDER   the folder whose files count, absolute, without a slash at its end
//   POWER_CUT_JOURNAL  where the records go
//   POWER_CUT_CONTROL  16 bytes, two numbers of this machine: kill the process instead of doing operation number N (0:
//                      never), and how many operations there were so far
//
// A record is written after its call has returned and under the lock that the call was done under, so the journal never has
// what did not happen. The syncs are done outside the lock, as others write meanwhile: each names the operation before
// which everything of its file is safe.
//
// What goes around the public functions of the C library is not seen: its own buffered files, system calls made by hand. The
// comparison at the end (check_complete in model.rs) finds that out.
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PATH_BYTES 4096

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char folder[PATH_BYTES];
static size_t folder_bytes;
static int journal = -1;
static volatile uint64_t *control;

static void give_up(const char *what) {
  dprintf(2, "power cut: %s: %s\n", what, strerror(errno));
  _exit(97);
}

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("POWER_CUT_FOLDER");
  const char *journal_name = getenv("POWER_CUT_JOURNAL");
  const char *control_name = getenv("POWER_CUT_CONTROL");
  if (name == NULL || journal_name == NULL || control_name == NULL) return;
  folder_bytes = strlen(name);
  if (folder_bytes + 1 > sizeof folder) give_up("the folder's name is too long");
  memcpy(folder, name, folder_bytes + 1);
  int file = syscall(SYS_openat, AT_FDCWD, control_name, O_RDWR | O_CLOEXEC, 0);
  if (file < 0) give_up(control_name);
  control = mmap(NULL, 16, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (control == MAP_FAILED) give_up("mmap");
  close(file);
  journal = syscall(SYS_openat, AT_FDCWD, journal_name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
  if (journal < 0) give_up(journal_name);
}

// Whether a path is one of those that count. The index of a log is shared memory, which is worthless after a restart: the
// next to open the database makes it anew.
static int counts(const char *path) {
  if (journal < 0 || strncmp(path, folder, folder_bytes) != 0) return 0;
  if (path[folder_bytes] != '/' && path[folder_bytes] != 0) return 0;
  size_t bytes = strlen(path);
  return bytes < 4 || strcmp(path + bytes - 4, "-shm") != 0;
}

static int path_of(int fd, char *path) {
  char link[64];
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t bytes = readlink(link, path, PATH_BYTES - 1);
  if (bytes < 0) return 0;
  path[bytes] = 0;
  return 1;
}

// The inode of an open file that counts, else 0.
static uint64_t counted(int fd) {
  char path[PATH_BYTES];
  struct stat status;
  if (journal < 0 || fd == journal || fstat(fd, &status) != 0) return 0;
  if (!S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) return 0;
  return path_of(fd, path) && counts(path) ? status.st_ino : 0;
}

static void absolute(int directory, const char *name, char *path) {
  char base[PATH_BYTES];
  if (name[0] == '/') {
    snprintf(path, PATH_BYTES, "%s", name);
    return;
  }
  if (directory == AT_FDCWD) {
    if (getcwd(base, sizeof base) == NULL) give_up("getcwd");
  } else if (!path_of(directory, base)) {
    give_up("a folder without a path");
  }
  if (snprintf(path, PATH_BYTES, "%s/%s", base, name) >= PATH_BYTES) give_up("a path is too long");
}

static uint64_t inode_at(const char *path) {
  struct stat status;
  return lstat(path, &status) == 0 ? status.st_ino : 0;
}

static void append(struct iovec *parts, int count) {
  size_t expected = 0;
  for (int part = 0; part < count; part++) expected += parts[part].iov_len;
  ssize_t written = syscall(SYS_writev, journal, parts, count);
  if (written < 0 || (size_t)written != expected) give_up("the journal cannot be written");
}

// Takes the lock; ends the process if this is the operation to do so at.
static uint64_t enter(void) {
  pthread_mutex_lock(&lock);
  uint64_t number = control[1] + 1;
  if (control[0] != 0 && number >= control[0]) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }
  control[1] = number;
  return number;
}

static void leave(void) {
  int kept = errno;
  pthread_mutex_unlock(&lock);
  errno = kept;
}

struct head {
  uint64_t kind, sequence, inode, number, path_bytes, data_bytes;
} __attribute__((packed));

static void record_parts(char kind, uint64_t inode, uint64_t number, const char *path, const struct iovec *data, int count,
                         size_t bytes) {
  int kept = errno;
  struct iovec parts[1026];
  if (count > 1024) give_up("too many parts");
  struct head head = {(uint64_t)kind, control[1], inode, number, path ? strlen(path) : 0, bytes};
  parts[0] = (struct iovec){&head, sizeof head};
  parts[1] = (struct iovec){(void *)path, head.path_bytes};
  int used = 2;
  for (int part = 0; part < count && bytes > 0; part++) {
    size_t length = data[part].iov_len < bytes ? data[part].iov_len : bytes;
    parts[used++] = (struct iovec){data[part].iov_base, length};
    bytes -= length;
  }
  append(parts, used);
  errno = kept;
}

static void record(char kind, uint64_t inode, uint64_t number, const char *path, const char *data) {
  struct iovec part = {(void *)data, data ? strlen(data) : 0};
  record_parts(kind, inode, number, path, &part, 1, part.iov_len);
}

// ---- content

static ssize_t write_at(int fd, const struct iovec *data, int count, off64_t offset, int positioned) {
  uint64_t inode = counted(fd);
  if (inode == 0) {
    return positioned ? syscall(SYS_pwritev, fd, data, (long)count, (long)offset, 0L) : syscall(SYS_writev, fd, data, (long)count);
  }
  enter();
  int flags = fcntl(fd, F_GETFL);
  struct stat status;
  if (flags & O_APPEND) {
    fstat(fd, &status);
    offset = status.st_size;
  } else if (!positioned) {
    offset = lseek64(fd, 0, SEEK_CUR);
  }
  ssize_t written =
      positioned ? syscall(SYS_pwritev, fd, data, (long)count, (long)offset, 0L) : syscall(SYS_writev, fd, data, (long)count);
  if (written > 0) record_parts('W', inode, (uint64_t)offset, NULL, data, count, (size_t)written);
  leave();
  return written;
}

ssize_t write(int fd, const void *bytes, size_t count) {
  struct iovec part = {(void *)bytes, count};
  if (counted(fd) == 0) return syscall(SYS_write, fd, bytes, count);
  return write_at(fd, &part, 1, 0, 0);
}
ssize_t writev(int fd, const struct iovec *parts, int count) { return write_at(fd, parts, count, 0, 0); }
ssize_t pwrite64(int fd, const void *bytes, size_t count, off64_t offset) {
  struct iovec part = {(void *)bytes, count};
  return write_at(fd, &part, 1, offset, 1);
}
ssize_t pwrite(int fd, const void *bytes, size_t count, off_t offset) { return pwrite64(fd, bytes, count, offset); }
ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
  return write_at(fd, parts, count, offset, 1);
}
ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset) { return write_at(fd, parts, count, offset, 1); }

int ftruncate64(int fd, off64_t length) {
  uint64_t inode = counted(fd);
  if (inode == 0) return syscall(SYS_ftruncate, fd, (long)length);
  enter();
  int answer = syscall(SYS_ftruncate, fd, (long)length);
  if (answer == 0) record('T', inode, (uint64_t)length, NULL, NULL);
  leave();
  return answer;
}
int ftruncate(int fd, off_t length) { return ftruncate64(fd, length); }

static int synced(int fd, long call) {
  uint64_t inode = counted(fd);
  if (inode == 0) return syscall(call, fd);
  uint64_t before = enter();
  leave();
  int answer = syscall(call, fd);
  if (answer == 0) {
    enter();
    record('S', inode, before, NULL, NULL);
    leave();
  }
  return answer;
}
int fsync(int fd) { return synced(fd, SYS_fsync); }
int fdatasync(int fd) { return synced(fd, SYS_fdatasync); }

// ---- names

static int open_at(int directory, const char *name, int flags, mode_t mode) {
  char path[PATH_BYTES];
  if (journal < 0 || !(flags & (O_CREAT | O_TRUNC))) return syscall(SYS_openat, directory, name, flags, mode);
  absolute(directory, name, path);
  if (!counts(path)) return syscall(SYS_openat, directory, name, flags, mode);
  enter();
  uint64_t there = inode_at(path);
  int fd = syscall(SYS_openat, directory, name, flags, mode);
  if (fd >= 0 && there == 0) record('C', inode_at(path), 0, path, NULL);
  if (fd >= 0 && there != 0 && (flags & O_TRUNC)) record('T', there, 0, NULL, NULL);
  leave();
  return fd;
}
#define OPENING(signature, directory)                     \
  int signature {                                         \
    mode_t mode = 0;                                      \
    if (flags & (O_CREAT | O_TMPFILE)) {                  \
      va_list rest;                                       \
      va_start(rest, flags);                              \
      mode = va_arg(rest, mode_t);                        \
      va_end(rest);                                       \
    }                                                     \
    return open_at(directory, name, flags, mode);         \
  }
OPENING(open(const char *name, int flags, ...), AT_FDCWD)
OPENING(open64(const char *name, int flags, ...), AT_FDCWD)
OPENING(openat(int directory, const char *name, int flags, ...), directory)
OPENING(openat64(int directory, const char *name, int flags, ...), directory)

int renameat2(int from_directory, const char *from, int to_directory, const char *to, unsigned flags) {
  char from_path[PATH_BYTES], to_path[PATH_BYTES];
  if (journal < 0) return syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
  absolute(from_directory, from, from_path);
  absolute(to_directory, to, to_path);
  if (!counts(from_path) && !counts(to_path)) return syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
  enter();
  int answer = syscall(SYS_renameat2, from_directory, from, to_directory, to, flags);
  if (answer == 0 && (flags & ~RENAME_NOREPLACE)) record('!', 0, 0, "renameat2", NULL);
  if (answer == 0 && !(flags & ~RENAME_NOREPLACE)) record('R', 0, 0, from_path, to_path);
  leave();
  return answer;
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) {
  return renameat2(from_directory, from, to_directory, to, 0);
}
int rename(const char *from, const char *to) { return renameat(AT_FDCWD, from, AT_FDCWD, to); }

int unlinkat(int directory, const char *name, int flags) {
  char path[PATH_BYTES];
  if (journal < 0) return syscall(SYS_unlinkat, directory, name, flags);
  absolute(directory, name, path);
  if (!counts(path)) return syscall(SYS_unlinkat, directory, name, flags);
  enter();
  int answer = syscall(SYS_unlinkat, directory, name, flags);
  if (answer == 0) record('U', 0, 0, path, NULL);
  leave();
  return answer;
}
int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int directory, const char *name, mode_t mode) {
  char path[PATH_BYTES];
  if (journal < 0) return syscall(SYS_mkdirat, directory, name, mode);
  absolute(directory, name, path);
  if (!counts(path)) return syscall(SYS_mkdirat, directory, name, mode);
  enter();
  int answer = syscall(SYS_mkdirat, directory, name, mode);
  if (answer == 0) record('M', inode_at(path), 0, path, NULL);
  leave();
  return answer;
}
int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }

int symlinkat(const char *target, int directory, const char *name) {
  char path[PATH_BYTES];
  if (journal < 0) return syscall(SYS_symlinkat, target, directory, name);
  absolute(directory, name, path);
  if (!counts(path)) return syscall(SYS_symlinkat, target, directory, name);
  enter();
  int answer = syscall(SYS_symlinkat, target, directory, name);
  if (answer == 0) record('L', 0, 0, path, target);
  leave();
  return answer;
}
int symlink(const char *target, const char *name) { return symlinkat(target, AT_FDCWD, name); }

// ---- what is not understood is said, so that no test passes by what it did not see

static void unknown(int fd, const char *call) {
  if (counted(fd) == 0) return;
  enter();
  record('!', 0, 0, call, NULL);
  leave();
}
void *mmap64(void *where, size_t length, int protection, int flags, int fd, off64_t offset) {
  if (fd >= 0 && (flags & MAP_SHARED) && (protection & PROT_WRITE)) unknown(fd, "mmap");
  return (void *)syscall(SYS_mmap, where, length, (long)protection, (long)flags, (long)fd, (long)offset);
}
void *mmap(void *where, size_t length, int protection, int flags, int fd, off_t offset) {
  return mmap64(where, length, protection, flags, fd, offset);
}
int fallocate64(int fd, int mode, off64_t offset, off64_t length) {
  unknown(fd, "fallocate");
  return syscall(SYS_fallocate, fd, (long)mode, (long)offset, (long)length);
}
int fallocate(int fd, int mode, off_t offset, off_t length) { return fallocate64(fd, mode, offset, length); }
int posix_fallocate64(int fd, off64_t offset, off64_t length) {
  return fallocate64(fd, 0, offset, length) == 0 ? 0 : errno;
}
int posix_fallocate(int fd, off_t offset, off_t length) { return posix_fallocate64(fd, offset, length); }
// Copies are done by reading and writing.
ssize_t copy_file_range(int from, off64_t *from_offset, int to, off64_t *to_offset, size_t length, unsigned flags) {
  if (counted(to) != 0) {
    errno = ENOSYS;
    return -1;
  }
  return syscall(SYS_copy_file_range, from, from_offset, to, to_offset, length, (long)flags);
}
ssize_t sendfile64(int to, int from, off64_t *offset, size_t length) {
  if (counted(to) != 0) {
    errno = ENOSYS;
    return -1;
  }
  return syscall(SYS_sendfile, to, from, offset, length);
}
ssize_t sendfile(int to, int from, off_t *offset, size_t length) { return sendfile64(to, from, offset, length); }
int link(const char *from, const char *to) {
  char path[PATH_BYTES];
  if (journal >= 0) {
    absolute(AT_FDCWD, to, path);
    if (counts(path)) {
      enter();
      record('!', 0, 0, "link", NULL);
      leave();
    }
  }
  return syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0);
}
