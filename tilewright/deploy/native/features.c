/* Does this CPU have what the code needs? Asked of the CPU itself, and of the system, which has to save wide registers. */
#include <string.h>

#include "platform.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

typedef struct feature {
  const char *name;
  uint32_t leaf, subleaf;
  uint8_t word, bit; /* word: 0 eax, 1 ebx, 2 ecx, 3 edx */
  uint32_t saved;    /* bits of XCR0 that the system must have set */
} feature;

#define YMM 0x6u
#define ZMM 0xe6u
#define TILES 0x60000u

/* Intel SDM volume 2A, CPUID; AMD APM volume 3, appendix E */
static const feature known[] = {
    {"sse3", 1, 0, 2, 0, 0},          {"ssse3", 1, 0, 2, 9, 0},          {"fma", 1, 0, 2, 12, YMM},
    {"sse4.1", 1, 0, 2, 19, 0},       {"sse4.2", 1, 0, 2, 20, 0},        {"movbe", 1, 0, 2, 22, 0},
    {"popcnt", 1, 0, 2, 23, 0},       {"avx", 1, 0, 2, 28, YMM},         {"f16c", 1, 0, 2, 29, YMM},
    {"cmov", 1, 0, 3, 15, 0},         {"mmx", 1, 0, 3, 23, 0},           {"sse", 1, 0, 3, 25, 0},
    {"sse2", 1, 0, 3, 26, 0},         {"bmi", 7, 0, 1, 3, 0},            {"avx2", 7, 0, 1, 5, YMM},
    {"bmi2", 7, 0, 1, 8, 0},          {"avx512f", 7, 0, 1, 16, ZMM},     {"avx512dq", 7, 0, 1, 17, ZMM},
    {"adx", 7, 0, 1, 19, 0},          {"avx512ifma", 7, 0, 1, 21, ZMM},  {"avx512cd", 7, 0, 1, 28, ZMM},
    {"avx512bw", 7, 0, 1, 30, ZMM},   {"avx512vl", 7, 0, 1, 31, ZMM},    {"avx512vbmi", 7, 0, 2, 1, ZMM},
    {"avx512vbmi2", 7, 0, 2, 6, ZMM}, {"gfni", 7, 0, 2, 8, 0},           {"avx512vnni", 7, 0, 2, 11, ZMM},
    {"avx512bitalg", 7, 0, 2, 12, ZMM}, {"avx512vpopcntdq", 7, 0, 2, 14, ZMM}, {"amx-bf16", 7, 0, 3, 22, TILES},
    {"avx512fp16", 7, 0, 3, 23, ZMM}, {"amx-tile", 7, 0, 3, 24, TILES},  {"amx-int8", 7, 0, 3, 25, TILES},
    {"avx512vp2intersect", 7, 0, 3, 8, ZMM}, {"avxvnni", 7, 1, 0, 4, YMM}, {"avx512bf16", 7, 1, 0, 5, ZMM},
    {"amx-fp16", 7, 1, 0, 21, TILES}, {"avxifma", 7, 1, 0, 23, YMM},     {"avxvnniint8", 7, 1, 3, 4, YMM},
    {"avxneconvert", 7, 1, 3, 5, YMM}, {"avxvnniint16", 7, 1, 3, 10, YMM}, {"prfchw", 0x80000001u, 0, 2, 8, 0},
    {"sahf", 0x80000001u, 0, 2, 0, 0}, {"lzcnt", 0x80000001u, 0, 2, 5, 0}, {"sse4a", 0x80000001u, 0, 2, 6, 0},
    {"fma4", 0x80000001u, 0, 2, 16, YMM}, {"tbm", 0x80000001u, 0, 2, 21, 0}, {"xop", 0x80000001u, 0, 2, 11, YMM},
    {"64bit", 0x80000001u, 0, 3, 29, 0}, {"crc32", 1, 0, 2, 20, 0},      {"raoint", 7, 1, 0, 3, 0},
    {"cmpccxadd", 7, 1, 0, 7, 0},     {"amx-complex", 7, 1, 3, 8, TILES}, {"prefetchi", 7, 1, 3, 14, 0},
    {"egpr", 7, 1, 3, 21, 0},         {"push2pop2", 7, 1, 3, 21, 0},     {"ppx", 7, 1, 3, 21, 0},
    {"ndd", 7, 1, 3, 21, 0},          {"ccmp", 7, 1, 3, 21, 0},          {"nf", 7, 1, 3, 21, 0},
    {"cf", 7, 1, 3, 21, 0},           {"zu", 7, 1, 3, 21, 0},
};

static uint32_t saved_registers(void) {
  uint32_t a, b, c, d, low, high;
  if (!__get_cpuid_count(1, 0, &a, &b, &c, &d) || !(c & (1u << 27))) return 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

static int has(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const feature *k = &known[i];
    if (strcmp(k->name, name) != 0) continue;
    uint32_t words[4];
    if (!__get_cpuid_count(k->leaf, k->subleaf, &words[0], &words[1], &words[2], &words[3])) return 0;
    return (words[k->word] >> k->bit & 1) && (saved_registers() & k->saved) == k->saved;
  }
  return 0; /* a feature that nobody can look for is not there */
}

#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Linux, arch/arm64/include/uapi/asm/hwcap.h */
static int has(const char *name) {
  static const struct {
    const char *name;
    unsigned long word, bit;
  } known[] = {{"neon", AT_HWCAP, 1},        {"fp-armv8", AT_HWCAP, 0},  {"lse", AT_HWCAP, 8},
               {"crc", AT_HWCAP, 7},         {"fullfp16", AT_HWCAP, 10}, {"rdm", AT_HWCAP, 12},
               {"dotprod", AT_HWCAP, 20},    {"fp16fml", AT_HWCAP, 23},  {"sve", AT_HWCAP, 22},
               {"rcpc", AT_HWCAP, 15},       {"sve2", AT_HWCAP2, 1},     {"i8mm", AT_HWCAP2, 13},
               {"bf16", AT_HWCAP2, 14}};
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return getauxval(known[i].word) >> known[i].bit & 1;
  return 0;
}

#else

static int has(const char *name) {
  (void)name; /* the format of the file says which CPUs it is for; there is nothing to ask */
  return 1;
}

#endif

const char *tw_lacking_feature(const char *const *features) {
  for (; *features; features++)
    if (!has(*features)) return *features;
  return NULL;
}
