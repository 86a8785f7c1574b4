/* What differs between systems and CPUs: features, files in memory, threads. */
#ifndef TILEWRIGHT_PLATFORM_H
#define TILEWRIGHT_PLATFORM_H

#include "internal.h"

#if defined(__wasm__)
#define TW_MAX_THREADS 1
#else
#define TW_MAX_THREADS 1024
#endif

/* The first of these features (LLVM's names) that the CPU lacks, or the system does not save; null if it has all. */
const char *tw_lacking_feature(const char *const *features);

/* A digest that finds damage: the sum of the words, each times an odd number of its own, so that no change of a single
 * word goes unseen (Wegman and Carter's multilinear hash, 1981), and their plain sum. */
void tw_digest(const void *bytes, uint64_t size, uint64_t digest[2]);

/* What the bytes from `start`, a multiple of 8, to `end` add to the digest of the block that they are in. */
void tw_digest_part(const void *bytes, uint64_t start, uint64_t end, uint64_t digest[2]);

tw_status tw_map_file(const char *path, tw_mapping *mapping);
void tw_unmap(tw_mapping mapping);

/* The path of a file in the directory of this library. */
tw_status tw_file_beside(const char *name, char *out, size_t room);

/* What generated code calls where the C library of 64-bit Linux is not: as clock_gettime(CLOCK_MONOTONIC) and so on. A
 * semaphore has 64 bytes. */
int32_t tw_clock_gettime(int32_t clock, int64_t time[2]);
int32_t tw_sem_init(void *semaphore, int32_t shared, uint32_t value);
int32_t tw_sem_post(void *semaphore);
int32_t tw_sem_wait(void *semaphore);
int32_t tw_sched_yield(void);
void tw_sem_destroy(void *semaphore); /* on every system; of memory that tw_sem_init has seen */

/* Calls the body with 0 to parts - 1, each in a thread of its own if the system starts it, and waits for all. */
#define TW_MOST_PARTS 4
typedef void (*tw_part)(void *context, int64_t part);
void tw_in_parallel(tw_part body, void *context, int32_t parts);

/* Threads that help a session, as generated code takes them. */
tw_status tw_pool_create(int32_t threads, const tw_options *options, void **pool);
void tw_pool_free(void *pool);

#endif
