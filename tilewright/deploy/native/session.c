/* Models and sessions: the functions of tilewright.h around the plans. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "platform.h"

TW_API int32_t tw_version(void) { return TW_VERSION; }

/* -- models */
#define PART_BYTES ((uint64_t)16 << 20) /* of weights, for which another thread is worth its start */

typedef struct block {
  const void *bytes;
  uint64_t size, parts, digests[TW_MOST_PARTS][2];
} block;

static void digest_part(void *context, int64_t part) {
  block *b = context;
  uint64_t each = b->size / b->parts / 8 * 8, start = each * (uint64_t)part;
  tw_digest_part(b->bytes, start, (uint64_t)part + 1 == b->parts ? b->size : start + each, b->digests[part]);
}

static tw_status check_weights(const tw_program *program, const void *weights, uint64_t bytes) {
  if (bytes != program->weights_bytes)
    return tw_fail(TW_INVALID_ARTIFACT, "expected weights of %" PRIu64 " bytes, got %" PRIu64, program->weights_bytes,
                   bytes);
  uint64_t parts = bytes / PART_BYTES + 1, digest[2] = {0, 0};
  block b = {weights, bytes, parts < TW_MOST_PARTS ? parts : TW_MOST_PARTS, {{0}}};
  tw_in_parallel(digest_part, &b, (int32_t)b.parts);
  for (uint64_t k = 0; k < b.parts; k++) digest[0] += b.digests[k][0], digest[1] += b.digests[k][1];
  if (memcmp(digest, program->weights_digest, sizeof digest) != 0)
    return tw_fail(TW_INVALID_ARTIFACT, "the weights are damaged: their digest is not the one they were built with");
  return TW_OK;
}

static tw_status make_model(tw_mapping mapping, const void *weights, uint64_t bytes, tw_model **out) {
  TRY(check_weights(&tw_the_program, weights, bytes));
  tw_model *model = calloc(1, sizeof *model);
  if (model == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a model");
  model->program = &tw_the_program;
  model->weights = weights;
  model->mapping = mapping;
  *out = model;
  return TW_OK;
}

static tw_status check_cpu(tw_model **out) {
  if (out == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a place for the model, got null");
  *out = NULL;
  const char *lacking = tw_lacking_feature(tw_the_program.features);
  if (lacking == NULL) return TW_OK;
  return tw_fail(TW_UNSUPPORTED_CPU, "this code needs a CPU with %s, which this one lacks", lacking);
}

TW_API tw_status tw_model_load(const char *path, tw_model **out) {
  TRY(check_cpu(out));
  tw_mapping mapping = {0};
  if (path == NULL && tw_the_program.weights != NULL)
    return make_model(mapping, tw_the_program.weights, tw_the_program.weights_bytes, out);
  char beside[4096];
  if (path == NULL) {
    TRY(tw_file_beside(tw_the_program.weights_name, beside, sizeof beside));
    path = beside;
  }
  TRY(tw_map_file(path, &mapping));
  tw_status status = make_model(mapping, mapping.bytes, mapping.size, out);
  if (status != TW_OK) tw_unmap(mapping);
  return status;
}

TW_API tw_status tw_model_load_memory(const void *bytes, uint64_t size, tw_model **out) {
  TRY(check_cpu(out));
  if (bytes == NULL && size) return tw_fail(TW_INVALID_ARGUMENT, "expected the bytes of the weights, got null");
  return make_model((tw_mapping){0}, bytes, size, out);
}

TW_API void tw_model_free(tw_model *model) {
  if (model == NULL) return;
  tw_unmap(model->mapping);
  free(model);
}

TW_API const char *tw_model_manifest(const tw_model *model) { return model ? model->program->manifest : ""; }
TW_API uint64_t tw_model_arena_bytes(const tw_model *model) { return model ? model->program->plan->arena_bytes : 0; }
TW_API int32_t tw_model_input_count(const tw_model *model) { return model ? model->program->plan->input_count : 0; }
TW_API int32_t tw_model_output_count(const tw_model *model) { return model ? model->program->plan->output_count : 0; }

static tw_dtype dtype_of(int32_t type) {
  /* by ONNX number: code and bits */
  static const uint8_t codes[][2] = {
      {3, 64}, {2, 32}, {1, 8},  {0, 8},  {1, 16}, {0, 16}, {0, 32}, {0, 64}, {3, 64},  {6, 8},  {2, 16}, {2, 64}, {1, 32},
      {1, 64}, {5, 64}, {5, 128}, {4, 16}, {10, 8}, {11, 8}, {12, 8}, {13, 8}, {1, 4},   {0, 4},  {17, 4}, {14, 8},
      {1, 2},  {0, 2}};
  tw_dtype d = {codes[type][0], codes[type][1], 1};
  return d;
}

static tw_status spec_of(const tw_slot_spec *specs, int32_t count, int32_t index, const char *what, tw_spec *out) {
  if (out == NULL || index < 0 || index >= count)
    return tw_fail(TW_INVALID_ARGUMENT, "expected the number of an %s below %d and a place for it, got %d", what, count,
                   index);
  const tw_slot_spec *s = &specs[index];
  *out = (tw_spec){s->name, dtype_of(s->type), s->rank, s->shape, s->dims};
  return TW_OK;
}

TW_API tw_status tw_model_input(const tw_model *model, int32_t index, tw_spec *spec) {
  if (model == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model, got null");
  return spec_of(model->program->plan->inputs, model->program->plan->input_count, index, "input", spec);
}

TW_API tw_status tw_model_output(const tw_model *model, int32_t index, tw_spec *spec) {
  if (model == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model, got null");
  return spec_of(model->program->plan->outputs, model->program->plan->output_count, index, "output", spec);
}

/* -- sessions */
TW_API tw_status tw_session_create(tw_model *model, const tw_options *options, tw_session **out) {
  if (model == NULL || out == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model and a place, got null");
  *out = NULL;
  tw_session *s = calloc(1, sizeof *s);
  if (s == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a session");
  s->model = model;
  int32_t built_for = model->program->threads < TW_MAX_THREADS ? model->program->threads : TW_MAX_THREADS;
  s->threads = options && options->threads ? options->threads : built_for;
  s->profile = options ? options->profile : 0;
  tw_status status = TW_OK;
  if (s->threads < 1 || s->threads > TW_MAX_THREADS)
    status = tw_fail(TW_INVALID_ARGUMENT, "expected 1 to %d threads, got %d", TW_MAX_THREADS, s->threads);
  if (status == TW_OK) status = tw_frame_create(s, model->program->plan, NULL, &s->frame);
  if (status == TW_OK && s->threads > 1) status = tw_pool_create(s->threads, options, &s->pool);
  if (status != TW_OK) {
    tw_session_free(s);
    return status;
  }
  *out = s;
  return TW_OK;
}

TW_API void tw_session_free(tw_session *s) {
  if (s == NULL) return;
  tw_pool_free(s->pool);
  tw_frame_free(s->frame);
  tw_frame_free(s->general);
  free(s);
}

TW_API tw_status tw_session_use_arena(tw_session *s, void *memory, uint64_t bytes) {
  if (s == NULL || memory == NULL || (uintptr_t)memory % TW_LINE)
    return tw_fail(TW_INVALID_ARGUMENT, "expected a session, and memory that begins at a multiple of %d", TW_LINE);
  if (bytes < s->frame->plan->arena_bytes)
    return tw_fail(TW_INVALID_ARGUMENT, "expected at least %" PRIu64 " bytes, got %" PRIu64, s->frame->plan->arena_bytes,
                   bytes);
  tw_frame *f = s->frame;
  if (!f->is_lent) tw_release(f->arena);
  f->arena = memory;
  f->arena_bytes = bytes;
  f->is_lent = 1;
  f->is_laid_out = 0;
  return TW_OK;
}

static void type_text(char *out, size_t room, tw_dtype d) {
  static const char *const kinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  snprintf(out, room, "%s%d", d.code < 7 ? kinds[d.code] : "narrow float of code ", d.code < 7 ? d.bits : d.code);
}

static tw_status check_input(const tw_slot_spec *spec, const tw_tensor *t, int with_data) {
  tw_dtype expected = dtype_of(spec->type);
  if (t->device.type != 1 && t->device.type != 0)
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected memory of the CPU (device 1), got device %d", spec->name,
                   t->device.type);
  if (t->dtype.code != expected.code || t->dtype.bits != expected.bits || t->dtype.lanes != 1) {
    char want[32], got[48];
    type_text(want, sizeof want, expected);
    type_text(got, sizeof got, t->dtype);
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected elements of type %s, got %s", spec->name, want, got);
  }
  if (spec->rank >= 0 && t->ndim != spec->rank)
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected %d dimensions, got %d", spec->name, spec->rank, t->ndim);
  if (t->ndim < 0 || t->ndim > TW_MAX_RANK || (t->ndim && t->shape == NULL))
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected a shape of at most %d dimensions", spec->name, TW_MAX_RANK);
  for (int32_t i = 0; i < t->ndim; i++)
    if (t->shape[i] < 0 || (spec->rank >= 0 && spec->shape[i] >= 0 && t->shape[i] != spec->shape[i]))
      return tw_fail(TW_INVALID_INPUT, "input '%s' axis %d: expected %s%" PRId64 ", got %" PRId64, spec->name, i,
                     spec->rank >= 0 && spec->shape[i] >= 0 ? "" : "at least ",
                     spec->rank >= 0 && spec->shape[i] >= 0 ? spec->shape[i] : 0, t->shape[i]);
  int64_t elements = tw_elements(t->ndim, t->shape);
  if (elements < 0 || tw_room(tw_item_bytes(spec->type), elements) < 0)
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected fewer elements than that", spec->name);
  if (with_data && elements && t->data == NULL)
    return tw_fail(TW_INVALID_INPUT, "input '%s': expected %" PRId64 " elements, got null", spec->name, elements);
  return TW_OK;
}

static void gather(unsigned char **to, const unsigned char *from, const int64_t *strides, const int64_t *shape,
                   int32_t rank, size_t item) {
  if (rank == 0) {
    memcpy(*to, from, item);
    *to += item;
    return;
  }
  for (int64_t i = 0; i < shape[0]; i++)
    gather(to, from + i * strides[0] * (int64_t)item, strides + 1, shape + 1, rank - 1, item);
}

/* the input as a value: the caller's memory, or a dense copy of it */
static tw_status take_input(tw_value *v, int32_t type, const tw_tensor *t) {
  v->type = type;
  v->rank = t->ndim;
  if (t->ndim) memcpy(v->shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
  v->data = (unsigned char *)t->data + t->byte_offset;
  if (tw_is_dense(t) || t->data == NULL || tw_elements(v->rank, v->shape) == 0) return TW_OK;
  const unsigned char *from = v->data;
  TRY(tw_reserve(v, tw_value_bytes(v)));
  unsigned char *to = v->data;
  gather(&to, from, t->strides, t->shape, t->ndim, (size_t)tw_item_bytes(type));
  return TW_OK;
}

static tw_status check_counts(
    const tw_plan *plan, const tw_tensor *inputs, int32_t input_count, const tw_tensor *outputs, int32_t output_count) {
  if (input_count != plan->input_count || (inputs == NULL && input_count))
    return tw_fail(TW_INVALID_INPUT, "%s: expected %d inputs, got %d", plan->name, plan->input_count,
                   inputs ? input_count : 0);
  if (output_count != plan->output_count || (outputs == NULL && output_count))
    return tw_fail(TW_INVALID_ARGUMENT, "%s: expected places for %d outputs, got %d", plan->name, plan->output_count,
                   outputs ? output_count : 0);
  return TW_OK;
}

static tw_status check_output(const tw_slot_spec *spec, const tw_tensor *t) {
  if (t->data == NULL) return TW_OK;
  tw_dtype expected = dtype_of(spec->type);
  if (t->dtype.code != expected.code || t->dtype.bits != expected.bits || t->dtype.lanes != 1) {
    char want[32], got[48];
    type_text(want, sizeof want, expected);
    type_text(got, sizeof got, t->dtype);
    return tw_fail(TW_INVALID_ARGUMENT, "output '%s': expected memory for elements of type %s, got %s", spec->name, want,
                   got);
  }
  if (t->ndim < 0 || (t->ndim && t->shape == NULL))
    return tw_fail(TW_INVALID_ARGUMENT, "output '%s': expected a shape with its memory", spec->name);
  return TW_OK;
}

static tw_status run_frame(
    tw_frame *f, const tw_tensor *inputs, tw_tensor *outputs, tw_status (*run)(tw_frame *), int with_data) {
  const tw_plan *plan = f->plan;
  for (int32_t i = 0; i < plan->input_count; i++) TRY(take_input(&f->values[i], plan->inputs[i].type, &inputs[i]));
  f->caller_outputs = with_data ? outputs : NULL;
  f->session->last = f;
  TRY(run(f));
  for (int32_t i = 0; i < plan->output_count; i++) {
    tw_value *v = &f->values[plan->output_values[i]];
    if (with_data && outputs[i].data != NULL) {
      if (v->data == v->memory && v->data != NULL) TRY(tw_deliver(f, i, plan->output_values[i], v));
      continue;
    }
    if (with_data && v->type == 0)
      return tw_fail(TW_INVALID_ARGUMENT, "output '%s' is a sequence, which has no tensor", plan->outputs[i].name);
    outputs[i].data = with_data ? v->data : NULL;
    outputs[i].device = (tw_device){1, 0};
    outputs[i].ndim = v->rank;
    outputs[i].dtype = dtype_of(plan->outputs[i].type);
    outputs[i].shape = v->shape;
    outputs[i].strides = NULL;
    outputs[i].byte_offset = 0;
  }
  return TW_OK;
}

/* memory that the last run gave is the session's own still: a caller may run again with the same outputs */
static void take_back(const tw_frame *f, tw_tensor *outputs) {
  for (int32_t i = 0; f != NULL && i < f->plan->output_count; i++)
    if (outputs[i].data == f->values[f->plan->output_values[i]].memory) outputs[i].data = NULL;
}

static tw_status guarded(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count, int with_data) {
  const tw_program *program = s->model->program;
  TRY(check_counts(program->plan, inputs, input_count, outputs, output_count));
  for (int32_t i = 0; i < input_count; i++) TRY(check_input(&program->plan->inputs[i], &inputs[i], with_data));
  take_back(s->frame, outputs);
  take_back(s->general, outputs);
  for (int32_t i = 0; with_data && i < output_count; i++) TRY(check_output(&program->plan->outputs[i], &outputs[i]));
  const tw_plan *plan = program->plan;
  tw_status status = run_frame(s->frame, inputs, outputs, with_data ? plan->run : plan->shapes, with_data);
  int is_for_general = status == TW_BROADCAST || (status == TW_INVALID_INPUT && program->is_judged_late);
  if (is_for_general && program->general != NULL) {
    if (s->general == NULL) TRY(tw_frame_create(s, program->general, NULL, &s->general));
    plan = program->general;
    status = run_frame(s->general, inputs, outputs, with_data ? plan->run : plan->shapes, with_data);
  }
  return status == TW_BROADCAST ? TW_INVALID_INPUT : status;
}

static tw_status exclusive(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count, int with_data) {
  if (s == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a session, got null");
  if (__atomic_exchange_n(&s->busy, 1, __ATOMIC_ACQUIRE))
    return tw_fail(TW_BUSY, "this session is running in another thread: use one session a thread");
  tw_status status = guarded(s, inputs, input_count, outputs, output_count, with_data);
  __atomic_store_n(&s->busy, 0, __ATOMIC_RELEASE);
  return status;
}

TW_API tw_status tw_session_run(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count) {
  return exclusive(s, inputs, input_count, outputs, output_count, 1);
}

TW_API tw_status tw_session_shapes(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count) {
  return exclusive(s, inputs, input_count, outputs, output_count, 0);
}

TW_API int32_t tw_session_step_count(const tw_session *s) {
  int32_t count = 0;
  if (s == NULL || !s->profile || s->last == NULL) return 0;
  for (int32_t i = 0; i < s->last->plan->stamp_count; i++) count += s->last->plan->stamps[i] != NULL;
  return count;
}

TW_API tw_status tw_session_step(const tw_session *s, int32_t index, const char **name, double *seconds) {
  if (name == NULL || seconds == NULL || index < 0 || index >= tw_session_step_count(s))
    return tw_fail(TW_INVALID_ARGUMENT, "expected a step of a session with `profile` that has run, got %d", index);
  int32_t at = 0;
  for (int32_t left = index + 1; left > 0; at++) left -= s->last->plan->stamps[at] != NULL;
  *name = s->last->plan->stamps[at - 1];
  *seconds = s->last->times[at - 1] - s->last->times[at - 2];
  return TW_OK;
}

static uint64_t frame_bytes(const tw_frame *f) {
  if (f == NULL) return 0;
  uint64_t bytes = f->is_lent ? 0 : f->arena_bytes;
  for (int32_t i = 0; i < f->plan->value_count; i++) bytes += f->values[i].capacity;
  for (int32_t i = 0; i < f->plan->body_count; i++) bytes += frame_bytes(f->bodies[i]);
  return bytes;
}

TW_API uint64_t tw_session_bytes(const tw_session *s) {
  return s == NULL ? 0 : frame_bytes(s->frame) + frame_bytes(s->general);
}
