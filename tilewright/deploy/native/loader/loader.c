/* libtilewright: the interface of tilewright.h for artifacts that a program opens by path at run time, of any format and
 * as many as it likes. Each artifact is a library with the same functions; this one finds the right library, makes sure
 * that it is whole before the system loads it, and passes the calls on. */
#if defined(__linux__)
#define _GNU_SOURCE /* syscall */
#include <linux/memfd.h>
#include <sys/syscall.h>
#endif
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "platform.h"
#include "tilewright_dl.h"

#define PACKAGE_MAGIC "\x89TWA\r\n\x1a\n"
#define SEAL_MAGIC "tilewright seal\n"
#define FORMAT 1
#define MOST_MEMBERS 1024
#define SPELLINGS 1024

#if defined(__x86_64__)
#define MACHINE "x86_64"
#elif defined(__aarch64__)
#define MACHINE "aarch64"
#elif defined(__riscv)
#define MACHINE "riscv64"
#else
#define MACHINE "unknown"
#endif
#if defined(__APPLE__)
#define SYSTEM MACHINE "-darwin"
#else
#define SYSTEM MACHINE "-linux"
#endif

/* little endian, as tilewright/deploy/files writes them */
typedef struct part {
  uint64_t offset, size, digest[2];
} part;

typedef struct member {
  char system[32];
  part code, manifest, weights;
} member;

typedef struct head {
  char magic[8];
  uint32_t format, count;
  uint64_t size, digest[2];
} head;

typedef struct seal {
  char magic[16];
  uint64_t size, start, inside, before[2], after[2];
} seal;

/* what tw_model and tw_session are here */
typedef struct model {
  tw_library functions;
  tw_model *inner;
  tw_mapping mapping;
} model;

typedef struct session {
  const tw_library *functions;
  tw_session *inner;
} session;

static const model *opened(const tw_model *m) { return (const model *)(const void *)m; }
static const session *started(const tw_session *s) { return (const session *)(const void *)s; }

/* what another library says of its failure, as our own */
static tw_status passed(const tw_library *l, tw_status status) {
  return status == TW_OK ? TW_OK : tw_fail(status, "%s", l->error());
}

/* -- libraries */
static tw_status open_library(const char *place, const char *path, tw_library *out) {
  tw_status status = tw_library_open_at(out, place, path);
  return status == TW_OK ? TW_OK : tw_fail(status, "%s", out->message);
}

/* The system takes two files that were at one path for one library: "dir/././name" is another name each time. */
static void spelled(const char *path, char *out, size_t room) {
  static unsigned count;
  unsigned turns = __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED) % SPELLINGS;
  const char *slash = strrchr(path, '/');
  size_t at = (size_t)snprintf(out, room, "%.*s", slash ? (int)(slash + 1 - path) : 2, slash ? path : "./");
  for (; turns > 0 && at + 2 < room; turns--, at += 2) memcpy(out + at, "./", 2);
  snprintf(out + at, room - at, "%s", slash ? slash + 1 : path);
}

static int is_part(const unsigned char *bytes, uint64_t size, const uint64_t digest[2]) {
  uint64_t found[2];
  tw_digest(bytes, size, found);
  return memcmp(found, digest, sizeof found) == 0;
}

static tw_status check_seal(const char *path, const unsigned char *bytes, uint64_t size) {
  seal s;
  uint64_t end = size - sizeof s;
  if (size < sizeof s || memcmp(bytes + end, SEAL_MAGIC, 16) != 0)
    return tw_fail(TW_INVALID_ARTIFACT,
                   "%s: expected an artifact of tilewright; this is another kind of file, or one that was cut off", path);
  memcpy(&s, bytes + end, sizeof s);
  if (s.size != end || s.start > end || s.inside > end - s.start || !is_part(bytes, s.start, s.before) ||
      !is_part(bytes + s.start + s.inside, end - s.start - s.inside, s.after))
    return tw_fail(TW_INVALID_ARTIFACT, "%s: the library is damaged: its digest is not the one it was written with", path);
  return TW_OK;
}

static tw_status load_library(const char *path, model *m) {
  char place[4096 + 2 * SPELLINGS];
  spelled(path, place, sizeof place);
  TRY(open_library(place, path, &m->functions));
  tw_status status = passed(&m->functions, m->functions.model_load(NULL, &m->inner));
  if (status != TW_OK) tw_library_close(&m->functions);
  return status;
}

/* -- packages */
static tw_status open_code(const char *path, const unsigned char *code, uint64_t size, tw_library *out) {
#if defined(__linux__)
  int file = (int)syscall(SYS_memfd_create, "tilewright", MFD_CLOEXEC); /* C libraries have it since 2018 */
  char name[64], place[64 + 2 * SPELLINGS];
  snprintf(name, sizeof name, "/proc/self/fd/%d", file);
#else
  char name[] = "/tmp/tilewright-XXXXXX", place[sizeof name + 2 * SPELLINGS];
  int file = mkstemp(name);
#endif
  if (file < 0) return tw_fail(TW_SYSTEM, "%s: there is no place for its code", path);
  uint64_t done = 0;
  while (done < size) {
    ssize_t count = write(file, code + done, (size_t)(size - done));
    if (count <= 0) break;
    done += (uint64_t)count;
  }
  spelled(name, place, sizeof place);
  tw_status status =
      done == size ? open_library(place, path, out) : tw_fail(TW_SYSTEM, "%s: there is no place for its code", path);
  close(file);
#if !defined(__linux__)
  unlink(name);
#endif
  return status;
}

static int is_inside(part p, uint64_t size) { return p.offset % 64 == 0 && p.offset <= size && p.size <= size - p.offset; }

static tw_status load_member(const char *path, const unsigned char *bytes, uint64_t size, const member *c, model *m) {
  if (!is_inside(c->code, size) || !is_inside(c->weights, size))
    return tw_fail(TW_INVALID_ARTIFACT, "%s: the table of the package names places outside of it", path);
  if (!is_part(bytes + c->code.offset, c->code.size, c->code.digest))
    return tw_fail(TW_INVALID_ARTIFACT, "%s: the code is damaged: its digest is not the one it was written with", path);
  TRY(open_code(path, bytes + c->code.offset, c->code.size, &m->functions));
  tw_status status = m->functions.model_load_memory(bytes + c->weights.offset, c->weights.size, &m->inner);
  passed(&m->functions, status);
  if (status != TW_OK) tw_library_close(&m->functions);
  return status;
}

static tw_status load_package(const char *path, const unsigned char *bytes, uint64_t size, model *m) {
  head h;
  memcpy(&h, bytes, sizeof h);
  if (h.format != FORMAT)
    return tw_fail(TW_INVALID_ARTIFACT, "%s: expected format %d, got %u: a newer release wrote it", path, FORMAT, h.format);
  if (h.size != size || h.count == 0 || h.count > MOST_MEMBERS || h.count * sizeof(member) > size - sizeof h ||
      !is_part(bytes + sizeof h, h.count * sizeof(member), h.digest))
    return tw_fail(TW_INVALID_ARTIFACT, "%s: the package is damaged or cut off: it says that it has %" PRIu64
                   " bytes, and has %" PRIu64, path, h.size, size);
  char reasons[512] = "";
  for (uint32_t i = 0; i < h.count; i++) {
    member c;
    memcpy(&c, bytes + sizeof h + i * sizeof c, sizeof c);
    size_t used = strlen(reasons);
    if (strncmp(c.system, SYSTEM, sizeof c.system) != 0) {
      snprintf(reasons + used, sizeof reasons - used, "%sfor %.31s, this is %s", used ? "; " : "", c.system, SYSTEM);
      continue;
    }
    tw_status status = load_member(path, bytes, size, &c, m);
    if (status != TW_UNSUPPORTED_CPU) return status;
    snprintf(reasons + used, sizeof reasons - used, "%s%s", used ? "; " : "", tw_error());
  }
  return tw_fail(TW_UNSUPPORTED_CPU, "%s: no code in it is for this CPU: %s", path, reasons);
}

static int is_package(const unsigned char *bytes, uint64_t size) {
  return size >= sizeof(head) && memcmp(bytes, PACKAGE_MAGIC, 8) == 0;
}

/* -- tilewright.h */
TW_API int32_t tw_version(void) { return TW_VERSION; }

TW_API tw_status tw_model_load(const char *path, tw_model **out) {
  if (out == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a place for the model, got null");
  *out = NULL;
  if (path == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected the path of an artifact, got null");
  model *m = calloc(1, sizeof *m);
  if (m == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a model");
  tw_status status = tw_map_file(path, &m->mapping);
  if (status == TW_OK && is_package(m->mapping.bytes, m->mapping.size)) {
    status = load_package(path, m->mapping.bytes, m->mapping.size, m);
  } else if (status == TW_OK) {
    status = check_seal(path, m->mapping.bytes, m->mapping.size);
    tw_unmap(m->mapping);
    m->mapping = (tw_mapping){0};
    if (status == TW_OK) status = load_library(path, m);
  }
  if (status != TW_OK) {
    tw_unmap(m->mapping);
    free(m);
    return status;
  }
  *out = (tw_model *)(void *)m;
  return TW_OK;
}

TW_API tw_status tw_model_load_memory(const void *bytes, uint64_t size, tw_model **out) {
  if (out == NULL || bytes == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected bytes and a place, got null");
  *out = NULL;
  model *m = calloc(1, sizeof *m);
  if (m == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a model");
  tw_status status;
  if (is_package(bytes, size)) {
    status = load_package("memory", bytes, size, m);
  } else {
    status = check_seal("memory", bytes, size);
    if (status == TW_OK) status = open_code("memory", bytes, size, &m->functions);
    if (status == TW_OK) {
      status = passed(&m->functions, m->functions.model_load(NULL, &m->inner));
      if (status != TW_OK) tw_library_close(&m->functions);
    }
  }
  if (status != TW_OK) {
    free(m);
    return status;
  }
  *out = (tw_model *)(void *)m;
  return TW_OK;
}

TW_API void tw_model_free(tw_model *given) {
  if (given == NULL) return;
  model *m = (model *)(void *)given;
  m->functions.model_free(m->inner);
  tw_library_close(&m->functions);
  tw_unmap(m->mapping);
  free(m);
}

TW_API const char *tw_model_manifest(const tw_model *m) { return m ? opened(m)->functions.model_manifest(opened(m)->inner) : ""; }
TW_API int32_t tw_model_input_count(const tw_model *m) {
  return m ? opened(m)->functions.model_input_count(opened(m)->inner) : 0;
}
TW_API int32_t tw_model_output_count(const tw_model *m) {
  return m ? opened(m)->functions.model_output_count(opened(m)->inner) : 0;
}

TW_API tw_status tw_model_input(const tw_model *m, int32_t index, tw_spec *spec) {
  if (m == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model, got null");
  return passed(&opened(m)->functions, opened(m)->functions.model_input(opened(m)->inner, index, spec));
}

TW_API tw_status tw_model_output(const tw_model *m, int32_t index, tw_spec *spec) {
  if (m == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model, got null");
  return passed(&opened(m)->functions, opened(m)->functions.model_output(opened(m)->inner, index, spec));
}

TW_API tw_status tw_session_create(tw_model *given, const tw_options *options, tw_session **out) {
  if (given == NULL || out == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a model and a place, got null");
  *out = NULL;
  const model *m = opened(given);
  session *s = calloc(1, sizeof *s);
  if (s == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a session");
  s->functions = &m->functions;
  tw_status status = passed(s->functions, s->functions->session_create(m->inner, options, &s->inner));
  if (status != TW_OK) {
    free(s);
    return status;
  }
  *out = (tw_session *)(void *)s;
  return TW_OK;
}

TW_API void tw_session_free(tw_session *given) {
  if (given == NULL) return;
  session *s = (session *)(void *)given;
  s->functions->session_free(s->inner);
  free(s);
}

TW_API tw_status tw_session_run(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count) {
  if (s == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a session, got null");
  const tw_library *l = started(s)->functions;
  return passed(l, l->session_run(started(s)->inner, inputs, input_count, outputs, output_count));
}

TW_API tw_status tw_session_shapes(
    tw_session *s, const tw_tensor *inputs, int32_t input_count, tw_tensor *outputs, int32_t output_count) {
  if (s == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a session, got null");
  const tw_library *l = started(s)->functions;
  return passed(l, l->session_shapes(started(s)->inner, inputs, input_count, outputs, output_count));
}

TW_API int32_t tw_session_step_count(const tw_session *s) {
  return s ? started(s)->functions->session_step_count(started(s)->inner) : 0;
}

TW_API tw_status tw_session_step(const tw_session *s, int32_t index, const char **name, double *seconds) {
  if (s == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a session, got null");
  return passed(started(s)->functions, started(s)->functions->session_step(started(s)->inner, index, name, seconds));
}

TW_API uint64_t tw_session_bytes(const tw_session *s) {
  return s ? started(s)->functions->session_bytes(started(s)->inner) : 0;
}

TW_API uint64_t tw_model_arena_bytes(const tw_model *m) {
  return m ? opened(m)->functions.model_arena_bytes(opened(m)->inner) : 0;
}

TW_API tw_status tw_session_use_arena(tw_session *s, void *memory, uint64_t bytes) {
  if (s == NULL) return tw_fail(TW_INVALID_ARGUMENT, "expected a session, got null");
  return passed(started(s)->functions, started(s)->functions->session_use_arena(started(s)->inner, memory, bytes));
}
