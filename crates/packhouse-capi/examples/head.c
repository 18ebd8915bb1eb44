/* Stands in for an engine that keeps its lm-head on a device as int8 tiles: loads the tiles through
   the library, multiplies one activation vector with them, and compares the logits bit for bit with
   those of tiles that were packed here and now, without any image.

     head ROOT ORDER VOCABULARY WIDTH KD ND KPAD T [FILE]

   ROOT is the folder of images, or "" for none; ORDER is rm or b8. The head is VOCABULARY rows of
   WIDTH bf16 values each: FILE holds them, else they are made up. PACKHOUSE=0 in the environment
   switches images off and PACKHOUSE_READONLY=1 writes none: the library never looks there, so the
   engine does. Exit: 0 equal, 1 not equal, 2 usage, 3 refused.

   Build: cc head.c $(pkg-config --cflags --libs packhouse) -lm */

#include <packhouse.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The engine's head as its model file has it, and what its kernel takes. */
typedef struct engine {
    const char *root, *file;
    uint64_t vocabulary, width;
    packhouse_tile_geometry geometry;
    packhouse_tile_sizes sizes;
    uint16_t *head;
    float *activation;
} engine;

/* One tile on the device. */
typedef struct tile_buffer {
    int8_t *codes;
    float *scales;
} tile_buffer;

static int refused(const char *what, const packhouse_refusal *refusal) {
    fprintf(stderr, "%s refused: %s: %s\n", what, packhouse_status_name(refusal->status),
            refusal->text);
    return 3;
}

static float from_bf16(uint16_t value) {
    uint32_t bits = (uint32_t)value << 16;
    float number;
    memcpy(&number, &bits, sizeof number);
    return number;
}

/* The engine's own way to a row of its head: what the library calls for each column it packs. */
static int32_t column_of_head(void *context, uint64_t column, float *values, uint64_t count) {
    const engine *e = context;
    if (column >= e->vocabulary || count != e->width) return -1;
    const uint16_t *row = e->head + column * e->width;
    for (uint64_t i = 0; i < count; i++) values[i] = from_bf16(row[i]);
    return 0;
}

/* Made-up weights: as many small ones as large ones, a column of zeros, one with a NaN. */
static void make_up(engine *e) {
    uint64_t state = 20;
    for (uint64_t at = 0; at < e->vocabulary * e->width; at++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint16_t sign_and_mantissa = (uint16_t)(state >> 33 & 0x807f);
        uint16_t exponent = (uint16_t)(110 + (state >> 50) % 17);
        e->head[at] = (uint16_t)(sign_and_mantissa | exponent << 7);
        if (at / e->width == 3) e->head[at] = 0;
    }
    e->head[e->vocabulary * e->width - 1] = 0x7fc0;
}

static int read_head(engine *e) {
    size_t bytes = (size_t)(e->vocabulary * e->width) * sizeof *e->head;
    e->head = malloc(bytes);
    e->activation = malloc((size_t)e->width * sizeof *e->activation);
    if (!e->head || !e->activation) return 3;
    for (uint64_t i = 0; i < e->width; i++)
        e->activation[i] = (float)((int)((i * 37 + 11) % 101) - 50) / 64;
    if (!e->file) {
        make_up(e);
        return 0;
    }
    FILE *file = fopen(e->file, "rb");
    size_t got = file ? fread(e->head, 1, bytes, file) : 0;
    if (got != bytes) fprintf(stderr, "%s: %zu of %zu bytes\n", e->file, got, bytes);
    if (file) fclose(file);
    return got == bytes ? 0 : 3;
}

/* Where the code of depth row i of column j lies: what the kernel knows of the order. */
static uint64_t position(const packhouse_tile_geometry *g, uint64_t i, uint64_t j) {
    if (g->order == PACKHOUSE_TILE_ROW_MAJOR) return i * g->nd + j;
    uint64_t block = j / 128 * (g->kd / 64) + i / 64;
    return block * 8192 + i % 64 / 8 * 1024 + j % 128 / 8 * 64 + i % 8 * 8 + j % 8;
}

/* The head step for one vector: int8 times int8 into int32, then the two scales. */
static void multiply(const engine *e, const tile_buffer *tile, uint64_t index, float *logits) {
    float largest = 0;
    for (uint64_t i = 0; i < e->width; i++) largest = fmaxf(largest, fabsf(e->activation[i]));
    float scale = largest == 0 ? 1.0f : largest / 127;
    uint64_t first = index * e->geometry.t, columns = e->vocabulary - first;
    if (columns > e->geometry.t) columns = e->geometry.t;
    for (uint64_t j = 0; j < columns; j++) {
        int32_t sum = 0;
        for (uint64_t i = 0; i < e->width; i++) {
            int32_t code = (int32_t)roundf(e->activation[i] / scale);
            sum += code * tile->codes[position(&e->geometry, i, j)];
        }
        logits[first + j] = (float)sum * scale * tile->scales[j];
    }
}

/* Fills one tile and says what a user should know of it. */
static int fill(const engine *e, packhouse_serve *serve, uint64_t index, const tile_buffer *to) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_tile tile = {
        .struct_size = sizeof tile,
        .flags = PACKHOUSE_TILE_COLUMNS_PARALLEL, /* the callback only reads */
        .index = index,
        .k = e->geometry.kpad,
        .codes = to->codes,
        .code_bytes = e->sizes.code_bytes,
        .scales = to->scales,
        .scale_count = e->geometry.nd,
    };
    packhouse_tile_report report = {.struct_size = sizeof report};
    if (packhouse_serve_tile(serve, &tile, column_of_head, (void *)e, &report, &refusal))
        return refused("a tile", &refusal);
    if (report.refused != PACKHOUSE_OK)
        fprintf(stderr, "tile %" PRIu64 ": image not used: %s: %s\n", index,
                packhouse_status_name(report.refused), report.refused_text);
    int is_wanted = report.unwritten != PACKHOUSE_IMAGES_OFF_ASKED;
    if (report.unwritten != PACKHOUSE_OK && is_wanted)
        fprintf(stderr, "tile %" PRIu64 ": image not written: %s\n", index, report.unwritten_text);
    if (report.note_count) fprintf(stderr, "tile %" PRIu64 ": %s\n", index, report.notes_text);
    return 0;
}

/* Loads every tile through a serve, computes the logits and prints the serve's line. */
static int load_and_multiply(const engine *e, packhouse_serve *serve, float *logits) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    tile_buffer device = {
        .codes = malloc((size_t)e->sizes.code_bytes),
        .scales = malloc((size_t)e->sizes.scale_bytes),
    };
    int failure = device.codes && device.scales ? 0 : 3;
    for (uint64_t index = 0; !failure && index < e->sizes.tile_count; index++) {
        failure = fill(e, serve, index, &device);
        if (!failure) multiply(e, &device, index, logits);
    }
    packhouse_line line = {.struct_size = sizeof line};
    if (!failure && packhouse_serve_line(serve, &line, &refusal))
        failure = refused("the line", &refusal);
    if (!failure) printf("%s\n", line.text);
    free(device.codes);
    free(device.scales);
    return failure;
}

/* One start of the engine in a mode. */
static int start(const engine *e, uint32_t mode, float *logits) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_images_options options = {
        .struct_size = sizeof options,
        .mode = mode,
        .check = PACKHOUSE_CHECK_SAMPLE,
        .root = *e->root ? e->root : NULL,
        .min_free_bytes = UINT64_C(1) << 28,
        .thread_count = 4,
    };
    packhouse_head head = {
        .struct_size = sizeof head,
        .vocabulary = e->vocabulary,
        .width = e->width,
        .dtype = "BF16",
    };
    /* What feeds a column: the matrix, and what makes floats of it, here as ggml does. */
    static const char reader[] = "ggml-values/1";
    const packhouse_tensor tensors[] = {
        {e->head, e->vocabulary * e->width * sizeof *e->head},
        {reader, sizeof reader - 1},
    };
    packhouse_images *images = NULL;
    packhouse_serve *serve = NULL;
    const char *owner = e->file ? e->file : "a made-up head";
    int failure = 3;
    if (packhouse_images_open(&options, &images, &refusal) ||
        packhouse_head_digest(&head, tensors, 2, options.thread_count, &refusal) ||
        packhouse_serve_begin(images, &head, &e->geometry, owner, &serve, &refusal))
        refused("the head", &refusal);
    else
        failure = load_and_multiply(e, serve, logits);
    packhouse_serve_release(serve);
    packhouse_images_release(images);
    return failure;
}

static uint32_t mode_of_environment(void) {
    const char *off = getenv("PACKHOUSE"), *read_only = getenv("PACKHOUSE_READONLY");
    if (off && strcmp(off, "0") == 0) return PACKHOUSE_IMAGES_OFF;
    if (read_only && strcmp(read_only, "1") == 0) return PACKHOUSE_IMAGES_READ_ONLY;
    return PACKHOUSE_IMAGES_READ_WRITE;
}

static int run(engine *e) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    e->sizes.struct_size = sizeof e->sizes;
    if (packhouse_tile_measure(&e->geometry, e->vocabulary, &e->sizes, &refusal))
        return refused("the tiles", &refusal);
    size_t bytes = (size_t)e->vocabulary * sizeof(float);
    float *logits = malloc(bytes), *expected = malloc(bytes);
    int failure = logits && expected ? read_head(e) : 3;
    if (!failure) failure = start(e, mode_of_environment(), logits);
    if (!failure) failure = start(e, PACKHOUSE_IMAGES_OFF, expected);
    if (!failure) {
        failure = memcmp(logits, expected, bytes) != 0;
        double sum = 0;
        for (uint64_t j = 0; j < e->vocabulary; j++) sum += (double)logits[j] * (double)(j % 89);
        printf("%" PRIu64 " logits, weighted sum %.17g: %s\n", e->vocabulary, sum,
               failure ? "NOT EQUAL" : "equal");
    }
    free(logits), free(expected);
    free(e->head), free(e->activation);
    return failure;
}

static int number(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == 0 && *value > 0 && *value <= UINT32_MAX;
}

int main(int count, char **words) {
    if (packhouse_abi_version() != PACKHOUSE_ABI_VERSION) {
        fprintf(stderr, "libpackhouse %s has ABI %u, this program was built for %u\n",
                packhouse_version(), packhouse_abi_version(), PACKHOUSE_ABI_VERSION);
        return 2;
    }
    engine e = {.geometry = {.struct_size = sizeof e.geometry}};
    packhouse_tile_geometry *g = &e.geometry;
    int is_blocked = count > 2 && strcmp(words[2], "b8") == 0;
    int is_good = (count == 9 || count == 10) && (is_blocked || strcmp(words[2], "rm") == 0) &&
                  number(words[3], &e.vocabulary) && number(words[4], &e.width) &&
                  number(words[5], &g->kd) && number(words[6], &g->nd) &&
                  number(words[7], &g->kpad) && number(words[8], &g->t);
    if (!is_good) {
        fprintf(stderr, "usage: %s ROOT rm|b8 VOCABULARY WIDTH KD ND KPAD T [FILE]\n",
                count ? words[0] : "head");
        return 2;
    }
    g->order = is_blocked ? PACKHOUSE_TILE_BLOCKED : PACKHOUSE_TILE_ROW_MAJOR;
    e.root = words[1], e.file = count == 10 ? words[9] : NULL;
    return run(&e);
}
