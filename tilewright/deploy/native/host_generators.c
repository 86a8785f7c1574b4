/* Operators that make tensors from numbers: Range, ConstantOfShape, OneHot. */
#include "host.h"

/* how many steps, or less than nothing where that leaves 62 bits */
static int64_t integer_steps(int64_t start, int64_t limit, int64_t delta) {
  if (start == limit || (limit > start) != (delta > 0)) return 0;
  uint64_t way = limit > start ? (uint64_t)limit - (uint64_t)start : (uint64_t)start - (uint64_t)limit;
  uint64_t step = delta > 0 ? (uint64_t)delta : 0 - (uint64_t)delta, count = (way - 1) / step + 1;
  return count >> 62 ? TW_NO_SIZE : (int64_t)count;
}

tw_status tw_host_range(const tw_call *c) {
  const tw_value *part[3];
  unsigned char *out;
  int64_t count;
  for (int32_t i = 0; i < 3; i++) {
    TRY(tw_operand(c, i, &part[i]));
    if (tw_elements(part[i]->rank, part[i]->shape) < 1) return tw_refuse(c, "expected a number as operand %d", i);
  }
  double start = tw_real(part[0], 0), limit = tw_real(part[1], 0), delta = tw_real(part[2], 0);
  int32_t type = part[0]->type;
  int is_whole = tw_kind(type) != 'f';
  if (delta == 0) return tw_refuse(c, "expected a delta other than 0");
  if (!isfinite(start) || !isfinite(limit) || !isfinite(delta))
    return tw_refuse(c, "expected finite start, limit and delta, got %g, %g and %g", start, limit, delta);
  if (is_whole) {
    count = integer_steps(tw_element(part[0], 0), tw_element(part[1], 0), tw_element(part[2], 0));
  } else {
    double steps = ceil((limit - start) / delta);
    count = !(steps < 0x1p62) ? TW_NO_SIZE : steps > 0 ? (int64_t)steps : 0;
  }
  if (c->sizes || count < 0) return tw_give_sizes(c, 0, &count, 1);
  TRY(tw_result(c, 0, type, 1, &count, &out));
  double step = (start + delta) - start;
  for (int64_t i = 0; out && i < count; i++) {
    double x = i == 0 ? start : i == 1 ? start + delta : start + (double)i * step;
    if (is_whole)
      tw_put_integer(type, out, i, (int64_t)((uint64_t)tw_element(part[0], 0) + (uint64_t)i * (uint64_t)tw_element(part[2], 0)));
    else
      tw_put_real(type, out, i, type == 11 ? x : (double)(float)x);
  }
  return TW_OK;
}

tw_status tw_host_constant_of_shape(const tw_call *c) {
  const tw_value *sizes;
  const tw_attribute *value = tw_attribute_of(c, "value");
  int32_t n, type = value && value->type ? value->type : 1;
  int64_t shape[TW_MAX_RANK];
  unsigned char *out, element[16] = {0};
  TRY(tw_few_integers(c, 0, &sizes, &n));
  for (int32_t i = 0; i < n; i++) shape[i] = tw_element(sizes, i);
  if (c->sizes) return tw_give_sizes(c, 0, shape, n);
  if (value && value->integers) tw_put_integer(type, element, 0, value->integers[0]);
  if (value && value->floats) tw_put_real(type, element, 0, value->floats[0]);
  for (int32_t i = 0; i < n; i++)
    if (shape[i] < 0) return tw_refuse(c, "expected sizes of at least 0, got %" PRId64, shape[i]);
  TRY(tw_result(c, 0, type, n, shape, &out));
  if (out) tw_fill_with(out, tw_elements(n, shape), tw_item_bytes(type), element);
  return TW_OK;
}

tw_status tw_host_one_hot(const tw_call *c) {
  const tw_value *x, *values;
  int64_t shape[TW_MAX_RANK + 1], depth, inner = 1;
  int32_t axis;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_one_integer(c, 1, &depth));
  TRY(tw_axis_of(c, tw_option(c, "axis", -1), x->rank + 1, &axis));
  for (int32_t i = 0; i <= x->rank; i++) {
    shape[i] = i == axis ? depth : x->shape[i - (i > axis)];
    if (i > axis) inner *= shape[i];
  }
  if (c->sizes) return tw_give_sizes(c, 0, shape, x->rank + 1);
  TRY(tw_operand(c, 2, &values));
  if (tw_elements(values->rank, values->shape) != 2) return tw_refuse(c, "expected two values, off and on");
  if (depth < 0) return tw_refuse(c, "expected a depth of at least 0, got %" PRId64, depth);
  int64_t item = tw_item_bytes(values->type), n = tw_elements(x->rank, x->shape);
  TRY(tw_result(c, 0, values->type, x->rank + 1, shape, &out));
  if (out == NULL) return TW_OK;
  tw_fill_with(out, n * depth, item, values->data);
  for (int64_t i = 0; i < n; i++) {
    double real = tw_kind(x->type) == 'f' ? tw_real(x, i) : 0;
    int64_t at = tw_kind(x->type) == 'f' ? (real == floor(real) && fabs(real) < 0x1p53 ? (int64_t)real : depth)
                                         : tw_element(x, i);
    if (at < 0) at += depth;
    if (at < 0 || at >= depth) continue;
    memcpy(out + (i / inner * inner * depth + at * inner + i % inner) * item, (unsigned char *)values->data + item,
           (size_t)item);
  }
  return TW_OK;
}
