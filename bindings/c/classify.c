/* Classifies an image with an exported network of ImageNet's kind (resnet50 and others), which is linked in.
 *
 *   cc -std=c99 -O2 -I DIRECTORY_OF_TILEWRIGHT_H -o classify classify.c model.so -Wl,-rpath,'$ORIGIN'
 *   ./classify picture.ppm     (P6, of any size; or float32 values of the network's input, already normalized)
 */
#include <stdio.h>
#include <stdlib.h>

#include "tilewright.h"

static void require(int condition, const char *message) {
  if (condition) return;
  fprintf(stderr, "classify: %s\n", message);
  exit(1);
}

/* The nearest pixels of a picture, as planes of normalized red, green and blue. */
static void read_picture(FILE *file, float *x, int64_t height, int64_t width) {
  static const float mean[] = {0.485f, 0.456f, 0.406f}, deviation[] = {0.229f, 0.224f, 0.225f};
  int w, h, most;
  require(fscanf(file, "P6 %d %d %d", &w, &h, &most) == 3 && w > 0 && h > 0 && most == 255, "expected a PPM of 8 bits");
  fgetc(file);
  size_t bytes = (size_t)w * (size_t)h * 3;
  unsigned char *pixels = malloc(bytes);
  require(pixels != NULL && fread(pixels, 1, bytes, file) == bytes, "the picture is cut off");
  for (int c = 0; c < 3; c++)
    for (int64_t i = 0; i < height; i++)
      for (int64_t j = 0; j < width; j++) {
        unsigned char value = pixels[(i * h / height * w + j * w / width) * 3 + c];
        *x++ = ((float)value / 255.0f - mean[c]) / deviation[c];
      }
  free(pixels);
}

int main(int count, char **words) {
  require(count == 2, "usage: classify IMAGE");
  tw_model *model;
  tw_session *session;
  tw_spec spec;
  require(tw_version() == TW_VERSION, "the library is of another version than tilewright.h");
  require(tw_model_load(NULL, &model) == TW_OK && tw_model_input(model, 0, &spec) == TW_OK, tw_error());
  require(spec.ndim == 4 && spec.shape[2] > 0 && spec.shape[3] > 0, "expected a network for images");
  int64_t shape[] = {1, 3, spec.shape[2], spec.shape[3]};
  size_t values = (size_t)(3 * shape[2] * shape[3]);
  float *x = malloc(values * sizeof *x);
  FILE *file = fopen(words[1], "rb");
  require(x != NULL && file != NULL, "the image cannot be opened");
  int is_picture = fgetc(file) == 'P' && fgetc(file) == '6';
  rewind(file);
  if (is_picture)
    read_picture(file, x, shape[2], shape[3]);
  else
    require(fread(x, sizeof *x, values, file) == values, "expected a float32 for each value of the input");
  fclose(file);

  tw_tensor input = {x, {1, 0}, 4, {2, 32, 1}, shape, NULL, 0}, output = {0};
  require(tw_session_create(model, NULL, &session) == TW_OK, tw_error());
  require(tw_session_run(session, &input, 1, &output, 1) == TW_OK, tw_error());
  float *scores = output.data; /* of the session: valid until its next run */
  int64_t classes = output.shape[output.ndim - 1];
  for (int place = 0; place < 5 && place < classes; place++) {
    int64_t best = 0;
    for (int64_t i = 1; i < classes; i++)
      if (scores[i] > scores[best]) best = i;
    printf("%4d %9.4f\n", (int)best, scores[best]);
    scores[best] = -1e30f;
  }
  tw_session_free(session);
  tw_model_free(model);
  free(x);
  return 0;
}
