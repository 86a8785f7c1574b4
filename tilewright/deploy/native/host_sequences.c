/* Sequences and optionals. An optional is its element, or of length -1. */
#include "host.h"

static tw_status sequence(const tw_call *c, int32_t index, const tw_value **out) {
  *out = tw_given(c, index);
  if (*out == NULL || (*out)->type != 0 || (*out)->length < 0)
    return tw_refuse(c, "expected a sequence as operand %d", index);
  return TW_OK;
}

/* a place in a sequence of n: what an operand says, or `otherwise`; extra 1: the end is a place, too */
static tw_status position(
    const tw_call *c, int32_t index, const tw_value *items, int64_t otherwise, int64_t extra, int64_t *out) {
  int64_t n = items->length, low = -n, high = n - 1 + extra;
  *out = otherwise;
  if (tw_given(c, index)) {
    const tw_value *v;
    TRY(tw_integers(c, index, &v));
    TRY(tw_one_integer(c, index, out));
    TRY(tw_check_indices(c, v, 0, 1, low, high, "positions", 1));
    *out = tw_clamped(*out, low, high);
  }
  if (*out < low || *out > high) return tw_refuse(c, "expected a sequence that is not empty");
  if (*out < 0) *out += n;
  return TW_OK;
}

tw_status tw_host_sequence_empty(const tw_call *c) {
  tw_value *out = tw_wanted(c, 0);
  return out ? tw_set_length(out, 0) : TW_OK;
}

tw_status tw_host_sequence_construct(const tw_call *c) {
  tw_value *out = tw_wanted(c, 0);
  const tw_value *item;
  if (out == NULL) return TW_OK;
  TRY(tw_set_length(out, c->input_count));
  for (int32_t i = 0; i < c->input_count; i++) {
    TRY(tw_operand(c, i, &item));
    TRY(tw_copy_value(&out->items[i], item));
  }
  return TW_OK;
}

tw_status tw_host_sequence_at(const tw_call *c) {
  const tw_value *items;
  int64_t at;
  TRY(sequence(c, 0, &items));
  TRY(position(c, 1, items, -1, 0, &at));
  return tw_give(c, 0, &items->items[at]);
}

/* the items but for those in from .. from + left_out - 1, with one more in their place if it is not null */
static tw_status changed(const tw_call *c, const tw_value *items, int64_t from, int64_t left_out, const tw_value *more) {
  tw_value *out = tw_wanted(c, 0);
  int64_t at = 0;
  if (out == NULL) return TW_OK;
  TRY(tw_set_length(out, items->length - left_out + (more != NULL)));
  for (int64_t i = 0; i <= items->length; i++) {
    if (i == from && more) TRY(tw_copy_value(&out->items[at++], more));
    if (i < items->length && (i < from || i >= from + left_out))
      TRY(tw_copy_value(&out->items[at++], &items->items[i]));
  }
  return TW_OK;
}

tw_status tw_host_sequence_insert(const tw_call *c) {
  const tw_value *items, *item;
  int64_t at;
  TRY(sequence(c, 0, &items));
  TRY(tw_operand(c, 1, &item));
  TRY(position(c, 2, items, items->length, 1, &at));
  return changed(c, items, at, 0, item);
}

tw_status tw_host_sequence_erase(const tw_call *c) {
  const tw_value *items;
  int64_t at;
  TRY(sequence(c, 0, &items));
  TRY(position(c, 1, items, -1, 0, &at));
  return changed(c, items, at, 1, NULL);
}

tw_status tw_host_sequence_length(const tw_call *c) {
  const tw_value *items;
  unsigned char *out;
  TRY(sequence(c, 0, &items));
  TRY(tw_result(c, 0, 7, 0, NULL, &out));
  if (out) tw_put_integer(7, out, 0, items->length);
  return TW_OK;
}

tw_status tw_host_concat_from_sequence(const tw_call *c) {
  const tw_value *items;
  TRY(sequence(c, 0, &items));
  if (items->length == 0) return tw_refuse(c, "expected a sequence that is not empty");
  const tw_value **parts = malloc((size_t)items->length * sizeof *parts);
  if (parts == NULL) return tw_no_memory(c);
  for (int64_t i = 0; i < items->length; i++) parts[i] = &items->items[i];
  int is_new = tw_option(c, "new_axis", 0) != 0;
  tw_status status = tw_concatenate(c, parts, items->length, tw_option(c, "axis", 0), is_new);
  free(parts);
  return status;
}

/* pieces of one size (the last may be smaller), of given sizes, or one element each; none of nothing */
tw_status tw_host_split_to_sequence(const tw_call *c) {
  const tw_value *x, *sizes = NULL;
  tw_value *out = tw_wanted(c, 0);
  int32_t axis;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  int64_t length = x->shape[axis], each = 1, parts = length, at = 0;
  if (tw_given(c, 1)) {
    TRY(tw_integers(c, 1, &sizes));
    if (sizes->rank == 0) {
      each = tw_element(sizes, 0);
      if (each < 1) return tw_refuse(c, "expected pieces of at least one element, got %" PRId64, each);
      parts = length ? (length - 1) / each + 1 : 0;
    } else {
      TRY(tw_require_parts(c, sizes, length));
      parts = tw_elements(sizes->rank, sizes->shape);
      if (parts == 0) parts = 1; /* of no sizes: nothing, in one piece */
    }
  }
  if (out == NULL) return TW_OK;
  TRY(tw_set_length(out, parts));
  for (int64_t k = 0; k < parts; k++) {
    int64_t rest = length - at, count = each < rest ? each : rest;
    if (sizes && sizes->rank) count = tw_elements(sizes->rank, sizes->shape) ? tw_element(sizes, k) : 0;
    tw_value *part = &out->items[k];
    TRY(tw_take_part(c, x, axis, at, count, part));
    if (!sizes && !tw_option(c, "keepdims", 1)) {
      part->rank--;
      for (int32_t i = axis; i < part->rank; i++) part->shape[i] = part->shape[i + 1];
    }
    at += count;
  }
  return TW_OK;
}

/* -- optionals */
static int is_empty(const tw_value *v) { return v == NULL || (v->type == 0 && v->length < 0); }

tw_status tw_host_optional_get_element(const tw_call *c) {
  const tw_value *x = tw_given(c, 0);
  if (is_empty(x)) return tw_refuse(c, "expected an optional that has an element, got an empty one");
  return tw_give(c, 0, x);
}

tw_status tw_host_optional_has_element(const tw_call *c) {
  unsigned char *out;
  TRY(tw_result(c, 0, 9, 0, NULL, &out));
  if (out) *out = !is_empty(tw_given(c, 0));
  return TW_OK;
}
