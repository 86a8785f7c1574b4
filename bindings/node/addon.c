/* addon.c: the functions of tilewright.h for index.js, by Node-API. Runs go to a thread of node's pool, and fetch the
 * message of a failure there: it belongs to the thread.
 *
 * A tensor is an array here: [code, bits, shape, bytes], shape a BigInt64Array, bytes an ArrayBuffer view or undefined. */
#define NAPI_VERSION 8
#include <node_api.h>
#include <stdlib.h>

#include "tilewright_dl.h"

#define ARGUMENTS 4

typedef struct opened {
  tw_library lib;
  tw_model *model;
  int32_t users; /* the model's object, and its sessions' */
} opened;

typedef struct session {
  opened *from;
  tw_session *session;
} session;

typedef struct run {
  session *on;
  napi_deferred deferred;
  napi_async_work work;
  napi_ref arguments; /* keeps the tensors where they are */
  uint32_t counts[2];
  tw_tensor *tensors[2]; /* inputs, outputs */
  tw_status status;
  char message[1024];
} run;

static void release(opened *o) {
  if (--o->users > 0) return;
  if (o->lib.handle != NULL) o->lib.model_free(o->model);
  tw_library_close(&o->lib);
  free(o);
}

static napi_value failure(napi_env env, tw_status status, const char *message) {
  napi_value text, error, number;
  napi_create_string_utf8(env, message, NAPI_AUTO_LENGTH, &text);
  napi_create_error(env, NULL, text, &error);
  napi_create_int32(env, status, &number);
  napi_set_named_property(env, error, "status", number);
  return error;
}

static napi_value raise(napi_env env, tw_status status, const char *message) {
  napi_throw(env, failure(env, status, message));
  return NULL;
}

static napi_value text(napi_env env, const char *chars) {
  napi_value out = NULL;
  if (chars != NULL) napi_create_string_utf8(env, chars, NAPI_AUTO_LENGTH, &out);
  else napi_get_null(env, &out);
  return out;
}

static napi_value number(napi_env env, double value) {
  napi_value out = NULL;
  napi_create_double(env, value, &out);
  return out;
}

static napi_value list(napi_env env, const napi_value *items, uint32_t count) {
  napi_value out;
  napi_create_array_with_length(env, count, &out);
  for (uint32_t i = 0; i < count; i++) napi_set_element(env, out, i, items[i]);
  return out;
}

static int32_t integer(napi_env env, napi_value value) {
  int32_t out = 0;
  napi_get_value_int32(env, value, &out);
  return out;
}

static napi_value element(napi_env env, napi_value array, uint32_t index) {
  napi_value out = NULL;
  napi_get_element(env, array, index, &out);
  return out;
}

static void arguments(napi_env env, napi_callback_info info, napi_value *out) {
  size_t count = ARGUMENTS;
  napi_get_cb_info(env, info, &count, out, NULL, NULL);
}

/* What a handle holds; null once it is closed. */
static void **held(napi_env env, napi_value handle) {
  void *place = NULL;
  napi_get_value_external(env, handle, &place);
  return place;
}

static napi_value handle(napi_env env, void *what, napi_finalize finalize) {
  napi_value out;
  void **place = malloc(sizeof *place);
  *place = what;
  napi_create_external(env, place, finalize, NULL, &out);
  return out;
}

static void close_model(void **place) {
  if (*place != NULL) release(*place);
  *place = NULL;
}

static void close_session(void **place) {
  session *s = *place;
  if (s == NULL) return;
  s->from->lib.session_free(s->session);
  release(s->from);
  free(s);
  *place = NULL;
}

static void lose_model(napi_env env, void *place, void *hint) {
  (void)env, (void)hint;
  close_model(place);
  free(place);
}

static void lose_session(napi_env env, void *place, void *hint) {
  (void)env, (void)hint;
  close_session(place);
  free(place);
}

static napi_value js_close_model(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS];
  arguments(env, info, words);
  close_model(held(env, words[0]));
  return NULL;
}

static napi_value js_close_session(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS];
  arguments(env, info, words);
  close_session(held(env, words[0]));
  return NULL;
}

/* open(path, loader): a handle. loader: the library that opens the path; undefined if it is one itself. */
static napi_value js_open(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS];
  char path[4096], loader[4096];
  arguments(env, info, words);
  int is_inside = napi_get_value_string_utf8(env, words[1], loader, sizeof loader, NULL) != napi_ok;
  if (napi_get_value_string_utf8(env, words[0], path, sizeof path, NULL) != napi_ok)
    return raise(env, TW_INVALID_ARGUMENT, "expected a path");
  opened *o = calloc(1, sizeof *o);
  o->users = 1;
  tw_status status = tw_library_open(&o->lib, is_inside ? path : loader);
  const char *message = o->lib.message;
  if (status == TW_OK && (status = o->lib.model_load(is_inside ? NULL : path, &o->model)) != TW_OK) message = o->lib.error();
  if (status == TW_OK) return handle(env, o, lose_model);
  raise(env, status, message);
  release(o);
  return NULL;
}

static napi_value specs(napi_env env, const opened *o, int32_t count, tw_status (*describe)(const tw_model *, int32_t, tw_spec *)) {
  napi_value out;
  napi_create_array(env, &out);
  for (int32_t i = 0; i < count; i++) {
    tw_spec s;
    if (describe(o->model, i, &s) != TW_OK) return out;
    napi_value shape;
    napi_get_null(env, &shape);
    if (s.ndim >= 0) napi_create_array(env, &shape);
    for (int32_t k = 0; k < s.ndim; k++)
      napi_set_element(env, shape, (uint32_t)k, s.dims[k] ? text(env, s.dims[k]) : number(env, (double)s.shape[k]));
    napi_value parts[] = {text(env, s.name), number(env, s.dtype.code), number(env, s.dtype.bits), shape};
    napi_set_element(env, out, (uint32_t)i, list(env, parts, 4));
  }
  return out;
}

/* describe(model): [inputs, outputs, manifest]; inputs and outputs as [name, code, bits, shape] */
static napi_value js_describe(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS];
  arguments(env, info, words);
  const opened *o = *held(env, words[0]);
  napi_value parts[] = {specs(env, o, o->lib.model_input_count(o->model), o->lib.model_input),
                        specs(env, o, o->lib.model_output_count(o->model), o->lib.model_output),
                        text(env, o->lib.model_manifest(o->model))};
  return list(env, parts, 3);
}

/* create(model, threads): a handle */
static napi_value js_create(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS];
  arguments(env, info, words);
  opened *o = *held(env, words[0]);
  if (o == NULL) return raise(env, TW_INVALID_ARGUMENT, "the model is closed");
  tw_options options = {integer(env, words[1]), 0, NULL, NULL};
  session *s = calloc(1, sizeof *s);
  tw_status status = o->lib.session_create(o->model, &options, &s->session);
  if (status != TW_OK) {
    free(s);
    return raise(env, status, o->lib.error());
  }
  s->from = o;
  o->users++;
  return handle(env, s, lose_session);
}

static void *bytes_of(napi_env env, napi_value view) {
  void *data = NULL;
  bool is_typed = false;
  napi_is_typedarray(env, view, &is_typed);
  if (is_typed) napi_get_typedarray_info(env, view, NULL, NULL, &data, NULL, NULL);
  return data;
}

static tw_tensor *tensors(napi_env env, napi_value array, uint32_t count) {
  tw_tensor *out = calloc(count + 1, sizeof *out);
  for (uint32_t i = 0; i < count; i++) {
    napi_value t = element(env, array, i), shape = element(env, t, 2);
    size_t rank = 0;
    void *sizes = NULL;
    napi_get_typedarray_info(env, shape, NULL, &rank, &sizes, NULL, NULL);
    tw_dtype dtype = {(uint8_t)integer(env, element(env, t, 0)), (uint8_t)integer(env, element(env, t, 1)), 1};
    out[i] = (tw_tensor){bytes_of(env, element(env, t, 3)), {1, 0}, (int32_t)rank, dtype, sizes, NULL, 0};
  }
  return out;
}

/* [code, bits, shape, bytes], a copy; without data, bytes is null, and shape too if it is not known */
static napi_value result(napi_env env, const tw_tensor *t, int with_data) {
  napi_value buffer, shape, bytes;
  size_t size = (t->dtype.bits + 7u) / 8u;
  void *to;
  napi_get_null(env, &shape);
  napi_get_null(env, &bytes);
  if (t->ndim >= 0) napi_create_array(env, &shape);
  for (int32_t i = 0; i < t->ndim; i++) {
    napi_set_element(env, shape, (uint32_t)i, number(env, (double)t->shape[i]));
    size *= (size_t)t->shape[i];
  }
  if (with_data && napi_create_arraybuffer(env, size, &to, &buffer) == napi_ok) {
    if (size) memcpy(to, t->data, size);
    bytes = buffer;
  }
  napi_value parts[] = {number(env, t->dtype.code), number(env, t->dtype.bits), shape, bytes};
  return list(env, parts, 4);
}

static void forget(napi_env env, run *r) {
  if (r->arguments) napi_delete_reference(env, r->arguments);
  if (r->work) napi_delete_async_work(env, r->work);
  free(r->tensors[0]);
  free(r->tensors[1]);
  free(r);
}

static run *prepare(napi_env env, napi_callback_info info, napi_value *words) {
  arguments(env, info, words);
  session *s = *held(env, words[0]);
  if (s == NULL) return raise(env, TW_INVALID_ARGUMENT, "the session is closed"), NULL;
  run *r = calloc(1, sizeof *r);
  r->on = s;
  for (int i = 0; i < 2; i++) {
    napi_get_array_length(env, words[1 + i], &r->counts[i]);
    r->tensors[i] = tensors(env, words[1 + i], r->counts[i]);
  }
  return r;
}

static napi_value results(napi_env env, const run *r, int with_data) {
  napi_value out;
  napi_create_array(env, &out);
  for (uint32_t i = 0; i < r->counts[1]; i++) napi_set_element(env, out, i, result(env, &r->tensors[1][i], with_data));
  return out;
}

static void execute(napi_env env, void *data) {
  (void)env;
  run *r = data;
  const tw_library *lib = &r->on->from->lib;
  r->status = lib->session_run(r->on->session, r->tensors[0], (int32_t)r->counts[0], r->tensors[1], (int32_t)r->counts[1]);
  if (r->status != TW_OK) snprintf(r->message, sizeof r->message, "%s", lib->error());
}

static void complete(napi_env env, napi_status cancelled, void *data) {
  run *r = data;
  if (cancelled == napi_ok && r->status == TW_OK)
    napi_resolve_deferred(env, r->deferred, results(env, r, 1));
  else
    napi_reject_deferred(env, r->deferred, failure(env, r->status, r->message));
  forget(env, r);
}

/* run(session, inputs, outputs): a promise of the outputs, copied. index.js has one run of a session at a time. */
static napi_value js_run(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS], promise, name, kept;
  run *r = prepare(env, info, words);
  if (r == NULL) return NULL;
  kept = list(env, words, 3);
  napi_create_reference(env, kept, 1, &r->arguments);
  napi_create_promise(env, &r->deferred, &promise);
  napi_create_string_utf8(env, "tilewright", NAPI_AUTO_LENGTH, &name);
  napi_create_async_work(env, NULL, name, execute, complete, r, &r->work);
  napi_queue_async_work(env, r->work);
  return promise;
}

/* shapes(session, inputs, outputs): the outputs without data */
static napi_value js_shapes(napi_env env, napi_callback_info info) {
  napi_value words[ARGUMENTS], out = NULL;
  run *r = prepare(env, info, words);
  if (r == NULL) return NULL;
  const tw_library *lib = &r->on->from->lib;
  r->status = lib->session_shapes(r->on->session, r->tensors[0], (int32_t)r->counts[0], r->tensors[1], (int32_t)r->counts[1]);
  if (r->status == TW_OK)
    out = results(env, r, 0);
  else
    raise(env, r->status, lib->error());
  forget(env, r);
  return out;
}

NAPI_MODULE_INIT() {
  static const struct { const char *name; napi_callback function; } all[] = {
      {"open", js_open}, {"describe", js_describe}, {"create", js_create}, {"run", js_run}, {"shapes", js_shapes},
      {"closeModel", js_close_model}, {"closeSession", js_close_session}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    napi_value function;
    napi_create_function(env, all[i].name, NAPI_AUTO_LENGTH, all[i].function, NULL, &function);
    napi_set_named_property(env, exports, all[i].name, function);
  }
  return exports;
}
