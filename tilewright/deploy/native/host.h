/* Operators that are no kernels, in native form (host_*.c), and what they share (host.c). Each gives what the step gives
 * in Python, in shape, element type and bytes. A failure is TW_INVALID_INPUT with a message that begins with the node. */
#ifndef TILEWRIGHT_HOST_H
#define TILEWRIGHT_HOST_H

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"

/* -- attributes; one without elements counts as absent */
const tw_attribute *tw_attribute_of(const tw_call *c, const char *name);
int64_t tw_option(const tw_call *c, const char *name, int64_t otherwise);
double tw_real_option(const tw_call *c, const char *name, double otherwise);
int tw_says(const tw_call *c, const char *name, const char *text);

/* -- operands and results */
const tw_value *tw_given(const tw_call *c, int32_t index);                         /* null: absent */
tw_status tw_operand(const tw_call *c, int32_t index, const tw_value **out);       /* a tensor, which must be there */
tw_status tw_integers(const tw_call *c, int32_t index, const tw_value **out);      /* the same, of integers */
tw_status tw_one_integer(const tw_call *c, int32_t index, int64_t *out);           /* its first element */
tw_status tw_axis_of(const tw_call *c, int64_t axis, int32_t rank, int32_t *out);  /* negative ones count from the end */
tw_value *tw_wanted(const tw_call *c, int32_t index);                              /* null: nobody wants it */
/* memory for a result; data is null if nobody wants it */
tw_status tw_result(
    const tw_call *c, int32_t index, int32_t type, int32_t rank, const int64_t *shape, unsigned char **data);
tw_status tw_give(const tw_call *c, int32_t index, const tw_value *value); /* a copy of it */
tw_status tw_sized(tw_status status, const tw_call *c);                    /* names the node in a failure */
tw_status tw_no_memory(const tw_call *c);
/* Are the integers of an operand in low .. high? In the places `column`, column + step, ... `what`: for the message.
 * Others are an error, unless they are to be clamped and can be: then tw_clamped must be asked for each. */
tw_status tw_check_indices(const tw_call *c, const tw_value *v, int64_t column, int64_t step, int64_t low, int64_t high,
                           const char *what, int clamps);
static inline int64_t tw_clamped(int64_t index, int64_t low, int64_t high) {
  return index < low ? low : index > high ? high : index;
}

/* -- elements: what kind a type is ('f' float, 'i' signed, 'u' unsigned, 'b' boolean, 'c' complex) and their values */
char tw_kind(int32_t type);
double tw_real(const tw_value *v, int64_t index);
void tw_put_real(int32_t type, void *data, int64_t index, double value); /* rounds to floats; cuts off for integers */
void tw_put_integer(int32_t type, void *data, int64_t index, int64_t value);

/* -- boxes of elements: bytes from one to the next along each axis; 0 repeats, a negative one goes backwards */
void tw_dense(int32_t rank, const int64_t *shape, int64_t item, int64_t *steps);
void tw_move(int32_t rank, const int64_t *shape, int64_t item, unsigned char *to, const int64_t *to_steps,
             const unsigned char *from, const int64_t *from_steps);
void tw_fill_with(unsigned char *to, int64_t count, int64_t item, const unsigned char *element);
/* Shape of what several tensors broadcast to */
tw_status tw_common_shape(const tw_call *c, const tw_value *const *values, int32_t count, int32_t *rank, int64_t *shape);
/* Steps through a tensor that is repeated to a shape of at least its rank */
void tw_repeated(const tw_value *v, int32_t rank, int64_t *steps);
/* first place and count of a Slice along an axis of `size` */
tw_status tw_slice_range(const tw_call *c, int64_t size, int64_t start, int64_t end, int64_t step, int64_t *first,
                         int64_t *count);
/* for each axis of the first operand; the other operands are those of Slice */
tw_status tw_slice_ranges(const tw_call *c, const tw_value *x, int64_t *firsts, int64_t *counts, int64_t *steps);

/* -- sizes */
tw_status tw_give_sizes(const tw_call *c, int32_t index, const int64_t *sizes, int64_t count);
/* an operand of integers that are sizes or axes: at most as many as there are dimensions */
tw_status tw_few_integers(const tw_call *c, int32_t index, const tw_value **v, int32_t *count);
/* those of the first `rank` bits that an operand names */
tw_status tw_axes(const tw_call *c, int32_t index, int32_t rank, uint32_t *out);

/* -- pieces along an axis (host_moves.c); is_new: an axis that they do not have */
tw_status tw_concatenate(const tw_call *c, const tw_value *const *parts, int64_t count, int64_t axis, int is_new);
tw_status tw_take_part(const tw_call *c, const tw_value *x, int32_t axis, int64_t from, int64_t count, tw_value *out);
tw_status tw_require_parts(const tw_call *c, const tw_value *sizes, int64_t length);

/* -- failures: TW_INVALID_INPUT, and the message begins with the node */
tw_status tw_refuse(const tw_call *c, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;

/* -- the operators */
tw_status tw_host_identity(const tw_call *c);
tw_status tw_host_shape(const tw_call *c);
tw_status tw_host_size(const tw_call *c);
tw_status tw_host_reshape(const tw_call *c);
tw_status tw_host_flatten(const tw_call *c);
tw_status tw_host_squeeze(const tw_call *c);
tw_status tw_host_unsqueeze(const tw_call *c);
tw_status tw_host_expand(const tw_call *c);
tw_status tw_host_tile(const tw_call *c);
tw_status tw_host_pad(const tw_call *c);
tw_status tw_host_slice(const tw_call *c);
tw_status tw_host_transpose(const tw_call *c);
tw_status tw_host_concat(const tw_call *c);
tw_status tw_host_split(const tw_call *c);
tw_status tw_host_range(const tw_call *c);
tw_status tw_host_constant_of_shape(const tw_call *c);
tw_status tw_host_one_hot(const tw_call *c);
tw_status tw_host_resize(const tw_call *c);
tw_status tw_host_center_crop_pad(const tw_call *c);
tw_status tw_host_affine_grid(const tw_call *c);
tw_status tw_host_window(const tw_call *c);
tw_status tw_host_reduced_sizes(const tw_call *c);
tw_status tw_host_reduce_sum(const tw_call *c);
tw_status tw_host_reduce_mean(const tw_call *c);
tw_status tw_host_reduce_prod(const tw_call *c);
tw_status tw_host_reduce_min(const tw_call *c);
tw_status tw_host_reduce_max(const tw_call *c);
tw_status tw_host_non_zero(const tw_call *c);
tw_status tw_host_compress(const tw_call *c);
tw_status tw_host_gather(const tw_call *c);
tw_status tw_host_gather_elements(const tw_call *c);
tw_status tw_host_gather_nd(const tw_call *c);
tw_status tw_host_top_k(const tw_call *c);
tw_status tw_host_unique(const tw_call *c);
tw_status tw_host_non_max_suppression(const tw_call *c);
tw_status tw_host_sequence_empty(const tw_call *c);
tw_status tw_host_sequence_construct(const tw_call *c);
tw_status tw_host_sequence_at(const tw_call *c);
tw_status tw_host_sequence_insert(const tw_call *c);
tw_status tw_host_sequence_erase(const tw_call *c);
tw_status tw_host_sequence_length(const tw_call *c);
tw_status tw_host_concat_from_sequence(const tw_call *c);
tw_status tw_host_split_to_sequence(const tw_call *c);
tw_status tw_host_optional_get_element(const tw_call *c);
tw_status tw_host_optional_has_element(const tw_call *c);
tw_status tw_host_add(const tw_call *c);
tw_status tw_host_sub(const tw_call *c);
tw_status tw_host_mul(const tw_call *c);
tw_status tw_host_div(const tw_call *c);
tw_status tw_host_min(const tw_call *c);
tw_status tw_host_max(const tw_call *c);
tw_status tw_host_equal(const tw_call *c);
tw_status tw_host_less(const tw_call *c);
tw_status tw_host_greater(const tw_call *c);
tw_status tw_host_less_or_equal(const tw_call *c);
tw_status tw_host_greater_or_equal(const tw_call *c);
tw_status tw_host_and(const tw_call *c);
tw_status tw_host_or(const tw_call *c);
tw_status tw_host_mod(const tw_call *c);
tw_status tw_host_pow(const tw_call *c);
tw_status tw_host_neg(const tw_call *c);
tw_status tw_host_abs(const tw_call *c);
tw_status tw_host_sign(const tw_call *c);
tw_status tw_host_not(const tw_call *c);
tw_status tw_host_floor(const tw_call *c);
tw_status tw_host_ceil(const tw_call *c);
tw_status tw_host_round(const tw_call *c);
tw_status tw_host_sqrt(const tw_call *c);
tw_status tw_host_reciprocal(const tw_call *c);
tw_status tw_host_exp(const tw_call *c);
tw_status tw_host_log(const tw_call *c);
tw_status tw_host_clip(const tw_call *c);
tw_status tw_host_cast(const tw_call *c);
tw_status tw_host_cast_like(const tw_call *c);
tw_status tw_host_where(const tw_call *c);

#endif
