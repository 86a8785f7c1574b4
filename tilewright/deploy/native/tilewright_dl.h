/* tilewright_dl.h: opens artifacts by path while a program runs. Each library has functions of its own, so that a program
 * can have several models. C99 or C++11; Linux and macOS. A program with one model links it, and needs tilewright.h alone.
 * Packages are opened by libtilewright: open that, and give the path of the package to its model_load. Given that of a
 * library, it looks at the library's digest before it runs anything.
 *
 *   tw_library lib;
 *   if (tw_library_open(&lib, "model.so") != TW_OK) puts(lib.message);
 *   lib.model_load(NULL, &model); ... lib.model_free(model);
 *   tw_library_close(&lib);
 */
#ifndef TILEWRIGHT_DL_H
#define TILEWRIGHT_DL_H

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "tilewright.h"

#ifdef __cplusplus
#define TW_POINTER_TO(function) decltype(&function)
#else
#define TW_POINTER_TO(function) __typeof__(&function)
#endif

/* Every function of tilewright.h, without its prefix. */
#define TW_EACH_FUNCTION(X)                                                                                        \
  X(version) X(error) X(model_load) X(model_load_memory) X(model_free) X(model_manifest) X(model_input_count)       \
  X(model_output_count) X(model_input) X(model_output) X(session_create) X(session_free) X(session_run)             \
  X(session_shapes) X(session_step_count) X(session_step) X(session_bytes)             \
  X(model_arena_bytes) X(session_use_arena)

typedef struct tw_library {
  void *handle;
  char message[512]; /* why it could not be opened */
#define TW_DECLARE(name) TW_POINTER_TO(tw_##name) name;
  TW_EACH_FUNCTION(TW_DECLARE)
#undef TW_DECLARE
} tw_library;

/* Models of the library must be freed before. */
static inline void tw_library_close(tw_library *lib) {
  if (lib->handle != NULL) dlclose(lib->handle);
  lib->handle = NULL;
}

/* `path` is what messages call the library, `place` where the system finds it. */
static inline tw_status tw_library_open_at(tw_library *lib, const char *place, const char *path) {
  static const char *const names[] = {
#define TW_NAME(name) "tw_" #name,
      TW_EACH_FUNCTION(TW_NAME)
#undef TW_NAME
  };
  void *functions[sizeof names / sizeof *names];
  memset(lib, 0, sizeof *lib);
  lib->handle = dlopen(place, RTLD_NOW | RTLD_LOCAL);
  if (lib->handle == NULL) {
    snprintf(lib->message, sizeof lib->message, "%.200s: %.300s", path, dlerror());
    return TW_INVALID_ARTIFACT;
  }
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    functions[i] = dlsym(lib->handle, names[i]);
    if (functions[i] != NULL) continue;
    snprintf(lib->message, sizeof lib->message, "%.400s: expected an artifact of tilewright, found no %s in it", path,
             names[i]);
    tw_library_close(lib);
    return TW_INVALID_ARTIFACT;
  }
  size_t at = 0;
#define TW_TAKE(name) memcpy(&lib->name, &functions[at++], sizeof lib->name);
  TW_EACH_FUNCTION(TW_TAKE)
#undef TW_TAKE
  if (lib->version() == TW_VERSION) return TW_OK;
  snprintf(lib->message, sizeof lib->message, "%.400s: expected version %d of the interface, got %d", path, TW_VERSION,
           (int)lib->version());
  tw_library_close(lib);
  return TW_INVALID_ARTIFACT;
}

/* Opens an artifact, or libtilewright. This runs its code: open only what you trust. A path is a path: libraries of the
 * system are not searched for it. Fails with TW_INVALID_ARTIFACT and a message in `lib`. */
static inline tw_status tw_library_open(tw_library *lib, const char *path) {
  char place[4096];
  snprintf(place, sizeof place, "%s%s", strchr(path, '/') ? "" : "./", path);
  return tw_library_open_at(lib, place, path);
}

#endif
