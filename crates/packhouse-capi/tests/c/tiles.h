/* A made-up head, its column callback, guarded buffers, and a judge in plain C. */
#ifndef TILES_H
#define TILES_H

#include <packhouse.h>

#include <pthread.h>

/* The engine's side: how its head is made up and what its callback does. */
typedef struct world {
    uint64_t seed, vocabulary, width;
    packhouse_tile_geometry geometry;
    uint64_t failing_column;
    int32_t failure;
    /* Whether a call waits until another thread is in one too. */
    int should_meet;
    /* Of one tile: how often the callback was called, and how often by another thread than the one
       that asked for the tile. */
    pthread_t caller;
    uint64_t calls, others;
} world;

/* A tile's buffers with guards around them. */
typedef struct buffers {
    unsigned char *codes, *scales;
} buffers;

/* A small head in row-major tiles, the last of them ragged. */
world first_world(void);
uint64_t tile_count(const world *w);

/* The head's two tensors, bytes that differ with the world's seed. */
void tensors_of(const world *w, packhouse_tensor tensors[2]);
/* The head, its digest not taken yet. */
packhouse_head head_of(const world *w);

/* Value i of a column. */
float value_of(const world *w, uint64_t column, uint64_t i);
/* The callback; its context is a world. */
int32_t column(void *context, uint64_t column, float *values, uint64_t count);

buffers buffers_of(const world *w);
void release_buffers(buffers *to);
packhouse_tile tile_of(const world *w, const buffers *to, uint64_t index);
int are_guards_whole(const world *w, const buffers *to);

/* Where a code lies, by the published formula. */
uint64_t position(const packhouse_tile_geometry *g, uint64_t i, uint64_t j);
/* "equal" when the buffers are what the plain quantiser makes of the head, byte for byte. */
const char *judge(const world *w, const buffers *to, uint64_t index);
/* The scales in the buffers, added in the order of the columns. */
double sum_of_scales(const world *w, const buffers *to);

#endif
