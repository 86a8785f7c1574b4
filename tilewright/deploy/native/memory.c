/* Memory: aligned, and what values own. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"

#define LARGEST ((int64_t)1 << 47) /* bytes: more than any machine has */

void *tw_allocate(uint64_t bytes) {
  if (bytes > (uint64_t)LARGEST) return NULL;
  unsigned char *raw = malloc(bytes + TW_LINE + sizeof(void *));
  if (raw == NULL) return NULL;
  uintptr_t at = ((uintptr_t)raw + sizeof(void *) + TW_LINE - 1) & ~(uintptr_t)(TW_LINE - 1);
  ((void **)at)[-1] = raw;
  return (void *)at;
}

void tw_release(void *memory) {
  if (memory != NULL) free(((void **)memory)[-1]);
}

tw_status tw_reserve(tw_value *value, uint64_t bytes) {
  if (value->memory == NULL || bytes > value->capacity) {
    void *memory = tw_allocate(bytes);
    if (memory == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a tensor of %llu bytes", (unsigned long long)bytes);
    tw_release(value->memory);
    value->memory = memory;
    value->capacity = bytes;
  }
  value->data = value->memory;
  return TW_OK;
}

void tw_clear(tw_value *value) {
  tw_release(value->memory);
  for (int64_t i = 0; i < value->room; i++) tw_clear(&value->items[i]);
  free(value->items);
  memset(value, 0, sizeof *value);
}

int64_t tw_item_bytes(int32_t type) {
  /*                             0  1  2  3  4  5  6  7  8  9 10 11 12 13 14  15 16 and the narrow ones */
  static const uint8_t sizes[] = {0, 4, 1, 1, 2, 2, 4, 8, 0, 1, 2, 8, 4, 8, 8, 16, 2, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  return type < 0 || type >= (int32_t)sizeof sizes ? 0 : sizes[type];
}

int64_t tw_elements(int32_t rank, const int64_t *shape) {
  int64_t n = 1;
  for (int32_t i = 0; i < rank; i++) n = tw_room(n, shape[i]);
  return n;
}

uint64_t tw_value_bytes(const tw_value *value) {
  return (uint64_t)(tw_elements(value->rank, value->shape) * tw_item_bytes(value->type));
}

tw_status tw_set_shape(tw_value *value, int32_t type, int32_t rank, const int64_t *shape) {
  int64_t bytes = tw_room(tw_item_bytes(type), tw_elements(rank, shape));
  if (rank > TW_MAX_RANK) return tw_fail(TW_INVALID_INPUT, "expected at most %d dimensions, got %d", TW_MAX_RANK, rank);
  if (bytes < 0) return tw_fail(TW_OUT_OF_MEMORY, "a tensor is too large, or a size of it negative");
  value->type = type;
  value->rank = rank;
  if (value->shape != shape) memmove(value->shape, shape, (size_t)rank * sizeof *shape);
  return tw_reserve(value, (uint64_t)bytes);
}

tw_status tw_extend(tw_value *value, uint64_t bytes) {
  uint64_t used = tw_value_bytes(value), needed = used + bytes;
  if (value->memory != NULL && needed <= value->capacity) return TW_OK;
  void *memory = tw_allocate(2 * needed);
  if (memory == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a tensor of %llu bytes", (unsigned long long)needed);
  if (used) memcpy(memory, value->data, (size_t)used);
  tw_release(value->memory);
  value->memory = value->data = memory;
  value->capacity = 2 * needed;
  return TW_OK;
}

tw_status tw_set_length(tw_value *value, int64_t length) {
  if (length > value->room) {
    tw_value *items = realloc(value->items, (size_t)length * sizeof *items);
    if (items == NULL) return tw_fail(TW_OUT_OF_MEMORY, "no memory for a sequence of %lld", (long long)length);
    memset(items + value->room, 0, (size_t)(length - value->room) * sizeof *items);
    value->items = items;
    value->room = length;
  }
  value->type = value->rank = 0;
  value->length = length;
  return TW_OK;
}

tw_status tw_copy_value(tw_value *to, const tw_value *from) {
  if (from->type == 0) {
    TRY(tw_set_length(to, from->length));
    for (int64_t i = 0; i < from->length; i++) TRY(tw_copy_value(&to->items[i], &from->items[i]));
    return TW_OK;
  }
  TRY(tw_set_shape(to, from->type, from->rank, from->shape));
  uint64_t bytes = tw_value_bytes(from);
  if (bytes) memmove(to->data, from->data, (size_t)bytes);
  return TW_OK;
}
