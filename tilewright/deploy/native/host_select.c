/* Elements chosen by a condition or by an index: NonZero, Compress, Gather, GatherElements, GatherND. */
#include "host.h"

tw_status tw_host_non_zero(const tw_call *c) {
  const tw_value *x;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  int64_t n = tw_elements(x->rank, x->shape), found = 0, at = 0;
  for (int64_t i = 0; i < n; i++) found += tw_real(x, i) != 0;
  TRY(tw_result(c, 0, 7, 2, (const int64_t[]){x->rank, found}, &out));
  for (int64_t i = 0; out && i < n; i++) {
    if (tw_real(x, i) == 0) continue;
    int64_t rest = i;
    for (int32_t axis = x->rank - 1; axis >= 0; axis--) {
      ((int64_t *)out)[axis * found + at] = rest % x->shape[axis];
      rest /= x->shape[axis];
    }
    at++;
  }
  return TW_OK;
}

/* sizes around an axis: how many places before it, and bytes behind it */
static int64_t around(const tw_value *x, int32_t axis, int64_t *inner) {
  *inner = tw_elements(x->rank - axis - 1, x->shape + axis + 1) * tw_item_bytes(x->type);
  return tw_elements(axis, x->shape);
}

tw_status tw_host_compress(const tw_call *c) {
  const tw_value *x, *condition;
  int64_t shape[TW_MAX_RANK], inner = 0, outer = 1, kept = 0;
  int32_t axis = 0;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_integers(c, 1, &condition));
  tw_value flat = *x;
  if (!tw_attribute_of(c, "axis")) {
    flat.shape[0] = tw_elements(x->rank, x->shape);
    flat.rank = 1;
  } else {
    TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  }
  int64_t size = flat.shape[axis], given = tw_elements(condition->rank, condition->shape);
  if (given > size) given = size;
  for (int64_t i = 0; i < given; i++) kept += tw_element(condition, i) != 0;
  outer = around(&flat, axis, &inner);
  memcpy(shape, flat.shape, sizeof shape);
  shape[axis] = kept;
  TRY(tw_result(c, 0, x->type, flat.rank, shape, &out));
  if (out == NULL || inner == 0) return TW_OK;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < given; i++) {
      if (!tw_element(condition, i)) continue;
      memcpy(out, (unsigned char *)x->data + (o * size + i) * inner, (size_t)inner);
      out += inner;
    }
  return TW_OK;
}

static int64_t place(const tw_value *indices, int64_t i, int64_t size) {
  int64_t at = tw_clamped(tw_element(indices, i), -size, size - 1);
  return at < 0 ? at + size : at;
}

tw_status tw_host_gather(const tw_call *c) {
  const tw_value *x, *indices;
  int64_t shape[2 * TW_MAX_RANK], inner;
  int32_t axis, rank = 0;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_integers(c, 1, &indices));
  TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  int64_t size = x->shape[axis], outer = around(x, axis, &inner), n = tw_elements(indices->rank, indices->shape);
  TRY(tw_check_indices(c, indices, 0, 1, -size, size - 1, "indices", 1));
  for (int32_t i = 0; i < axis; i++) shape[rank++] = x->shape[i];
  for (int32_t i = 0; i < indices->rank; i++) shape[rank++] = indices->shape[i];
  for (int32_t i = axis + 1; i < x->rank; i++) shape[rank++] = x->shape[i];
  TRY(tw_result(c, 0, x->type, rank, shape, &out));
  if (out == NULL || inner == 0) return TW_OK;
  for (int64_t o = 0; o < outer; o++)
    for (int64_t i = 0; i < n; i++, out += inner)
      memcpy(out, (unsigned char *)x->data + (o * size + place(indices, i, size)) * inner, (size_t)inner);
  return TW_OK;
}

tw_status tw_host_gather_elements(const tw_call *c) {
  const tw_value *x, *indices;
  int64_t steps[TW_MAX_RANK];
  int32_t axis;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_integers(c, 1, &indices));
  TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  if (indices->rank != x->rank) return tw_refuse(c, "expected indices of %d dimensions, got %d", x->rank, indices->rank);
  int64_t size = x->shape[axis], item = tw_item_bytes(x->type), n = tw_elements(indices->rank, indices->shape);
  TRY(tw_check_indices(c, indices, 0, 1, -size, size - 1, "indices", 1));
  for (int32_t i = 0; n && i < x->rank; i++)
    if (i != axis && indices->shape[i] > x->shape[i])
      return tw_refuse(c, "expected at most %" PRId64 " indices along axis %d, got %" PRId64, x->shape[i], i,
                       indices->shape[i]);
  TRY(tw_result(c, 0, x->type, x->rank, indices->shape, &out));
  tw_dense(x->rank, x->shape, item, steps);
  for (int64_t i = 0; out && i < n; i++, out += item) {
    int64_t rest = i, at = 0;
    for (int32_t a = x->rank - 1; a >= 0; a--) {
      at += (a == axis ? place(indices, i, size) : rest % indices->shape[a]) * steps[a];
      rest /= indices->shape[a];
    }
    memcpy(out, (unsigned char *)x->data + at, (size_t)item);
  }
  return TW_OK;
}

tw_status tw_host_gather_nd(const tw_call *c) {
  const tw_value *x, *indices;
  int64_t shape[2 * TW_MAX_RANK], steps[TW_MAX_RANK], batch = tw_option(c, "batch_dims", 0), groups = 1;
  int32_t rank = 0;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_integers(c, 1, &indices));
  int64_t depth = indices->rank ? indices->shape[indices->rank - 1] : 0;
  if (indices->rank < 1 || batch < 0 || batch >= indices->rank || depth > x->rank - batch)
    return tw_refuse(c, "expected indices of at most %" PRId64 " dimensions each, got %" PRId64, x->rank - batch, depth);
  for (int64_t k = 0; k < depth; k++) {
    int64_t size = x->shape[batch + k];
    TRY(tw_check_indices(c, indices, k, depth, -size, size - 1, "indices", 1));
  }
  for (int32_t i = 0; i < indices->rank - 1; i++) shape[rank++] = indices->shape[i];
  int64_t n = tw_elements(rank, shape);
  for (int64_t i = 0; i < batch; i++) {
    groups *= x->shape[i];
    if (shape[i] != x->shape[i])
      return tw_refuse(c, "expected %" PRId64 " batches in dimension %" PRId64 ", got %" PRId64, x->shape[i], i, shape[i]);
  }
  for (int32_t i = (int32_t)(batch + depth); i < x->rank; i++) shape[rank++] = x->shape[i];
  int64_t inner = tw_elements(x->rank - (int32_t)(batch + depth), x->shape + batch + depth) * tw_item_bytes(x->type);
  TRY(tw_result(c, 0, x->type, rank, shape, &out));
  if (out == NULL || inner == 0 || n == 0) return TW_OK;
  tw_dense(x->rank, x->shape, tw_item_bytes(x->type), steps);
  int64_t each = n / groups, group_bytes = tw_elements(x->rank - (int32_t)batch, x->shape + batch) * tw_item_bytes(x->type);
  for (int64_t i = 0; i < n; i++, out += inner) {
    int64_t at = i / each * group_bytes;
    for (int64_t k = 0; k < depth; k++) at += place(indices, i * depth + k, x->shape[batch + k]) * steps[batch + k];
    memcpy(out, (unsigned char *)x->data + at, (size_t)inner);
  }
  return TW_OK;
}
