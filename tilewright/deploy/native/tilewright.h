/* tilewright.h: run models that `tilewright build` has compiled. C99; needs libc and threads, nothing else.
 *
 * A model is code and weights: it is never written to, and any number of threads may use it. A session has what one run
 * needs (intermediate values, worker threads): one thread may use it at a time, and a second one is told TW_BUSY. Every
 * function that can fail returns a tw_status; tw_error() then says in a sentence what was expected and what came.
 *
 * An artifact is machine code. Its digests are checked when it is loaded, which finds damage, not malice: load only what
 * you trust.
 */
#ifndef TILEWRIGHT_H
#define TILEWRIGHT_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef TW_API
#if defined(_WIN32)
#define TW_API __declspec(dllexport)
#else
#define TW_API __attribute__((visibility("default")))
#endif
#endif

/* Changes when a function or a structure of this file does. */
#define TW_VERSION 1

typedef enum tw_status {
  TW_OK = 0,
  TW_INVALID_ARGUMENT = 1, /* a null pointer, an index out of range, an option that makes no sense */
  TW_INVALID_INPUT = 2,    /* a tensor that does not fit the model, or indices in it that are out of range */
  TW_INVALID_ARTIFACT = 3, /* a file that is damaged, cut off, of a newer format, or no artifact */
  TW_UNSUPPORTED_CPU = 4,  /* code for another CPU */
  TW_OUT_OF_MEMORY = 5,
  TW_BUSY = 6,             /* the session is running in another thread */
  TW_SYSTEM = 7,           /* the operating system refused a file, a mapping or a thread */
  TW_INTERNAL = 8          /* a fault of tilewright */
} tw_status;

typedef struct tw_model tw_model;
typedef struct tw_session tw_session;

/* Tensors as DLPack has them (DLTensor, DLDataType, DLDevice: the same layout, so a DLTensor can be passed as it is).
 * strides, in elements, may be null: the last index is fastest then. ndim is 0 for a scalar. */
typedef struct tw_dtype {
  uint8_t code; /* 0 signed, 1 unsigned, 2 float, 4 bfloat, 5 complex, 6 bool; 7 and more: narrow floats of DLPack 1.1 */
  uint8_t bits;
  uint16_t lanes; /* 1 */
} tw_dtype;

typedef struct tw_device {
  int32_t type; /* 1: memory of the CPU */
  int32_t id;
} tw_device;

typedef struct tw_tensor {
  void *data;
  tw_device device;
  int32_t ndim;
  tw_dtype dtype;
  int64_t *shape;
  int64_t *strides;
  uint64_t byte_offset;
} tw_tensor;

/* An input or output of a model. shape[i] is -1 where the size is not fixed; dims[i] is its name or formula then, and
 * null where it is fixed. ndim is -1 where even the rank is known only after a run. Valid as long as the model is. */
typedef struct tw_spec {
  const char *name;
  tw_dtype dtype;
  int32_t ndim;
  const int64_t *shape;
  const char *const *dims;
} tw_spec;

/* Runs task(argument, chunk, chunks) for every chunk in 0 .. chunks-1, on as many threads as it likes, and returns when
 * all are done. */
typedef void (*tw_task)(void *argument, int64_t chunk, int64_t chunks);
typedef void (*tw_parallel_for)(void *context, tw_task task, void *argument, int64_t chunks);

/* threads: 0 for as many as the model was built for. parallel_for: null for threads of the session's own; otherwise they
 * are the caller's, and `threads` says how many there are. profile: 1 to measure every step of a run. */
typedef struct tw_options {
  int32_t threads;
  int32_t profile;
  tw_parallel_for parallel_for;
  void *parallel_context;
} tw_options;

/* TW_VERSION of the library, to compare with that of the header. */
TW_API int32_t tw_version(void);

/* What the last failure on this thread was; "" if there was none. Valid until the next call on this thread. */
TW_API const char *tw_error(void);

/* A model. In libtilewright, which opens any number of them, `path` is an artifact of any format. In an artifact itself,
 * or a program with one linked in, there is one model: `path` is null, or says where its weights are if they are not in
 * the file beside it. Weights are mapped, not read: processes share their pages. */
TW_API tw_status tw_model_load(const char *path, tw_model **model);

/* The same from memory, which must stay as it is until the model is freed. */
TW_API tw_status tw_model_load_memory(const void *bytes, uint64_t size, tw_model **model);

/* Sessions must be freed before their model. Null is allowed. */
TW_API void tw_model_free(tw_model *model);

/* JSON: digest and names of the model, version, target, what each kernel is. */
TW_API const char *tw_model_manifest(const tw_model *model);

/* Bytes of a session's intermediate values where all sizes are fixed; 0 where they depend on the inputs. */
TW_API uint64_t tw_model_arena_bytes(const tw_model *model);

TW_API int32_t tw_model_input_count(const tw_model *model);
TW_API int32_t tw_model_output_count(const tw_model *model);
TW_API tw_status tw_model_input(const tw_model *model, int32_t index, tw_spec *spec);
TW_API tw_status tw_model_output(const tw_model *model, int32_t index, tw_spec *spec);

/* options may be null. */
TW_API tw_status tw_session_create(tw_model *model, const tw_options *options, tw_session **session);
TW_API void tw_session_free(tw_session *session);

/* Lets the session have its intermediate values in the caller's memory, which must stay until the session is freed and
 * begin at a multiple of 64: at least tw_model_arena_bytes, or what the largest inputs need. Where all sizes are fixed and
 * the caller gives dense inputs and memory for the outputs, no run takes memory from the system then, but for bodies of If,
 * Loop and Scan and for operators whose results depend on data. */
TW_API tw_status tw_session_use_arena(tw_session *session, void *memory, uint64_t bytes);

/* One run. Inputs and outputs stand in the order of the model's. An output with data is written there and must have the
 * shape of the result; one whose data is null, or what the last run put there, gets memory of the session's own, valid
 * until its next run: then data, dtype, ndim, shape and strides (null) are filled in. */
TW_API tw_status tw_session_run(
    tw_session *session, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count);

/* Shapes of the outputs for inputs of these shapes, without a run: ndim and shape of `outputs` are filled in, valid until
 * the next call with this session; ndim is -1 where a shape depends on the contents of tensors. The data of inputs may be
 * null. */
TW_API tw_status tw_session_shapes(
    tw_session *session, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count);

/* Steps of the last run of a session with `profile`: how many, and of each the name of its kernel and the seconds. */
TW_API int32_t tw_session_step_count(const tw_session *session);
TW_API tw_status tw_session_step(const tw_session *session, int32_t index, const char **name, double *seconds);

/* Bytes of the session's own: intermediate values, and outputs without memory of the caller's. */
TW_API uint64_t tw_session_bytes(const tw_session *session);

#ifdef __cplusplus
}
#endif
#endif
