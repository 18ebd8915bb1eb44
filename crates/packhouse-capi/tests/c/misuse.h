/* Calls that break the interface's rules. */
#ifndef MISUSE_H
#define MISUSE_H

#include <packhouse.h>

/* Makes each of them and prints `misuse <name> <status name> <text>`. */
void misuse(const packhouse_open_options *good, packhouse_set *set);

#endif
