/* Cast, CastLike and Where. */
#include "host.h"

/* Integers become floats by way of float32, but for float64, as numpy and ml_dtypes have it; other integers wrap. */
static tw_status converted(const tw_call *c, const tw_value *x, int32_t type) {
  unsigned char *out;
  char from = tw_kind(x->type), to = tw_kind(type);
  TRY(tw_result(c, 0, type, x->rank, x->shape, &out));
  int64_t n = tw_elements(x->rank, x->shape);
  if (out && n && type == x->type) {
    memcpy(out, x->data, (size_t)tw_value_bytes(x));
    return TW_OK;
  }
  for (int64_t i = 0; out && i < n; i++) {
    if (from == 'f') {
      tw_put_real(type, out, i, tw_real(x, i));
    } else if (to != 'f') {
      tw_put_integer(type, out, i, tw_element(x, i));
    } else if (type == 11) {
      tw_put_real(type, out, i, tw_real(x, i));
    } else {
      int64_t whole = tw_element(x, i);
      tw_put_real(type, out, i, (double)(x->type == 13 ? (float)(uint64_t)whole : (float)whole));
    }
  }
  return TW_OK;
}

tw_status tw_host_cast(const tw_call *c) {
  const tw_value *x;
  TRY(tw_operand(c, 0, &x));
  return converted(c, x, (int32_t)tw_option(c, "to", x->type));
}

tw_status tw_host_cast_like(const tw_call *c) {
  const tw_value *x, *like;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_operand(c, 1, &like));
  return converted(c, x, like->type);
}

/* the steps of a box of elements that are taken where a condition, which has steps too, says so */
static void choose(int32_t rank, const int64_t *shape, int64_t item, unsigned char *to, const int64_t *to_steps,
                   const unsigned char *which, const int64_t *which_steps, const unsigned char *const *from,
                   const int64_t (*from_steps)[TW_MAX_RANK], int32_t axis) {
  if (axis == rank) {
    memcpy(to, from[*which ? 0 : 1], (size_t)item);
    return;
  }
  for (int64_t i = 0; i < shape[axis]; i++) {
    const unsigned char *next[] = {from[0] + i * from_steps[0][axis], from[1] + i * from_steps[1][axis]};
    choose(rank, shape, item, to + i * to_steps[axis], to_steps, which + i * which_steps[axis], which_steps, next,
           from_steps, axis + 1);
  }
}

tw_status tw_host_where(const tw_call *c) {
  const tw_value *v[3];
  int64_t shape[TW_MAX_RANK], to[TW_MAX_RANK], which[TW_MAX_RANK], from[2][TW_MAX_RANK];
  int32_t rank;
  unsigned char *out;
  for (int32_t k = 0; k < 3; k++) TRY(tw_operand(c, k, &v[k]));
  if (v[0]->type != 9 || v[1]->type != v[2]->type)
    return tw_refuse(c, "expected a condition and two tensors of one type, got types %d, %d and %d", v[0]->type, v[1]->type,
                     v[2]->type);
  TRY(tw_common_shape(c, v, 3, &rank, shape));
  TRY(tw_result(c, 0, v[1]->type, rank, shape, &out));
  if (out == NULL || tw_elements(rank, shape) == 0) return TW_OK;
  int64_t item = tw_item_bytes(v[1]->type);
  tw_dense(rank, shape, item, to);
  tw_repeated(v[0], rank, which);
  for (int k = 0; k < 2; k++) tw_repeated(v[k + 1], rank, from[k]);
  const unsigned char *const start[] = {v[1]->data, v[2]->data};
  choose(rank, shape, item, out, to, v[0]->data, which, start, (const int64_t(*)[TW_MAX_RANK])from, 0);
  return TW_OK;
}
