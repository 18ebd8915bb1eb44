/* Calls about head tiles that break the interface's rules, each with what it is called in the
   tests. None of them may touch a file. */

#include "image_misuse.h"
#include "tiles.h"

#include <stdio.h>
#include <string.h>

static packhouse_refusal refusal;

static void say(const char *name, packhouse_status status) {
    printf("misuse %s %s %s\n", name, packhouse_status_name(status), refusal.text);
    memset(&refusal, 0, sizeof refusal);
    refusal.struct_size = sizeof refusal;
}

/* What the calls are about: a world, its head with a digest, an open handle and a serve. */
typedef struct subject {
    world w;
    packhouse_head head;
    packhouse_images *images;
    packhouse_serve *serve;
    buffers to;
} subject;

static packhouse_tile good_tile(const subject *s) {
    return tile_of(&s->w, &s->to, 0);
}

static void opening(const packhouse_images_options *good) {
    packhouse_images_options options = *good;
    packhouse_images *images;
    packhouse_refusal reason = {.struct_size = sizeof reason};
    say("images-null-options", packhouse_images_open(NULL, &images, &refusal));
    say("images-null-place", packhouse_images_open(&options, NULL, &refusal));
    options.mode = 0;
    say("images-mode", packhouse_images_open(&options, &images, &refusal));
    options = *good, options.check = 3;
    say("images-check", packhouse_images_open(&options, &images, &refusal));
    options = *good, options.flags = 2;
    say("images-flags", packhouse_images_open(&options, &images, &refusal));
    options = *good, options.reserved = 1;
    say("images-reserved", packhouse_images_open(&options, &images, &refusal));
    options = *good, options.seed = 7;
    say("images-seed", packhouse_images_open(&options, &images, &refusal));
    options = *good, options.struct_size = 8;
    images = (packhouse_images *)&options;
    packhouse_status status = packhouse_images_open(&options, &images, &refusal);
    say("images-small", status);
    printf("misuse images-place-is-null %s\n", images ? "no" : "yes");
    say("why-null-images", packhouse_images_why_off(NULL, &reason, &refusal));
    say("why-null-reason", packhouse_images_why_off((packhouse_images *)&options, NULL, &refusal));
    packhouse_images_retain(NULL), packhouse_images_release(NULL);
    packhouse_serve_retain(NULL), packhouse_serve_release(NULL);
}

static void measuring(const subject *s) {
    packhouse_tile_geometry g = s->w.geometry;
    packhouse_tile_sizes sizes = {.struct_size = sizeof sizes};
    uint64_t at;
    say("measure-null", packhouse_tile_measure(NULL, 1, &sizes, &refusal));
    say("measure-null-sizes", packhouse_tile_measure(&g, 1, NULL, &refusal));
    g.order = 3;
    say("order", packhouse_tile_measure(&g, 1, &sizes, &refusal));
    g = s->w.geometry;
    say("measure-vocabulary", packhouse_tile_measure(&g, 0, &sizes, &refusal));
    say("measure-vocabulary-max", packhouse_tile_measure(&g, UINT64_MAX, &sizes, &refusal));
    say("measure-tiles", packhouse_tile_measure(&g, 3000001, &sizes, &refusal));
    printf("misuse most-tiles %s\n",
           packhouse_tile_measure(&g, 3000000, &sizes, NULL) == PACKHOUSE_OK &&
               sizes.tile_count == 100000 ? "yes" : "no");
    say("position-null", packhouse_tile_position(&g, 0, 0, NULL, &refusal));
    say("position-depth", packhouse_tile_position(&g, 48, 0, &at, &refusal));
    say("position-column", packhouse_tile_position(&g, 0, 32, &at, &refusal));
}

static void digests(const subject *s) {
    packhouse_head head = s->head;
    packhouse_tensor tensors[2];
    tensors_of(&s->w, tensors);
    say("digest-null-head", packhouse_head_digest(NULL, tensors, 2, 1, &refusal));
    say("digest-null-tensors", packhouse_head_digest(&head, NULL, 2, 1, &refusal));
    say("digest-no-tensors", packhouse_head_digest(&head, tensors, 0, 1, &refusal));
    say("digest-tensors", packhouse_head_digest(&head, tensors, 65, 1, &refusal));
    tensors[1].data = NULL;
    say("digest-null-data", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    tensors_of(&s->w, tensors);
    tensors[1].bytes = UINT64_C(1) << 63;
    say("digest-no-object", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    tensors_of(&s->w, tensors);
    head.dtype = NULL;
    say("digest-null-dtype", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    head.dtype = "\xff";
    say("digest-dtype-text", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    head.dtype = "";
    say("digest-no-dtype", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    head.dtype = "seventeen_letters";
    say("digest-long-dtype", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    head = s->head, head.is_tied = 2;
    say("digest-tied", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
    head = s->head, head.struct_size = 8;
    say("digest-small-head", packhouse_head_digest(&head, tensors, 2, 1, &refusal));
}

static void beginning(const subject *s) {
    packhouse_head head = s->head;
    const packhouse_tile_geometry *g = &s->w.geometry;
    packhouse_serve *serve;
    say("begin-null-images", packhouse_serve_begin(NULL, &head, g, "o", &serve, &refusal));
    say("begin-null-head", packhouse_serve_begin(s->images, NULL, g, "o", &serve, &refusal));
    say("begin-null-geometry",
        packhouse_serve_begin(s->images, &head, NULL, "o", &serve, &refusal));
    say("begin-null-owner", packhouse_serve_begin(s->images, &head, g, NULL, &serve, &refusal));
    say("begin-null-place", packhouse_serve_begin(s->images, &head, g, "o", NULL, &refusal));
    say("begin-owner-text",
        packhouse_serve_begin(s->images, &head, g, "a\x80", &serve, &refusal));
    say("begin-empty-owner", packhouse_serve_begin(s->images, &head, g, "", &serve, &refusal));
    char owner[1026];
    memset(owner, 'o', sizeof owner - 1);
    owner[sizeof owner - 1] = 0;
    say("begin-long-owner", packhouse_serve_begin(s->images, &head, g, owner, &serve, &refusal));
    owner[1024] = 0;
    packhouse_status status = packhouse_serve_begin(s->images, &head, g, owner, &serve, &refusal);
    say("begin-longest-owner", status);
    packhouse_serve_release(serve);
    memset(head.digest, 0, sizeof head.digest);
    serve = (packhouse_serve *)&head;
    say("begin-no-digest", packhouse_serve_begin(s->images, &head, g, "o", &serve, &refusal));
    printf("misuse serve-place-is-null %s\n", serve ? "no" : "yes");
}

/* Requests that are whole and still can't be right. */
static void requests(subject *s) {
    packhouse_head head = s->head;
    packhouse_tile_geometry g = s->w.geometry;
    packhouse_serve *serve;
    head.width = 45;
    say("request-width", packhouse_serve_begin(s->images, &head, &g, "o", &serve, &refusal));
    head = s->head, head.vocabulary = 0;
    say("request-vocabulary", packhouse_serve_begin(s->images, &head, &g, "o", &serve, &refusal));
    head = s->head, g.order = PACKHOUSE_TILE_BLOCKED;
    say("request-blocked", packhouse_serve_begin(s->images, &head, &g, "o", &serve, &refusal));
}

static void say_tile(const char *name, subject *s, const packhouse_tile *tile) {
    say(name, packhouse_serve_tile(s->serve, tile, column, &s->w, NULL, &refusal));
}

static void tiles(subject *s) {
    packhouse_tile tile = good_tile(s);
    packhouse_tile_report report = {.struct_size = 8};
    say("tile-null-serve", packhouse_serve_tile(NULL, &tile, column, &s->w, NULL, &refusal));
    say_tile("tile-null", s, NULL);
    say("tile-null-column", packhouse_serve_tile(s->serve, &tile, NULL, &s->w, NULL, &refusal));
    say("tile-small-report",
        packhouse_serve_tile(s->serve, &tile, column, &s->w, &report, &refusal));
    tile.codes = NULL;
    say_tile("tile-null-codes", s, &tile);
    tile = good_tile(s), tile.scales = NULL;
    say_tile("tile-null-scales", s, &tile);
    tile = good_tile(s), tile.code_bytes--;
    say_tile("tile-short-codes", s, &tile);
    tile = good_tile(s), tile.scale_count++;
    say_tile("tile-long-scales", s, &tile);
    tile = good_tile(s), tile.flags = 2;
    say_tile("tile-flags", s, &tile);
    tile = good_tile(s), tile.scales = (float *)(void *)(s->to.codes + 4);
    say_tile("tile-overlap", s, &tile);
    tile = good_tile(s), tile.codes = (int8_t *)(s->to.scales + 4 * tile.scale_count - 1);
    say_tile("tile-overlap-end", s, &tile);
    tile = good_tile(s), tile.index = 3;
    say_tile("tile-index", s, &tile);
    tile = good_tile(s), tile.k = 48;
    say_tile("tile-depth", s, &tile);
    /* The address of a float that is none. */
    tile = good_tile(s), tile.scales = (float *)((uintptr_t)tile.scales | 1);
    say_tile("tile-misaligned", s, &tile);
}

static void telling(const subject *s) {
    packhouse_image_counters counters = {.struct_size = sizeof counters};
    packhouse_tile_reason one = {.struct_size = sizeof one};
    packhouse_line line = {.struct_size = sizeof line};
    say("counters-null-serve", packhouse_serve_counters(NULL, &counters, &refusal));
    say("counters-null", packhouse_serve_counters(s->serve, NULL, &refusal));
    say("reason-null-serve", packhouse_serve_reason_after(NULL, 0, &one, &refusal));
    say("reason-null", packhouse_serve_reason_after(s->serve, 0, NULL, &refusal));
    say("line-null-serve", packhouse_serve_line(NULL, &line, &refusal));
    say("line-null", packhouse_serve_line(s->serve, NULL, &refusal));
}

void image_misuse(const packhouse_images_options *good) {
    refusal.struct_size = sizeof refusal;
    subject s = {.w = first_world()};
    packhouse_tensor tensors[2];
    tensors_of(&s.w, tensors);
    s.head = head_of(&s.w), s.to = buffers_of(&s.w);
    opening(good);
    measuring(&s);
    digests(&s);
    if (packhouse_images_open(good, &s.images, &refusal) ||
        packhouse_head_digest(&s.head, tensors, 2, 1, &refusal) ||
        packhouse_serve_begin(s.images, &s.head, &s.w.geometry, "o", &s.serve, &refusal)) {
        say("subject", refusal.status);
        return;
    }
    beginning(&s);
    requests(&s);
    tiles(&s);
    telling(&s);
    printf("misuse guards %s calls=%d\n", are_guards_whole(&s.w, &s.to) ? "whole" : "BROKEN",
           (int)s.w.calls);
    release_buffers(&s.to);
    packhouse_serve_release(s.serve);
    packhouse_images_release(s.images);
}
