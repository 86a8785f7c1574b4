/* Arithmetic on small tensors: what sizes are worked out with where no formula holds them. Floats below 64 bits are
 * computed in float32 and rounded to their type at the end, integers wrap. */
#include "host.h"

/* the result of a step in the type it is computed in */
static double stepped(int32_t type, double x) { return type == 11 ? x : (double)(float)x; }

/* operands side by side under the shape of the result; those that are repeated are copied to `rooms` */
static tw_status side_by_side(const tw_call *c, int32_t count, int32_t *rank, int64_t *shape, tw_value *rooms) {
  const tw_value **given = malloc((size_t)count * sizeof *given + 1);
  if (given == NULL) return tw_no_memory(c);
  tw_status status = TW_OK;
  for (int32_t k = 0; status == TW_OK && k < count; k++) status = tw_operand(c, k, &given[k]);
  if (status == TW_OK) status = tw_common_shape(c, given, count, rank, shape);
  for (int32_t k = 0; status == TW_OK && k < count; k++) {
    int64_t to[TW_MAX_RANK], from[TW_MAX_RANK], item = tw_item_bytes(given[k]->type);
    if (tw_elements(given[k]->rank, given[k]->shape) == tw_elements(*rank, shape)) {
      status = tw_borrow(&rooms[k], given[k]);
      continue;
    }
    status = tw_sized(tw_set_shape(&rooms[k], given[k]->type, *rank, shape), c);
    if (status != TW_OK) break;
    tw_dense(*rank, shape, item, to);
    tw_repeated(given[k], *rank, from);
    tw_move(*rank, shape, item, rooms[k].data, to, given[k]->data, from);
  }
  free(given);
  return status;
}

static void release(tw_value *rooms, int32_t count) {
  for (int32_t k = 0; rooms && k < count; k++) tw_clear(&rooms[k]);
  free(rooms);
}

/* -- one operand after the other is combined with what there is */
typedef struct rule {
  double (*real)(double a, double b);
  uint64_t (*whole)(uint64_t a, uint64_t b, int is_signed);
  int compares; /* the result is a boolean */
} rule;

static tw_status combine(const tw_call *c, rule r) {
  int32_t rank, count = c->input_count;
  int64_t shape[TW_MAX_RANK];
  unsigned char *out = NULL;
  tw_value *v = calloc((size_t)count + 1, sizeof *v);
  tw_status status = v ? side_by_side(c, count, &rank, shape, v) : tw_no_memory(c);
  int32_t type = status == TW_OK ? v[0].type : 0;
  int is_real = tw_kind(type) == 'f', is_signed = tw_kind(type) == 'i';
  for (int32_t k = 0; status == TW_OK && k < count; k++)
    if (v[k].type != type) status = tw_refuse(c, "expected operands of one type, got %d and %d", type, v[k].type);
  if (status == TW_OK) status = tw_result(c, 0, r.compares ? 9 : type, rank, shape, &out);
  for (int64_t i = 0; out && i < tw_elements(rank, shape); i++) {
    double real = is_real ? tw_real(&v[0], i) : 0;
    uint64_t whole = is_real ? 0 : (uint64_t)tw_element(&v[0], i);
    for (int32_t k = 1; k < count; k++) {
      if (is_real)
        real = r.real(real, tw_real(&v[k], i));
      else
        whole = r.whole(whole, (uint64_t)tw_element(&v[k], i), is_signed);
      if (is_real && !r.compares) real = stepped(type, real);
    }
    if (r.compares)
      out[i] = is_real ? real != 0 : whole != 0;
    else if (is_real)
      tw_put_real(type, out, i, real);
    else
      tw_put_integer(type, out, i, (int64_t)whole);
  }
  release(v, count);
  return status;
}

static int less(uint64_t a, uint64_t b, int is_signed) { return is_signed ? (int64_t)a < (int64_t)b : a < b; }

static double add_real(double a, double b) { return a + b; }
static double subtract_real(double a, double b) { return a - b; }
static double multiply_real(double a, double b) { return a * b; }
static double divide_real(double a, double b) { return a / b; }
static double least_real(double a, double b) { return a != a || a < b ? a : b; }
static double most_real(double a, double b) { return a != a || a > b ? a : b; }
static double equal_real(double a, double b) { return a == b; }
static double less_real(double a, double b) { return a < b; }
static double greater_real(double a, double b) { return a > b; }
static double at_most_real(double a, double b) { return a <= b; }
static double at_least_real(double a, double b) { return a >= b; }
static double remainder_real(double a, double b) { return fmod(a, b); }
/* with the sign of b */
static double modulo_real(double a, double b) {
  double rest = fmod(a, b);
  if (b == 0 || rest != rest) return rest;
  if (rest == 0) return copysign(0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

static uint64_t add_whole(uint64_t a, uint64_t b, int s) { return (void)s, a + b; }
static uint64_t subtract_whole(uint64_t a, uint64_t b, int s) { return (void)s, a - b; }
static uint64_t multiply_whole(uint64_t a, uint64_t b, int s) { return (void)s, a * b; }
/* towards 0; by 0 it is 0 */
static uint64_t divide_whole(uint64_t a, uint64_t b, int s) {
  if (b == 0) return 0;
  if (!s) return a / b;
  return (int64_t)b == -1 ? 0 - a : (uint64_t)((int64_t)a / (int64_t)b);
}
static uint64_t remainder_whole(uint64_t a, uint64_t b, int s) {
  if (b == 0 || (s && (int64_t)b == -1)) return 0;
  return s ? (uint64_t)((int64_t)a % (int64_t)b) : a % b;
}
static uint64_t modulo_whole(uint64_t a, uint64_t b, int s) {
  uint64_t rest = remainder_whole(a, b, s);
  return s && rest && ((int64_t)rest < 0) != ((int64_t)b < 0) ? rest + b : rest;
}
static uint64_t least_whole(uint64_t a, uint64_t b, int s) { return less(b, a, s) ? b : a; }
static uint64_t most_whole(uint64_t a, uint64_t b, int s) { return less(a, b, s) ? b : a; }
static uint64_t equal_whole(uint64_t a, uint64_t b, int s) { return (void)s, a == b; }
static uint64_t less_whole(uint64_t a, uint64_t b, int s) { return (uint64_t)less(a, b, s); }
static uint64_t greater_whole(uint64_t a, uint64_t b, int s) { return (uint64_t)less(b, a, s); }
static uint64_t at_most_whole(uint64_t a, uint64_t b, int s) { return (uint64_t)!less(b, a, s); }
static uint64_t at_least_whole(uint64_t a, uint64_t b, int s) { return (uint64_t)!less(a, b, s); }
static uint64_t and_whole(uint64_t a, uint64_t b, int s) { return (void)s, a && b; }
static uint64_t or_whole(uint64_t a, uint64_t b, int s) { return (void)s, a || b; }

tw_status tw_host_add(const tw_call *c) { return combine(c, (rule){add_real, add_whole, 0}); }
tw_status tw_host_sub(const tw_call *c) { return combine(c, (rule){subtract_real, subtract_whole, 0}); }
tw_status tw_host_mul(const tw_call *c) { return combine(c, (rule){multiply_real, multiply_whole, 0}); }
tw_status tw_host_div(const tw_call *c) { return combine(c, (rule){divide_real, divide_whole, 0}); }
tw_status tw_host_min(const tw_call *c) { return combine(c, (rule){least_real, least_whole, 0}); }
tw_status tw_host_max(const tw_call *c) { return combine(c, (rule){most_real, most_whole, 0}); }
tw_status tw_host_equal(const tw_call *c) { return combine(c, (rule){equal_real, equal_whole, 1}); }
tw_status tw_host_less(const tw_call *c) { return combine(c, (rule){less_real, less_whole, 1}); }
tw_status tw_host_greater(const tw_call *c) { return combine(c, (rule){greater_real, greater_whole, 1}); }
tw_status tw_host_less_or_equal(const tw_call *c) { return combine(c, (rule){at_most_real, at_most_whole, 1}); }
tw_status tw_host_greater_or_equal(const tw_call *c) { return combine(c, (rule){at_least_real, at_least_whole, 1}); }
tw_status tw_host_and(const tw_call *c) { return combine(c, (rule){NULL, and_whole, 1}); }
tw_status tw_host_or(const tw_call *c) { return combine(c, (rule){NULL, or_whole, 1}); }
tw_status tw_host_mod(const tw_call *c) {
  if (tw_option(c, "fmod", 0)) return combine(c, (rule){remainder_real, remainder_whole, 0});
  return combine(c, (rule){modulo_real, modulo_whole, 0});
}

/* In the type of the base. Powers of integers wrap, and those to negative numbers are cut off. */
static uint64_t whole_power(uint64_t base, int64_t exponent, int is_signed) {
  uint64_t out = 1;
  if (is_signed && exponent < 0) {
    if (base != 1 && base + 1 != 0) return 0;
    exponent &= 1;
  }
  for (uint64_t left = (uint64_t)exponent; left; left >>= 1, base *= base)
    if (left & 1) out *= base;
  return out;
}

tw_status tw_host_pow(const tw_call *c) {
  int32_t rank;
  int64_t shape[TW_MAX_RANK];
  unsigned char *out = NULL;
  tw_value *v = calloc(2, sizeof *v);
  tw_status status = v ? side_by_side(c, 2, &rank, shape, v) : tw_no_memory(c);
  if (status == TW_OK) status = tw_result(c, 0, v[0].type, rank, shape, &out);
  for (int64_t i = 0; out && i < tw_elements(rank, shape); i++) {
    char kind = tw_kind(v[0].type);
    if (kind == 'f' || tw_kind(v[1].type) == 'f')
      tw_put_real(v[0].type, out, i, pow(tw_real(&v[0], i), tw_real(&v[1], i)));
    else
      tw_put_integer(v[0].type, out, i,
                     (int64_t)whole_power((uint64_t)tw_element(&v[0], i), tw_element(&v[1], i), kind == 'i'));
  }
  release(v, 2);
  return status;
}

/* -- each element by itself */
static tw_status map(const tw_call *c, double (*real)(double), uint64_t (*whole)(uint64_t, int)) {
  const tw_value *x;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  char kind = tw_kind(x->type);
  if (kind == 'f' ? real == NULL : whole == NULL) return tw_refuse(c, "expected elements of another type than %d", x->type);
  TRY(tw_result(c, 0, x->type, x->rank, x->shape, &out));
  for (int64_t i = 0; out && i < tw_elements(x->rank, x->shape); i++) {
    if (kind == 'f')
      tw_put_real(x->type, out, i, stepped(x->type, real(tw_real(x, i))));
    else
      tw_put_integer(x->type, out, i, (int64_t)whole((uint64_t)tw_element(x, i), kind == 'i'));
  }
  return TW_OK;
}

static double negative_real(double x) { return -x; }
static double inverse_real(double x) { return 1 / x; }
static double sign_real(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static uint64_t negative_whole(uint64_t x, int s) { return (void)s, 0 - x; }
static uint64_t magnitude_whole(uint64_t x, int s) { return s && (int64_t)x < 0 ? 0 - x : x; }
static uint64_t sign_whole(uint64_t x, int s) { return x == 0 ? 0 : s && (int64_t)x < 0 ? UINT64_MAX : 1; }
static uint64_t not_whole(uint64_t x, int s) { return (void)s, !x; }

tw_status tw_host_neg(const tw_call *c) { return map(c, negative_real, negative_whole); }
tw_status tw_host_abs(const tw_call *c) { return map(c, fabs, magnitude_whole); }
tw_status tw_host_sign(const tw_call *c) { return map(c, sign_real, sign_whole); }
tw_status tw_host_not(const tw_call *c) { return map(c, NULL, not_whole); }
tw_status tw_host_floor(const tw_call *c) { return map(c, floor, NULL); }
tw_status tw_host_ceil(const tw_call *c) { return map(c, ceil, NULL); }
tw_status tw_host_round(const tw_call *c) { return map(c, nearbyint, NULL); }
tw_status tw_host_sqrt(const tw_call *c) { return map(c, sqrt, NULL); }
tw_status tw_host_reciprocal(const tw_call *c) { return map(c, inverse_real, NULL); }
tw_status tw_host_exp(const tw_call *c) { return map(c, exp, NULL); }
tw_status tw_host_log(const tw_call *c) { return map(c, log, NULL); }

/* a bound that is NaN bounds nothing */
tw_status tw_host_clip(const tw_call *c) {
  const tw_value *x, *bounds[2] = {tw_given(c, 1), tw_given(c, 2)};
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  char kind = tw_kind(x->type);
  for (int k = 0; k < 2; k++)
    if (bounds[k] && (bounds[k]->type != x->type || tw_elements(bounds[k]->rank, bounds[k]->shape) != 1))
      return tw_refuse(c, "expected one number of the same type as each bound");
  TRY(tw_give(c, 0, x));
  if (tw_wanted(c, 0) == NULL) return TW_OK;
  out = tw_wanted(c, 0)->data;
  int64_t item = tw_item_bytes(x->type);
  for (int64_t i = 0; i < tw_elements(x->rank, x->shape); i++) {
    tw_value now = {.type = x->type, .data = out + i * item};
    for (int k = 0; k < 2; k++) {
      if (bounds[k] == NULL) continue;
      const tw_value *a = k ? bounds[k] : &now, *b = k ? &now : bounds[k];
      int is_beyond = kind == 'f' ? tw_real(a, 0) < tw_real(b, 0)
                                  : less((uint64_t)tw_element(a, 0), (uint64_t)tw_element(b, 0), kind == 'i');
      if (is_beyond) memcpy(now.data, bounds[k]->data, (size_t)item);
    }
  }
  return TW_OK;
}
