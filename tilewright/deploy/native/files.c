/* Weights: mapped, so that processes share their pages, and their digest. */
#if defined(__linux__)
#define _GNU_SOURCE /* dladdr */
#endif
#include <stdio.h>
#include <string.h>

#include "platform.h"

#define STEP 0x9e3779b97f4a7c15u

static uint64_t word_at(const unsigned char *at) {
  uint64_t word;
  memcpy(&word, at, sizeof word);
  return word;
}

void tw_digest(const void *bytes, uint64_t size, uint64_t digest[2]) { tw_digest_part(bytes, 0, size, digest); }

void tw_digest_part(const void *bytes, uint64_t start, uint64_t stop, uint64_t digest[2]) {
  uint64_t size = stop - start;
  const unsigned char *at = (const unsigned char *)bytes + start, *end = at + size / 32 * 32;
  uint64_t a = 0, b = 0, c = 0, d = 0, sum = 0, factor = start / 8 * STEP;
  for (; at < end; at += 32, factor += 4 * STEP) { /* four chains: a multiplication takes as long as three steps */
    uint64_t v = word_at(at), w = word_at(at + 8), x = word_at(at + 16), y = word_at(at + 24);
    a += v * (factor | 1);
    b += w * ((factor + STEP) | 1);
    c += x * ((factor + 2 * STEP) | 1);
    d += y * ((factor + 3 * STEP) | 1);
    sum += v + w + x + y;
  }
  for (uint64_t left = size % 32; left > 0; factor += STEP) {
    uint64_t last = 0, count = left < 8 ? left : 8;
    memcpy(&last, at, count);
    a += last * (factor | 1);
    sum += last;
    at += count;
    left -= count;
  }
  digest[0] = a + b + c + d;
  digest[1] = sum;
}

#if defined(_WIN32)
#include <windows.h>

tw_status tw_map_file(const char *path, tw_mapping *mapping) {
  LARGE_INTEGER size;
  HANDLE file = CreateFileA(path, GENERIC_READ, FILE_SHARE_READ, NULL, OPEN_EXISTING, 0, NULL);
  if (file == INVALID_HANDLE_VALUE) return tw_fail(TW_SYSTEM, "%s: error %lu of the system", path, GetLastError());
  HANDLE view = GetFileSizeEx(file, &size) && size.QuadPart ? CreateFileMappingA(file, NULL, PAGE_READONLY, 0, 0, NULL) : NULL;
  mapping->bytes = view ? MapViewOfFile(view, FILE_MAP_READ, 0, 0, 0) : NULL;
  mapping->size = mapping->bytes ? (uint64_t)size.QuadPart : 0;
  if (view) CloseHandle(view);
  CloseHandle(file);
  return mapping->bytes || !size.QuadPart ? TW_OK : tw_fail(TW_SYSTEM, "%s: cannot be mapped", path);
}

void tw_unmap(tw_mapping mapping) {
  if (mapping.bytes) UnmapViewOfFile(mapping.bytes);
}

tw_status tw_file_beside(const char *name, char *out, size_t room) {
  HMODULE module = NULL;
  GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                     (LPCSTR)&tw_file_beside, &module);
  DWORD length = GetModuleFileNameA(module, out, (DWORD)room);
  while (length > 0 && out[length - 1] != '\\' && out[length - 1] != '/') length--;
  if (length + strlen(name) + 1 > room) return tw_fail(TW_SYSTEM, "%s: the path is too long", name);
  strcpy(out + length, name);
  return TW_OK;
}

#elif defined(__wasm__)

tw_status tw_map_file(const char *path, tw_mapping *mapping) {
  (void)mapping;
  return tw_fail(TW_SYSTEM, "%s: there are no files here: pass the weights to tw_model_load_memory", path);
}

void tw_unmap(tw_mapping mapping) { (void)mapping; }

tw_status tw_file_beside(const char *name, char *out, size_t room) {
  (void)out, (void)room;
  return tw_fail(TW_SYSTEM, "%s: there are no files here: pass the weights to tw_model_load_memory", name);
}

#else
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

tw_status tw_map_file(const char *path, tw_mapping *mapping) {
  struct stat facts;
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0 || fstat(file, &facts) != 0) {
    tw_status status = tw_fail(TW_SYSTEM, "%s: %s", path, strerror(errno));
    if (file >= 0) close(file);
    return status;
  }
  void *bytes = facts.st_size ? mmap(NULL, (size_t)facts.st_size, PROT_READ, MAP_SHARED, file, 0) : NULL;
  close(file);
  if (bytes == MAP_FAILED) return tw_fail(TW_SYSTEM, "%s: cannot be mapped: %s", path, strerror(errno));
  mapping->bytes = bytes;
  mapping->size = (uint64_t)facts.st_size;
  return TW_OK;
}

void tw_unmap(tw_mapping mapping) {
  if (mapping.bytes) munmap((void *)(uintptr_t)mapping.bytes, (size_t)mapping.size);
}

tw_status tw_file_beside(const char *name, char *out, size_t room) {
  Dl_info info;
  if (!dladdr((void *)(uintptr_t)&tw_file_beside, &info) || info.dli_fname == NULL)
    return tw_fail(TW_SYSTEM, "%s: the directory of this library is not known", name);
  const char *slash = strrchr(info.dli_fname, '/');
  int length = slash ? (int)(slash + 1 - info.dli_fname) : 0;
  if ((size_t)snprintf(out, room, "%.*s%s", length, info.dli_fname, name) >= room)
    return tw_fail(TW_SYSTEM, "%s: the path is too long", name);
  return TW_OK;
}
#endif
