/* ONNX Runtime keeps the weights of a model as long as the session, also those that no kernel reads
   but packed. A custom operator cannot give them back, but ONNX Runtime maps external weights, and
   pages of a file can go from memory without anybody noticing. The kernel of the operating system
   tells which pages those are: not what was written to, nor any other memory.
   Source: Linux, Documentation/admin-guide/mm/pagemap.rst, and madvise(2), MADV_DONTNEED. */
#define _GNU_SOURCE
#include "file_pages.h"

#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define AOE_PAGES_AT_ONCE 512

static const uint64_t is_present = (uint64_t)1 << 63;
static const uint64_t is_swapped = (uint64_t)1 << 62;
static const uint64_t is_of_file = (uint64_t)1 << 61; /* or shared, which can go as well */

static int may_go(uint64_t page) {
  return (page & (is_present | is_swapped | is_of_file)) == (is_present | is_of_file);
}

/* Lets go of some pages, each run of neighbours at once. */
static void let_go(uintptr_t first, const uint64_t *pages, size_t count, size_t page_bytes) {
  for (size_t begin = 0, end; begin < count; begin = end + 1) {
    for (end = begin; end < count && may_go(pages[end]);) end++;
    if (end > begin)
      madvise((void *)(first + begin * page_bytes), (end - begin) * page_bytes, MADV_DONTNEED);
  }
}

void aoe_let_go_of_file_pages(const void *data, size_t bytes) {
  uint64_t pages[AOE_PAGES_AT_ONCE];
  size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
  uintptr_t at = ((uintptr_t)data + page_bytes - 1) / page_bytes * page_bytes;
  uintptr_t end = ((uintptr_t)data + bytes) / page_bytes * page_bytes;
  int map = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (map < 0) return;
  while (at < end) {
    size_t wanted = (end - at) / page_bytes;
    if (wanted > AOE_PAGES_AT_ONCE) wanted = AOE_PAGES_AT_ONCE;
    off_t place = (off_t)(at / page_bytes * sizeof *pages);
    ssize_t got = pread(map, pages, wanted * sizeof *pages, place);
    size_t count = got > 0 ? (size_t)got / sizeof *pages : 0;
    if (!count) break;
    let_go(at, pages, count, page_bytes);
    at += count * page_bytes;
  }
  close(map);
}
