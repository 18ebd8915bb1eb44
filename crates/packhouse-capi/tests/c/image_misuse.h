/* Calls about head tiles that break the interface's rules. */
#ifndef IMAGE_MISUSE_H
#define IMAGE_MISUSE_H

#include <packhouse.h>

/* Makes each of them and prints `misuse <name> <status name> <text>`. */
void image_misuse(const packhouse_images_options *good);

#endif
