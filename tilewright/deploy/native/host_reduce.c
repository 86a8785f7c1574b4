/* Reductions: their sizes, and the values of ReduceSum, ReduceMean, ReduceProd, ReduceMin and ReduceMax. */
#include "host.h"

typedef enum fold { SUM, MEAN, PROD, LEAST, MOST } fold;

/* the axes that go away, as bits; an absent or empty list means all of them, or none if the node says so */
static tw_status reduced_axes(const tw_call *c, const tw_value *x, uint32_t *axes) {
  const tw_attribute *listed = tw_attribute_of(c, "axes");
  *axes = 0;
  if (tw_given(c, 1)) {
    TRY(tw_axes(c, 1, x->rank, axes));
  } else if (listed) {
    for (int64_t i = 0; i < listed->count; i++) {
      int32_t a;
      TRY(tw_axis_of(c, listed->integers[i], x->rank, &a));
      *axes |= UINT32_C(1) << a;
    }
  }
  if (!*axes && !tw_option(c, "noop_with_empty_axes", 0)) *axes = UINT32_MAX;
  return TW_OK;
}

static int32_t reduced_shape(const tw_call *c, const tw_value *x, uint32_t axes, int64_t *shape) {
  int32_t n = 0;
  int64_t keep = tw_option(c, "keepdims", 1);
  for (int32_t i = 0; i < x->rank; i++) {
    if (axes >> i & 1) {
      if (keep) shape[n++] = 1;
    } else {
      shape[n++] = x->shape[i];
    }
  }
  return n;
}

tw_status tw_host_reduced_sizes(const tw_call *c) {
  const tw_value *x;
  int64_t shape[TW_MAX_RANK];
  uint32_t axes;
  TRY(tw_operand(c, 0, &x));
  TRY(reduced_axes(c, x, &axes));
  return tw_give_sizes(c, 0, shape, reduced_shape(c, x, axes, shape));
}

static double rounded(int32_t type, double x) { return type == 11 ? x : (double)(float)x; }

/* numpy's order of additions: eight sums side by side up to 128 elements, halves above */
static double sum_of(int32_t type, const double *x, int64_t n) {
  if (n < 8) {
    double total = -0.0;
    for (int64_t i = 0; i < n; i++) total = rounded(type, total + x[i]);
    return total;
  }
  if (n > 128) {
    int64_t half = n / 2 - n / 2 % 8;
    return rounded(type, sum_of(type, x, half) + sum_of(type, x + half, n - half));
  }
  double r[8];
  int64_t i = 8;
  memcpy(r, x, sizeof r);
  for (; i < n - n % 8; i += 8)
    for (int k = 0; k < 8; k++) r[k] = rounded(type, r[k] + x[i + k]);
  for (int k = 8; k > 1; k /= 2)
    for (int j = 0; j < k / 2; j++) r[j] = rounded(type, r[2 * j] + r[2 * j + 1]);
  for (; i < n; i++) r[0] = rounded(type, r[0] + x[i]);
  return r[0];
}

static double real_fold(fold f, int32_t type, const double *x, int64_t n) {
  if (f == SUM) return rounded(type, sum_of(type, x, n) + 0.0);
  if (f == MEAN) return n ? rounded(type, sum_of(type, x, n) / (double)n) : (double)NAN;
  double out = f == PROD ? 1 : f == LEAST ? (double)INFINITY : -(double)INFINITY;
  for (int64_t i = 0; i < n; i++) {
    if (f == PROD)
      out = rounded(type, out * x[i]);
    else if (x[i] != x[i] || (f == LEAST ? x[i] < out : x[i] > out))
      out = x[i];
    if (f != PROD && out != out) break;
  }
  return out;
}

static int64_t integer_fold(fold f, int32_t type, const int64_t *x, int64_t n) {
  int is_signed = tw_kind(type) == 'i';
  uint64_t out = f == PROD;
  for (int64_t i = 0; i < n; i++) {
    if (f == PROD)
      out *= (uint64_t)x[i];
    else if (f == SUM || f == MEAN)
      out += (uint64_t)x[i];
    else if (i == 0 || (is_signed ? x[i] > (int64_t)out : (uint64_t)x[i] > out) == (f == MOST))
      out = (uint64_t)x[i];
  }
  if (f != MEAN) return (int64_t)out;
  uint64_t kept = 0; /* the sum wraps in its own type, and the mean is cut off */
  tw_put_integer(type, &kept, 0, (int64_t)out);
  const tw_value sum = {.type = type, .data = &kept};
  int64_t total = tw_element(&sum, 0);
  return is_signed ? total / (n ? n : 1) : (int64_t)((uint64_t)total / (uint64_t)(n ? n : 1));
}

static tw_status reduce(const tw_call *c, fold f) {
  const tw_value *x;
  int64_t shape[TW_MAX_RANK], own[TW_MAX_RANK], box[TW_MAX_RANK], to[TW_MAX_RANK], from[TW_MAX_RANK], count = 1;
  uint32_t axes;
  unsigned char *out;
  int32_t at = 0;
  TRY(tw_operand(c, 0, &x));
  TRY(reduced_axes(c, x, &axes));
  int32_t rank = reduced_shape(c, x, axes, shape);
  if (c->sizes) return tw_give_sizes(c, 0, shape, rank);
  int64_t item = tw_item_bytes(x->type), rows = tw_elements(rank, shape);
  int is_real = tw_kind(x->type) == 'f';
  tw_dense(x->rank, x->shape, item, own);
  for (int part = 0; part < 2; part++) /* what is folded goes last */
    for (int32_t i = 0; i < x->rank; i++) {
      if ((int)(axes >> i & 1) != part) continue;
      box[at] = x->shape[i];
      from[at++] = own[i];
      if (part) count *= x->shape[i];
    }
  if (count == 0 && rows && (f == LEAST || f == MOST) && !is_real)
    return tw_refuse(c, "expected elements to take the %s of, got none", f == LEAST ? "least" : "greatest");
  TRY(tw_result(c, 0, x->type, rank, shape, &out));
  if (out == NULL || rows == 0) return TW_OK;
  tw_value line = {0};
  int64_t *numbers = malloc((size_t)count * sizeof *numbers + 1);
  tw_status status = numbers ? tw_set_shape(&line, x->type, x->rank, box) : tw_no_memory(c);
  if (status == TW_OK) {
    tw_dense(x->rank, box, item, to);
    tw_move(x->rank, box, item, line.data, to, x->data, from);
  }
  for (int64_t r = 0; status == TW_OK && r < rows; r++) {
    for (int64_t i = 0; i < count; i++) {
      double real = is_real ? tw_real(&line, r * count + i) : 0;
      if (is_real)
        memcpy(&numbers[i], &real, sizeof real);
      else
        numbers[i] = tw_element(&line, r * count + i);
    }
    if (is_real)
      tw_put_real(x->type, out, r, real_fold(f, x->type, (const double *)numbers, count));
    else
      tw_put_integer(x->type, out, r, integer_fold(f, x->type, numbers, count));
  }
  free(numbers);
  tw_clear(&line);
  return status;
}

tw_status tw_host_reduce_sum(const tw_call *c) { return reduce(c, SUM); }
tw_status tw_host_reduce_mean(const tw_call *c) { return reduce(c, MEAN); }
tw_status tw_host_reduce_prod(const tw_call *c) { return reduce(c, PROD); }
tw_status tw_host_reduce_min(const tw_call *c) { return reduce(c, LEAST); }
tw_status tw_host_reduce_max(const tw_call *c) { return reduce(c, MOST); }
