/* The C interface from a program: every function, and what each refuses. Linked with an artifact of
 * y = relu(x @ w + b) @ v for x[batch, 32], or with libtilewright, which is given the path of one; prints what does not hold, and gives the number of such things. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tilewright.h"

static int failures;

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) {                                                          \
      printf("line %d: %s (%s)\n", __LINE__, #condition, tw_error());            \
      failures++;                                                                \
    }                                                                            \
  } while (0)

#define REFUSED(call, status, text) CHECK((call) == (status) && strstr(tw_error(), text) != NULL)

static tw_tensor tensor(void *data, int32_t ndim, int64_t *shape) {
  tw_tensor t = {data, {1, 0}, ndim, {2, 32, 1}, shape, NULL, 0};
  return t;
}

static void fill(float *x, int64_t count) {
  for (int64_t i = 0; i < count; i++) x[i] = (float)((i * 7919) % 97) / 97 - 0.5f;
}

static void serial(void *context, tw_task task, void *argument, int64_t chunks) {
  ++*(int *)context;
  for (int64_t i = chunks - 1; i >= 0; i--) task(argument, i, chunks);
}

static void test_model(tw_model *model, const char *path) {
  tw_spec spec;
  CHECK(tw_version() == TW_VERSION);
  CHECK(strstr(tw_model_manifest(model), "\"inputs\"") != NULL);
  CHECK(tw_model_input_count(model) == 1 && tw_model_output_count(model) == 1);
  CHECK(tw_model_input(model, 0, &spec) == TW_OK && strcmp(spec.name, "x") == 0);
  CHECK(spec.ndim == 2 && spec.shape[0] == -1 && strcmp(spec.dims[0], "batch") == 0 && spec.shape[1] == 32);
  CHECK(spec.dtype.code == 2 && spec.dtype.bits == 32 && spec.dtype.lanes == 1);
  REFUSED(tw_model_input(model, 1, &spec), TW_INVALID_ARGUMENT, "below 1");
  REFUSED(tw_model_output(model, -1, &spec), TW_INVALID_ARGUMENT, "below 1");
  REFUSED(tw_model_output(NULL, 0, &spec), TW_INVALID_ARGUMENT, "got null");
  REFUSED(tw_model_load(NULL, NULL), TW_INVALID_ARGUMENT, "got null");
  tw_model *other = NULL;
  REFUSED(tw_model_load("/nonexistent", &other), TW_SYSTEM, "/nonexistent");
  REFUSED(tw_model_load_memory("abc", 3, &other), TW_INVALID_ARTIFACT, path ? "was cut off" : "got 3");
  CHECK(other == NULL);
  tw_model_free(NULL);
  tw_session_free(NULL);
}

static void test_session(tw_model *model) {
  tw_session *session = NULL;
  tw_options bad = {-1, 0, NULL, NULL};
  REFUSED(tw_session_create(model, &bad, &session), TW_INVALID_ARGUMENT, "threads, got -1");
  bad.threads = 100000;
  REFUSED(tw_session_create(model, &bad, &session), TW_INVALID_ARGUMENT, "threads, got 100000");
  REFUSED(tw_session_create(NULL, NULL, &session), TW_INVALID_ARGUMENT, "got null");
  tw_options options = {2, 1, NULL, NULL};
  CHECK(tw_session_create(model, &options, &session) == TW_OK);

  float x[5 * 32], y[5 * 10], transposed[32 * 5];
  int64_t shape[] = {5, 32}, out_shape[] = {5, 10}, strides[] = {1, 5};
  fill(x, 5 * 32);
  for (int i = 0; i < 5; i++)
    for (int k = 0; k < 32; k++) transposed[k * 5 + i] = x[i * 32 + k];
  tw_tensor in = tensor(x, 2, shape), out = tensor(NULL, 0, NULL);
  CHECK(tw_session_shapes(session, &in, 1, &out, 1) == TW_OK && out.ndim == 2 && out.shape[0] == 5 && out.shape[1] == 10);
  out = tensor(NULL, 0, NULL);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && out.ndim == 2 && out.shape[0] == 5 && out.data != NULL);
  memcpy(y, out.data, sizeof y);

  float mine[5 * 10], gaps[5 * 20];
  out = tensor(mine, 2, out_shape);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && memcmp(mine, y, sizeof y) == 0 && out.data == mine);
  in = tensor(transposed, 2, shape), in.strides = strides;
  memset(gaps, 0, sizeof gaps);
  int64_t wide[] = {20, 2};
  out = tensor(gaps, 2, out_shape), out.strides = wide;
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK);
  for (int i = 0; i < 50; i++) CHECK(gaps[2 * i] == y[i] && gaps[2 * i + 1] == 0);
  in = tensor((char *)x - 12, 2, shape), in.byte_offset = 12;
  out = tensor((char *)mine - 8, 2, out_shape), out.byte_offset = 8;
  memset(mine, 0, sizeof mine);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && memcmp(mine, y, sizeof y) == 0);

  CHECK(tw_session_step_count(session) > 0);
  const char *name;
  double seconds;
  for (int32_t i = 0; i < tw_session_step_count(session); i++)
    CHECK(tw_session_step(session, i, &name, &seconds) == TW_OK && seconds >= 0 && name[0] == 'k');
  REFUSED(tw_session_step(session, 1000, &name, &seconds), TW_INVALID_ARGUMENT, "got 1000");
  CHECK(tw_session_bytes(session) > 0);

  in = tensor(x, 2, shape);
  out = tensor(NULL, 0, NULL);
  REFUSED(tw_session_run(NULL, &in, 1, &out, 1), TW_INVALID_ARGUMENT, "got null");
  REFUSED(tw_session_run(session, &in, 0, &out, 1), TW_INVALID_INPUT, "expected 1 inputs, got 0");
  REFUSED(tw_session_run(session, NULL, 1, &out, 1), TW_INVALID_INPUT, "expected 1 inputs");
  REFUSED(tw_session_run(session, &in, 1, &out, 2), TW_INVALID_ARGUMENT, "1 outputs, got 2");
  REFUSED(tw_session_run(session, &in, 1, NULL, 1), TW_INVALID_ARGUMENT, "1 outputs");
  int64_t odd[] = {5, 31}, negative[] = {-5, 32}, few[] = {4, 10}, huge[] = {INT64_C(1) << 60, 32};
  in = tensor(x, 2, odd);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "'x' axis 1: expected 32, got 31");
  in = tensor(x, 2, negative);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "'x' axis 0");
  in = tensor(x, 1, shape);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "expected 2 dimensions, got 1");
  in = tensor(x, -3, shape);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "expected 2 dimensions, got -3");
  in = tensor(x, 2, NULL);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "'x'");
  in = tensor(NULL, 2, shape);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "got null");
  in = tensor(x, 2, shape), in.dtype.bits = 64;
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "expected elements of type float32, got float64");
  in = tensor(x, 2, shape), in.device.type = 2;
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_INPUT, "device 2");
  in = tensor(x, 2, huge);
  CHECK(tw_session_run(session, &in, 1, &out, 1) != TW_OK);
  CHECK(tw_session_shapes(session, &in, 1, &out, 1) == TW_OK || tw_error()[0]);
  in = tensor(x, 2, shape);
  out = tensor(mine, 2, few);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_ARGUMENT, "expected memory for shape [5, 10], got one of shape [4, 10]");
  out = tensor(mine, 2, out_shape), out.dtype.code = 0;
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_INVALID_ARGUMENT, "elements of type float32, got int32");
  out = tensor(mine, 2, out_shape);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && memcmp(mine, y, sizeof y) == 0);
  int64_t none[] = {0, 32};
  in = tensor(NULL, 2, none);
  out = tensor(NULL, 0, NULL);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && out.ndim == 2 && out.shape[0] == 0);
  tw_session_free(session);

  CHECK(tw_model_arena_bytes(model) == 0); /* the batch varies */
  CHECK(tw_session_create(model, NULL, &session) == TW_OK);
  _Alignas(64) static unsigned char arena[1 << 20];
  in = tensor(x, 2, shape);
  out = tensor(mine, 2, out_shape);
  REFUSED(tw_session_use_arena(session, arena + 8, 4096), TW_INVALID_ARGUMENT, "a multiple of 64");
  REFUSED(tw_session_use_arena(NULL, arena, 4096), TW_INVALID_ARGUMENT, "expected a session");
  CHECK(tw_session_use_arena(session, arena, 64) == TW_OK);
  REFUSED(tw_session_run(session, &in, 1, &out, 1), TW_OUT_OF_MEMORY, "the caller's memory has 64");
  CHECK(tw_session_use_arena(session, arena, sizeof arena) == TW_OK);
  memset(mine, 0, sizeof mine);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && memcmp(mine, y, sizeof y) == 0);
  CHECK(tw_session_bytes(session) == 0);
  tw_session_free(session);

  int calls = 0;
  tw_options theirs = {4, 0, serial, &calls};
  CHECK(tw_session_create(model, &theirs, &session) == TW_OK);
  float *large = malloc(512 * 32 * sizeof *large), *one = malloc(512 * 10 * sizeof *one);
  float *other = malloc(512 * 10 * sizeof *other);
  int64_t many[] = {512, 32}, many_out[] = {512, 10};
  fill(large, 512 * 32);
  in = tensor(large, 2, many);
  out = tensor(one, 2, many_out);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && calls > 0);
  tw_session_free(session);
  tw_options alone = {1, 0, NULL, NULL};
  CHECK(tw_session_create(model, &alone, &session) == TW_OK);
  out = tensor(other, 2, many_out);
  CHECK(tw_session_run(session, &in, 1, &out, 1) == TW_OK && memcmp(one, other, 512 * 10 * sizeof *one) == 0);
  tw_session_free(session);
  free(large), free(one), free(other);
}

/* -- threads: a session each on one model, and one that they all want */
typedef struct worker {
  tw_model *model;
  tw_session *shared;
  int done, busy, wrong;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  tw_session *session;
  float x[9 * 32], first[9 * 10], y[9 * 10];
  fill(x, 9 * 32);
  tw_options options = {2, 0, NULL, NULL};
  if (tw_session_create(w->model, &options, &session) != TW_OK) return w->wrong++, NULL;
  for (int i = 0; i < 50; i++) {
    int64_t shape[] = {1 + i % 9, 32}, out_shape[] = {1 + i % 9, 10};
    tw_tensor in = tensor(x, 2, shape), out = tensor(i == 8 ? first : y, 2, out_shape);
    if (tw_session_run(session, &in, 1, &out, 1) != TW_OK) w->wrong++;
    if (i % 9 == 8 && i > 8 && memcmp(first, y, sizeof y) != 0) w->wrong++;
    out = tensor(NULL, 0, NULL);
    tw_status status = tw_session_run(w->shared, &in, 1, &out, 1);
    w->done += status == TW_OK;
    w->busy += status == TW_BUSY && strstr(tw_error(), "another thread") != NULL;
    w->wrong += status != TW_OK && status != TW_BUSY;
  }
  tw_session_free(session);
  return NULL;
}

static void test_threads(tw_model *model) {
  enum { COUNT = 4 };
  tw_session *shared;
  pthread_t threads[COUNT];
  worker workers[COUNT];
  CHECK(tw_session_create(model, NULL, &shared) == TW_OK);
  for (int i = 0; i < COUNT; i++) {
    workers[i] = (worker){model, shared, 0, 0, 0};
    CHECK(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < COUNT; i++) {
    pthread_join(threads[i], NULL);
    CHECK(workers[i].wrong == 0 && workers[i].done + workers[i].busy == 50);
  }
  tw_session_free(shared);
}

int main(int count, char **arguments) {
  const char *path = count > 1 ? arguments[1] : NULL; /* with libtilewright: of the artifact */
  tw_model *model = NULL;
  CHECK(strcmp(tw_error(), "") == 0);
  CHECK(tw_model_load(path, &model) == TW_OK);
  if (model == NULL) return 1;
  test_model(model, path);
  test_session(model);
  test_threads(model);
  tw_model_free(model);
  return failures != 0;
}
