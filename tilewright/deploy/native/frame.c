/* Frames: the symbols, memory and tables of one plan in one session. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

static void *zeros(int64_t count, size_t bytes) { return calloc(count > 0 ? (size_t)count : 1, bytes); }

tw_status tw_frame_create(tw_session *session, const tw_plan *plan, tw_frame *around, tw_frame **out) {
  tw_frame *f = zeros(1, sizeof *f);
  *out = f;
  if (f == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for plan %s", plan->name);
  f->session = session;
  f->plan = plan;
  f->around = around;
  f->bodies = zeros(plan->body_count, sizeof *f->bodies);
  f->symbols = zeros(plan->symbol_count, sizeof *f->symbols);
  f->laid_out = zeros(plan->symbol_count, sizeof *f->laid_out);
  f->values = zeros(plan->value_count, sizeof *f->values);
  f->table = zeros(plan->place_count, sizeof *f->table);
  f->dims = zeros(plan->dim_count, sizeof *f->dims);
  f->offsets = zeros(plan->arena_count, sizeof *f->offsets);
  f->bytes = zeros(plan->arena_count, sizeof *f->bytes);
  f->inside = zeros(plan->inside_count, sizeof *f->inside);
  f->times = session->profile ? zeros(plan->stamp_count, sizeof *f->times) : NULL;
  if (!f->bodies || !f->symbols || !f->laid_out || !f->values || !f->table || !f->dims || !f->offsets || !f->bytes ||
      !f->inside || (session->profile && !f->times))
    return tw_fail(TW_OUT_OF_MEMORY, "no memory for plan %s", plan->name);
  return TW_OK;
}

void tw_frame_free(tw_frame *f) {
  if (f == NULL) return;
  for (int32_t i = 0; f->bodies && i < f->plan->body_count; i++) tw_frame_free(f->bodies[i]);
  for (int32_t i = 0; f->values && i < f->plan->value_count; i++) tw_clear(&f->values[i]);
  if (!f->is_lent) tw_release(f->arena);
  void *parts[] = {f->bodies, f->symbols, f->laid_out, f->values, f->table, f->dims, f->offsets, f->bytes, f->inside,
                   f->times, f};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) free(parts[i]);
}

tw_status tw_body(tw_frame *f, int32_t index, tw_frame **out) {
  if (f->bodies[index] == NULL) TRY(tw_frame_create(f->session, f->plan->bodies[index], f, &f->bodies[index]));
  *out = f->bodies[index];
  return TW_OK;
}

int tw_moved(const tw_frame *f) {
  return !f->is_laid_out || memcmp(f->symbols, f->laid_out, (size_t)f->plan->early_count * sizeof *f->symbols) != 0;
}

void tw_laid_out(tw_frame *f) {
  memcpy(f->laid_out, f->symbols, (size_t)f->plan->early_count * sizeof *f->symbols);
  f->is_laid_out = 1;
}

void *tw_constant(const tw_frame *f, uint64_t offset) {
  return (unsigned char *)(uintptr_t)f->session->model->weights + offset;
}

/* -- places in the arena: greedy by size, first fit among what is free during a lifetime (Pisarchyk and Lee, 2020) */
typedef struct block {
  int64_t start, end, size;
  int32_t slot;
  tw_life life;
} block;

static int by_size(const void *a, const void *b) {
  const block *x = a, *y = b;
  if (x->size != y->size) return x->size < y->size ? 1 : -1;
  if (x->life.first != y->life.first) return x->life.first < y->life.first ? -1 : 1;
  return x->slot < y->slot ? -1 : x->slot > y->slot;
}

static tw_status use_arena(tw_frame *f, uint64_t bytes) {
  f->arena_needed = bytes;
  if (bytes == 0) return TW_OK;
  if (f->arena != NULL && bytes <= f->arena_bytes) return TW_OK;
  if (f->is_lent)
    return tw_fail(TW_OUT_OF_MEMORY, "%s: intermediate values need %" PRIu64 " bytes, the caller's memory has %" PRIu64,
                   f->plan->name, bytes, f->arena_bytes);
  unsigned char *arena = tw_allocate(bytes);
  if (arena == NULL)
    return tw_fail(TW_OUT_OF_MEMORY, "%s: intermediate values need %" PRIu64 " bytes", f->plan->name, bytes);
  tw_release(f->arena);
  f->arena = arena;
  f->arena_bytes = bytes;
  return TW_OK;
}

tw_status tw_place_slots(tw_frame *f, const tw_life *lives, const char *const *names) {
  int32_t n = f->plan->arena_count, placed = 0;
  int64_t total = 0;
  block *blocks = zeros(2 * (int64_t)n, sizeof *blocks), *sorted = blocks + n; /* sorted: those placed, by start */
  if (blocks == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory to place the values of %s", f->plan->name);
  for (int32_t i = 0; i < n; i++) {
    if (f->bytes[i] < 0) {
      free(blocks);
      return tw_fail(TW_INVALID_INPUT, "tensor '%s': the inputs give it a size that is negative or too large", names[i]);
    }
    int64_t size = (f->bytes[i] > 1 ? f->bytes[i] : 1) + TW_LINE - 1;
    blocks[i] = (block){0, 0, size / TW_LINE * TW_LINE, i, lives[i]};
  }
  qsort(blocks, (size_t)n, sizeof *blocks, by_size);
  for (int32_t i = 0; i < n; i++) {
    block b = blocks[i];
    for (int32_t k = 0; k < placed; k++) {
      if (sorted[k].life.last < b.life.first || b.life.last < sorted[k].life.first) continue;
      if (sorted[k].start - b.start >= b.size) break;
      if (sorted[k].end > b.start) b.start = sorted[k].end;
    }
    b.end = b.start + b.size;
    if (b.end > total) total = b.end;
    int32_t at = placed++;
    for (; at > 0 && sorted[at - 1].start > b.start; at--) sorted[at] = sorted[at - 1];
    sorted[at] = b;
    f->offsets[b.slot] = b.start;
  }
  free(blocks);
  return use_arena(f, (uint64_t)total);
}

tw_status tw_use_places(tw_frame *f, int64_t arena_bytes, const int64_t *offsets) {
  memcpy(f->offsets, offsets, (size_t)f->plan->arena_count * sizeof *offsets);
  return use_arena(f, (uint64_t)arena_bytes);
}

/* -- tables */
void tw_fill(tw_frame *f, const tw_place *places, int32_t count) {
  unsigned char *constants = (unsigned char *)(uintptr_t)f->session->model->weights;
  for (int32_t i = 0; i < count; i++) {
    const tw_place *p = &places[i];
    f->table[p->place] = (p->slot == TW_CONSTANT ? constants : f->arena + f->offsets[p->slot]) + p->inside;
  }
}

void tw_patch_values(tw_frame *f, const tw_patch *patches, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    const tw_patch *p = &patches[i];
    unsigned char *at = f->values[p->value].data;
    f->table[p->place] = p->inside < 0 ? at : at + f->inside[p->inside];
  }
}

tw_status tw_check_dims(const int64_t *dims, int32_t count, const char *plan) {
  for (int32_t i = 0; i < count; i++)
    if (dims[i] <= -((int64_t)1 << 62) || dims[i] >= (int64_t)1 << 62)
      return tw_fail(TW_INVALID_INPUT, "%s: the inputs give it a size that divides by 0 or does not fit in 62 bits", plan);
  return TW_OK;
}

/* -- values */
tw_value tw_view(int32_t type, void *data, int32_t rank, const int64_t *shape) {
  tw_value v = {.type = type, .rank = rank, .data = data};
  memcpy(v.shape, shape, (size_t)rank * sizeof *shape);
  return v;
}

static tw_status require_sizes(const char *name, int32_t rank, const int64_t *shape) {
  for (int32_t i = 0; i < rank; i++)
    if (shape[i] < 0)
      return tw_fail(TW_INVALID_INPUT, "tensor '%s': the inputs give it a size that is negative or too large", name);
  return TW_OK;
}

tw_status tw_own(tw_frame *f, int32_t value, int32_t type, const char *name, int32_t rank, const int64_t *shape) {
  TRY(require_sizes(name, rank, shape));
  return tw_set_shape(&f->values[value], type, rank, shape);
}

int tw_is_dense(const tw_tensor *t) {
  int64_t step = 1;
  if (t->strides == NULL) return 1;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    if (t->shape[i] != 1 && t->strides[i] != step) return 0;
    step = tw_times(step, t->shape[i]);
  }
  return 1;
}

static void shape_text(char *out, size_t room, int32_t rank, const int64_t *shape) {
  size_t at = (size_t)snprintf(out, room, "[");
  for (int32_t i = 0; i < rank && at < room; i++)
    at += (size_t)snprintf(out + at, room - at, "%s%" PRId64, i ? ", " : "", shape[i]);
  if (at < room) snprintf(out + at, room - at, "]");
}

/* the caller's tensor for an output; null if the session's own memory is to be used. Checks its shape. */
static tw_status callers(tw_frame *f, int32_t output, int32_t rank, const int64_t *shape, tw_tensor **out) {
  tw_tensor *t = f->caller_outputs ? &f->caller_outputs[output] : NULL;
  *out = NULL;
  if (t == NULL || t->data == NULL) return TW_OK;
  if (t->ndim != rank || (rank && memcmp(t->shape, shape, (size_t)rank * sizeof *shape) != 0)) {
    char expected[256], got[256];
    shape_text(expected, sizeof expected, rank, shape);
    shape_text(got, sizeof got, t->ndim, t->shape);
    return tw_fail(TW_INVALID_ARGUMENT, "output '%s': expected memory for shape %s, got one of shape %s",
                   f->plan->outputs[output].name, expected, got);
  }
  *out = t;
  return TW_OK;
}

tw_status tw_begin_output(
    tw_frame *f, int32_t output, int32_t value, int32_t type, int32_t rank, const int64_t *shape) {
  tw_value *v = &f->values[value];
  tw_tensor *t;
  TRY(require_sizes(f->plan->outputs[output].name, rank, shape));
  TRY(callers(f, output, rank, shape, &t));
  if (t == NULL || !tw_is_dense(t)) return tw_set_shape(v, type, rank, shape);
  v->type = type;
  v->rank = rank;
  memcpy(v->shape, shape, (size_t)rank * sizeof *shape);
  v->data = (unsigned char *)t->data + t->byte_offset;
  return TW_OK;
}

static void scatter(unsigned char *to, const int64_t *strides, const int64_t *shape, int32_t rank, int64_t item,
                    const unsigned char **from) {
  if (rank == 0) {
    memcpy(to, *from, (size_t)item);
    *from += item;
    return;
  }
  for (int64_t i = 0; i < shape[0]; i++) scatter(to + i * strides[0] * item, strides + 1, shape + 1, rank - 1, item, from);
}

tw_status tw_deliver(tw_frame *f, int32_t output, int32_t value, const tw_value *from) {
  tw_value *v = &f->values[value];
  tw_tensor *t = NULL;
  if (from->type != 0) TRY(callers(f, output, from->rank, from->shape, &t));
  if (t == NULL) return from == v && v->data == v->memory ? TW_OK : tw_copy_value(v, from);
  unsigned char *to = (unsigned char *)t->data + t->byte_offset;
  const unsigned char *at = from->data;
  uint64_t bytes = tw_value_bytes(from);
  v->data = to;
  if (bytes == 0 || to == at) return TW_OK;
  if (tw_is_dense(t))
    memmove(to, at, (size_t)bytes);
  else
    scatter(to, t->strides, t->shape, t->ndim, tw_item_bytes(from->type), &at);
  return TW_OK;
}

int64_t tw_element(const tw_value *v, int64_t index) {
  switch (tw_item_bytes(v->type)) {
    case 1: return v->type == 3 ? (int64_t)((const int8_t *)v->data)[index] : (int64_t)((const uint8_t *)v->data)[index];
    case 2: return v->type == 5 ? (int64_t)((const int16_t *)v->data)[index] : (int64_t)((const uint16_t *)v->data)[index];
    case 4: return v->type == 6 ? (int64_t)((const int32_t *)v->data)[index] : (int64_t)((const uint32_t *)v->data)[index];
    default: return ((const int64_t *)v->data)[index];
  }
}

/* -- native code */
int64_t tw_enter(
    tw_frame *f, tw_entry entry, int32_t first_place, int32_t first_dim, int32_t first_stamp, int32_t parallel) {
  double *times = f->times ? f->times + first_stamp : NULL;
  return entry(f->table + first_place, f->dims + first_dim, parallel ? f->session->pool : NULL, times);
}

/* -- what must hold of sizes */
static tw_status refuse(const tw_frame *f, const tw_assumption *a, int64_t left, int64_t right, tw_status status) {
  char values[256] = "";
  size_t at = 0;
  for (int32_t i = 0; a->symbols[i] && at < sizeof values; i++)
    at += (size_t)snprintf(values + at, sizeof values - at, "%s%s=%" PRId64, i ? ", " : "", a->symbols[i],
                           f->symbols[a->which[i]]);
  if (a->ones == '!')
    return tw_fail(status, "node '%s': expected a dimension other than %s, got %s (%s)", a->node, a->right, a->left,
                   values);
  return tw_fail(status, "node '%s': expected dimensions that agree, got %s = %" PRId64 " and %s = %" PRId64 " (%s)",
                 a->node, a->left, left, a->right, right, values);
}

tw_status tw_check_sizes(
    tw_frame *f, const tw_assumption *assumptions, const int64_t *left, const int64_t *right, int32_t count) {
  int32_t unfit = -1;
  for (int32_t i = 0; i < count; i++) {
    const tw_assumption *a = &assumptions[i];
    int equal = left[i] == right[i] && left[i] != TW_NO_SIZE;
    int repeated = (a->ones != '=' && right[i] == 1) || (a->ones == '?' && left[i] == 1);
    if (a->ones == '!') repeated = equal, equal = !equal;
    if (equal) continue;
    if (repeated) {
      if (!f->plan->broadcasts) return refuse(f, a, left[i], right[i], TW_BROADCAST);
    } else if (unfit < 0) {
      unfit = i;
    }
  }
  return unfit < 0 ? TW_OK : refuse(f, &assumptions[unfit], left[unfit], right[unfit], TW_INVALID_INPUT);
}

tw_status tw_out_of_range(const char *where, const char *what, int64_t low, int64_t high, int64_t got, int32_t many) {
  return tw_fail(TW_INVALID_INPUT, "%s: expected %s in [%" PRId64 ", %" PRId64 "]%s, got %" PRId64 "%s", where, what, low,
                 high, high < low ? ", which is empty" : "", got, many ? " of them" : "");
}

tw_status tw_require_size(const char *input, int32_t axis, const char *formula, int64_t expected, int64_t got) {
  if (expected == got) return TW_OK;
  return tw_fail(TW_INVALID_INPUT, "input '%s' axis %d: expected %s = %" PRId64 ", got %" PRId64, input, axis, formula,
                 expected, got);
}
