/* Threads that help a session. How they share a loop is generated code, the same that compiled models run in Python
 * (tilewright/codegen/native/thread_pool.py); here they are started and stopped, or the caller's own are put in their
 * place. */
#include <stdlib.h>
#include <string.h>

#include "platform.h"

#define HEAD_BYTES 512
#define WORKERS_SEMAPHORE 256
#define CALLER_SEMAPHORE 320
#define CHUNKS_PER_THREAD 4
#define SPIN_NANOSECONDS 1000000
#define STACK_BYTES (4u << 20) /* kernels keep up to half a MiB there, as much as some systems give a thread */

void pool_initialize(void *pool, int64_t threads, int64_t chunks, int64_t spin);
void pool_worker(void *pool, int64_t self);
void pool_stop(void *pool, int64_t workers);
int64_t pool_get_control(void);
void pool_set_control(int64_t control);

typedef void (*chunk_function)(void *args, void *dims, int64_t chunk, int64_t chunks);
typedef void (*share_function)(void *pool, chunk_function function, void *args, void *dims);

typedef struct pool_memory {
  share_function share; /* generated code calls it with the pool */
  int64_t chunks;
  unsigned char rest[HEAD_BYTES - 16];
} pool_memory;

#if defined(_WIN32)
#include <windows.h>
typedef HANDLE thread;
#elif defined(__wasm__)
typedef int32_t thread;
#else
#include <pthread.h>
typedef pthread_t thread;
#endif

typedef struct pool {
  pool_memory *memory;
  tw_parallel_for parallel_for;
  void *context;
  int64_t workers;
  thread *threads;
} pool;

/* behind the memory of a pool stands the pool it belongs to */
static pool **owner(pool_memory *memory, int32_t threads) {
  return (pool **)((unsigned char *)memory + HEAD_BYTES + TW_LINE * (size_t)threads);
}

/* -- the caller's threads */
typedef struct job {
  chunk_function function;
  void *args, *dims;
  int64_t control; /* of floating-point numbers, of the thread that runs the model */
} job;

static void run_chunk(void *argument, int64_t chunk, int64_t chunks) {
  job *j = argument;
  int64_t before = pool_get_control();
  pool_set_control(j->control);
  j->function(j->args, j->dims, chunk, chunks);
  pool_set_control(before);
}

static void share_with_callers(void *memory, chunk_function function, void *args, void *dims) {
  pool_memory *m = memory;
  pool *p;
  memcpy(&p, m->rest, sizeof p);
  job j = {function, args, dims, pool_get_control()};
  p->parallel_for(p->context, run_chunk, &j, m->chunks);
}

/* -- threads of our own */
typedef struct start {
  tw_part body;
  void *context;
  int64_t self;
} start;

#if defined(__wasm__) /* programs have one thread there */
static int launch(thread *t, start *s) {
  (void)t, (void)s;
  return 0;
}
static void join(thread t) { (void)t; }
#elif defined(_WIN32)
static DWORD WINAPI live(LPVOID argument) {
  start s = *(start *)argument;
  free(argument);
  s.body(s.context, s.self);
  return 0;
}
static int launch(thread *t, start *s) {
  *t = CreateThread(NULL, STACK_BYTES, live, s, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
  return *t != NULL;
}
static void join(thread t) {
  WaitForSingleObject(t, INFINITE);
  CloseHandle(t);
}
#else
static void *live(void *argument) {
  start s = *(start *)argument;
  free(argument);
  s.body(s.context, s.self);
  return NULL;
}
static int launch(thread *t, start *s) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return 0;
  int made = pthread_attr_setstacksize(&attributes, STACK_BYTES) == 0 && pthread_create(t, &attributes, live, s) == 0;
  pthread_attr_destroy(&attributes);
  return made;
}
static void join(thread t) { pthread_join(t, NULL); }
#endif

static int start_thread(thread *t, tw_part body, void *context, int64_t self) {
  start *s = malloc(sizeof *s);
  if (s == NULL) return 0;
  *s = (start){body, context, self};
  int started = launch(t, s);
  if (!started) free(s);
  return started;
}

void tw_in_parallel(tw_part body, void *context, int32_t parts) {
  thread threads[TW_MOST_PARTS];
  int started[TW_MOST_PARTS] = {0};
  for (int32_t k = 1; k < parts; k++) started[k] = start_thread(&threads[k], body, context, k);
  for (int32_t k = 0; k < parts; k++)
    if (!started[k]) body(context, k);
  for (int32_t k = 1; k < parts; k++)
    if (started[k]) join(threads[k]);
}

static tw_status start_workers(pool *p, int32_t threads) {
  for (int32_t k = 1; k < threads; k++, p->workers++)
    if (!start_thread(&p->threads[p->workers], pool_worker, p->memory, k))
      return tw_fail(TW_SYSTEM, "the system starts no more than %lld threads here", (long long)p->workers);
  return TW_OK;
}

tw_status tw_pool_create(int32_t threads, const tw_options *options, void **out) {
  *out = NULL;
  size_t bytes = HEAD_BYTES + TW_LINE * (size_t)threads + sizeof(pool *);
  pool *p = calloc(1, sizeof *p);
  pool_memory *memory = tw_allocate(bytes);
  thread *handles = calloc((size_t)threads, sizeof *handles);
  if (p == NULL || memory == NULL || handles == NULL) {
    free(p), free(handles), tw_release(memory);
    return tw_fail(TW_OUT_OF_MEMORY, "no memory for %d threads", threads);
  }
  memset(memory, 0, bytes);
  *p = (pool){memory, options ? options->parallel_for : NULL, options ? options->parallel_context : NULL, 0, handles};
  pool_initialize(memory, threads, CHUNKS_PER_THREAD * (int64_t)threads, SPIN_NANOSECONDS);
  tw_status status = TW_OK;
  if (p->parallel_for != NULL) {
    memory->share = share_with_callers;
    memcpy(memory->rest, &p, sizeof p); /* workers of our own, which keep their state there, do not exist */
  } else {
    status = start_workers(p, threads);
  }
  *owner(memory, threads) = p;
  *out = memory;
  if (status != TW_OK) tw_pool_free(memory), *out = NULL;
  return status;
}

void tw_pool_free(void *memory) {
  if (memory == NULL) return;
  int64_t threads = ((pool_memory *)memory)->chunks / CHUNKS_PER_THREAD;
  pool *p = *owner(memory, (int32_t)threads);
  if (p->parallel_for == NULL) pool_stop(memory, p->workers);
  for (int64_t k = 0; k < p->workers; k++) join(p->threads[k]);
  tw_sem_destroy((unsigned char *)memory + WORKERS_SEMAPHORE);
  tw_sem_destroy((unsigned char *)memory + CALLER_SEMAPHORE);
  free(p->threads);
  free(p);
  tw_release(memory);
}
