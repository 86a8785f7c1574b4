/* Operators that move elements, steered by sizes and places: Expand, Tile, Pad, Slice, Concat, Split, Transpose. */
#include "host.h"

tw_status tw_host_expand(const tw_call *c) {
  const tw_value *x, *sizes;
  int32_t n, rank;
  int64_t shape[TW_MAX_RANK], to[TW_MAX_RANK], from[TW_MAX_RANK];
  tw_value target = {.type = 7};
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_few_integers(c, 1, &sizes, &n));
  target.rank = n;
  for (int32_t i = 0; i < n; i++) target.shape[i] = tw_element(sizes, i);
  const tw_value *both[] = {x, &target};
  TRY(tw_common_shape(c, both, 2, &rank, shape));
  if (c->sizes) return tw_give_sizes(c, 0, shape, rank);
  TRY(tw_result(c, 0, x->type, rank, shape, &out));
  if (out == NULL) return TW_OK;
  tw_dense(rank, shape, tw_item_bytes(x->type), to);
  tw_repeated(x, rank, from);
  tw_move(rank, shape, tw_item_bytes(x->type), out, to, x->data, from);
  return TW_OK;
}

/* as a box of twice the rank: along each axis the repeats, and what is repeated */
tw_status tw_host_tile(const tw_call *c) {
  const tw_value *x, *repeats;
  int32_t n;
  int64_t shape[TW_MAX_RANK], dense[TW_MAX_RANK], own[TW_MAX_RANK];
  int64_t box[2 * TW_MAX_RANK], to[2 * TW_MAX_RANK], from[2 * TW_MAX_RANK];
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_few_integers(c, 1, &repeats, &n));
  if (n != x->rank) return tw_refuse(c, "expected %d repeats, got %d", x->rank, n);
  for (int32_t i = 0; i < n; i++) shape[i] = tw_times(x->shape[i], box[2 * i] = tw_element(repeats, i));
  if (c->sizes) return tw_give_sizes(c, 0, shape, n);
  int64_t item = tw_item_bytes(x->type);
  TRY(tw_result(c, 0, x->type, n, shape, &out));
  if (out == NULL) return TW_OK;
  tw_dense(n, shape, item, dense);
  tw_dense(n, x->shape, item, own);
  for (int32_t i = 0; i < n; i++) {
    box[2 * i + 1] = x->shape[i];
    to[2 * i] = dense[i] * x->shape[i];
    from[2 * i] = 0;
    to[2 * i + 1] = dense[i];
    from[2 * i + 1] = own[i];
  }
  tw_move(2 * n, box, item, out, to, x->data, from);
  return TW_OK;
}

/* -- Pad: for each axis a table of where the elements come from, -1 for the fill */
static int64_t padded_from(char mode, int64_t at, int64_t n) {
  int64_t period = mode == 'w' ? n : 2 * (n - 1);
  if (at >= 0 && at < n) return at;
  if (mode == 'c') return -1;
  if (mode == 'e') return at < 0 ? 0 : n - 1;
  if (period <= 0) return 0;
  at = tw_remainder(at, period);
  return at < n ? at : period - at;
}

typedef struct padding {
  const int64_t *shape, *to, *from, *tables[TW_MAX_RANK];
  const unsigned char *fill;
  int32_t rank;
  int64_t item;
} padding;

static void pad_axis(const padding *p, int32_t axis, unsigned char *to, const unsigned char *from) {
  if (axis == p->rank) {
    memcpy(to, from ? from : p->fill, (size_t)p->item);
    return;
  }
  for (int64_t i = 0; i < p->shape[axis]; i++) {
    int64_t at = p->tables[axis][i];
    pad_axis(p, axis + 1, to + i * p->to[axis], from && at >= 0 ? from + at * p->from[axis] : NULL);
  }
}

static tw_status pad_elements(const tw_call *c, const tw_value *x, const int64_t *shape, const int64_t *low, char mode) {
  static const unsigned char zeros[16];
  int64_t to[TW_MAX_RANK], from[TW_MAX_RANK], item = tw_item_bytes(x->type), total = 0;
  const tw_value *fill = tw_given(c, 2);
  unsigned char *out;
  if (fill && (fill->type != x->type || tw_elements(fill->rank, fill->shape) != 1))
    return tw_refuse(c, "expected one element of the same type to fill with");
  TRY(tw_result(c, 0, x->type, x->rank, shape, &out));
  if (out == NULL || tw_elements(x->rank, shape) == 0) return TW_OK;
  for (int32_t i = 0; i < x->rank; i++) total += shape[i];
  int64_t *tables = malloc((size_t)total * sizeof *tables + 1), *table = tables;
  if (tables == NULL) return tw_no_memory(c);
  padding p = {shape, to, from, {0}, fill ? fill->data : zeros, x->rank, item};
  tw_dense(x->rank, shape, item, to);
  tw_dense(x->rank, x->shape, item, from);
  for (int32_t i = 0; i < x->rank; i++) {
    int64_t high = shape[i] - x->shape[i] - low[i], cut = 0, n = x->shape[i];
    if (mode != 'c') { /* what the other modes repeat is what negative pads leave */
      cut = low[i] < 0 ? -low[i] : 0;
      n -= cut + (high < 0 ? -high : 0);
      if (n < 1) {
        free(tables);
        return tw_refuse(c, "expected elements along axis %d to repeat, got none", i);
      }
    }
    p.tables[i] = table;
    for (int64_t k = 0; k < shape[i]; k++) {
      int64_t at = padded_from(mode, k - low[i] - cut, n);
      *table++ = at < 0 ? -1 : at + cut;
    }
  }
  pad_axis(&p, 0, out, x->data);
  free(tables);
  return TW_OK;
}

tw_status tw_host_pad(const tw_call *c) {
  const tw_value *x, *pads, *axes = NULL;
  int64_t shape[TW_MAX_RANK], low[TW_MAX_RANK] = {0};
  TRY(tw_operand(c, 0, &x));
  TRY(tw_integers(c, 1, &pads));
  if (tw_given(c, 3)) TRY(tw_integers(c, 3, &axes));
  int64_t n = axes ? tw_elements(axes->rank, axes->shape) : x->rank, given = tw_elements(pads->rank, pads->shape);
  if (n && given / 2 < n) return tw_refuse(c, "expected %" PRId64 " pads, got %" PRId64, 2 * n, given);
  memcpy(shape, x->shape, sizeof shape);
  for (int64_t k = 0; k < n; k++) {
    int32_t a;
    TRY(tw_axis_of(c, axes ? tw_element(axes, k) : k, x->rank, &a));
    low[a] = tw_element(pads, k);
    shape[a] = tw_sum(shape[a], tw_sum(low[a], tw_element(pads, n + k)));
  }
  if (c->sizes) return tw_give_sizes(c, 0, shape, x->rank);
  for (int32_t i = 0; i < x->rank; i++)
    if (shape[i] < 0) return tw_refuse(c, "expected pads that leave sizes >= 0, got %" PRId64 " along axis %d", shape[i], i);
  const tw_attribute *mode = tw_attribute_of(c, "mode");
  return pad_elements(c, x, shape, low, mode && mode->text ? mode->text[0] : 'c');
}

tw_status tw_host_slice(const tw_call *c) {
  const tw_value *x;
  int64_t firsts[TW_MAX_RANK], counts[TW_MAX_RANK], steps[TW_MAX_RANK], others[TW_MAX_RANK];
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_slice_ranges(c, x, firsts, counts, steps));
  if (c->sizes) {
    for (int32_t i = 0; i < x->rank; i++) {
      others[i] = tw_most(x->shape[i] - firsts[i] - counts[i], 0);
      firsts[i] = tw_most(firsts[i], 0);
    }
    TRY(tw_give_sizes(c, 0, counts, x->rank));
    TRY(tw_give_sizes(c, 1, firsts, x->rank));
    return tw_give_sizes(c, 2, others, x->rank);
  }
  TRY(tw_result(c, 0, x->type, x->rank, counts, &out));
  int64_t item = tw_item_bytes(x->type);
  const unsigned char *from = x->data;
  if (out == NULL || tw_elements(x->rank, counts) == 0) return TW_OK;
  tw_dense(x->rank, x->shape, item, others);
  for (int32_t i = 0; i < x->rank; i++) {
    from += firsts[i] * others[i];
    steps[i] = counts[i] > 1 ? steps[i] * others[i] : 0;
  }
  tw_dense(x->rank, counts, item, others);
  tw_move(x->rank, counts, item, out, others, from, steps);
  return TW_OK;
}

tw_status tw_host_transpose(const tw_call *c) {
  const tw_value *x;
  const tw_attribute *order = tw_attribute_of(c, "perm");
  int64_t own[TW_MAX_RANK], shape[TW_MAX_RANK], to[TW_MAX_RANK], from[TW_MAX_RANK];
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  if (order && order->count != x->rank)
    return tw_refuse(c, "expected the order of %" PRId64 " axes, got %d", order->count, x->rank);
  int64_t item = tw_item_bytes(x->type);
  tw_dense(x->rank, x->shape, item, own);
  for (int32_t i = 0; i < x->rank; i++) {
    int32_t axis = x->rank - 1 - i;
    if (order) TRY(tw_axis_of(c, order->integers[i], x->rank, &axis));
    shape[i] = x->shape[axis];
    from[i] = own[axis];
  }
  TRY(tw_result(c, 0, x->type, x->rank, shape, &out));
  if (out == NULL) return TW_OK;
  tw_dense(x->rank, shape, item, to);
  tw_move(x->rank, shape, item, out, to, x->data, from);
  return TW_OK;
}

/* -- pieces along an axis */
tw_status tw_concatenate(const tw_call *c, const tw_value *const *parts, int64_t count, int64_t axis, int is_new) {
  const tw_value *first = parts[0];
  int32_t rank = first->rank + is_new, a;
  int64_t shape[TW_MAX_RANK + 1], length = 0, inner = tw_item_bytes(first->type), outer = 1;
  unsigned char *out;
  if (first->type == 0) return tw_refuse(c, "expected tensors");
  TRY(tw_axis_of(c, axis, rank, &a));
  for (int32_t i = 0; i < rank; i++) {
    shape[i] = first->shape[i - (is_new && i > a)];
    if (i < a) outer *= shape[i];
    if (i > a) inner *= shape[i];
  }
  for (int64_t k = 0; k < count; k++) {
    int fits = parts[k]->type == first->type && parts[k]->rank == first->rank;
    for (int32_t i = 0; fits && i < first->rank; i++)
      fits = parts[k]->shape[i] == first->shape[i] || (!is_new && i == a);
    if (!fits) return tw_refuse(c, "expected tensors of one type and shape, got others from number %" PRId64 " on", k);
    length += is_new ? 1 : parts[k]->shape[a];
  }
  shape[a] = length;
  TRY(tw_result(c, 0, first->type, rank, shape, &out));
  if (out == NULL || inner == 0) return TW_OK;
  for (int64_t i = 0; i < outer; i++)
    for (int64_t k = 0; k < count; k++) {
      int64_t bytes = (is_new ? 1 : parts[k]->shape[a]) * inner;
      if (bytes) memcpy(out, (const unsigned char *)parts[k]->data + i * bytes, (size_t)bytes);
      out += bytes;
    }
  return TW_OK;
}

tw_status tw_host_concat(const tw_call *c) {
  const tw_value *part;
  for (int32_t i = 0; i < c->input_count; i++) TRY(tw_operand(c, i, &part));
  return tw_concatenate(c, c->inputs, c->input_count, tw_option(c, "axis", 0), 0);
}

tw_status tw_take_part(const tw_call *c, const tw_value *x, int32_t axis, int64_t from, int64_t count, tw_value *out) {
  int64_t shape[TW_MAX_RANK], outer = 1, inner = tw_item_bytes(x->type);
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = count;
  for (int32_t i = 0; i < axis; i++) outer *= shape[i];
  for (int32_t i = axis + 1; i < x->rank; i++) inner *= shape[i];
  TRY(tw_sized(tw_set_shape(out, x->type, x->rank, shape), c));
  for (int64_t i = 0; i < outer && inner && count; i++)
    memcpy((unsigned char *)out->data + i * count * inner,
           (const unsigned char *)x->data + (i * x->shape[axis] + from) * inner, (size_t)(count * inner));
  return TW_OK;
}

tw_status tw_require_parts(const tw_call *c, const tw_value *sizes, int64_t length) {
  int64_t n = tw_elements(sizes->rank, sizes->shape), sum = 0, least = 0;
  for (int64_t k = 0; k < n; k++) {
    sum = tw_sum(sum, tw_element(sizes, k));
    least = tw_least(least, tw_element(sizes, k));
  }
  if (sum == length && least >= 0) return TW_OK;
  return tw_refuse(c, "expected sizes that add up to %" PRId64 ", got others", length);
}

tw_status tw_host_split(const tw_call *c) {
  const tw_value *x, *sizes = NULL;
  int32_t axis;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  int64_t length = x->shape[axis], parts = tw_option(c, "num_outputs", c->output_count), at = 0;
  if (tw_given(c, 1)) {
    TRY(tw_integers(c, 1, &sizes));
    TRY(tw_require_parts(c, sizes, length));
    parts = tw_elements(sizes->rank, sizes->shape);
  }
  if (parts != c->output_count) return tw_refuse(c, "expected %d sizes, got %" PRId64, c->output_count, parts);
  int64_t equal = (length + parts - 1) / parts;
  for (int32_t k = 0; k < parts; k++) {
    int64_t rest = length - at, count = sizes ? tw_element(sizes, k) : rest < equal ? rest : equal;
    if (tw_wanted(c, k)) TRY(tw_take_part(c, x, axis, at, count, tw_wanted(c, k)));
    at += count;
  }
  return TW_OK;
}
