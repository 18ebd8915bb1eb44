#define _GNU_SOURCE
#include "tiles.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GUARD_BYTES 64
#define GUARD 0xa5

world first_world(void) {
    world w = {
        .seed = 1,
        .vocabulary = 70,
        .width = 40,
        .geometry = {
            .struct_size = sizeof w.geometry,
            .order = PACKHOUSE_TILE_ROW_MAJOR,
            .kd = 48,
            .nd = 32,
            .kpad = 44,
            .t = 30,
        },
        .failing_column = UINT64_MAX,
    };
    return w;
}

uint64_t tile_count(const world *w) {
    return (w->vocabulary + w->geometry.t - 1) / w->geometry.t;
}

void tensors_of(const world *w, packhouse_tensor tensors[2]) {
    static _Thread_local uint64_t bytes[3];
    bytes[0] = w->seed, bytes[1] = w->vocabulary, bytes[2] = ~w->seed;
    tensors[0] = (packhouse_tensor){bytes, 16};
    tensors[1] = (packhouse_tensor){bytes + 2, 8};
}

packhouse_head head_of(const world *w) {
    packhouse_head head = {
        .struct_size = sizeof head,
        .is_tied = 1,
        .vocabulary = w->vocabulary,
        .width = w->width,
        .dtype = "F32",
    };
    return head;
}

/* Values of many sizes and both signs; some columns are all zero, tiny, or have a NaN or an
   infinity. */
float value_of(const world *w, uint64_t column, uint64_t i) {
    uint64_t mixed = (w->seed << 40 ^ column << 20 ^ i) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
    mixed ^= mixed >> 32;
    float value = (float)((int64_t)(mixed >> 40) - (1 << 23)) / (1 << 23);
    if (column % 11 == 3) return 0;
    if (column % 11 == 5) return value * 1e-14f;
    if (column % 11 == 7 && i == 2) return NAN;
    if (column % 11 == 9 && i == 4) return -INFINITY;
    return value * (float)(1 << column % 13);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Waits until two threads are here at once, or long enough to know that they never will be. */
static void meet(void) {
    static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    static pthread_t first;
    static int is_here, have_met;
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += 20;
    pthread_mutex_lock(&lock);
    if (!is_here) is_here = 1, first = pthread_self();
    else if (!pthread_equal(first, pthread_self())) have_met = 1;
    pthread_cond_broadcast(&changed);
    while (!have_met && pthread_cond_timedwait(&changed, &lock, &end) == 0) {}
    have_met = 1; /* nobody waits twice */
    pthread_mutex_unlock(&lock);
}

int32_t column(void *context, uint64_t column, float *values, uint64_t count) {
    world *w = context;
    if (count != w->width) return -100;
    for (uint64_t i = 0; i < count; i++)
        if (values[i] != 0) return -101;
    if (w->should_meet) meet();
    pthread_mutex_lock(&lock);
    w->calls++;
    w->others += !pthread_equal(w->caller, pthread_self());
    pthread_mutex_unlock(&lock);
    if (column == w->failing_column) return w->failure;
    for (uint64_t i = 0; i < count; i++) values[i] = value_of(w, column, i);
    return 0;
}

static size_t code_bytes(const world *w) {
    return (size_t)(w->geometry.kd * w->geometry.nd);
}

static size_t scale_bytes(const world *w) {
    return (size_t)w->geometry.nd * sizeof(float);
}

static unsigned char *guarded(size_t bytes) {
    unsigned char *start = malloc(bytes + 2 * GUARD_BYTES);
    if (!start) exit(3);
    memset(start, GUARD, bytes + 2 * GUARD_BYTES);
    return start + GUARD_BYTES;
}

buffers buffers_of(const world *w) {
    return (buffers){.codes = guarded(code_bytes(w)), .scales = guarded(scale_bytes(w))};
}

void release_buffers(buffers *to) {
    free(to->codes - GUARD_BYTES);
    free(to->scales - GUARD_BYTES);
}

packhouse_tile tile_of(const world *w, const buffers *to, uint64_t index) {
    packhouse_tile tile = {
        .struct_size = sizeof tile,
        .index = index,
        .k = w->geometry.kpad,
        .codes = (int8_t *)to->codes,
        .code_bytes = code_bytes(w),
        .scales = (float *)(void *)to->scales,
        .scale_count = w->geometry.nd,
    };
    return tile;
}

static int is_whole(const unsigned char *start, size_t bytes) {
    for (size_t at = 0; at < GUARD_BYTES; at++)
        if (start[bytes + at] != GUARD || start[(ptrdiff_t)at - GUARD_BYTES] != GUARD) return 0;
    return 1;
}

int are_guards_whole(const world *w, const buffers *to) {
    return is_whole(to->codes, code_bytes(w)) && is_whole(to->scales, scale_bytes(w));
}

uint64_t position(const packhouse_tile_geometry *g, uint64_t i, uint64_t j) {
    if (g->order == PACKHOUSE_TILE_ROW_MAJOR) return i * g->nd + j;
    uint64_t block = j / 128 * (g->kd / 64) + i / 64;
    return block * 8192 + i % 64 / 8 * 1024 + j % 128 / 8 * 64 + i % 8 * 8 + j % 8;
}

const char *judge(const world *w, const buffers *to, uint64_t index) {
    const packhouse_tile_geometry *g = &w->geometry;
    for (uint64_t j = 0; j < g->nd; j++) {
        uint64_t column = index * g->t + j;
        int is_real = j < g->t && column < w->vocabulary;
        float largest = 0;
        for (uint64_t i = 0; is_real && i < w->width; i++) {
            float value = fabsf(value_of(w, column, i));
            if (isfinite(value) && value > largest) largest = value;
        }
        if (largest < 1e-12f) largest = 1;
        float scale = largest / 127, inverse = 127 / largest;
        if (memcmp(to->scales + j * sizeof scale, &scale, sizeof scale) != 0) return "other-scale";
        for (uint64_t i = 0; i < g->kd; i++) {
            float value = is_real && i < w->width ? value_of(w, column, i) : 0;
            float code = isfinite(value) ? roundf(value * inverse) : 0;
            code = code > 127 ? 127 : code < -127 ? -127 : code;
            if ((int8_t)to->codes[position(g, i, j)] != (int8_t)code) return "other-code";
        }
    }
    return "equal";
}

double sum_of_scales(const world *w, const buffers *to) {
    double sum = 0;
    for (uint64_t j = 0; j < w->geometry.nd; j++) {
        float scale;
        memcpy(&scale, to->scales + j * sizeof scale, sizeof scale);
        sum += (double)scale;
    }
    return sum;
}
