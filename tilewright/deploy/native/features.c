/* Does this CPU have what the code needs? Asked of the CPU itself, and of the system, which has to save wide registers. */
#if defined(__linux__)
#define _GNU_SOURCE /* syscall */
#endif
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
    {"cf", 7, 1, 3, 21, 0},           {"zu", 7, 1, 3, 21, 0},             {"avx10.1", 7, 1, 3, 19, ZMM},
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

#elif defined(__aarch64__) && (defined(__linux__) || defined(__APPLE__))

typedef struct feature {
  const char *name;
  uint8_t word, bit;    /* Linux: of AT_HWCAP or AT_HWCAP2, arch/arm64/include/uapi/asm/hwcap.h */
  const char *on_apple; /* macOS: behind hw.optional.; null: no Mac has it */
} feature;

static const feature known[] = {
    {"fp-armv8", 1, 0, "floatingpoint"}, {"neon", 1, 1, "AdvSIMD"}, {"lse", 1, 8, "arm.FEAT_LSE"},
    {"fullfp16", 1, 10, "arm.FEAT_FP16"}, {"rdm", 1, 12, "arm.FEAT_RDM"}, {"complxnum", 1, 14, "arm.FEAT_FCMA"},
    {"rcpc", 1, 15, "arm.FEAT_LRCPC"}, {"sha3", 1, 17, "arm.FEAT_SHA3"}, {"dotprod", 1, 20, "arm.FEAT_DotProd"},
    {"sve", 1, 22, NULL}, {"fp16fml", 1, 23, "arm.FEAT_FHM"}, {"rcpc-immo", 1, 26, "arm.FEAT_LRCPC2"},
    {"flagm", 1, 27, "arm.FEAT_FlagM"}, {"cmpbr", 1, 33, NULL}, {"fprcvt", 1, 34, NULL}, {"sve2p2", 1, 41, NULL},
    {"sve2", 2, 1, NULL}, {"sve-bitperm", 2, 4, NULL}, {"sve-sha3", 2, 5, NULL}, {"altnzcv", 2, 7, "arm.FEAT_FlagM2"},
    {"f32mm", 2, 10, NULL}, {"f64mm", 2, 11, NULL}, {"i8mm", 2, 13, "arm.FEAT_I8MM"},
    {"bf16", 2, 14, "arm.FEAT_BF16"}, {"cssc", 2, 34, "arm.FEAT_CSSC"}, {"sve2p1", 2, 36, NULL},
    {"mops", 2, 43, NULL}, {"sve-b16b16", 2, 45, NULL}, {"rcpc3", 2, 46, NULL}, {"faminmax", 2, 50, NULL},
};

#if defined(__linux__)
#include <sys/auxv.h>

static int is_there(const feature *k) {
  uint64_t word = getauxval(k->word == 1 ? AT_HWCAP : AT_HWCAP2);
  return word >> k->bit & 1;
}
#else
#include <stdio.h>
#include <sys/sysctl.h>

static int is_there(const feature *k) {
  char name[64];
  int value = 0;
  size_t size = sizeof value;
  if (k->on_apple == NULL) return 0;
  snprintf(name, sizeof name, "hw.optional.%s", k->on_apple);
  return sysctlbyname(name, &value, &size, NULL, 0) == 0 && value != 0;
}
#endif

static int has(const char *name) {
  for (size_t i = 0; i < sizeof known / sizeof *known; i++)
    if (strcmp(known[i].name, name) == 0) return is_there(&known[i]);
  return 0;
}

#elif defined(__riscv) && defined(__linux__)
#include <stdlib.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Extensions that the system tells by single letters, and those that are parts of them */
static const struct {
  const char *name, *letters;
} parts[] = {{"zmmul", "m"},   {"zaamo", "a"},   {"zalrsc", "a"},  {"zicsr", "f"},   {"zca", "c"},
             {"zcd", "cd"},    {"zve32x", "v"},  {"zve32f", "v"},  {"zve64x", "v"},  {"zve64f", "v"},
             {"zve64d", "v"}};

/* Linux, arch/riscv/include/uapi/asm/hwprobe.h: bits of RISCV_HWPROBE_KEY_IMA_EXT_0 */
static const struct {
  const char *name;
  uint8_t bit;
} probed[] = {{"zba", 3},    {"zbb", 4},    {"zbs", 5},    {"zbc", 7},     {"zbkb", 8},      {"zbkx", 10},
              {"zvbb", 17},  {"zvbc", 18},  {"zvkb", 19},  {"zfh", 27},    {"zfhmin", 28},   {"zvfh", 30},
              {"zvfhmin", 31}, {"zfa", 32}, {"zacas", 34}, {"zicond", 35}, {"zcb", 44},      {"zawrs", 48},
              {"zfbfmin", 52}, {"zvfbfmin", 53}, {"zvfbfwma", 54}, {"zabha", 58}};

static int has_letters(const char *letters) {
  uint64_t word = getauxval(AT_HWCAP);
  for (; *letters; letters++)
    if (!(word >> (*letters - 'a') & 1)) return 0;
  return 1;
}

static uint64_t probe(void) {
  struct {
    int64_t key;
    uint64_t value;
  } pair = {4, 0};
  return syscall(258, &pair, (size_t)1, (size_t)0, NULL, 0u) == 0 && pair.key == 4 ? pair.value : 0;
}

static int64_t vector_bits(void) {
  int64_t bytes;
  __asm__ volatile(".option push\n.option arch, +zicsr\ncsrr %0, 0xc22\n.option pop" : "=r"(bytes)); /* vlenb */
  return 8 * bytes;
}

static int has(const char *name) {
  if (name[0] && !name[1]) return has_letters(name);
  if (strncmp(name, "zvl", 3) == 0) return has_letters("v") && vector_bits() >= strtol(name + 3, NULL, 10);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (strcmp(parts[i].name, name) == 0) return has_letters(parts[i].letters);
  for (size_t i = 0; i < sizeof probed / sizeof *probed; i++)
    if (strcmp(probed[i].name, name) == 0) return probe() >> probed[i].bit & 1;
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
