/* Makes calls about head tiles that the command line names, and prints what came of each:
     <word> <status name> <text of the refusal>
   The head is made up from a seed. Tiles are written between guards, and compared with those of a
   quantiser in plain C that knows nothing of the library's. Every handle is released at the end. */

#define _GNU_SOURCE
#include "image_misuse.h"
#include "tiles.h"

#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct state {
    packhouse_images_options options;
    world world;
    packhouse_head head;
    packhouse_images *images;
    packhouse_serve *serve;
    const char *owner;
    uint64_t k;
    uint32_t flags;
    char **next;
} state;

static char *word(state *s) {
    if (!*s->next) {
        fprintf(stderr, "a word is missing\n");
        exit(2);
    }
    return *s->next++;
}

static uint64_t integer(state *s) {
    const char *text = word(s);
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end || end == text) {
        fprintf(stderr, "no integer: %s\n", text);
        exit(2);
    }
    return value;
}

static void say(const char *what, packhouse_status status, const packhouse_refusal *refusal) {
    int is_told = status != PACKHOUSE_OK && refusal->status == status;
    printf("%s %s %s\n", what, packhouse_status_name(status), is_told ? refusal->text : "");
}

static void open_images(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_images_release(s->images);
    say("open", packhouse_images_open(&s->options, &s->images, &refusal), &refusal);
}

static void why(state *s) {
    packhouse_refusal reason = {.struct_size = sizeof reason};
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_status status = packhouse_images_why_off(s->images, &reason, &refusal);
    if (status) say("why-off", status, &refusal);
    else say("why", reason.status, &reason);
}

/* Takes the digest of the head as it is now. */
static void digest(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_tensor tensors[2];
    tensors_of(&s->world, tensors);
    s->head = head_of(&s->world);
    packhouse_status status = packhouse_head_digest(&s->head, tensors, 2, 2, &refusal);
    say("digest", status, &refusal);
    printf("digest ");
    for (int i = 0; i < 32; i++) printf("%02x", s->head.digest[i]);
    printf("\n");
}

/* Takes the head without its digest. */
static void head(state *s) {
    s->head = head_of(&s->world);
}

static void begin(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_serve_release(s->serve);
    packhouse_status status = packhouse_serve_begin(s->images, &s->head, &s->world.geometry,
                                                    s->owner, &s->serve, &refusal);
    say("begin", status, &refusal);
}

static void tile(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_tile_report report = {.struct_size = sizeof report};
    uint64_t index = integer(s);
    buffers to = buffers_of(&s->world);
    packhouse_tile tile = tile_of(&s->world, &to, index);
    tile.flags = s->flags;
    if (s->k) tile.k = s->k;
    s->world.calls = s->world.others = 0, s->world.caller = pthread_self();
    packhouse_status status =
        packhouse_serve_tile(s->serve, &tile, column, &s->world, &report, &refusal);
    say("tile", status, &refusal);
    printf("report %" PRIu64 " outcome=%u written=%" PRIu64 " failed=%" PRIu64 "/%d",
           index, report.outcome, report.written_bytes, report.failed_column, report.column_error);
    printf(" calls=%" PRIu64 " others=%d guards=%d bytes=%s sum=%d time=%d\n",
           s->world.calls, s->world.others > 0, are_guards_whole(&s->world, &to),
           judge(&s->world, &to, index), report.scale_sum == sum_of_scales(&s->world, &to),
           report.elapsed_ns > 0);
    printf("refused %s %s\n", packhouse_status_name(report.refused), report.refused_text);
    printf("unwritten %s %s\n", packhouse_status_name(report.unwritten), report.unwritten_text);
    printf("notes %u %s\n", report.note_count, report.notes_text);
    release_buffers(&to);
}

static void counters(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_image_counters c = {.struct_size = sizeof c};
    say("counters", packhouse_serve_counters(s->serve, &c, &refusal), &refusal);
    printf("hit=%" PRIu64 " packed=%" PRIu64 " written=%" PRIu64 " unwritten=%" PRIu64
           " refused=%" PRIu64 " gathered=%" PRIu64 " sampled=%" PRIu64 " read=%" PRIu64
           " wrote=%" PRIu64 " removed=%" PRIu64 "/%" PRIu64 " problems=%" PRIu64 " seed=%" PRIu64
           "\n",
           c.tiles_hit, c.tiles_packed, c.tiles_written, c.tiles_unwritten, c.tiles_refused,
           c.columns_gathered, c.columns_sampled, c.bytes_read, c.bytes_written, c.files_removed,
           c.bytes_removed, c.owner_problems, c.seed);
    printf("times digest=%d fingerprint=%d read=%d sample=%d pack=%d write=%d\n", c.digest_ns > 0,
           c.fingerprint_ns > 0, c.read_ns > 0, c.sample_ns > 0, c.pack_ns > 0, c.write_ns > 0);
    packhouse_tile_reason one = {.struct_size = sizeof one};
    for (packhouse_status after = PACKHOUSE_OK;; after = one.status) {
        packhouse_status status = packhouse_serve_reason_after(s->serve, after, &one, &refusal);
        if (status || one.status == PACKHOUSE_OK) break;
        printf("reason %s %" PRIu64 "\n", packhouse_status_name(one.status), one.tiles);
    }
}

static void line(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_line line = {.struct_size = sizeof line};
    say("line", packhouse_serve_line(s->serve, &line, &refusal), &refusal);
    printf("says %s\n", line.text);
    if (line.text_bytes != strlen(line.text)) printf("says more than fits\n");
}

static void measure(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_tile_sizes sizes = {.struct_size = sizeof sizes};
    const packhouse_tile_geometry *g = &s->world.geometry;
    packhouse_status status = packhouse_tile_measure(g, s->world.vocabulary, &sizes, &refusal);
    say("measure", status, &refusal);
    if (status) return;
    printf("codes=%" PRIu64 " scales=%" PRIu64 " image=%" PRIu64 " tiles=%" PRIu64 "\n",
           sizes.code_bytes, sizes.scale_bytes, sizes.image_bytes, sizes.tile_count);
    uint64_t differ = 0;
    for (uint64_t i = 0; i < g->kd; i++)
        for (uint64_t j = 0; j < g->nd; j++) {
            uint64_t at = 0;
            status = packhouse_tile_position(g, i, j, &at, &refusal);
            differ += status != PACKHOUSE_OK || at != position(g, i, j);
        }
    printf("positions that differ: %" PRIu64 "\n", differ);
}

/* Two threads with one handle of images: each begins its own serve and fills every tile. */
typedef struct sharer {
    state *s;
    packhouse_images *images;
    int is_wrong;
} sharer;

static void *share_one(void *argument) {
    sharer *own = argument;
    world mine = own->s->world;
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_serve *serve;
    own->is_wrong = packhouse_serve_begin(own->images, &own->s->head, &mine.geometry,
                                          own->s->owner, &serve, &refusal) != PACKHOUSE_OK;
    packhouse_images_release(own->images); /* the serve does not need it */
    for (uint64_t index = 0; !own->is_wrong && index < tile_count(&mine); index++) {
        packhouse_tile_report report = {.struct_size = sizeof report};
        buffers to = buffers_of(&mine);
        packhouse_tile tile = tile_of(&mine, &to, index);
        own->is_wrong |= packhouse_serve_tile(serve, &tile, column, &mine, &report, &refusal) != 0;
        own->is_wrong |= strcmp(judge(&mine, &to, index), "equal") != 0;
        own->is_wrong |= !are_guards_whole(&mine, &to);
        own->is_wrong |= report.refused != PACKHOUSE_OK;
        release_buffers(&to);
    }
    packhouse_serve_release(serve);
    return NULL;
}

static void share(state *s) {
    pthread_t threads[2];
    sharer sharers[2];
    for (int i = 0; i < 2; i++) {
        packhouse_images_retain(s->images);
        sharers[i] = (sharer){.s = s, .images = s->images};
        if (pthread_create(&threads[i], NULL, share_one, &sharers[i])) exit(3);
    }
    packhouse_images_release(s->images); /* each thread has a count of its own */
    s->images = NULL;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    printf("shared %s\n", sharers[0].is_wrong || sharers[1].is_wrong ? "WRONG" : "right");
}

/* A callback that asks the serve that called it: refused, and no deadlock. */
static packhouse_status status_within;

static int32_t asking_column(void *context, uint64_t at, float *values, uint64_t count) {
    state *s = context;
    packhouse_image_counters c = {.struct_size = sizeof c};
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    status_within = packhouse_serve_counters(s->serve, &c, &refusal);
    if (status_within && at == 0) say("within", status_within, &refusal);
    return column(&s->world, at, values, count);
}

static void ask_within(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    buffers to = buffers_of(&s->world);
    packhouse_tile tile = tile_of(&s->world, &to, 0);
    say("asked", packhouse_serve_tile(s->serve, &tile, asking_column, s, NULL, &refusal),
        &refusal);
    release_buffers(&to);
}

/* Serves outlive their images, and counts are given back in any order. */
static void release_order(state *s) {
    packhouse_serve *first = s->serve;
    packhouse_serve_retain(first);
    packhouse_serve_release(first);
    packhouse_images_retain(s->images);
    packhouse_images_release(s->images);
    packhouse_images_release(s->images);
    s->images = NULL;
    printf("released\n");
}

/* Leaves the process no further descriptor; or as many as ever, which a leak checker needs. */
static void limit_files(int is_limited) {
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    if (is_limited) {
        int next = dup(0);
        close(next);
        limit.rlim_cur = (rlim_t)next;
    }
    setrlimit(RLIMIT_NOFILE, &limit);
}

static void no_files(state *s) {
    (void)s;
    limit_files(1);
}

/* Lets no file grow beyond an image's header. */
static void short_files(state *s) {
    (void)s;
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit limit = {4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
}

static int set(state *s, const char *name) {
    packhouse_images_options *o = &s->options;
    packhouse_tile_geometry *g = &s->world.geometry;
    if (strcmp(name, "root") == 0) o->root = word(s);
    else if (strcmp(name, "no-root") == 0) o->root = NULL;
    else if (strcmp(name, "mode") == 0) o->mode = (uint32_t)integer(s);
    else if (strcmp(name, "full") == 0) o->check = PACKHOUSE_CHECK_FULL;
    else if (strcmp(name, "seed") == 0) o->seed = integer(s), o->flags = PACKHOUSE_IMAGES_SEEDED;
    else if (strcmp(name, "cap") == 0) o->max_bytes = integer(s);
    else if (strcmp(name, "floor") == 0) o->min_free_bytes = integer(s);
    else if (strcmp(name, "age") == 0) o->max_age_ns = integer(s);
    else if (strcmp(name, "owner") == 0) s->owner = word(s);
    else if (strcmp(name, "weights") == 0) s->world.seed = integer(s);
    else if (strcmp(name, "vocabulary") == 0) s->world.vocabulary = integer(s);
    else if (strcmp(name, "width") == 0) s->world.width = integer(s);
    else if (strcmp(name, "order") == 0) g->order = (uint32_t)integer(s);
    else if (strcmp(name, "kd") == 0) g->kd = integer(s);
    else if (strcmp(name, "nd") == 0) g->nd = integer(s);
    else if (strcmp(name, "kpad") == 0) g->kpad = integer(s);
    else if (strcmp(name, "t") == 0) g->t = integer(s);
    else if (strcmp(name, "k") == 0) s->k = integer(s);
    else if (strcmp(name, "parallel") == 0) s->flags = PACKHOUSE_TILE_COLUMNS_PARALLEL;
    else if (strcmp(name, "meet") == 0) s->world.should_meet = 1;
    else if (strcmp(name, "fail") == 0)
        s->world.failing_column = integer(s), s->world.failure = (int32_t)integer(s);
    else return 0;
    return 1;
}

int main(int count, char **words) {
    if (count < 2) return 2;
    state s = {
        .options = {
            .struct_size = sizeof s.options,
            .mode = PACKHOUSE_IMAGES_READ_WRITE,
            .check = PACKHOUSE_CHECK_SAMPLE,
            .root = words[1],
            .max_bytes = UINT64_MAX,
            .min_free_bytes = UINT64_MAX,
            .thread_count = 2,
        },
        .world = first_world(),
        .owner = "model",
        .next = words + 2,
    };
    const struct {
        const char *name;
        void (*call)(state *);
    } calls[] = {
        {"open", open_images}, {"why", why}, {"digest", digest}, {"head", head},
        {"begin", begin}, {"tile", tile}, {"counters", counters}, {"line", line},
        {"measure", measure}, {"share", share},
        {"ask-within", ask_within}, {"release-order", release_order}, {"no-files", no_files},
        {"short-files", short_files},
    };
    while (*s.next) {
        const char *name = word(&s);
        if (set(&s, name)) continue;
        if (strcmp(name, "misuse") == 0) {
            image_misuse(&s.options);
            continue;
        }
        size_t at = 0, known = sizeof calls / sizeof *calls;
        while (at < known && strcmp(calls[at].name, name) != 0) at++;
        if (at == known) {
            fprintf(stderr, "no such word: %s\n", name);
            return 2;
        }
        calls[at].call(&s);
    }
    packhouse_serve_release(s.serve);
    packhouse_images_release(s.images);
    limit_files(0);
    return 0;
}
