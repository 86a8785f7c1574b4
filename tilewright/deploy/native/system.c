/* The clock, semaphores and the like that generated code calls (tilewright/codegen/native/system.py): on 64-bit Linux it
 * takes those of the C library, elsewhere these. */
#if !defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#include "platform.h"

#if defined(__linux__) && UINTPTR_MAX > UINT32_MAX

void tw_sem_destroy(void *semaphore) { (void)semaphore; } /* it owns nothing */

#elif defined(_WIN32)
#include <windows.h>

int32_t tw_clock_gettime(int32_t clock, int64_t time[2]) {
  LARGE_INTEGER ticks, each;
  (void)clock;
  QueryPerformanceFrequency(&each);
  QueryPerformanceCounter(&ticks);
  time[0] = ticks.QuadPart / each.QuadPart;
  time[1] = ticks.QuadPart % each.QuadPart * 1000000000 / each.QuadPart;
  return 0;
}

int32_t tw_sched_yield(void) {
  SwitchToThread();
  return 0;
}

typedef struct semaphore {
  SRWLOCK lock;
  CONDITION_VARIABLE posted;
  int64_t value;
} semaphore;

int32_t tw_sem_init(void *memory, int32_t shared, uint32_t value) {
  semaphore *s = memory;
  (void)shared;
  InitializeSRWLock(&s->lock);
  InitializeConditionVariable(&s->posted);
  s->value = value;
  return 0;
}

int32_t tw_sem_post(void *memory) {
  semaphore *s = memory;
  AcquireSRWLockExclusive(&s->lock);
  s->value++;
  ReleaseSRWLockExclusive(&s->lock);
  WakeConditionVariable(&s->posted);
  return 0;
}

int32_t tw_sem_wait(void *memory) {
  semaphore *s = memory;
  AcquireSRWLockExclusive(&s->lock);
  while (s->value == 0) SleepConditionVariableSRW(&s->posted, &s->lock, INFINITE, 0);
  s->value--;
  ReleaseSRWLockExclusive(&s->lock);
  return 0;
}

void tw_sem_destroy(void *memory) { (void)memory; } /* neither lock nor condition own anything */

#elif defined(__wasm__) /* one thread: nobody waits */
#include <time.h>

int32_t tw_clock_gettime(int32_t clock, int64_t time[2]) {
  struct timespec now = {0};
  (void)clock;
  clock_gettime(CLOCK_MONOTONIC, &now);
  time[0] = now.tv_sec;
  time[1] = now.tv_nsec;
  return 0;
}

int32_t tw_sched_yield(void) { return 0; }

int32_t tw_sem_init(void *memory, int32_t shared, uint32_t value) {
  (void)memory, (void)shared, (void)value;
  return 0;
}

int32_t tw_sem_post(void *memory) {
  (void)memory;
  return 0;
}

int32_t tw_sem_wait(void *memory) {
  (void)memory;
  return 0;
}

void tw_sem_destroy(void *memory) { (void)memory; }

#else
#include <sched.h>
#include <time.h>

int32_t tw_clock_gettime(int32_t clock, int64_t time[2]) {
  struct timespec now = {0};
  (void)clock;
  clock_gettime(CLOCK_MONOTONIC, &now);
  time[0] = (int64_t)now.tv_sec;
  time[1] = (int64_t)now.tv_nsec;
  return 0;
}

int32_t tw_sched_yield(void) { return sched_yield(); }

#if defined(__APPLE__) /* has no semaphores without names */
#include <dispatch/dispatch.h>

int32_t tw_sem_init(void *memory, int32_t shared, uint32_t value) {
  (void)shared;
  dispatch_semaphore_t made = dispatch_semaphore_create((intptr_t)value);
  *(dispatch_semaphore_t *)memory = made;
  return made == NULL ? -1 : 0;
}

int32_t tw_sem_post(void *memory) {
  dispatch_semaphore_signal(*(dispatch_semaphore_t *)memory);
  return 0;
}

int32_t tw_sem_wait(void *memory) { return dispatch_semaphore_wait(*(dispatch_semaphore_t *)memory, DISPATCH_TIME_FOREVER) != 0; }

void tw_sem_destroy(void *memory) {
  if (*(dispatch_semaphore_t *)memory != NULL) dispatch_release(*(dispatch_semaphore_t *)memory);
}
#else
#include <semaphore.h>

int32_t tw_sem_init(void *memory, int32_t shared, uint32_t value) { return sem_init(memory, shared, value); }
int32_t tw_sem_post(void *memory) { return sem_post(memory); }
int32_t tw_sem_wait(void *memory) { return sem_wait(memory); }
void tw_sem_destroy(void *memory) { sem_destroy(memory); }
#endif
#endif
