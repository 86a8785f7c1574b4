/* Runs a model on tensors in files: driver MODEL THREADS FOLDER [TYPE:SHAPE:FILE ...]
 *
 * MODEL: a shared library, or - for a model that is linked in (-DLINKED). THREADS: 0 for as many as it was built for.
 * FOLDER: where the outputs go, as 0.bin, 1.bin and so on; for each a line is printed: TYPE:SHAPE NAME. Inputs stand in the
 * model's order: float32:2x3:x.bin; a scalar is float32::x.bin. Every run is done twice, the second one into memory of the
 * driver's own, and both must give the same bytes (-DRANDOM: of the same shapes). Exit code: 0, 1 for a fault of the driver, or 10 and the status. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tilewright.h"

#if defined(LINKED)
#define CALL(name) name
#else
#if defined(_WIN32)
#include <windows.h>
#define dlopen(path, flags) ((void *)LoadLibraryA(path))
#define dlsym(library, name) ((void *)GetProcAddress((HMODULE)(library), name))
#define dlerror() "the system does not load it, or it lacks a function"
#else
#include <dlfcn.h>
#endif
static void *library;
static void *found(const char *name) {
  void *at = dlsym(library, name);
  if (at == NULL) fprintf(stderr, "%s: %s\n", name, dlerror()), exit(1);
  return at;
}
#define CALL(name) ((__typeof__(&name))found(#name))
#endif

typedef struct kind {
  const char *name;
  uint8_t code, bits;
} kind;

static const kind kinds[] = {
    {"int8", 0, 8},           {"int16", 0, 16},           {"int32", 0, 32},        {"int64", 0, 64},
    {"uint8", 1, 8},          {"uint16", 1, 16},          {"uint32", 1, 32},       {"uint64", 1, 64},
    {"float16", 2, 16},       {"float32", 2, 32},         {"float64", 2, 64},      {"bfloat16", 4, 16},
    {"complex64", 5, 64},     {"complex128", 5, 128},     {"bool", 6, 8},          {"float8_e4m3fn", 10, 8},
    {"float8_e4m3fnuz", 11, 8}, {"float8_e5m2", 12, 8},   {"float8_e5m2fnuz", 13, 8}, {"float8_e8m0fnu", 14, 8},
    {"float4_e2m1fn", 17, 4}, {"int4", 0, 4},             {"uint4", 1, 4},         {"int2", 0, 2},
    {"uint2", 1, 2}};

static const kind *kind_of(tw_dtype d) {
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (kinds[i].code == d.code && kinds[i].bits == d.bits) return &kinds[i];
  fprintf(stderr, "no name for elements of code %d with %d bits\n", d.code, d.bits);
  exit(1);
}

static size_t bytes_of(const tw_tensor *t) {
  size_t n = t->dtype.bits < 8 ? 1 : t->dtype.bits / 8u;
  for (int32_t i = 0; i < t->ndim; i++) n *= (size_t)t->shape[i];
  return n;
}

static void require(tw_status status) {
  if (status == TW_OK) return;
  fprintf(stderr, "%s\n", CALL(tw_error)());
  exit(10 + (int)status);
}

static void read_input(const char *text, tw_tensor *t) {
  const char *shape = strchr(text, ':');
  const char *file = shape ? strchr(shape + 1, ':') : NULL;
  if (file == NULL) fprintf(stderr, "%s: expected TYPE:SHAPE:FILE\n", text), exit(1);
  *t = (tw_tensor){.device = {1, 0}, .shape = calloc(64, sizeof *t->shape)};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    if (strlen(kinds[i].name) == (size_t)(shape - text) && strncmp(kinds[i].name, text, (size_t)(shape - text)) == 0)
      t->dtype = (tw_dtype){kinds[i].code, kinds[i].bits, 1};
  char *next = (char *)(uintptr_t)shape;
  while (next + 1 < file && t->ndim < 64) t->shape[t->ndim++] = strtoll(next + 1, &next, 10);
  FILE *f = fopen(file + 1, "rb");
  size_t size = bytes_of(t);
  t->data = malloc(size + 1);
  if (f == NULL || fread(t->data, 1, size, f) != size) fprintf(stderr, "%s: expected %zu bytes\n", file + 1, size), exit(1);
  fclose(f);
}

static void write_output(const char *folder, int32_t index, const tw_tensor *t, const char *name) {
  char path[4096];
  snprintf(path, sizeof path, "%s/%d.bin", folder, (int)index);
  FILE *f = fopen(path, "wb");
  size_t size = bytes_of(t);
  if (f == NULL || (size && fwrite(t->data, 1, size, f) != size)) fprintf(stderr, "%s: not written\n", path), exit(1);
  fclose(f);
  printf("%s:", kind_of(t->dtype)->name);
  for (int32_t i = 0; i < t->ndim; i++) printf("%s%lld", i ? "x" : "", (long long)t->shape[i]);
  printf(" %s\n", name);
}

int main(int argc, char **argv) {
  if (argc < 4) return fprintf(stderr, "expected MODEL THREADS FOLDER [TYPE:SHAPE:FILE ...]\n"), 1;
#if !defined(LINKED)
  library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 1;
#endif
  tw_model *model;
  tw_session *session;
  tw_options options = {.threads = atoi(argv[2])};
  require(CALL(tw_model_load)(NULL, &model));
  require(CALL(tw_session_create)(model, &options, &session));

  int32_t input_count = argc - 4, output_count = CALL(tw_model_output_count)(model);
  tw_tensor *inputs = calloc((size_t)input_count + 1, sizeof *inputs);
  tw_tensor *outputs = calloc((size_t)output_count + 1, sizeof *outputs);
  for (int32_t i = 0; i < input_count; i++) read_input(argv[4 + i], &inputs[i]);
  require(CALL(tw_session_run)(session, inputs, input_count, outputs, output_count));

  tw_tensor *again = calloc((size_t)output_count + 1, sizeof *again);
  for (int32_t i = 0; i < output_count; i++) {
    tw_spec spec;
    require(CALL(tw_model_output)(model, i, &spec));
    write_output(argv[3], i, &outputs[i], spec.name);
    again[i] = outputs[i];
    again[i].data = memset(malloc(bytes_of(&again[i]) + 1), 0x55, bytes_of(&again[i]));
    again[i].shape = memcpy(calloc((size_t)again[i].ndim + 1, 8), outputs[i].shape, (size_t)again[i].ndim * 8);
    size_t size = bytes_of(&again[i]);
    outputs[i].data = memcpy(malloc(size + 1), outputs[i].data, size);
  }
  require(CALL(tw_session_run)(session, inputs, input_count, again, output_count));
#if !defined(RANDOM)
  for (int32_t i = 0; i < output_count; i++)
    if (memcmp(again[i].data, outputs[i].data, bytes_of(&again[i])) != 0)
      return fprintf(stderr, "output %d: another result in the second run\n", (int)i), 1;
#endif
  CALL(tw_session_free)(session);
  CALL(tw_model_free)(model);
  return 0;
}
