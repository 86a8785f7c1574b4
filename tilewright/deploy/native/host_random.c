/* Random numbers. With a seed they are those of numpy's RandomState: the Mersenne Twister of Matsumoto and Nishimura
 * (1998), the polar method for normal ones. Without, they differ from run to run. */
#include <time.h>

#include "host.h"

#define WORDS 624

typedef struct twister {
  uint32_t words[WORDS];
  int at, has_spare;
  double spare; /* normal numbers come in pairs */
} twister;

static void start(const tw_call *c, twister *t) {
  const tw_attribute *given = tw_attribute_of(c, "seed");
  uint64_t seed;
  if (given && tw_real_option(c, "seed", 0) >= 0) {
    seed = (uint64_t)tw_real_option(c, "seed", 0);
  } else {
    struct timespec now = {0, 0};
    timespec_get(&now, TIME_UTC);
    seed = (uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec + (uint64_t)(uintptr_t)c->outputs[0];
    seed = (seed ^ seed >> 33) * UINT64_C(0xff51afd7ed558ccd);
    seed ^= seed >> 33;
  }
  uint32_t word = (uint32_t)seed;
  for (uint32_t i = 0; i < WORDS; i++) {
    t->words[i] = word;
    word = 1812433253u * (word ^ word >> 30) + i + 1;
  }
  t->at = WORDS;
  t->has_spare = 0;
}

static uint32_t next_word(twister *t) {
  uint32_t *w = t->words;
  if (t->at == WORDS) {
    for (int i = 0; i < WORDS; i++) {
      uint32_t y = (w[i] & 0x80000000u) | (w[(i + 1) % WORDS] & 0x7fffffffu);
      w[i] = w[(i + 397) % WORDS] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
    }
    t->at = 0;
  }
  uint32_t y = w[t->at++];
  y ^= y >> 11;
  y ^= y << 7 & 0x9d2c5680u;
  y ^= y << 15 & 0xefc60000u;
  return y ^ y >> 18;
}

/* 0 .. 1, without 1, in steps of 2^-53 */
static double uniform(twister *t) {
  uint32_t high = next_word(t) >> 5, low = next_word(t) >> 6;
  return (high * 67108864.0 + low) / 9007199254740992.0;
}

static double normal(twister *t) {
  double x, y, square;
  if (t->has_spare) {
    t->has_spare = 0;
    return t->spare;
  }
  do {
    x = 2.0 * uniform(t) - 1.0;
    y = 2.0 * uniform(t) - 1.0;
    square = x * x + y * y;
  } while (square >= 1.0 || square == 0.0);
  double f = sqrt(-2.0 * log(square) / square);
  t->spare = f * x;
  t->has_spare = 1;
  return f * y;
}

/* a binomial number of one trial, by inversion */
static int trial(twister *t, double p) {
  double q = 1.0 - p, none = exp(log1p(-p));
  for (;;) {
    double u = uniform(t);
    if (!(u > none)) return 0;
    u -= none;
    if (!(u > p * none / q)) return 1;
  }
}

/* 1 with a chance of p */
static int chance(twister *t, double p) { return p > 0.5 ? !trial(t, 1.0 - p) : trial(t, p); }

/* each number in the element type: of 0 .. 1, then spread and moved */
static tw_status generate(const tw_call *c, double (*next)(twister *), int like, double spread, double first) {
  const tw_attribute *listed = tw_attribute_of(c, "shape");
  int64_t shape[TW_MAX_RANK];
  int32_t type = 1, rank = listed ? (int32_t)listed->count : 0;
  unsigned char *out;
  if (like) {
    const tw_value *x;
    TRY(tw_operand(c, 0, &x));
    type = x->type;
    rank = x->rank;
    memcpy(shape, x->shape, sizeof shape);
  } else {
    if (rank > TW_MAX_RANK) return tw_refuse(c, "expected at most %d dimensions, got %d", TW_MAX_RANK, rank);
    for (int32_t i = 0; i < rank; i++) shape[i] = listed->integers[i];
  }
  type = (int32_t)tw_option(c, "dtype", type);
  TRY(tw_result(c, 0, type, rank, shape, &out));
  twister t;
  if (out) start(c, &t);
  for (int64_t i = 0; out && i < tw_elements(rank, shape); i++) {
    double x = next(&t);
    if (type != 11) x = (double)(float)((double)(float)x * (double)(float)spread);
    else x *= spread;
    tw_put_real(type, out, i, type == 11 ? x + first : (double)(float)(x + (double)(float)first));
  }
  return TW_OK;
}

static tw_status generate_uniform(const tw_call *c, int like) {
  double low = tw_real_option(c, "low", 0), high = tw_real_option(c, "high", 1);
  return generate(c, uniform, like, high - low, low);
}

static tw_status generate_normal(const tw_call *c, int like) {
  return generate(c, normal, like, tw_real_option(c, "scale", 1), tw_real_option(c, "mean", 0));
}

tw_status tw_host_random_uniform(const tw_call *c) { return generate_uniform(c, 0); }
tw_status tw_host_random_uniform_like(const tw_call *c) { return generate_uniform(c, 1); }
tw_status tw_host_random_normal(const tw_call *c) { return generate_normal(c, 0); }
tw_status tw_host_random_normal_like(const tw_call *c) { return generate_normal(c, 1); }

tw_status tw_host_bernoulli(const tw_call *c) {
  const tw_value *x;
  unsigned char *out;
  TRY(tw_operand(c, 0, &x));
  int32_t type = (int32_t)tw_option(c, "dtype", x->type);
  int64_t n = tw_elements(x->rank, x->shape);
  for (int64_t i = 0; i < n; i++)
    if (!(tw_real(x, i) >= 0 && tw_real(x, i) <= 1)) return tw_refuse(c, "expected chances from 0 to 1, got %g", tw_real(x, i));
  TRY(tw_result(c, 0, type, x->rank, x->shape, &out));
  twister t;
  if (out) start(c, &t);
  for (int64_t i = 0; out && i < n; i++) tw_put_real(type, out, i, chance(&t, tw_real(x, i)));
  return TW_OK;
}

tw_status tw_host_dropout(const tw_call *c) {
  const tw_value *x, *ratio = tw_given(c, 1), *training = tw_given(c, 2);
  unsigned char *out, *mask;
  TRY(tw_operand(c, 0, &x));
  if ((ratio && tw_elements(ratio->rank, ratio->shape) != 1) || (training && tw_elements(training->rank, training->shape) != 1))
    return tw_refuse(c, "expected one number as the ratio, and one as the mode");
  double drop = ratio ? tw_real(ratio, 0) : 0.5, scale = 1.0 / (1.0 - drop);
  int64_t n = tw_elements(x->rank, x->shape);
  TRY(tw_result(c, 0, x->type, x->rank, x->shape, &out));
  TRY(tw_result(c, 1, 9, x->rank, x->shape, &mask));
  if (drop == 0 || !training || !tw_element(training, 0)) {
    if (mask) memset(mask, 1, (size_t)n);
    return tw_give(c, 0, x);
  }
  if (ratio && ratio->type != 11) scale = (double)(float)(1.0f / (float)(1.0f - (float)drop));
  twister t;
  start(c, &t);
  for (int64_t i = 0; i < n; i++) {
    int kept = uniform(&t) >= drop;
    double kept_or_0 = kept ? tw_real(x, i) : 0 * tw_real(x, i);
    if (out) tw_put_real(x->type, out, i, x->type == 11 ? kept_or_0 * scale : (double)((float)kept_or_0 * (float)scale));
    if (mask) mask[i] = (uint8_t)kept;
  }
  return TW_OK;
}
