/* first_result MODEL THREADS SIZE...: loads an artifact, runs it once on zeros, and prints when that was done: nanoseconds
 * of the monotonic clock. Sizes are those of the inputs' dimensions that are not fixed, in order. */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tilewright.h"

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, tw_error());
  return 1;
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
  fflush(stdout);
  if (getenv("TW_WAIT")) pause(); /* for those who look at its memory */
  _exit(0);
}
