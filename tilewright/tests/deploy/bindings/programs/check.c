/* What every binding is tried with; see test_bindings.py. */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright_dl.h"

static void show(const tw_library *lib, const tw_model *model, const char *what, int32_t index) {
  tw_spec s;
  if ((what[0] == 'i' ? lib->model_input(model, index, &s) : lib->model_output(model, index, &s)) != TW_OK) exit(3);
  printf("%s %s %s%d [", what, s.name, s.dtype.code == 2 ? "float" : "?", s.dtype.bits);
  for (int32_t i = 0; i < s.ndim; i++)
    if (s.dims[i] != NULL)
      printf("%s%s", i ? ", " : "", s.dims[i]);
    else
      printf("%s%d", i ? ", " : "", (int)s.shape[i]);
  printf("]\n");
}

static float *values(const char *path, int64_t count) {
  float *x = malloc((size_t)count * sizeof *x);
  FILE *file = fopen(path, "rb");
  if (x == NULL || file == NULL || fread(x, sizeof *x, (size_t)count, file) != (size_t)count) exit(3);
  fclose(file);
  return x;
}

static void keep(const char *path, const void *data, int64_t count) {
  FILE *file = fopen(path, "wb");
  if (file == NULL || fwrite(data, sizeof(float), (size_t)count, file) != (size_t)count) exit(3);
  fclose(file);
}

static void require(const tw_library *lib, tw_status status) {
  if (status == TW_OK) return;
  printf("%s\n", lib->error());
  exit(3);
}

int main(int count, char **words) {
  if (count != 7) return 2;
  tw_library libs[3], lost;
  tw_model *models[3], *damaged;
  tw_session *sessions[3];
  for (int i = 0; i < 3; i++) { /* the third is a package, which the library opens */
    tw_options options = {2 - i, 0, NULL, NULL};
    if (tw_library_open(&libs[i], words[i < 2 ? 1 + i : 5]) != TW_OK) return puts(libs[i].message), 3;
    require(&libs[i], libs[i].model_load(i < 2 ? NULL : words[6], &models[i]));
    require(&libs[i], libs[i].session_create(models[i], &options, &sessions[i]));
    if (i == 2) continue;
    show(&libs[i], models[i], "input", 0);
    show(&libs[i], models[i], "output", 0);
  }
  float *x = values(words[3], 5 * 32), *picture = values(words[4], 3 * 32 * 32), y[50];
  int64_t seven[] = {7, 32}, five[] = {5, 32}, sizes[] = {1, 3, 32, 32}, fit[] = {5, 10}, unfit[] = {5, 9}, narrow[] = {5, 31};
  tw_tensor in = {x, {1, 0}, 2, {2, 32, 1}, seven, NULL, 0}, out = {0}, other = {0};
  tw_tensor image = {picture, {1, 0}, 4, {2, 32, 1}, sizes, NULL, 0}, given = {y, {1, 0}, 2, {2, 32, 1}, fit, NULL, 0};
  require(&libs[0], libs[0].session_shapes(sessions[0], &in, 1, &out, 1));
  printf("shapes [%d, %d]\n", (int)out.shape[0], (int)out.shape[1]);
  in.shape = five;
  for (int i = 0; i < 2; i++) { /* the second time `out` is as the first left it */
    require(&libs[0], libs[0].session_run(sessions[0], &in, 1, &out, 1));
    require(&libs[1], libs[1].session_run(sessions[1], &image, 1, &other, 1));
    in.shape[0] -= i == 0; /* four rows */
  }
  in.shape[0] = 5;
  require(&libs[0], libs[0].session_run(sessions[0], &in, 1, &out, 1));
  keep("y.bin", out.data, out.shape[0] * out.shape[1]);
  keep("scores.bin", other.data, other.shape[0] * other.shape[1]);
  out = (tw_tensor){0}; /* what is in it belongs to the first session */
  require(&libs[0], libs[0].session_run(sessions[0], &in, 1, &given, 1));
  keep("given.bin", y, 50);
  require(&libs[2], libs[2].session_run(sessions[2], &in, 1, &out, 1));
  keep("packed.bin", out.data, 50);
  in.shape = narrow;
  tw_status status = libs[0].session_run(sessions[0], &in, 1, &out, 1);
  printf("error %d %s\n", (int)status, libs[0].error());
  in.shape = five, given.shape = unfit;
  status = libs[0].session_run(sessions[0], &in, 1, &given, 1);
  printf("error %d %s\n", (int)status, libs[0].error());
  printf("error %d\n", (int)tw_library_open(&lost, "lost.so"));
  printf("error %d", (int)libs[2].model_load("damaged.so", &damaged));
  printf(" %s\n", libs[2].error());
  for (int i = 0; i < 3; i++) {
    libs[i].session_free(sessions[i]);
    libs[i].model_free(models[i]);
    tw_library_close(&libs[i]);
  }
  free(x), free(picture);
  return 0;
}
