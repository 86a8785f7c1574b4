/* z = (x * y) * s on threads of the caller's own: prints how many elements of z are zero, if a product of small numbers is
 * zero afterwards in the main thread, how often it has become so (or no longer so) in a helper, and if there was a helper. A
 * helper begins as the thread was that starts it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

typedef struct half {
  tw_task task;
  void *argument;
  int64_t chunks;
  int is_changed;
} half;

static volatile float tiny = 0x1p-120f, small = 0x1p-10f;

static void *help(void *p) {
  half *h = p;
  int before = tiny * small == 0;
  for (int64_t k = 1; k < h->chunks; k += 2) h->task(h->argument, k, h->chunks);
  h->is_changed = (tiny * small == 0) != before;
  return NULL;
}

static int changes = 0, loops = 0;

static void share(void *context, tw_task task, void *argument, int64_t chunks) {
  (void)context;
  half h = {task, argument, chunks, 0};
  pthread_t t;
  if (pthread_create(&t, NULL, help, &h)) exit(3);
  for (int64_t k = 0; k < chunks; k += 2) task(argument, k, chunks);
  pthread_join(t, NULL);
  changes += h.is_changed;
  loops++;
}

int main(int argc, char **argv) {
  int64_t n = atoll(argv[argc - 1]), one = 1;
  float *x = malloc((size_t)n * 4), *y = malloc((size_t)n * 4), *z = malloc((size_t)n * 4), s = 0x1p100f;
  for (int64_t i = 0; i < n; i++) x[i] = tiny, y[i] = small;
  tw_tensor in[3] = {{x, {1, 0}, 1, {2, 32, 1}, &n, 0}, {y, {1, 0}, 1, {2, 32, 1}, &n, 0}, {&s, {1, 0}, 1, {2, 32, 1}, &one, 0}};
  tw_tensor out = {z, {1, 0}, 1, {2, 32, 1}, &n, 0};
  tw_options options = {2, 0, share, NULL};
  tw_model *model;
  tw_session *session;
  if (tw_model_load(NULL, &model) || tw_session_create(model, &options, &session)) return puts(tw_error()), 1;
  if (tw_session_run(session, in, 3, &out, 1)) return puts(tw_error()), 1;
  int64_t zeros = 0;
  for (int64_t i = 0; i < n; i++) zeros += z[i] == 0;
  printf("%lld %d %d %d\n", (long long)zeros, tiny * small == 0, changes, loops > 0);
  return 0;
}
