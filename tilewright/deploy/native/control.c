/* If, Loop and Scan around plans. Semantics: the ONNX operator specification. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

tw_status tw_borrow(tw_value *to, const tw_value *from) {
  if (from->type == 0) return tw_copy_value(to, from);
  to->type = from->type;
  to->rank = from->rank;
  memcpy(to->shape, from->shape, (size_t)from->rank * sizeof *from->shape);
  to->data = from->data;
  return TW_OK;
}

/* What `from` has, which becomes what `to` had: a result of one step is the input of the next. */
static void trade(tw_value *to, tw_value *from) {
  tw_value kept = *to;
  *to = *from;
  *from = kept;
}

static tw_status one_element(const char *node, const char *what, const tw_value *v, int64_t *out) {
  if (v->type == 0 || tw_elements(v->rank, v->shape) != 1)
    return tw_fail(TW_INVALID_INPUT, "node '%s': expected a %s of one element", node, what);
  *out = tw_element(v, 0);
  return TW_OK;
}

static tw_status start_body(tw_frame *f, const tw_control *c, int32_t which, tw_frame **out) {
  TRY(tw_body(f, c->first_body + which, out));
  const tw_plan *plan = (*out)->plan;
  for (int32_t i = 0; i < plan->capture_count; i++)
    TRY(tw_borrow(&(*out)->values[plan->input_count + i], c->captures[which][i]));
  return TW_OK;
}

tw_status tw_if(tw_frame *f, const tw_control *c) {
  int64_t yes = 0;
  tw_frame *b;
  TRY(one_element(c->node, "condition", c->inputs[0], &yes));
  TRY(start_body(f, c, yes ? 0 : 1, &b));
  TRY(b->plan->run(b));
  for (int32_t i = 0; i < c->output_count; i++)
    if (c->outputs[i]) trade(c->outputs[i], &b->values[b->plan->output_values[i]]);
  return TW_OK;
}

/* -- rows that a loop stacks */
static int64_t product(const int64_t *shape, int32_t from, int32_t to) {
  int64_t n = 1;
  for (int32_t i = from; i < to; i++) n *= shape[i];
  return n;
}

/* `out` gets room for `rows` rows like `row` along an axis, which is -1 .. rank of the row */
static tw_status begin_stack(tw_value *out, int32_t type, int32_t rank, const int64_t *shape, int64_t axis, int64_t rows) {
  int64_t whole[TW_MAX_RANK + 1];
  if (rank + 1 > TW_MAX_RANK) return tw_fail(TW_INVALID_INPUT, "expected at most %d dimensions", TW_MAX_RANK);
  if (axis < 0) axis += rank + 1;
  for (int32_t i = 0, k = 0; i <= rank; i++) whole[i] = i == axis ? rows : shape[k++];
  return tw_set_shape(out, type, rank + 1, whole);
}

/* copies between row `at` along an axis of a tensor and a dense row */
static void move_row(unsigned char *tensor, const int64_t *shape, int32_t rank, int64_t axis, int64_t at, int64_t item,
                     unsigned char *row, int into_tensor) {
  if (axis < 0) axis += rank;
  int64_t outer = product(shape, 0, (int32_t)axis), inner = product(shape, (int32_t)axis + 1, rank) * item;
  for (int64_t i = 0; i < outer && inner; i++) {
    unsigned char *place = tensor + (i * shape[axis] + at) * inner;
    memcpy(into_tensor ? place : row + i * inner, into_tensor ? row + i * inner : place, (size_t)inner);
  }
}

static tw_status same_row(const char *node, const tw_value *stack, int64_t axis, const tw_value *row) {
  int same = stack->rank == row->rank + 1 && stack->type == row->type;
  if (axis < 0) axis += stack->rank;
  for (int32_t i = 0, k = 0; same && i < stack->rank; i++)
    if (i != axis) same = stack->shape[i] == row->shape[k++];
  if (!same) return tw_fail(TW_INVALID_INPUT, "node '%s': expected rows of one shape, got others", node);
  return TW_OK;
}

/* stacks of no rows, whose sizes are those that a step would give, as far as they follow from its inputs' */
static tw_status empty_stacks(tw_frame *b, const tw_control *c, int32_t first) {
  const int64_t *shape = c->row_sizes;
  int is_known = b->plan->shapes(b) == TW_OK;
  for (int32_t k = 0; k < c->row_count; k++) {
    const tw_value *row = &b->values[b->plan->output_values[b->plan->output_count - c->row_count + k]];
    int64_t axis = c->out_axes ? c->out_axes[k] : 0;
    int is_row = is_known && row->rank == c->row_ranks[k];
    if (c->outputs[first + k])
      TRY(begin_stack(c->outputs[first + k], (int32_t)c->row_types[k], (int32_t)c->row_ranks[k],
                      is_row ? row->shape : shape, axis, 0));
    shape += c->row_ranks[k];
  }
  return TW_OK;
}

/* the state as the inputs of a body from `first` on */
static tw_status give_state(tw_frame *b, const tw_value *state, int32_t count, int32_t first) {
  for (int32_t k = 0; k < count; k++) TRY(tw_borrow(&b->values[first + k], &state[k]));
  return TW_OK;
}

tw_status tw_loop(tw_frame *f, const tw_control *c) {
  int64_t trips = INT64_MAX, go = 1, i = 0;
  int32_t n = c->input_count - 2;
  tw_frame *b;
  if (c->inputs[0]) TRY(one_element(c->node, "trip count", c->inputs[0], &trips));
  if (c->inputs[1]) TRY(one_element(c->node, "condition", c->inputs[1], &go));
  TRY(start_body(f, c, 0, &b));
  const int32_t *results = b->plan->output_values;
  tw_value *state = calloc((size_t)n + 1, sizeof *state);
  if (state == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for node '%s'", c->node);
  tw_status status = TW_OK;
  for (int32_t k = 0; k < n && status == TW_OK; k++) status = tw_copy_value(&state[k], c->inputs[k + 2]);
  for (; status == TW_OK && go && i < trips; i++) {
    unsigned char flag = 1;
    b->values[0] = (tw_value){.type = 7, .data = &i};
    b->values[1] = (tw_value){.type = 9, .data = &flag};
    status = give_state(b, state, n, 2);
    if (status == TW_OK) status = b->plan->run(b);
    if (status == TW_OK) status = one_element(c->node, "condition", &b->values[results[0]], &go);
    for (int32_t k = 0; k < n && status == TW_OK; k++) trade(&state[k], &b->values[results[k + 1]]);
    for (int32_t k = 0; k < c->row_count && status == TW_OK; k++) {
      tw_value *row = &b->values[results[n + 1 + k]], *out = c->outputs[n + k];
      if (out == NULL) continue;
      if (i == 0) {
        status = begin_stack(out, row->type, row->rank, row->shape, 0, 0);
      } else {
        status = same_row(c->node, out, 0, row);
      }
      if (status != TW_OK) break;
      uint64_t bytes = tw_value_bytes(row);
      status = tw_extend(out, bytes);
      if (status != TW_OK) break;
      if (bytes) memcpy((unsigned char *)out->data + (uint64_t)i * bytes, row->data, (size_t)bytes);
      out->shape[0] = i + 1;
    }
  }
  if (status == TW_OK && i == 0) status = give_state(b, state, n, 2);
  if (status == TW_OK && i == 0) status = empty_stacks(b, c, n);
  for (int32_t k = 0; k < n; k++) {
    if (status == TW_OK && c->outputs[k]) trade(c->outputs[k], &state[k]);
    tw_clear(&state[k]);
  }
  free(state);
  return status;
}

tw_status tw_scan(tw_frame *f, const tw_control *c) {
  int32_t scanned = c->scanned, n = c->input_count - scanned;
  const tw_value *const *xs = c->inputs + n;
  int64_t first_axis = c->in_axes[0] < 0 ? c->in_axes[0] + xs[0]->rank : c->in_axes[0];
  int64_t length = xs[0]->shape[first_axis];
  tw_frame *b;
  TRY(start_body(f, c, 0, &b));
  const int32_t *results = b->plan->output_values;
  tw_value *state = calloc((size_t)(n + scanned) + 1, sizeof *state), *rows = state + n;
  if (state == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for node '%s'", c->node);
  tw_status status = TW_OK;
  for (int32_t k = 0; k < n && status == TW_OK; k++) status = tw_copy_value(&state[k], c->inputs[k]);
  for (int32_t k = 0; k < scanned && status == TW_OK; k++) {
    int64_t axis = c->in_axes[k] < 0 ? c->in_axes[k] + xs[k]->rank : c->in_axes[k];
    int64_t shape[TW_MAX_RANK];
    if (xs[k]->shape[axis] != length)
      status = tw_fail(TW_INVALID_INPUT, "node '%s': expected scan inputs of one length", c->node);
    for (int32_t i = 0, at = 0; i < xs[k]->rank; i++)
      if (i != axis) shape[at++] = xs[k]->shape[i];
    if (status == TW_OK) status = tw_set_shape(&rows[k], xs[k]->type, xs[k]->rank - 1, shape);
  }
  for (int64_t t = 0; t < length && status == TW_OK; t++) {
    for (int32_t k = 0; k < scanned; k++) {
      int64_t at = c->in_backwards[k] ? length - 1 - t : t;
      move_row(xs[k]->data, xs[k]->shape, xs[k]->rank, c->in_axes[k], at, tw_item_bytes(xs[k]->type), rows[k].data, 0);
    }
    status = give_state(b, state, n + scanned, 0);
    if (status == TW_OK) status = b->plan->run(b);
    for (int32_t k = 0; k < n && status == TW_OK; k++) trade(&state[k], &b->values[results[k]]);
    for (int32_t k = 0; k < c->row_count && status == TW_OK; k++) {
      tw_value *row = &b->values[results[n + k]], *out = c->outputs[n + k];
      if (out == NULL) continue;
      int64_t axis = c->out_axes[k] < 0 ? c->out_axes[k] + row->rank + 1 : c->out_axes[k];
      if (t == 0) status = begin_stack(out, row->type, row->rank, row->shape, axis, length);
      if (status == TW_OK) status = same_row(c->node, out, axis, row);
      if (status != TW_OK) break;
      int64_t at = c->out_backwards[k] ? length - 1 - t : t;
      move_row(out->data, out->shape, out->rank, axis, at, tw_item_bytes(row->type), row->data, 1);
    }
  }
  if (status == TW_OK && length == 0) status = give_state(b, state, n + scanned, 0);
  if (status == TW_OK && length == 0) status = empty_stacks(b, c, n);
  for (int32_t k = 0; k < n + scanned; k++) {
    if (status == TW_OK && k < n && c->outputs[k]) trade(c->outputs[k], &state[k]);
    tw_clear(&state[k]);
  }
  free(state);
  return status;
}
