// Runs a program and counts its syncs, each of which may be made slower: the same for any program, however it is written.
//
//   syncs MICROSECONDS COUNTER COMMAND [ARGUMENT…]
//
// COUNTER is a file in which 8 bytes say how many calls of fsync and fdatasync there were so far. The kernel hands each of
// them to this process (seccomp's user notification, Linux 5.6), which waits and lets it go on. Nothing else is slower.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// So many syncs of a program may be under way at the same time.
#define TOGETHER 16

static int listener;
static long delay;
static uint64_t *counter;
static pid_t child;

static void fail(const char *what) {
  fprintf(stderr, "syncs: %s: %s\n", what, strerror(errno));
  exit(1);
}

static void *serve(void *unused) {
  (void)unused;
  for (;;) {
    struct seccomp_notif asked;
    memset(&asked, 0, sizeof asked);
    if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) {
      if (errno == EINTR || errno == ENOENT) continue;
      return NULL;
    }
    __atomic_add_fetch(counter, 1, __ATOMIC_RELAXED);
    struct timespec wait = {delay / 1000000, delay % 1000000 * 1000};
    if (delay > 0) nanosleep(&wait, NULL);
    struct seccomp_notif_resp answer = {.id = asked.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
  }
}

static void pass_on(int signal) { kill(child, signal); }

int main(int count, char **arguments) {
  if (count < 4) {
    fprintf(stderr, "usage: syncs MICROSECONDS COUNTER COMMAND [ARGUMENT...]\n");
    return 2;
  }
  delay = atol(arguments[1]);
  int file = open(arguments[2], O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ftruncate(file, 8) != 0) fail(arguments[2]);
  counter = mmap(NULL, 8, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (counter == MAP_FAILED) fail("mmap");
  int told[2], taken[2];
  if (pipe2(told, O_CLOEXEC) != 0 || pipe2(taken, O_CLOEXEC) != 0) fail("pipe");
  child = fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    struct sock_filter rules[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof rules / sizeof rules[0], rules};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) fail("no_new_privs");
    int own = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (own < 0) fail("seccomp");
    char done;
    if (write(told[1], &own, sizeof own) != sizeof own || read(taken[0], &done, 1) != 1) fail("the parent");
    close(own);
    execvp(arguments[3], arguments + 3);
    fail(arguments[3]);
  }
  close(told[1]);
  int number;
  if (read(told[0], &number, sizeof number) != sizeof number) return 1;
  int process = (int)syscall(SYS_pidfd_open, child, 0);
  listener = process < 0 ? -1 : (int)syscall(SYS_pidfd_getfd, process, number, 0);
  if (listener < 0) {
    kill(child, SIGKILL);
    fail("pidfd_getfd");
  }
  if (write(taken[1], "", 1) != 1) fail("the child");
  signal(SIGTERM, pass_on);
  signal(SIGINT, pass_on);
  for (int thread = 0; thread < TOGETHER; thread++) {
    pthread_t started;
    if (pthread_create(&started, NULL, serve, NULL) != 0) fail("pthread_create");
  }
  int status;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid");
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
