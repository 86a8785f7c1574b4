/* first_result MODEL THREADS SIZE...: loads an artifact, runs it once on zeros, and prints when that was done: nanoseconds
 * of the monotonic clock. Sizes are those of the inputs' dimensions that are not fixed, in order.
 *
 * TW_WAIT: it waits then, for those who look at its memory. TW_RUNS: so many batches of runs follow, and how many
 * microseconds a run takes is printed, and the steps of one that is measured step by step: lower deciles of both. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tilewright.h"

#define BATCH 20

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, tw_error());
  return 1;
}

static double now_in_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

typedef struct call {
  tw_model *model;
  tw_options options;
  tw_tensor *in, *out;
  int32_t inputs, outputs;
} call;

/* microseconds of a run, or with a profile of its steps; below 0 where it fails */
static double decile(call c, int batches, int profile) {
  tw_session *session;
  double *taken = calloc((size_t)batches, sizeof *taken);
  c.options.profile = profile;
  if (taken == NULL || tw_session_create(c.model, &c.options, &session) != TW_OK) return -1;
  for (int i = -1; i < batches; i++) {
    double start = now_in_us(), steps = 0, seconds;
    const char *name;
    for (int k = 0; k < BATCH; k++) {
      if (tw_session_run(session, c.in, c.inputs, c.out, c.outputs) != TW_OK) return -1;
      for (int32_t n = profile ? tw_session_step_count(session) : 0; n > 0; n--) {
        if (tw_session_step(session, n - 1, &name, &seconds) != TW_OK) return -1;
        steps += seconds * 1e6;
      }
    }
    if (i >= 0) taken[i] = (profile ? steps : now_in_us() - start) / BATCH;
  }
  qsort(taken, (size_t)batches, sizeof *taken, by_size);
  return taken[batches / 10];
}

int main(int count, char **words) {
  tw_model *model;
  tw_session *session;
  tw_options options = {count > 2 ? atoi(words[2]) : 0, 0, NULL, NULL};
  if (count < 2 || tw_model_load(words[1], &model) != TW_OK) return fail("load");
  if (tw_session_create(model, &options, &session) != TW_OK) return fail("session");
  int32_t inputs = tw_model_input_count(model), outputs = tw_model_output_count(model), word = 3;
  tw_tensor *in = calloc((size_t)inputs + 1, sizeof *in), *out = calloc((size_t)outputs + 1, sizeof *out);
  for (int32_t i = 0; in && out && i < inputs; i++) {
    tw_spec spec;
    if (tw_model_input(model, i, &spec) != TW_OK) return fail("input");
    int64_t *shape = calloc((size_t)spec.ndim + 1, sizeof *shape), bytes = (spec.dtype.bits + 7) / 8;
    for (int32_t k = 0; shape && k < spec.ndim; k++) {
      shape[k] = spec.shape[k] >= 0 ? spec.shape[k] : word < count ? atoll(words[word++]) : 1;
      bytes *= shape[k];
    }
    in[i] = (tw_tensor){calloc(1, (size_t)bytes + 1), {1, 0}, spec.ndim, spec.dtype, shape, NULL, 0};
  }
  if (tw_session_run(session, in, inputs, out, outputs) != TW_OK) return fail("run");
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  printf("%lld\n", (long long)now.tv_sec * 1000000000 + now.tv_nsec);
  if (getenv("TW_RUNS")) {
    call c = {model, options, in, out, inputs, outputs};
    int batches = atoi(getenv("TW_RUNS"));
    double run = decile(c, batches, 0), steps = decile(c, batches, 1);
    if (run < 0 || steps < 0) return fail("runs");
    printf("%.4f %.4f\n", run, steps);
  }
  fflush(stdout);
  if (getenv("TW_WAIT")) pause();
  _exit(0);
}
