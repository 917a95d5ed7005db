// Preloaded into the program: its wall clock is ahead of the machine's by as many seconds as the file CLOCK_OFFSET says, a
// number of 8 bytes that may change while the program runs.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
  const char *name = getenv("CLOCK_OFFSET");
  int file = name == NULL ? -1 : open(name, O_RDONLY | O_CLOEXEC);
  if (file < 0) _exit(97);
  offset = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
  if (offset == MAP_FAILED) _exit(97);
  close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
  int answer = syscall(SYS_clock_gettime, clock, now);
  if (answer == 0 && offset != NULL && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) now->tv_sec += *offset;
  return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  (void)zone;
  struct timespec precise;
  int answer = clock_gettime(CLOCK_REALTIME, &precise);
  now->tv_sec = precise.tv_sec;
  now->tv_usec = precise.tv_nsec / 1000;
  return answer;
}

time_t time(time_t *place) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (place != NULL) *place = now.tv_sec;
  return now.tv_sec;
}
