/* What the code of a model and the runtime know of each other. A plan becomes a tw_plan: tables, and the functions that
 * Python's tilewright/deploy/source/plan.py writes. Everything here is private to one artifact. */
#ifndef TILEWRIGHT_INTERNAL_H
#define TILEWRIGHT_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "tilewright.h"

#define TW_MAX_RANK 16
#define TW_LINE 64
#define TW_HOSTED 100 /* statuses between plans: a size of 1 where another was expected */
#define TW_BROADCAST ((tw_status)TW_HOSTED)
#define TW_NO_SIZE INT64_MIN /* a size that divides by 0, or does not fit in 62 bits */

#define TRY(call)                                   \
  do {                                              \
    tw_status status_ = (call);                     \
    if (status_ != TW_OK) return status_;           \
  } while (0)

typedef struct tw_frame tw_frame;

/* Contents of a slot outside the arena: a tensor, or a sequence of `length` items. type: the ONNX number, 0 for a
 * sequence or an optional (length -1: nothing in it). data may be the caller's; memory is what the value owns. */
typedef struct tw_value {
  int32_t type;
  int32_t rank;
  int64_t shape[TW_MAX_RANK];
  void *data;
  void *memory;
  uint64_t capacity;
  struct tw_value *items;
  int64_t length;
  int64_t room;
} tw_value;

/* An attribute of a host operator: integers (also one), floats, or text, by what is not null. type: the ONNX number of
 * the elements of one that is a tensor, else 0. */
typedef struct tw_attribute {
  const char *name;
  const int64_t *integers;
  const double *floats;
  const char *text;
  int64_t count;
  int32_t type;
} tw_attribute;

/* A host operator in native form. where: node and operator, for messages. inputs[i] is null where an optional one is
 * absent, outputs[i] where nobody wants it. */
typedef struct tw_call {
  tw_frame *frame;
  const char *where;
  const tw_attribute *attributes;
  int32_t attribute_count;
  const tw_value *const *inputs;
  int32_t input_count;
  tw_value *const *outputs;
  int32_t output_count;
  int32_t clamps; /* indices out of range: 1 takes the nearest, 0 is an error */
  int32_t sizes;  /* 1: the outputs are the shapes of the operator's results, as vectors */
} tw_call;

/* If, Loop or Scan. captures[k]: what body k reads of the plan around. Rows are what a loop stacks: element type, rank
 * and sizes (0 where they are not known), for a loop of no steps. */
typedef struct tw_control {
  const char *node;
  int32_t first_body, input_count, output_count, scanned, row_count;
  const tw_value *const *inputs;
  tw_value *const *outputs;
  const tw_value *const *captures[2];
  const int64_t *row_types, *row_ranks, *row_sizes, *in_axes, *in_backwards, *out_axes, *out_backwards;
} tw_control;

/* A place of the table with a pointer into the arena, `inside` bytes behind the beginning of a slot, or into the
 * constants. */
#define TW_CONSTANT UINT32_MAX

typedef struct tw_place {
  uint32_t place;
  uint32_t slot; /* TW_CONSTANT: `inside` counts from the beginning of the constants */
  uint64_t inside;
} tw_place;

/* A place with a pointer to a value, which may be elsewhere in each run. inside: which of the frame's distances to add,
 * -1 for none. */
typedef struct tw_patch {
  uint32_t place;
  uint32_t value;
  int32_t inside;
} tw_patch;

/* First and last step that uses a slot of the arena. */
typedef struct tw_life {
  int32_t first, last;
} tw_life;

/* Two sizes that a node takes to be equal. ones: which may be 1 instead: '=' none, '<' the second, '?' either;
 * '!' the two must differ. */
typedef struct tw_assumption {
  const char *node, *left, *right;
  const char *const *symbols; /* names of those that decide, ends with null; and their numbers in the frame */
  const int32_t *which;
  char ones;
} tw_assumption;

typedef struct tw_slot_spec {
  const char *name;
  int32_t type; /* ONNX number */
  int32_t rank; /* -1: unknown */
  const int64_t *shape;
  const char *const *dims;
} tw_slot_spec;

typedef int64_t (*tw_entry)(void **table, int64_t *dims, void *pool, double *times);

typedef struct tw_plan {
  const char *name;
  int32_t input_count, capture_count, output_count, value_count, symbol_count, arena_count, place_count, dim_count;
  int32_t inside_count, body_count, stamp_count;
  int32_t early_count; /* the first symbols: those that are known before the first step */
  const tw_slot_spec *inputs, *outputs;
  const int32_t *output_values;
  const struct tw_plan *const *bodies;
  const char *const *stamps; /* the step that ends at each reading of the clock; null: it begins a call */
  int32_t broadcasts;
  uint64_t arena_bytes; /* where all sizes are fixed */
  tw_status (*run)(tw_frame *frame);
  tw_status (*shapes)(tw_frame *frame); /* sizes alone: fills in the shapes of outputs that follow from them */
} tw_plan;

/* A model's code. */
typedef struct tw_program {
  uint32_t abi;
  int32_t threads;
  uint64_t weights_bytes;
  uint64_t weights_digest[2];
  const unsigned char *weights; /* null: they are in a file beside the library, called weights_name */
  const char *weights_name;
  const char *manifest;
  const char *const *features; /* what the CPU must have; ends with null */
  const tw_plan *plan, *general; /* general: for sizes of 1 where plan expects others; may be null */
  int32_t is_judged_late;        /* only in the middle of a run does `plan` find out about some of them */
} tw_program;

#define TW_ABI 1

/* A file in memory, shared with other processes. */
typedef struct tw_mapping {
  const unsigned char *bytes;
  uint64_t size;
} tw_mapping;

struct tw_model {
  const tw_program *program;
  const unsigned char *weights;
  tw_mapping mapping;
};

/* One plan in the making: its symbols, memory and tables. */
struct tw_frame {
  tw_session *session;
  const tw_plan *plan;
  tw_frame *around;
  tw_frame **bodies;
  int64_t *symbols, *laid_out; /* and those for which the tables stand */
  int32_t is_laid_out;
  tw_value *values;
  void **table;
  int64_t *dims;
  int64_t *offsets, *bytes; /* of the slots in the arena */
  int64_t *inside;          /* bytes behind the beginning of a value at which an argument begins */
  unsigned char *arena;
  uint64_t arena_bytes, arena_needed;
  int32_t is_lent; /* the arena is the caller's */
  tw_tensor *caller_outputs; /* null in a body */
  double *times;
};

struct tw_session {
  const tw_model *model;
  tw_frame *frame, *general;
  void *pool;
  int32_t threads;
  int32_t profile;
  int32_t busy;
  tw_frame *last; /* of the last run */
};

/* -- errors.c */
tw_status tw_fail(tw_status status, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* -- memory.c */
void *tw_allocate(uint64_t bytes); /* a multiple of 64; null when there is none */
void tw_release(void *memory);
tw_status tw_reserve(tw_value *value, uint64_t bytes); /* makes value->data memory of its own */
void tw_clear(tw_value *value);                        /* gives back what it owns */
int64_t tw_item_bytes(int32_t type);
int64_t tw_elements(int32_t rank, const int64_t *shape);
uint64_t tw_value_bytes(const tw_value *value);
tw_status tw_set_shape(tw_value *value, int32_t type, int32_t rank, const int64_t *shape); /* with memory for it */
tw_status tw_extend(tw_value *value, uint64_t bytes); /* makes room for so many more, and keeps what is there */
tw_status tw_set_length(tw_value *value, int64_t length); /* makes it a sequence, of what its items were before */
tw_status tw_copy_value(tw_value *to, const tw_value *from);

/* -- frame.c */
tw_status tw_frame_create(tw_session *session, const tw_plan *plan, tw_frame *around, tw_frame **out);
void tw_frame_free(tw_frame *frame);
tw_status tw_body(tw_frame *frame, int32_t index, tw_frame **out);
int tw_moved(const tw_frame *frame); /* are the symbols others than those it was laid out for? */
void tw_laid_out(tw_frame *frame);
void *tw_constant(const tw_frame *frame, uint64_t offset);
tw_status tw_place_slots(tw_frame *frame, const tw_life *lives, const char *const *names);
tw_status tw_use_places(tw_frame *frame, int64_t arena_bytes, const int64_t *offsets);
void tw_fill(tw_frame *frame, const tw_place *places, int32_t count);
void tw_patch_values(tw_frame *frame, const tw_patch *patches, int32_t count);
tw_status tw_own(tw_frame *frame, int32_t value, int32_t type, const char *name, int32_t rank, const int64_t *shape);
tw_status tw_begin_output(
    tw_frame *frame, int32_t output, int32_t value, int32_t type, int32_t rank, const int64_t *shape);
int tw_is_dense(const tw_tensor *tensor);
tw_status tw_deliver(tw_frame *frame, int32_t output, int32_t value, const tw_value *from);
tw_value tw_view(int32_t type, void *data, int32_t rank, const int64_t *shape);
int64_t tw_enter(
    tw_frame *frame, tw_entry entry, int32_t first_place, int32_t first_dim, int32_t first_stamp, int32_t parallel);
tw_status tw_check_sizes(
    tw_frame *frame, const tw_assumption *assumptions, const int64_t *left, const int64_t *right, int32_t count);
/* many: `got` says how many indices there are, where there is nothing to index */
tw_status tw_out_of_range(const char *where, const char *what, int64_t low, int64_t high, int64_t got, int32_t many);
tw_status tw_require_size(const char *input, int32_t axis, const char *formula, int64_t expected, int64_t got);
tw_status tw_check_dims(const int64_t *dims, int32_t count, const char *plan);
int64_t tw_element(const tw_value *value, int64_t index); /* of integers or booleans */

/* -- control.c */
tw_status tw_if(tw_frame *frame, const tw_control *control);
tw_status tw_loop(tw_frame *frame, const tw_control *control);
tw_status tw_scan(tw_frame *frame, const tw_control *control);
tw_status tw_borrow(tw_value *to, const tw_value *from); /* the same tensor; a sequence is copied */

/* the program that is linked in */
extern const tw_program tw_the_program;

/* -- integers of formulas: floor division and remainder as in Python; a result that is no size is TW_NO_SIZE */
static inline int64_t tw_sum(int64_t a, int64_t b) {
  int64_t r;
  return a == TW_NO_SIZE || b == TW_NO_SIZE || __builtin_add_overflow(a, b, &r) ? TW_NO_SIZE : r;
}
static inline int64_t tw_times(int64_t a, int64_t b) {
  int64_t r;
  return a == TW_NO_SIZE || b == TW_NO_SIZE || __builtin_mul_overflow(a, b, &r) ? TW_NO_SIZE : r;
}
static inline int64_t tw_quotient(int64_t a, int64_t b) {
  if (b == 0 || a == TW_NO_SIZE || b == TW_NO_SIZE) return TW_NO_SIZE;
  int64_t q = a / b;
  return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}
static inline int64_t tw_remainder(int64_t a, int64_t b) {
  if (b == 0 || a == TW_NO_SIZE || b == TW_NO_SIZE) return TW_NO_SIZE;
  int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
static inline int64_t tw_least(int64_t a, int64_t b) {
  return a == TW_NO_SIZE || b == TW_NO_SIZE ? TW_NO_SIZE : a < b ? a : b;
}
static inline int64_t tw_most(int64_t a, int64_t b) {
  return a == TW_NO_SIZE || b == TW_NO_SIZE ? TW_NO_SIZE : a > b ? a : b;
}
static inline int64_t tw_broadcast(int64_t a, int64_t b) { return a != 1 ? a : b; }
/* a factor of a number of bytes: less than nothing is no size */
static inline int64_t tw_room(int64_t bytes, int64_t size) { return size < 0 ? TW_NO_SIZE : tw_times(bytes, size); }

#endif
