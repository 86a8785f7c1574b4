/* Sizes of results of operators that have no native form: the output is a vector of them. Operands of which only the
 * shape is read may have no data. */
#include "host.h"

static tw_status same_count(const tw_call *c, int64_t expected, int64_t got) {
  if (expected == got) return TW_OK;
  return tw_refuse(c, "expected %" PRId64 " numbers, got %" PRId64, expected, got);
}

/* The axes of an attribute, else all of them. nhwc: it counts them as N, C, spatial, the operand has C last. */
static tw_status attribute_axes(const tw_call *c, int32_t rank, int nhwc, int32_t *axes, int32_t *count) {
  const tw_attribute *given = tw_attribute_of(c, "axes");
  *count = given ? (int32_t)given->count : rank;
  if (*count > TW_MAX_RANK) return tw_refuse(c, "expected at most %d axes, got %d", TW_MAX_RANK, *count);
  for (int32_t k = 0; k < *count; k++) {
    TRY(tw_axis_of(c, given ? given->integers[k] : k, rank, &axes[k]));
    if (nhwc && axes[k] > 0) axes[k] = axes[k] == 1 ? rank - 1 : axes[k] - 1;
  }
  return TW_OK;
}

/* the product in float32, the type of the scales: with 400 * 0.64f the exact one lies just below 256 */
static tw_status scaled_size(const tw_call *c, int64_t size, double scale, int64_t *out) {
  float product = (float)size * (float)scale;
  if (!(product >= 0 && product < 0x1p62f))
    return tw_refuse(c, "expected scales that give sizes of 0 to 2**62, got %g for a size of %" PRId64, scale, size);
  *out = (int64_t)floorf(product);
  return TW_OK;
}

tw_status tw_host_resize(const tw_call *c) {
  const tw_value *x, *by = tw_given(c, 3);
  int64_t out[TW_MAX_RANK];
  int32_t axes[TW_MAX_RANK], n;
  TRY(tw_operand(c, 0, &x));
  TRY(attribute_axes(c, x->rank, tw_says(c, "data_layout", "NHWC"), axes, &n));
  memcpy(out, x->shape, sizeof out);
  if (by == NULL || tw_elements(by->rank, by->shape) == 0) {
    TRY(tw_operand(c, 2, &by));
    TRY(same_count(c, n, tw_elements(by->rank, by->shape)));
    for (int32_t k = 0; k < n; k++) TRY(scaled_size(c, out[axes[k]], tw_real(by, k), &out[axes[k]]));
    return tw_give_sizes(c, 0, out, x->rank);
  }
  TRY(tw_integers(c, 3, &by));
  TRY(same_count(c, n, tw_elements(by->rank, by->shape)));
  const tw_attribute *policy = tw_attribute_of(c, "keep_aspect_ratio_policy");
  if (policy == NULL || tw_says(c, "keep_aspect_ratio_policy", "stretch")) {
    for (int32_t k = 0; k < n; k++) out[axes[k]] = tw_element(by, k);
    return tw_give_sizes(c, 0, out, x->rank);
  }
  int smaller = tw_says(c, "keep_aspect_ratio_policy", "not_larger");
  double ratio = 0;
  for (int32_t k = 0; k < n; k++) {
    int64_t size = x->shape[axes[k]];
    if (size == 0) return tw_refuse(c, "expected a size above 0 to keep the ratio of, got axis %d of size 0", axes[k]);
    double r = (double)tw_element(by, k) / (double)size;
    if (k == 0 || (smaller ? r < ratio : r > ratio)) ratio = r;
  }
  for (int32_t k = 0; k < n; k++) {
    double size = floor(ratio * (double)x->shape[axes[k]] + 0.5);
    out[axes[k]] = size > -0x1p62 && size < 0x1p62 ? (int64_t)size : TW_NO_SIZE;
  }
  return tw_give_sizes(c, 0, out, x->rank);
}

tw_status tw_host_center_crop_pad(const tw_call *c) {
  const tw_value *x, *sizes;
  int64_t out[TW_MAX_RANK];
  int32_t axes[TW_MAX_RANK], n, count;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_few_integers(c, 1, &sizes, &count));
  TRY(attribute_axes(c, x->rank, 0, axes, &n));
  TRY(same_count(c, n, count));
  memcpy(out, x->shape, sizeof out);
  for (int32_t k = 0; k < n; k++) out[axes[k]] = tw_element(sizes, k);
  return tw_give_sizes(c, 0, out, x->rank);
}

tw_status tw_host_affine_grid(const tw_call *c) {
  const tw_value *size;
  int32_t n;
  int64_t out[TW_MAX_RANK];
  TRY(tw_few_integers(c, 1, &size, &n));
  if (n < 2) return tw_refuse(c, "expected a size of at least 2 numbers, got %d", n);
  out[0] = tw_element(size, 0);
  for (int32_t i = 2; i < n; i++) out[i - 1] = tw_element(size, i);
  out[n - 1] = n - 2;
  return tw_give_sizes(c, 0, out, n);
}

tw_status tw_host_window(const tw_call *c) {
  int64_t size;
  TRY(tw_one_integer(c, 0, &size));
  return tw_give_sizes(c, 0, &size, 1);
}
