/* What host operators share. */
#include "host.h"

#include <stdarg.h>
#include <stdio.h>

tw_status tw_refuse(const tw_call *c, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return tw_fail(TW_INVALID_INPUT, "%s: %s", c->where, text);
}

tw_status tw_no_memory(const tw_call *c) { return tw_fail(TW_OUT_OF_MEMORY, "%s: no memory", c->where); }

tw_status tw_sized(tw_status status, const tw_call *c) {
  if (status == TW_OK) return status;
  char text[512];
  snprintf(text, sizeof text, "%s", tw_error());
  return tw_fail(status, "%s: %s", c->where, text);
}

/* -- attributes */
const tw_attribute *tw_attribute_of(const tw_call *c, const char *name) {
  for (int32_t i = 0; i < c->attribute_count; i++)
    if (strcmp(c->attributes[i].name, name) == 0) return c->attributes[i].count ? &c->attributes[i] : NULL;
  return NULL;
}

int64_t tw_option(const tw_call *c, const char *name, int64_t otherwise) {
  const tw_attribute *a = tw_attribute_of(c, name);
  return a && a->integers ? a->integers[0] : otherwise;
}

double tw_real_option(const tw_call *c, const char *name, double otherwise) {
  const tw_attribute *a = tw_attribute_of(c, name);
  return a && a->floats ? a->floats[0] : a && a->integers ? (double)a->integers[0] : otherwise;
}

int tw_says(const tw_call *c, const char *name, const char *text) {
  const tw_attribute *a = tw_attribute_of(c, name);
  return a && a->text && strcmp(a->text, text) == 0;
}

/* -- operands and results */
const tw_value *tw_given(const tw_call *c, int32_t index) { return index < c->input_count ? c->inputs[index] : NULL; }

tw_status tw_operand(const tw_call *c, int32_t index, const tw_value **out) {
  *out = tw_given(c, index);
  if (*out == NULL || (*out)->type == 0) return tw_refuse(c, "expected a tensor as operand %d", index);
  return TW_OK;
}

tw_status tw_integers(const tw_call *c, int32_t index, const tw_value **out) {
  TRY(tw_operand(c, index, out));
  if (!strchr("iub", tw_kind((*out)->type))) return tw_refuse(c, "expected integers as operand %d", index);
  return TW_OK;
}

tw_status tw_one_integer(const tw_call *c, int32_t index, int64_t *out) {
  const tw_value *v;
  TRY(tw_operand(c, index, &v));
  if (tw_elements(v->rank, v->shape) < 1) return tw_refuse(c, "expected a number as operand %d, got none", index);
  if (tw_kind(v->type) == 'f') {
    double x = tw_real(v, 0);
    if (!(x > -0x1p62 && x < 0x1p62)) return tw_refuse(c, "expected an integer as operand %d, got %g", index, x);
    *out = (int64_t)x;
  } else {
    *out = tw_element(v, 0);
  }
  return TW_OK;
}

tw_status tw_axis_of(const tw_call *c, int64_t axis, int32_t rank, int32_t *out) {
  if (axis < -rank || axis >= rank)
    return tw_refuse(c, "expected an axis in [%d, %d], got %" PRId64, -rank, rank - 1, axis);
  *out = (int32_t)(axis < 0 ? axis + rank : axis);
  return TW_OK;
}

tw_value *tw_wanted(const tw_call *c, int32_t index) { return index < c->output_count ? c->outputs[index] : NULL; }

tw_status tw_result(
    const tw_call *c, int32_t index, int32_t type, int32_t rank, const int64_t *shape, unsigned char **data) {
  tw_value *v = tw_wanted(c, index);
  *data = NULL;
  if (v == NULL) return TW_OK;
  TRY(tw_sized(tw_set_shape(v, type, rank, shape), c));
  *data = v->data;
  return TW_OK;
}

tw_status tw_give(const tw_call *c, int32_t index, const tw_value *value) {
  tw_value *v = tw_wanted(c, index);
  return v == NULL ? TW_OK : tw_sized(tw_copy_value(v, value), c);
}

tw_status tw_check_indices(const tw_call *c, const tw_value *v, int64_t column, int64_t step, int64_t low, int64_t high,
                           const char *what, int clamps) {
  int64_t n = tw_elements(v->rank, v->shape), below = INT64_MIN, most = INT64_MIN;
  int is_below = 0;
  if (n == 0 || column >= n) return TW_OK;
  for (int64_t i = column; i < n; i += step) {
    int64_t x = tw_element(v, i);
    if (x < low) {
      is_below = 1;
      if (x > below) below = x;
    }
    if (x > most) most = x;
  }
  if (!is_below && most <= high) return TW_OK;
  if (clamps && c->clamps && low <= high) return TW_OK;
  return tw_out_of_range(c->where, what, low, high, is_below ? below : most, 0);
}

/* -- elements */
char tw_kind(int32_t type) {
  static const char kinds[] = "sfuiuiiisbffuuccfffffuiffui";
  return type < 0 || type >= (int32_t)sizeof kinds - 1 ? 's' : kinds[type];
}

static float bits_as_float(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

static double half(uint16_t h) {
  uint32_t e = h >> 10 & 31, m = h & 1023;
  double x = e == 0 ? ldexp(m, -24) : e == 31 ? (m ? (double)NAN : (double)INFINITY) : ldexp(m + 1024, (int)e - 25);
  return h >> 15 ? -x : x;
}

/* to the nearest, of two equally near the even one; beyond the largest lies infinity */
static uint16_t to_half(double x) {
  uint16_t sign = signbit(x) ? 0x8000 : 0;
  int e;
  if (x != x) return sign | 0x7e00;
  x = fabs(x);
  if (x == 0) return sign;
  if (x >= 65520) return sign | 0x7c00;
  frexp(x, &e);
  if (e < -13) e = -13;
  double steps = nearbyint(ldexp(x, 11 - e)); /* 1024 .. 2048, below that of subnormals */
  return (uint16_t)(sign + (uint16_t)((e + 13) * 1024) + (uint16_t)steps);
}

static uint16_t to_bfloat(double x) {
  float near = (float)x;
  uint32_t bits;
  memcpy(&bits, &near, sizeof bits);
  if (x != x) return (uint16_t)(bits >> 16 & 0x8000) | 0x7fc0;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

double tw_real(const tw_value *v, int64_t i) {
  switch (v->type) {
    case 1: return (double)((const float *)v->data)[i];
    case 11: return ((const double *)v->data)[i];
    case 10: return half(((const uint16_t *)v->data)[i]);
    case 16: return (double)bits_as_float((uint32_t)((const uint16_t *)v->data)[i] << 16);
    case 13: return (double)((const uint64_t *)v->data)[i];
    default: return (double)tw_element(v, i);
  }
}

void tw_put_integer(int32_t type, void *data, int64_t i, int64_t x) {
  switch (tw_item_bytes(type)) {
    case 1: ((uint8_t *)data)[i] = type == 9 ? x != 0 : (uint8_t)x; break;
    case 2: ((uint16_t *)data)[i] = (uint16_t)x; break;
    case 4: ((uint32_t *)data)[i] = (uint32_t)x; break;
    default: ((uint64_t *)data)[i] = (uint64_t)x;
  }
}

void tw_put_real(int32_t type, void *data, int64_t i, double x) {
  switch (type) {
    case 1: ((float *)data)[i] = (float)x; break;
    case 11: ((double *)data)[i] = x; break;
    case 10: ((uint16_t *)data)[i] = to_half(x); break;
    case 16: ((uint16_t *)data)[i] = to_bfloat(x); break;
    case 9: ((uint8_t *)data)[i] = x != 0; break;
    case 13:
      if (x >= 0x1p63) {
        ((uint64_t *)data)[i] = x < 0x1p64 ? (uint64_t)x : 0;
        break;
      } /* fall through */
    default: {
      /* numpy goes by way of 32 bits where that is enough; what does not fit is its least number */
      int is_short = tw_item_bytes(type) < 8 && type != 12;
      double limit = is_short ? 0x1p31 : 0x1p63;
      tw_put_integer(type, data, i, x >= -limit && x < limit ? (int64_t)x : is_short ? INT32_MIN : INT64_MIN);
    }
  }
}

/* -- boxes */
void tw_dense(int32_t rank, const int64_t *shape, int64_t item, int64_t *steps) {
  for (int32_t i = rank - 1; i >= 0; i--) {
    steps[i] = item;
    item *= shape[i];
  }
}

#define MOVE_EACH(type)                                             \
  for (int64_t i = 0; i < n; i++, to += to_step, from += from_step) \
    memcpy(to, from, sizeof(type))

static void move_row(
    int64_t n, int64_t item, unsigned char *to, int64_t to_step, const unsigned char *from, int64_t from_step) {
  if (to_step == item && from_step == item) {
    memcpy(to, from, (size_t)(n * item));
    return;
  }
  switch (item) {
    case 1: MOVE_EACH(uint8_t); break;
    case 2: MOVE_EACH(uint16_t); break;
    case 4: MOVE_EACH(uint32_t); break;
    case 8: MOVE_EACH(uint64_t); break;
    default: MOVE_EACH(uint64_t[2]);
  }
}

void tw_move(int32_t rank, const int64_t *shape, int64_t item, unsigned char *to, const int64_t *to_steps,
             const unsigned char *from, const int64_t *from_steps) {
  for (int32_t i = 0; i < rank; i++)
    if (shape[i] <= 0) return;
  if (rank == 0) {
    memcpy(to, from, (size_t)item);
    return;
  }
  if (rank == 1) {
    move_row(shape[0], item, to, to_steps[0], from, from_steps[0]);
    return;
  }
  for (int64_t i = 0; i < shape[0]; i++)
    tw_move(rank - 1, shape + 1, item, to + i * to_steps[0], to_steps + 1, from + i * from_steps[0], from_steps + 1);
}

void tw_fill_with(unsigned char *to, int64_t count, int64_t item, const unsigned char *element) {
  move_row(count, item, to, item, element, 0);
}

tw_status tw_common_shape(const tw_call *c, const tw_value *const *values, int32_t count, int32_t *rank, int64_t *shape) {
  *rank = 0;
  for (int32_t k = 0; k < count; k++)
    if (values[k]->rank > *rank) *rank = values[k]->rank;
  for (int32_t i = 0; i < *rank; i++) shape[i] = 1;
  for (int32_t k = 0; k < count; k++) {
    int32_t ahead = *rank - values[k]->rank;
    for (int32_t i = 0; i < values[k]->rank; i++) {
      int64_t n = values[k]->shape[i], *out = &shape[ahead + i];
      if (n != 1 && *out != 1 && n != *out)
        return tw_refuse(c, "expected dimensions that agree, got %" PRId64 " and %" PRId64, *out, n);
      if (n != 1) *out = n;
    }
  }
  return TW_OK;
}

void tw_repeated(const tw_value *v, int32_t rank, int64_t *steps) {
  int32_t ahead = rank - v->rank;
  tw_dense(v->rank, v->shape, tw_item_bytes(v->type), steps + ahead);
  for (int32_t i = 0; i < rank; i++)
    if (i < ahead || v->shape[i - ahead] == 1) steps[i] = 0;
}

/* -- slices, as Python's slice.indices has them */
tw_status tw_slice_range(const tw_call *c, int64_t size, int64_t start, int64_t end, int64_t step, int64_t *first,
                         int64_t *count) {
  if (step == 0) return tw_refuse(c, "expected steps other than 0");
  if (step < 0 && start < -size) start = -size;
  int64_t low = step < 0 ? -1 : 0, high = step < 0 ? size - 1 : size;
  if (start < 0) start += size;
  if (end < 0) end += size;
  start = tw_clamped(start, low, high);
  end = tw_clamped(end, low, high);
  uint64_t length = step > 0 ? (end > start ? (uint64_t)(end - start) : 0) : start > end ? (uint64_t)(start - end) : 0;
  uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step;
  *first = start;
  *count = length ? (int64_t)((length - 1) / stride + 1) : 0;
  return TW_OK;
}

tw_status tw_slice_ranges(const tw_call *c, const tw_value *x, int64_t *firsts, int64_t *counts, int64_t *steps) {
  const tw_value *starts, *ends, *axes = tw_given(c, 3), *by = tw_given(c, 4);
  TRY(tw_integers(c, 1, &starts));
  TRY(tw_integers(c, 2, &ends));
  if (axes) TRY(tw_integers(c, 3, &axes));
  if (by) TRY(tw_integers(c, 4, &by));
  int64_t n = tw_elements(starts->rank, starts->shape);
  if (n != tw_elements(ends->rank, ends->shape) || (axes && n > tw_elements(axes->rank, axes->shape)) ||
      (by && n > tw_elements(by->rank, by->shape)))
    return tw_refuse(c, "expected as many starts, ends, axes and steps");
  for (int32_t i = 0; i < x->rank; i++) {
    firsts[i] = 0;
    counts[i] = x->shape[i];
    steps[i] = 1;
  }
  for (int64_t k = 0; k < n; k++) {
    int32_t a;
    TRY(tw_axis_of(c, axes ? tw_element(axes, k) : k, x->rank, &a));
    steps[a] = by ? tw_element(by, k) : 1;
    TRY(tw_slice_range(c, x->shape[a], tw_element(starts, k), tw_element(ends, k), steps[a], &firsts[a], &counts[a]));
  }
  return TW_OK;
}

/* -- sizes */
tw_status tw_give_sizes(const tw_call *c, int32_t index, const int64_t *sizes, int64_t count) {
  unsigned char *out;
  for (int64_t i = 0; i < count; i++)
    if (sizes[i] < 0 || sizes[i] >= INT64_C(1) << 62)
      return tw_refuse(c, "expected sizes of 0 to 2**62, got %s%" PRId64 " in dimension %" PRId64,
                       sizes[i] == TW_NO_SIZE ? "beyond " : "", sizes[i], i);
  TRY(tw_result(c, index, 7, 1, &count, &out));
  if (out && count) memcpy(out, sizes, (size_t)count * sizeof *sizes);
  return TW_OK;
}

tw_status tw_few_integers(const tw_call *c, int32_t index, const tw_value **v, int32_t *count) {
  TRY(tw_integers(c, index, v));
  int64_t n = tw_elements((*v)->rank, (*v)->shape);
  if (n > TW_MAX_RANK) return tw_refuse(c, "expected at most %d dimensions, got %" PRId64, TW_MAX_RANK, n);
  *count = (int32_t)n;
  return TW_OK;
}
