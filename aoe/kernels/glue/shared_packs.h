/* Packed constants of a process: sessions, and nodes of one, that need the same share it. */
#ifndef AOE_SHARED_PACKS_H
#define AOE_SHARED_PACKS_H

#include <stddef.h>

typedef struct {
  const void *form;    /* tells one packed form from another: the kernel's entry of its packings */
  const void *raw;     /* what is packed */
  size_t raw_bytes;
  size_t packed_bytes;
  int (*make)(const void *what, void *packed); /* writes the packed form; 0 if that worked */
  const void *what;    /* for `make` */
} aoe_pack_order;

typedef struct aoe_shared_pack aoe_shared_pack;

/* Returns what is packed already, else has it made by the calling thread; others who want the same
   wait for it. NULL where it cannot be made. To be given back as often as it was taken. */
aoe_shared_pack *aoe_share_pack(const aoe_pack_order *order);

/* Its packed form, aligned to 64 bytes; nobody writes to it. */
void *aoe_packed(const aoe_shared_pack *pack);

/* The last one to give it back frees it; NULL is nothing. */
void aoe_give_back_pack(aoe_shared_pack *pack);

#endif
