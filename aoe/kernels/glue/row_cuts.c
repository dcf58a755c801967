#include "row_cuts.h"

#include <string.h>

/* Numbers of rows that may be left for the last block but one: each before it at most doubles
   their count. The last block, of one row, cuts in one way. */
#define AOE_MAX_LEFT (1 << (AOE_MAX_BLOCKS - 2))
#define AOE_SLOTS (2 * AOE_MAX_LEFT)
/* Of the time of a block that is filled up: rows are copied to and fro. `expected_us` of
   `aoe/tasks/ranges/open_operators.py` has it, too. */
#define AOE_PADDING 1.1f

/* Numbers of rows, each once, the whole one first. */
typedef struct {
  int64_t rows[AOE_MAX_LEFT];
  int count;
  uint8_t slots[AOE_SLOTS]; /* place of a number, by its last bits or behind; 0 for none */
} known_rows;

/* Finds the place of a number that is not the first one; adds it behind the others if need be. */
static int place_of(known_rows *known, int64_t rows) {
  unsigned slot = (unsigned)rows % AOE_SLOTS;
  while (known->slots[slot] && known->rows[known->slots[slot]] != rows)
    slot = (slot + 1) % AOE_SLOTS;
  if (!known->slots[slot]) {
    known->rows[known->count] = rows;
    known->slots[slot] = (uint8_t)known->count++;
  }
  return known->slots[slot];
}

/* A block meets the numbers of rows the one before it has met, and what that leaves of them. So all
   are listed once, from the largest block on, and reckoned from the smallest one on. */
void aoe_cut_rows(const aoe_rows *table, int64_t rows, aoe_cut *cuts) {
  const aoe_block *blocks = table->blocks;
  const int last = table->block_count - 1;
  known_rows left;
  int met[AOE_MAX_BLOCKS]; /* how many numbers a block meets: the first ones */
  int32_t rest[AOE_MAX_BLOCKS][AOE_MAX_LEFT]; /* place of what is left, 0 for nothing;
                                                  of the last block but one: that itself */
  uint8_t cut[AOE_MAX_BLOCKS][AOE_MAX_LEFT];
  float full_us[AOE_MAX_BLOCKS][AOE_MAX_LEFT], us[AOE_MAX_LEFT];
  left.rows[0] = rows;
  left.count = 1;
  memset(left.slots, 0, sizeof left.slots);
  for (int b = 0; b < last; b++) {
    met[b] = left.count;
    for (int i = 0; i < met[b]; i++) {
      int64_t fit = left.rows[i] / blocks[b].rows, over = left.rows[i] - fit * blocks[b].rows;
      if (!fit) continue;
      full_us[b][i] = (float)fit * blocks[b].us;
      rest[b][i] = over && b < last - 1 ? place_of(&left, over) : (int32_t)over;
    }
  }
  for (int i = 0; i < left.count; i++) us[i] = (float)left.rows[i] * blocks[last].us;
  for (int b = last - 1; b >= 0; b--) {
    for (int i = 0; i < met[b]; i++) { /* `us` is that of the blocks behind, then that from b on */
      cut[b][i] = AOE_SMALLER;
      if (left.rows[i] < blocks[b].rows) continue;
      float one_more = rest[b][i] ? blocks[b].us : 0, others = 0;
      if (b == last - 1) others = (float)rest[b][i] * blocks[last].us;
      else if (rest[b][i]) others = us[rest[b][i]]; /* less than the block: b has not changed it */
      float best = full_us[b][i] + (one_more < others ? one_more : others);
      if (us[i] < best) continue;
      us[i] = best;
      cut[b][i] = one_more < others ? AOE_AND_ONE_MORE : AOE_AND_SMALLER;
    }
    for (int i = 0; i < met[b]; i++) { /* behind the others: these reckon with smaller blocks */
      float padded = AOE_PADDING * blocks[b].us;
      if (left.rows[i] >= blocks[b].rows || us[i] <= padded) continue;
      us[i] = padded;
      cut[b][i] = AOE_PADDED;
    }
  }
  for (int b = 0, i = 0; b < last; b++) {
    cuts[b] = (aoe_cut)cut[b][i];
    if (cuts[b] == AOE_AND_SMALLER) i = rest[b][i];
  }
  cuts[last] = AOE_AND_SMALLER;
}
