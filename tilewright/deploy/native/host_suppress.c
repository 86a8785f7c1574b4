/* NonMaxSuppression: of each class of each image boxes in the order of falling scores, but none that overlaps one taken
 * before by more than a threshold. All arithmetic is in float32. */
#include "host.h"

typedef struct box {
  float top, left, bottom, right, area; /* the area of an empty one is NaN: it overlaps nothing */
} box;

/* as in numpy: NaN if either is */
static float lesser(float a, float b) { return a != a || a < b ? a : b; }
static float greater(float a, float b) { return a != a || a > b ? a : b; }

static box corners(const float *own, int centers) {
  box b;
  if (centers) {
    float width = own[2] / 2, height = own[3] / 2;
    b = (box){own[1] - height, own[0] - width, own[1] + height, own[0] + width, 0};
  } else {
    b = (box){lesser(own[0], own[2]), lesser(own[1], own[3]), greater(own[0], own[2]), greater(own[1], own[3]), 0};
  }
  b.area = (b.right - b.left) * (b.bottom - b.top);
  if (!(b.area > 0)) b.area = NAN;
  return b;
}

static int overlaps(const box *a, const box *b, float limit) {
  float height = greater(lesser(a->bottom, b->bottom) - greater(a->top, b->top), 0);
  float shared = greater(lesser(a->right, b->right) - greater(a->left, b->left), 0) * height;
  float both = a->area + b->area;
  both -= shared;
  return shared / both > limit && (limit >= 0 || shared > 0);
}

static int rising(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return x < y ? -1 : x > y;
}

/* a number that is less for a greater score, and of equal scores for the earlier place */
static uint64_t falling(float score, int64_t place) {
  uint32_t bits;
  score += 0.0f; /* -0 is 0 */
  memcpy(&bits, &score, sizeof bits);
  return (uint64_t)(bits >> 31 ? bits : ~(bits | UINT32_C(1) << 31)) << 32 | (uint64_t)place;
}

static const tw_value *number(const tw_call *c, int32_t index) {
  const tw_value *v = tw_given(c, index);
  return v && v->type && tw_elements(v->rank, v->shape) ? v : NULL;
}

static tw_status suppress(const tw_call *c, const tw_value *boxes, const tw_value *scores, int64_t wanted, uint64_t *order,
                          box *all, box *taken) {
  int64_t images = scores->shape[0], classes = scores->shape[1], n = scores->shape[2], count = 0;
  const tw_value *threshold = number(c, 4), *most = number(c, 3);
  float limit = most ? (float)tw_real(most, 0) : 0, least = threshold ? (float)tw_real(threshold, 0) : 0;
  int centers = tw_option(c, "center_point_box", 0) != 0;
  tw_value *out = tw_wanted(c, 0);
  TRY(tw_sized(tw_set_shape(out, 7, 2, (const int64_t[]){0, 3}), c));
  for (int64_t group = 0; group < images * classes; group++) {
    int64_t image = group / classes, candidates = 0, kept = 0;
    const float *own = (const float *)scores->data + group * n;
    if (group % classes == 0)
      for (int64_t i = 0; i < n; i++) all[i] = corners((const float *)boxes->data + (image * n + i) * 4, centers);
    for (int64_t i = 0; i < n; i++)
      if (threshold == NULL || own[i] > least) order[candidates++] = falling(own[i], i);
    qsort(order, (size_t)candidates, sizeof *order, rising);
    for (int64_t i = 0; i < candidates && kept < wanted; i++) {
      int64_t at = (int64_t)(order[i] & UINT32_MAX);
      int is_over = 0;
      for (int64_t k = 0; k < kept && !is_over; k++) is_over = overlaps(&taken[k], &all[at], limit);
      if (is_over) continue;
      taken[kept++] = all[at];
      TRY(tw_sized(tw_extend(out, 3 * sizeof(int64_t)), c));
      int64_t *row = (int64_t *)out->data + 3 * count;
      row[0] = image;
      row[1] = group % classes;
      row[2] = at;
      out->shape[0] = ++count;
    }
  }
  return TW_OK;
}

tw_status tw_host_non_max_suppression(const tw_call *c) {
  const tw_value *boxes, *scores;
  TRY(tw_operand(c, 0, &boxes));
  TRY(tw_operand(c, 1, &scores));
  if (boxes->rank != 3 || scores->rank != 3 || boxes->type != 1 || scores->type != 1 || boxes->shape[2] != 4 ||
      boxes->shape[0] != scores->shape[0] || boxes->shape[1] != scores->shape[2] || scores->shape[2] > UINT32_MAX)
    return tw_refuse(c, "expected boxes [images, n, 4] and scores [images, classes, n] of float32, got others");
  int64_t wanted = 0, n = scores->shape[2];
  if (number(c, 2)) TRY(tw_one_integer(c, 2, &wanted));
  if (tw_wanted(c, 0) == NULL) return TW_OK;
  uint64_t *order = malloc((size_t)n * sizeof *order + 1);
  box *all = malloc((size_t)n * 2 * sizeof *all + 1);
  tw_status status = order && all ? suppress(c, boxes, scores, wanted, order, all, all + n) : tw_no_memory(c);
  free(order);
  free(all);
  return status;
}
