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
#define AOE_REGION_BYTES ((size_t)64 << 20)
#ifdef __SANITIZE_ADDRESS__ /* which watches what is between pieces of its own */
#define AOE_LEAST_IN_REGION SIZE_MAX
#else
#define AOE_LEAST_IN_REGION ((size_t)32 << 10)
#endif
#define AOE_LANES 4

typedef struct {
  uint64_t low, high;
} digest;

typedef enum { MAKING, MADE, FAILED } state;
typedef struct region region;

struct aoe_shared_pack {
  aoe_shared_pack *next;
  const void *form;
  digest contents;
  size_t raw_bytes;
  size_t packed_bytes;
  void *packed;
  region *home; /* of `packed`; NULL if it has memory of its own */
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

/* ---- memory: packs lie one behind the other in huge pages ---- */

/* Addresses of which packs take one piece after the other, until the last pack is gone. */
struct region {
  region *next;
  uint8_t *begin;
  size_t bytes, taken;
  int packs;
};

static pthread_mutex_t memory_lock = PTHREAD_MUTEX_INITIALIZER;
static region *regions; /* the newest first, guarded by `memory_lock` */

static size_t up_to(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/* Reserves addresses, which take no memory until they are written to; NULL if there are none. */
static region *reserve(size_t bytes) {
  region *made = (region *)calloc(1, sizeof *made);
  if (!made) return NULL;
  size_t asked = bytes + AOE_HUGE_PAGE_BYTES;
  uint8_t *got = (uint8_t *)mmap(NULL, asked, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (got == MAP_FAILED) {
    free(made);
    return NULL;
  }
  made->begin = (uint8_t *)up_to((uintptr_t)got, AOE_HUGE_PAGE_BYTES);
  made->bytes = bytes;
  size_t before = (size_t)(made->begin - got);
  if (before) munmap(got, before);
  munmap(made->begin + bytes, asked - before - bytes);
#ifdef MADV_HUGEPAGE
  madvise(made->begin, bytes, MADV_HUGEPAGE);
#endif
  made->next = regions;
  regions = made;
  return made;
}

/* Gives a pack memory. Packed values are read in each run, by few streams from the first to the last:
   what looks ahead in memory stops at the end of a page, and each page has to be found, which in a
   virtual machine takes two walks through tables. So they lie in huge pages where the system has
   these for who asks, and close together, since hardly one fills its last page: a session wastes part
   of one. 64 rows of 512 values by 1408 columns take 650 us so, and 695 where two thirds of the values
   lie in huge pages (one thread of a Xeon with AVX-512, 2026-11-29). Few values do not gain. */
static void allocate(aoe_shared_pack *pack, size_t bytes) {
  size_t wanted = up_to(bytes ? bytes : 1, AOE_ALIGNMENT);
  if (wanted >= AOE_LEAST_IN_REGION) {
    pthread_mutex_lock(&memory_lock);
    region *home = regions;
    while (home && home->bytes - home->taken < wanted) home = home->next;
    size_t usual = wanted < AOE_REGION_BYTES ? AOE_REGION_BYTES : wanted;
    if (!home) home = reserve(up_to(usual, AOE_HUGE_PAGE_BYTES));
    if (home) {
      pack->packed = home->begin + home->taken;
      pack->home = home;
      home->taken += wanted;
      home->packs++;
    }
    pthread_mutex_unlock(&memory_lock);
  }
  if (!pack->packed) pack->packed = aligned_alloc(AOE_ALIGNMENT, wanted);
}

/* Takes the memory of a pack back: the piece, where it is the last one of its region, or its pages;
   the region with its last pack. */
static void release(aoe_shared_pack *pack) {
  region *home = pack->home;
  if (!home) {
    free(pack->packed);
    return;
  }
  pthread_mutex_lock(&memory_lock);
  if (--home->packs == 0) {
    region **at = &regions;
    while (*at != home) at = &(*at)->next;
    *at = home->next;
    munmap(home->begin, home->bytes);
    free(home);
  } else {
    size_t first = (size_t)((uint8_t *)pack->packed - home->begin);
    size_t end = first + up_to(pack->packed_bytes, AOE_ALIGNMENT);
    size_t page = AOE_HUGE_PAGE_BYTES;
    if (end == home->taken) home->taken = first;
    if (up_to(first, page) < end / page * page)
      madvise(home->begin + up_to(first, page), end / page * page - up_to(first, page),
              MADV_DONTNEED);
  }
  pthread_mutex_unlock(&memory_lock);
  pack->packed = NULL;
  pack->home = NULL;
}

/* Makes the packed form, or leaves NULL. */
static void make(aoe_shared_pack *pack, const aoe_pack_order *order) {
  allocate(pack, order->packed_bytes);
  if (!pack->packed || order->make(order->what, pack->packed) == 0) return;
  release(pack);
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
  release(pack);
  free(pack);
}
