/* Packed constants of a process. A session has its weights at an address of its own, so what is
   packed already is found by their contents: a digest of 128 bits. Two different tensors have the
   same one by chance with a probability of 2^-128; among a million tensors, some pair does with
   2^-89, which is far less than memory errs. Who could make a pair on purpose supplies a model,
   whose library may run any code in this process anyway. */
#define _GNU_SOURCE
#include "shared_packs.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define AOE_ALIGNMENT 64
#define AOE_HUGE_PAGE_BYTES ((size_t)2 << 20)
#define AOE_LANES 4

typedef struct {
  uint64_t low, high;
} digest;

typedef enum { MAKING, MADE, FAILED } state;

struct aoe_shared_pack {
  aoe_shared_pack *next;
  const void *form;
  digest contents;
  size_t raw_bytes;
  size_t packed_bytes;
  void *packed;
  int users;
  state state;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t made = PTHREAD_COND_INITIALIZER; /* or failed */
static aoe_shared_pack *known;                         /* all there are, guarded by `lock` */

/* ---- contents ---- */

static uint64_t rotated(uint64_t value, int bits) { return value << bits | value >> (64 - bits); }

/* Every bit of the result depends on every bit of the value, and no two values have the same.
   Source: D. Stafford, "Better Bit Mixing", 2011, mix 13, as in splitmix64. */
static uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

/* One step of each lane, which never maps two words, nor two states, to the same state.
   Source: xxHash (Y. Collet), XXH64, its round and its odd factors. */
static void take_words(uint64_t lanes[AOE_LANES], const uint8_t *bytes) {
  for (int lane = 0; lane < AOE_LANES; lane++) {
    uint64_t word;
    memcpy(&word, bytes + lane * sizeof word, sizeof word);
    lanes[lane] = rotated(lanes[lane] + word * 0xc2b2ae3d27d4eb4fu, 31) * 0x9e3779b185ebca87u;
  }
}

/* Returns the digest of all bytes. Four lanes run beside each other: memory is faster than one. */
static digest digest_of(const void *data, size_t count) {
  const uint8_t *bytes = (const uint8_t *)data;
  uint64_t lanes[AOE_LANES] = {1, 2, 3, 4};
  const size_t step = sizeof lanes;
  size_t at = 0;
  for (; at + step <= count; at += step) take_words(lanes, bytes + at);
  if (at < count) {
    uint8_t rest[sizeof lanes] = {0}; /* the count, below, tells its zeros from the tensor's */
    memcpy(rest, bytes + at, count - at);
    take_words(lanes, rest);
  }
  digest found = {mixed(count), mixed(~(uint64_t)count)};
  for (int lane = 0; lane < AOE_LANES; lane++) {
    found.low = mixed(found.low ^ lanes[lane]);
    found.high = mixed(found.high + rotated(lanes[AOE_LANES - 1 - lane], 32));
  }
  return found;
}

/* ---- the table: some hundred entries, walked once for each constant of a new session ---- */

static int is_wanted(const aoe_shared_pack *pack, const aoe_pack_order *order, digest contents) {
  return pack->state != FAILED && pack->form == order->form &&
         pack->contents.low == contents.low && pack->contents.high == contents.high &&
         pack->raw_bytes == order->raw_bytes && pack->packed_bytes == order->packed_bytes;
}

static aoe_shared_pack *find(const aoe_pack_order *order, digest contents) {
  aoe_shared_pack *pack = known;
  while (pack && !is_wanted(pack, order, contents)) pack = pack->next;
  return pack;
}

/* Enters what is about to be made; NULL where there is no memory. */
static aoe_shared_pack *enter(const aoe_pack_order *order, digest contents) {
  aoe_shared_pack *pack = (aoe_shared_pack *)calloc(1, sizeof *pack);
  if (!pack) return NULL;
  pack->form = order->form;
  pack->contents = contents;
  pack->raw_bytes = order->raw_bytes;
  pack->packed_bytes = order->packed_bytes;
  pack->next = known;
  known = pack;
  return pack;
}

static void remove_from_table(aoe_shared_pack *pack) {
  aoe_shared_pack **at = &known;
  while (*at != pack) at = &(*at)->next;
  *at = pack->next;
}

/* Returns memory for packed values. Many of them are read once in each run, from the first to the
   last: what looks ahead in memory stops at the end of a page, and each page has to be found. So they
   lie in huge pages where the system has these for who asks. The last of these is taken, too, where
   all of them hold a quarter more at most: 1000 x 1280 values that no cache holds are read in 245 us
   so, and in 289 with small pages at their end (one thread of a Xeon with AVX-512, 2026-11-29). */
static void *allocate(size_t bytes) {
  size_t whole = (bytes + AOE_HUGE_PAGE_BYTES - 1) / AOE_HUGE_PAGE_BYTES * AOE_HUGE_PAGE_BYTES;
  size_t huge = whole - bytes <= bytes / 4 ? whole : bytes / AOE_HUGE_PAGE_BYTES * AOE_HUGE_PAGE_BYTES;
  size_t alignment = huge ? AOE_HUGE_PAGE_BYTES : AOE_ALIGNMENT;
  void *memory = aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
#ifdef MADV_HUGEPAGE
  if (memory && huge) madvise(memory, huge, MADV_HUGEPAGE);
#endif
  return memory;
}

/* Makes the packed form, or leaves NULL. */
static void make(aoe_shared_pack *pack, const aoe_pack_order *order) {
  pack->packed = allocate(order->packed_bytes);
  if (!pack->packed || order->make(order->what, pack->packed) == 0) return;
  free(pack->packed);
  pack->packed = NULL;
}

aoe_shared_pack *aoe_share_pack(const aoe_pack_order *order) {
  digest contents = digest_of(order->raw, order->raw_bytes);
  pthread_mutex_lock(&lock);
  aoe_shared_pack *pack = find(order, contents);
  if (pack) {
    pack->users++;
    while (pack->state == MAKING) pthread_cond_wait(&made, &lock);
  } else if ((pack = enter(order, contents))) {
    pack->users = 1;
    pthread_mutex_unlock(&lock); /* other sessions pack other weights meanwhile */
    make(pack, order);
    pthread_mutex_lock(&lock);
    pack->state = pack->packed ? MADE : FAILED;
    pthread_cond_broadcast(&made);
  }
  int failed = !pack || pack->state == FAILED;
  pthread_mutex_unlock(&lock);
  if (!failed) return pack;
  aoe_give_back_pack(pack);
  return NULL;
}

void *aoe_packed(const aoe_shared_pack *pack) { return pack->packed; }

void aoe_give_back_pack(aoe_shared_pack *pack) {
  if (!pack) return;
  pthread_mutex_lock(&lock);
  int is_last = --pack->users == 0;
  if (is_last) remove_from_table(pack);
  pthread_mutex_unlock(&lock);
  if (!is_last) return;
  free(pack->packed);
  free(pack);
}
