/* Breaks the rules of ownership on purpose, about images: a sanitizer must report each.
     image_canary ROOT WHAT */

#include "tiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static packhouse_refusal refusal = {.struct_size = sizeof refusal};
static world w;
static packhouse_head head;

/* Writes more values than it was asked for: its target is the library's. */
static int32_t too_long(void *context, uint64_t at, float *values, uint64_t count) {
    (void)context, (void)at;
    for (uint64_t i = 0; i < 4096 * count; i++) values[i] = 1;
    return 0;
}

static packhouse_serve *begin(packhouse_images *images) {
    packhouse_serve *serve = NULL;
    if (packhouse_serve_begin(images, &head, &w.geometry, "canary", &serve, &refusal))
        fprintf(stderr, "%s\n", refusal.text);
    return serve;
}

static void fill(packhouse_serve *serve, const packhouse_tile *tile, packhouse_column give) {
    if (packhouse_serve_tile(serve, tile, give, &w, NULL, &refusal))
        fprintf(stderr, "%s\n", refusal.text);
}

/* Buffers that are gone, or that hold less than they are said to. */
static void bad_buffers(packhouse_serve *serve, int is_freed) {
    int8_t *codes = malloc((size_t)(w.geometry.kd * w.geometry.nd) / (is_freed ? 1 : 2));
    float *scales = malloc((size_t)w.geometry.nd * sizeof *scales);
    packhouse_tile tile = {
        .struct_size = sizeof tile,
        .k = w.geometry.kpad,
        .codes = codes,
        .code_bytes = w.geometry.kd * w.geometry.nd,
        .scales = scales,
        .scale_count = w.geometry.nd,
    };
    uintptr_t address = (uintptr_t)codes;
    if (is_freed) free(codes);
    tile.codes = (int8_t *)address;
    fill(serve, &tile, column);
    if (!is_freed) free(codes);
    free(scales);
}

int main(int count, char **words) {
    if (count != 3) return 2;
    packhouse_images_options options = {
        .struct_size = sizeof options,
        .mode = PACKHOUSE_IMAGES_READ_WRITE,
        .check = PACKHOUSE_CHECK_SAMPLE,
        .root = words[1],
        .min_free_bytes = UINT64_MAX,
    };
    const char *what = words[2];
    packhouse_images *images = NULL;
    packhouse_tensor tensors[2];
    w = first_world(), head = head_of(&w);
    tensors_of(&w, tensors);
    if (packhouse_images_open(&options, &images, &refusal) ||
        packhouse_head_digest(&head, tensors, 2, 1, &refusal)) {
        fprintf(stderr, "%s\n", refusal.text);
        return 3;
    }
    buffers to = buffers_of(&w);
    packhouse_tile tile = tile_of(&w, &to, 0);
    packhouse_line line = {.struct_size = sizeof line};
    packhouse_serve *serve = begin(images);
    if (strcmp(what, "images-after-release") == 0) {
        packhouse_serve_release(serve);
        packhouse_images_release(images);
        serve = begin(images), images = NULL;
    } else if (strcmp(what, "serve-after-release") == 0) {
        packhouse_serve_release(serve);
        packhouse_serve_line(serve, &line, &refusal);
        serve = NULL;
    } else if (strcmp(what, "buffer-after-free") == 0) {
        bad_buffers(serve, 1);
    } else if (strcmp(what, "buffer-too-short") == 0) {
        bad_buffers(serve, 0);
    } else if (strcmp(what, "column-too-long") == 0) {
        fill(serve, &tile, too_long);
    } else if (strcmp(what, "leak") == 0) {
        serve = NULL;
    } else {
        fill(serve, &tile, column);
    }
    release_buffers(&to);
    packhouse_serve_release(serve);
    packhouse_images_release(images);
    return 0;
}
