/* Features of sounds and texts: MelWeightMatrix, and TfIdfVectorizer of integers. */
#include "host.h"

/* -- MelWeightMatrix */
static double mel(const tw_value *edge) {
  double hertz = tw_real(edge, 0);
  if (edge->type == 11) return 2595 * log1p(hertz / 700) / log(10);
  float part = log1pf((float)hertz / 700);
  return (double)(2595 * part) / log(10);
}

/* as numpy divides: rounded down, and exact where the remainder says so */
static double divided(double a, double b) {
  double rest = fmod(a, b), out = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) out -= 1;
  double down = floor(out);
  return out - down > 0.5 ? down + 1 : down;
}

static void triangle(double *out, int64_t bins, int64_t i, int64_t left, int64_t top, int64_t right) {
  if (left == top) out[top * bins + i] = 1;
  for (int64_t j = left; left != top && j <= top; j++) out[j * bins + i] = (double)(j - left) / (double)(top - left);
  for (int64_t j = top; j < right; j++) out[j * bins + i] = (double)(right - j) / (double)(right - top);
}

tw_status tw_host_mel_weight_matrix(const tw_call *c) {
  int64_t bins, length, rate, shape[2];
  const tw_value *edges[2];
  unsigned char *out;
  TRY(tw_one_integer(c, 0, &bins));
  TRY(tw_one_integer(c, 1, &length));
  TRY(tw_one_integer(c, 2, &rate));
  for (int32_t k = 0; k < 2; k++) {
    TRY(tw_operand(c, 3 + k, &edges[k]));
    if (tw_elements(edges[k]->rank, edges[k]->shape) != 1) return tw_refuse(c, "expected one number as operand %d", 3 + k);
  }
  if (bins < 0 || length < 0 || rate == 0)
    return tw_refuse(c, "expected numbers of bins and samples of at least 0 and a rate other than 0");
  int32_t type = (int32_t)tw_option(c, "output_datatype", 1);
  shape[0] = length / 2 + 1;
  shape[1] = bins;
  TRY(tw_result(c, 0, type, 2, shape, &out));
  int64_t n = tw_elements(2, shape), *at = malloc((size_t)(bins + 2) * sizeof *at);
  double *weights = calloc((size_t)n + 1, sizeof *weights), low = mel(edges[0]), high = mel(edges[1]);
  tw_status status = at && weights ? TW_OK : tw_no_memory(c);
  for (int64_t i = 0; status == TW_OK && i < bins + 2; i++) {
    double place = (double)i * ((high - low) / (double)(bins + 2));
    place += low;
    place = divided((double)(length + 1) * (700 * expm1(place / 2595 * log(10))), (double)rate);
    if (!(place >= 0 && place < (double)shape[0] + (i == bins + 1))) {
      status = tw_refuse(c, "expected frequencies inside the spectrum, got bin %g of %" PRId64, place, shape[0]);
    } else {
      at[i] = (int64_t)place;
    }
  }
  for (int64_t i = 0; status == TW_OK && i < bins; i++) triangle(weights, bins, i, at[i], at[i + 1], at[i + 2]);
  for (int64_t i = 0; status == TW_OK && out && i < n; i++) tw_put_real(type, out, i, weights[i]);
  free(at);
  free(weights);
  return status;
}

/* -- TfIdfVectorizer: how often each n-gram of the pool occurs in a row, its items `step` apart */
static int64_t occurrences(const tw_value *x, int64_t first, int64_t count, const int64_t *gram, int64_t size, int64_t step) {
  int64_t found = 0;
  for (int64_t i = 0; i + (size - 1) * step < count; i++) {
    int64_t k = 0;
    while (k < size && tw_element(x, first + i + k * step) == gram[k]) k++;
    found += k == size;
  }
  return found;
}

tw_status tw_host_tf_idf_vectorizer(const tw_call *c) {
  const tw_attribute *pool = tw_attribute_of(c, "pool_int64s"), *starts = tw_attribute_of(c, "ngram_counts");
  const tw_attribute *columns = tw_attribute_of(c, "ngram_indexes"), *weights = tw_attribute_of(c, "weights");
  int64_t least = tw_option(c, "min_gram_length", 1), most = tw_option(c, "max_gram_length", 1), width = 0;
  int64_t skips = tw_option(c, "max_skip_count", 0);
  const tw_value *x;
  unsigned char *out;
  TRY(tw_integers(c, 0, &x));
  if (x->rank < 1 || x->rank > 2 || (x->rank == 2 && x->shape[0] < 1))
    return tw_refuse(c, "expected one or two dimensions, of at least one row, got %d", x->rank);
  if (!pool || !starts || !columns) return tw_refuse(c, "expected a pool of integers, where each size begins, and columns");
  for (int64_t i = 0; i < columns->count; i++) width = tw_most(width, columns->integers[i] + 1);
  int64_t rows = x->rank == 2 ? x->shape[0] : 1, count = x->shape[x->rank - 1], shape[] = {rows, width};
  TRY(tw_result(c, 0, 1, x->rank, x->rank == 2 ? shape : &width, &out));
  if (out == NULL) return TW_OK;
  float *y = (float *)out;
  int is_tf = tw_says(c, "mode", "TF"), is_idf = tw_says(c, "mode", "IDF");
  memset(y, 0, (size_t)(rows * width) * sizeof *y);
  for (int64_t row = 0; row < rows; row++) {
    int64_t gram = 0;
    for (int64_t size = 1; size <= starts->count; size++) {
      int64_t from = starts->integers[size - 1], end = size < starts->count ? starts->integers[size] : pool->count;
      if (from < 0 || end > pool->count) return tw_refuse(c, "expected n-grams inside the pool");
      for (; from + size <= end; from += size, gram++) {
        if (gram >= columns->count || columns->integers[gram] < 0) return tw_refuse(c, "expected a column for each n-gram");
        if (size < least || size > most) continue;
        float *to = &y[row * width + columns->integers[gram]];
        for (int64_t step = 1; step <= (size == 1 ? 1 : skips + 1); step++)
          *to += (float)occurrences(x, row * count, count, pool->integers + from, size, step);
      }
    }
    for (int64_t i = 0; i < width && !is_tf; i++) {
      float *to = &y[row * width + i];
      double weight = weights && i < weights->count ? weights->floats[i] : 1;
      *to = is_idf ? (*to > 0 ? (float)weight : 0) : (float)(weight * (double)*to);
    }
  }
  return TW_OK;
}
