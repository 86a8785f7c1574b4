/* Operators that leave the elements where they are: the result has the same ones under another shape; or shapes alone. */
#include "host.h"

/* the result: x under another shape, or that shape */
static tw_status give_view(const tw_call *c, const tw_value *x, const int64_t *shape, int32_t rank) {
  unsigned char *out;
  if (c->sizes) return tw_give_sizes(c, 0, shape, rank);
  TRY(tw_result(c, 0, x->type, rank, shape, &out));
  uint64_t bytes = tw_value_bytes(x);
  if (out && bytes) memcpy(out, x->data, (size_t)bytes);
  return TW_OK;
}

tw_status tw_host_identity(const tw_call *c) {
  const tw_value *x = tw_given(c, 0);
  static const tw_value nothing = {.length = -1};
  return tw_give(c, 0, x ? x : &nothing);
}

tw_status tw_host_shape(const tw_call *c) {
  const tw_value *x;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  int64_t start = tw_option(c, "start", 0), end = tw_option(c, "end", x->rank), first, count;
  TRY(tw_slice_range(c, x->rank, start, end, 1, &first, &count));
  TRY(tw_result(c, 0, 7, 1, &count, &out));
  if (out && count) memcpy(out, x->shape + first, (size_t)count * sizeof *x->shape);
  return TW_OK;
}

tw_status tw_host_size(const tw_call *c) {
  const tw_value *x;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_result(c, 0, 7, 0, NULL, &out));
  if (out) tw_put_integer(7, out, 0, tw_elements(x->rank, x->shape));
  return TW_OK;
}

tw_status tw_host_reshape(const tw_call *c) {
  const tw_value *x, *target;
  int32_t n;
  int64_t out[TW_MAX_RANK], rest = 1, all = 1, least = 0;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_few_integers(c, 1, &target, &n));
  int64_t count = tw_elements(x->rank, x->shape);
  for (int32_t i = 0; i < n; i++) {
    out[i] = tw_element(target, i);
    if (out[i] == 0 && !tw_option(c, "allowzero", 0)) {
      if (i >= x->rank) return tw_refuse(c, "expected a dimension %d to take the size of, got a tensor of %d", i, x->rank);
      out[i] = x->shape[i];
    }
    if (out[i] != -1) rest = tw_times(rest, out[i]);
  }
  for (int32_t i = 0; i < n; i++) {
    if (out[i] == -1) out[i] = rest == 0 ? 0 : tw_quotient(count, rest);
    all = tw_times(all, out[i]);
    least = tw_least(least, out[i]);
  }
  if (all != count || least < 0) return tw_refuse(c, "expected a shape for %" PRId64 " elements, got another", count);
  return give_view(c, x, out, n);
}

tw_status tw_host_flatten(const tw_call *c) {
  const tw_value *x;
  TRY(tw_operand(c, 0, &x));
  int64_t axis = tw_option(c, "axis", 1), shape[2];
  if (axis < 0) axis += x->rank;
  if (axis < 0 || axis > x->rank) return tw_refuse(c, "expected an axis of at most %d, got %" PRId64, x->rank, axis);
  shape[0] = tw_elements((int32_t)axis, x->shape);
  shape[1] = tw_elements(x->rank - (int32_t)axis, x->shape + axis);
  return give_view(c, x, shape, 2);
}

/* those of the first `rank` bits that an operand names */
tw_status tw_axes(const tw_call *c, int32_t index, int32_t rank, uint32_t *out) {
  const tw_value *axes;
  TRY(tw_integers(c, index, &axes));
  int64_t n = tw_elements(axes->rank, axes->shape);
  TRY(tw_check_indices(c, axes, 0, 1, -rank, rank - 1, "axes", 0));
  *out = 0;
  for (int64_t i = 0; i < n; i++) {
    int64_t a = tw_element(axes, i);
    *out |= UINT32_C(1) << (a < 0 ? a + rank : a);
  }
  return TW_OK;
}

tw_status tw_host_squeeze(const tw_call *c) {
  const tw_value *x;
  int64_t out[TW_MAX_RANK];
  int32_t n = 0;
  uint32_t axes = 0;
  TRY(tw_operand(c, 0, &x));
  if (tw_given(c, 1)) {
    TRY(tw_axes(c, 1, x->rank, &axes));
  } else {
    for (int32_t i = 0; i < x->rank; i++) axes |= (uint32_t)(x->shape[i] == 1) << i;
  }
  for (int32_t i = 0; i < x->rank; i++) {
    if (!(axes >> i & 1)) {
      out[n++] = x->shape[i];
    } else if (x->shape[i] != 1) {
      return tw_refuse(c, "expected size 1 along axis %d, got %" PRId64, i, x->shape[i]);
    }
  }
  return give_view(c, x, out, n);
}

tw_status tw_host_unsqueeze(const tw_call *c) {
  const tw_value *x, *given;
  int64_t out[TW_MAX_RANK];
  int32_t n, at = 0;
  uint32_t axes;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_few_integers(c, 1, &given, &n));
  int32_t rank = x->rank + n;
  if (rank > TW_MAX_RANK) return tw_refuse(c, "expected at most %d dimensions, got %d", TW_MAX_RANK, rank);
  TRY(tw_axes(c, 1, rank, &axes));
  for (int32_t i = 0; i < rank; i++) {
    if (!(axes >> i & 1) && at == x->rank) return tw_refuse(c, "expected axes that differ");
    out[i] = axes >> i & 1 ? 1 : x->shape[at++];
  }
  return give_view(c, x, out, rank);
}
