/* Memory of mapped files that nobody will read again. */
#ifndef AOE_FILE_PAGES_H
#define AOE_FILE_PAGES_H

#include <stddef.h>

/* Lets go of the whole pages in a range that are an unchanged part of a mapped file: who reads
   them again gets them from there. All other memory stays as it is. */
void aoe_let_go_of_file_pages(const void *data, size_t bytes);

#endif
