/* Operators that compare elements with each other: TopK, Unique. */
#include "host.h"

/* A number with the order of an element among those of its type. NaN is the greatest, the two zeros are one. */
static uint64_t key_of(const tw_value *v, int64_t i) {
  const uint64_t top = UINT64_C(1) << 63;
  char kind = tw_kind(v->type);
  if (kind != 'f') return (uint64_t)tw_element(v, i) ^ (kind == 'i' ? top : 0);
  double x = tw_real(v, i) + 0.0;
  uint64_t bits;
  if (x != x) return UINT64_MAX;
  memcpy(&bits, &x, sizeof bits);
  return bits & top ? ~bits : bits | top;
}

/* -- TopK: a heap of the best so far, the worst of them on top */
typedef struct entry {
  uint64_t key;
  int64_t at;
} entry;

static int is_behind(entry a, entry b) { return a.key != b.key ? a.key > b.key : a.at > b.at; }

static void sink(entry *heap, int64_t count, int64_t i, entry e) {
  for (int64_t child; (child = 2 * i + 1) < count; i = child) {
    if (child + 1 < count && is_behind(heap[child + 1], heap[child])) child++;
    if (!is_behind(heap[child], e)) break;
    heap[i] = heap[child];
  }
  heap[i] = e;
}

/* the first `k` of `n` in order; elements are `step` apart from `first` on */
static void best(const tw_value *x, int64_t first, int64_t step, int64_t n, int64_t k, int largest, entry *heap) {
  for (int64_t i = 0; i < n; i++) {
    uint64_t key = key_of(x, first + i * step);
    entry e = {largest ? ~key : key, i};
    if (i < k) heap[i] = e;
    if (i == k - 1)
      for (int64_t j = k / 2 - 1; j >= 0; j--) sink(heap, k, j, heap[j]);
    if (i >= k && k && is_behind(heap[0], e)) sink(heap, k, 0, e);
  }
  for (int64_t left = k - 1; left > 0; left--) {
    entry last = heap[left];
    heap[left] = heap[0];
    sink(heap, left, 0, last);
  }
}

tw_status tw_host_top_k(const tw_call *c) {
  const tw_value *x;
  int64_t k, shape[TW_MAX_RANK], item;
  int32_t axis;
  unsigned char *values, *indices;
  TRY(tw_operand(c, 0, &x));
  TRY(tw_one_integer(c, 1, &k));
  TRY(tw_axis_of(c, tw_option(c, "axis", -1), x->rank, &axis));
  int64_t n = x->shape[axis], step = tw_elements(x->rank - axis - 1, x->shape + axis + 1);
  int64_t outer = tw_elements(axis, x->shape);
  if (k < 0 || k > n)
    return tw_refuse(c, "expected k from 0 to the %" PRId64 " elements of axis %" PRId64 ", got %" PRId64, n,
                     tw_option(c, "axis", -1), k);
  memcpy(shape, x->shape, sizeof shape);
  shape[axis] = k;
  item = tw_item_bytes(x->type);
  TRY(tw_result(c, 0, x->type, x->rank, shape, &values));
  TRY(tw_result(c, 1, 7, x->rank, shape, &indices));
  entry *heap = malloc((size_t)k * sizeof *heap + 1);
  if (heap == NULL) return tw_no_memory(c);
  int largest = tw_option(c, "largest", 1) != 0;
  for (int64_t row = 0; row < outer * step; row++) {
    int64_t first = row / step * step * n + row % step, to = row / step * step * k + row % step;
    best(x, first, step, n, k, largest, heap);
    for (int64_t i = 0; i < k; i++) {
      const unsigned char *from = (const unsigned char *)x->data + (first + heap[i].at * step) * item;
      if (values) memcpy(values + (to + i * step) * item, from, (size_t)item);
      if (indices) ((int64_t *)indices)[to + i * step] = heap[i].at;
    }
  }
  free(heap);
  return TW_OK;
}

/* -- Unique: slices along an axis, or elements */
typedef struct slices {
  const uint64_t *keys; /* of slice after slice */
  int64_t size;
} slices;

static int compare(const slices *s, int64_t a, int64_t b) {
  const uint64_t *x = s->keys + a * s->size, *y = s->keys + b * s->size;
  for (int64_t i = 0; i < s->size; i++)
    if (x[i] != y[i]) return x[i] < y[i] ? -1 : 1;
  return 0;
}

/* merges runs of 1, 2, 4, ...; the result is in `order`, or in `other` if 1 is returned */
static int sort(const slices *s, int64_t *order, int64_t *other, int64_t n) {
  int swapped = 0;
  for (int64_t run = 1; run < n; run *= 2, swapped = !swapped) {
    int64_t *from = swapped ? other : order, *to = swapped ? order : other;
    for (int64_t start = 0; start < n; start += 2 * run) {
      int64_t middle = start + run < n ? start + run : n, end = start + 2 * run < n ? start + 2 * run : n;
      for (int64_t a = start, b = middle, i = start; i < end; i++)
        to[i] = a < middle && (b == end || compare(s, from[a], from[b]) <= 0) ? from[a++] : from[b++];
    }
  }
  return swapped;
}

/* NaN differs from itself in slices, not among single elements */
static int is_new(const slices *s, int64_t a, int64_t b, int by_axis) {
  if (compare(s, a, b) != 0) return 1;
  for (int64_t i = 0; by_axis && i < s->size; i++)
    if (s->keys[a * s->size + i] == UINT64_MAX) return 1;
  return 0;
}

static tw_status give_unique(
    const tw_call *c, const tw_value *x, int32_t axis, int64_t size, const slices *s, int64_t *work, int64_t n) {
  int64_t *order = work, *group = work + n, *first = work + 2 * n, *count = work + 3 * n, *rank = work + 4 * n, found = 0;
  unsigned char *out;
  for (int64_t i = 0; i < n; i++) order[i] = i;
  if (sort(s, order, rank, n)) memcpy(order, rank, (size_t)n * sizeof *order);
  int by_axis = axis >= 0 && tw_kind(x->type) == 'f';
  for (int64_t i = 0; i < n; i++) {
    if (i == 0 || is_new(s, order[i - 1], order[i], by_axis)) {
      first[found] = order[i];
      count[found++] = 0;
    }
    group[order[i]] = found - 1;
    count[found - 1]++;
  }
  /* rank: which of the results stands at each place */
  for (int64_t i = 0; i < found; i++) rank[i] = i;
  if (!tw_option(c, "sorted", 1)) {
    int64_t at = 0;
    for (int64_t i = 0; i < n; i++)
      if (first[group[i]] == i) rank[at++] = group[i];
  }
  int64_t shape[TW_MAX_RANK], outer = 1, inner = tw_item_bytes(x->type);
  int32_t dims = axis >= 0 ? x->rank : 1;
  memcpy(shape, x->shape, sizeof shape);
  shape[axis >= 0 ? axis : 0] = found;
  if (axis >= 0) {
    outer = tw_elements(axis, x->shape);
    inner *= tw_elements(x->rank - axis - 1, x->shape + axis + 1);
  }
  TRY(tw_result(c, 0, x->type, dims, shape, &out));
  for (int64_t o = 0; out && inner && o < outer; o++)
    for (int64_t i = 0; i < found; i++, out += inner)
      memcpy(out, (const unsigned char *)x->data + (o * size + first[rank[i]]) * inner, (size_t)inner);
  for (int32_t k = 1; k < 4; k++) {
    TRY(tw_result(c, k, 7, 1, k == 2 ? &n : &found, &out));
    if (out == NULL) continue;
    int64_t *numbers = (int64_t *)out;
    for (int64_t i = 0; k != 2 && i < found; i++) numbers[i] = k == 1 ? first[rank[i]] : count[rank[i]];
    if (k == 2) {
      for (int64_t i = 0; i < found; i++) order[rank[i]] = i;
      for (int64_t i = 0; i < n; i++) numbers[i] = order[group[i]];
    }
  }
  return TW_OK;
}

tw_status tw_host_unique(const tw_call *c) {
  const tw_value *x;
  int32_t axis = -1;
  TRY(tw_operand(c, 0, &x));
  if (tw_attribute_of(c, "axis")) TRY(tw_axis_of(c, tw_option(c, "axis", 0), x->rank, &axis));
  int64_t total = tw_elements(x->rank, x->shape), n = axis < 0 ? total : x->shape[axis], outer = 1, inner = 1;
  if (axis >= 0) {
    outer = tw_elements(axis, x->shape);
    inner = tw_elements(x->rank - axis - 1, x->shape + axis + 1);
  }
  uint64_t *keys = malloc((size_t)total * sizeof *keys + 1);
  int64_t *work = malloc((size_t)n * 5 * sizeof *work + 1);
  tw_status status = keys && work ? TW_OK : tw_no_memory(c);
  slices s = {keys, axis < 0 ? 1 : outer * inner};
  for (int64_t i = 0; status == TW_OK && i < n; i++)
    for (int64_t o = 0; o < outer; o++)
      for (int64_t k = 0; k < inner; k++) keys[i * s.size + o * inner + k] = key_of(x, (o * n + i) * inner + k);
  if (status == TW_OK) status = give_unique(c, x, axis, n, &s, work, n);
  free(keys);
  free(work);
  return status;
}
