/* What differs between systems and CPUs: features, files in memory, threads. */
#ifndef TILEWRIGHT_PLATFORM_H
#define TILEWRIGHT_PLATFORM_H

#include "internal.h"

#define TW_MAX_THREADS 1024

/* The first of these features (LLVM's names) that the CPU lacks, or the system does not save; null if it has all. */
const char *tw_lacking_feature(const char *const *features);

/* A digest that finds damage: the sum of the words, each times an odd number of its own, so that no change of a single
 * word goes unseen (Wegman and Carter's multilinear hash, 1981), and their plain sum. */
void tw_digest(const void *bytes, uint64_t size, uint64_t digest[2]);

tw_status tw_map_file(const char *path, tw_mapping *mapping);
void tw_unmap(tw_mapping mapping);

/* The path of a file in the directory of this library. */
tw_status tw_file_beside(const char *name, char *out, size_t room);

/* Threads that help a session, as generated code takes them. */
tw_status tw_pool_create(int32_t threads, const tw_options *options, void **pool);
void tw_pool_free(void *pool);

#endif
