/* Every way into a buffer of the plug-in, against the host's own CPU_REPACK buffer.
 *
 * A model is a GGUF file of seeded bytes, mapped read-only as an engine maps it; what each tensor
 * must look like is what the host's own packer made of it in a stock buffer, or the source where
 * the host has no packing. Each operation is tried on a buffer that is fresh, one that was just
 * packed, and one whose tensors are mapped from the store. */
#define _GNU_SOURCE
#include "entries.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FAIL(...)                                                                                  \
    do {                                                                                           \
        fprintf(stderr, "entries.c:%d: ", __LINE__);                                               \
        fprintf(stderr, __VA_ARGS__);                                                              \
        fprintf(stderr, "\n");                                                                     \
        _exit(1);                                                                                  \
    } while (0)
#define REQUIRE(condition)                                                                         \
    do {                                                                                           \
        if (!(condition)) FAIL("not so: %s", #condition);                                          \
    } while (0)

enum { TENSORS_MAX = 8, HEADER_BYTES_MAX = 4096 };

struct spec {
    int type;
    int64_t ne[3];
};

/* Over a huge page; over a page; below one; a stack; rows that no packing divides; types that some
 * CPUs pack and some do not. */
static const struct spec large_specs[] = {
    {GGML_TYPE_Q4_0, {2048, 2048, 1}}, {GGML_TYPE_Q4_0, {256, 64, 1}},
    {GGML_TYPE_Q4_K, {512, 40, 1}},    {GGML_TYPE_Q8_0, {128, 48, 1}},
    {GGML_TYPE_Q4_0, {64, 16, 3}},     {GGML_TYPE_Q4_0, {64, 12, 1}},
};
static const struct spec small_specs[] = {
    {GGML_TYPE_Q4_0, {256, 64, 1}}, {GGML_TYPE_Q4_K, {256, 64, 1}}, {GGML_TYPE_Q8_0, {64, 32, 1}},
    {GGML_TYPE_Q4_0, {64, 16, 2}},  {GGML_TYPE_Q4_0, {32, 12, 1}},
};
#define COUNT(specs) (sizeof(specs) / sizeof *(specs))

struct model {
    const struct spec *specs;
    size_t count;
    int fd;
    uint8_t *file;
    size_t file_bytes;
    const uint8_t *source[TENSORS_MAX];
    size_t bytes[TENSORS_MAX];
    uint8_t *expected[TENSORS_MAX];
    bool stored; /* Its packs are in the store: a load is served by mapping. */
};

struct load {
    void *arena;
    ggml_backend_buffer_t buffer;
    struct ggml_tensor *tensor[TENSORS_MAX];
    int number;
};

enum state { FRESH, PACKED, MAPPED, STATES };
static const char *const state_names[] = {"fresh", "packed", "mapped"};

static int loads; /* buffers of ours so far: the number in the next one's report */
static uint64_t seeds = 1;

static uint64_t next_random(uint64_t *state) {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ---- models ---- */

static void put(uint8_t **at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) *(*at)++ = (uint8_t)(value >> (8 * i));
}

static size_t padded(size_t bytes) { return (bytes + 31) / 32 * 32; }

static void tensors_of(void *arena, const struct model *m, struct ggml_tensor **tensors) {
    for (size_t i = 0; i < m->count; i++) {
        char name[32];
        snprintf(name, sizeof name, "blk.%zu.weight", i);
        tensors[i] = host_tensor(arena, m->specs[i].type, m->specs[i].ne, name);
    }
}

static size_t write_header(const struct model *m, uint8_t *header) {
    uint8_t *at = header;
    put(&at, 0x46554747, 4);
    put(&at, 3, 4);
    put(&at, m->count, 8);
    put(&at, 0, 8);
    size_t offset = 0;
    for (size_t i = 0; i < m->count; i++) {
        char name[32];
        int length = snprintf(name, sizeof name, "blk.%zu.weight", i);
        put(&at, (uint64_t)length, 8);
        memcpy(at, name, (size_t)length);
        at += length;
        put(&at, 3, 4);
        for (int d = 0; d < 3; d++) put(&at, (uint64_t)m->specs[i].ne[d], 8);
        put(&at, (uint64_t)m->specs[i].type, 4);
        put(&at, offset, 8);
        offset += padded(m->bytes[i]);
    }
    return padded((size_t)(at - header));
}

/* Writes the file, maps it, and lets the stock buffer pack it. */
static void open_model(struct model *m, const struct spec *specs, size_t count) {
    uint64_t seed = __atomic_fetch_add(&seeds, 1, __ATOMIC_RELAXED);
    uint64_t random = (seed + 1) * 0x9e3779b97f4a7c15u;
    *m = (struct model){.specs = specs, .count = count};
    struct ggml_tensor *tensor[TENSORS_MAX];
    void *arena = host_begin();
    tensors_of(arena, m, tensor);
    size_t data_bytes = 0;
    for (size_t i = 0; i < count; i++) {
        m->bytes[i] = G(ggml_nbytes)(tensor[i]);
        data_bytes += padded(m->bytes[i]);
    }
    uint8_t header[HEADER_BYTES_MAX] = {0};
    size_t header_bytes = write_header(m, header);
    m->file_bytes = header_bytes + data_bytes;
    uint8_t *bytes = malloc(m->file_bytes + 8);
    memcpy(bytes, header, header_bytes);
    for (size_t at = header_bytes; at < m->file_bytes; at += 8) {
        uint64_t value = next_random(&random);
        memcpy(bytes + at, &value, 8);
    }
    char path[64];
    snprintf(path, sizeof path, "model-%d-%llu.gguf", getpid(), (unsigned long long)seed);
    int out = open(path, O_CREAT | O_EXCL | O_WRONLY, 0644);
    REQUIRE(out >= 0 && write(out, bytes, m->file_bytes) == (ssize_t)m->file_bytes);
    close(out);
    free(bytes);
    m->fd = open(path, O_RDONLY);
    m->file = mmap(NULL, m->file_bytes, PROT_READ, MAP_SHARED, m->fd, 0);
    REQUIRE(m->file != MAP_FAILED);
    ggml_backend_buffer_t buffer = host_alloc(arena, stock);
    size_t offset = header_bytes;
    for (size_t i = 0; i < count; i++) {
        m->source[i] = m->file + offset;
        offset += padded(m->bytes[i]);
        m->expected[i] = malloc(m->bytes[i]);
        if (tensor[i]->extra != NULL) {
            G(ggml_backend_tensor_set)(tensor[i], m->source[i], 0, m->bytes[i]);
            memcpy(m->expected[i], tensor[i]->data, m->bytes[i]);
            REQUIRE(memcmp(m->expected[i], m->source[i], m->bytes[i]) != 0);
        } else {
            memcpy(m->expected[i], m->source[i], m->bytes[i]);
        }
    }
    G(ggml_backend_buffer_free)(buffer);
    host_end(arena);
}

static void close_model(struct model *m) {
    for (size_t i = 0; i < m->count; i++) free(m->expected[i]);
    munmap(m->file, m->file_bytes);
    close(m->fd);
}

/* ---- loads ---- */

static struct load begin(const struct model *m) {
    struct load l = {.arena = host_begin()};
    tensors_of(l.arena, m, l.tensor);
    l.buffer = host_alloc(l.arena, ours);
    l.number = __atomic_fetch_add(&loads, 1, __ATOMIC_RELAXED);
    REQUIRE(l.buffer != NULL);
    return l;
}

static void set(struct load *l, const struct model *m, size_t i) {
    G(ggml_backend_tensor_set)(l->tensor[i], m->source[i], 0, m->bytes[i]);
}

static void set_all(struct load *l, const struct model *m) {
    for (size_t i = 0; i < m->count; i++) set(l, m, i);
}

static void end(struct load *l) {
    G(ggml_backend_buffer_free)(l->buffer);
    host_end(l->arena);
}

static void same(const void *actual, const void *expected, size_t bytes, const char *what,
                 size_t index) {
    if (memcmp(actual, expected, bytes) == 0) return;
    size_t at = 0;
    while (((const uint8_t *)actual)[at] == ((const uint8_t *)expected)[at]) at++;
    FAIL("%s: tensor %zu differs at byte %zu of %zu", what, index, at, bytes);
}

/* In memory, as kernels read it, and through get_tensor, whole and in part. */
static void expect_bytes(struct load *l, size_t i, const uint8_t *expected, size_t bytes,
                         const char *what) {
    uint8_t *copy = malloc(bytes);
    G(ggml_backend_tensor_get)(l->tensor[i], copy, 0, bytes);
    same(copy, expected, bytes, what, i);
    memset(copy, 0xee, bytes);
    G(ggml_backend_tensor_get)(l->tensor[i], copy, bytes / 3, bytes / 2);
    same(copy, expected + bytes / 3, bytes / 2, what, i);
    free(copy);
    same(l->tensor[i]->data, expected, bytes, what, i);
}

static void expect_all(struct load *l, const struct model *m, const char *what) {
    for (size_t i = 0; i < m->count; i++) expect_bytes(l, i, m->expected[i], m->bytes[i], what);
}

/* Waits for the report that says how the load's fill ended. Only for one thread at a time. */
static void wait_filled(const struct load *l) {
    char path[4096], text[1 << 16];
    const char *folder = getenv("PACKHOUSE_REPORT");
    REQUIRE(folder != NULL);
    snprintf(path, sizeof path, "%s/%d-%d.json", folder, getpid(), l->number);
    for (int i = 0; i < 20000; i++, usleep(1000)) {
        int fd = open(path, O_RDONLY);
        if (fd < 0) continue;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        text[length > 0 ? length : 0] = 0;
        if (strstr(text, "\"state\": \"done\"")) return;
        if (strstr(text, "\"state\": \"stopped\"")) FAIL("the fill stopped: %s", text);
    }
    FAIL("the fill did not end: %s", path);
}

/* Whether an address lies in a mapping of a file. */
static bool is_file(const void *address) {
    FILE *maps = fopen("/proc/self/maps", "r");
    unsigned long long from, to, offset, inode, wanted = (uintptr_t)address;
    char line[4096];
    bool found = false;
    while (fgets(line, sizeof line, maps)) {
        REQUIRE(sscanf(line, "%llx-%llx %*s %llx %*s %llu", &from, &to, &offset, &inode) == 4);
        if (from <= wanted && wanted < to) found = inode != 0;
    }
    fclose(maps);
    return found;
}

static void store(struct model *m) {
    if (m->stored) return;
    struct load l = begin(m);
    set_all(&l, m);
    wait_filled(&l);
    end(&l);
    m->stored = true;
}

/* A load of the model in the wanted state. For PACKED the model must be new. */
static struct load reach(enum state state, struct model *m) {
    if (state == MAPPED) store(m);
    struct load l = begin(m);
    if (state != FRESH) set_all(&l, m);
    if (state != MAPPED) return l;
    size_t mapped = 0;
    for (size_t i = 0; i < m->count; i++) {
        bool packs = memcmp(m->expected[i], m->source[i], m->bytes[i]) != 0;
        if (is_file(l.tensor[i]->data) != packs)
            FAIL("tensor %zu: packs %d, mapped %d", i, packs, !packs);
        mapped += packs;
    }
    REQUIRE(mapped >= 2);
    return l;
}

/* ---- the entries ---- */

/* The bytes a tensor has before the operation, in memory of the caller's. */
static uint8_t *before(enum state state, const struct model *m, size_t i) {
    uint8_t *bytes = calloc(1, m->bytes[i]);
    if (state != FRESH) memcpy(bytes, m->expected[i], m->bytes[i]);
    return bytes;
}

typedef void operation(enum state state, struct load *l, const struct model *m,
                       const struct model *other);

static void first_set(enum state state, struct load *l, const struct model *m,
                      const struct model *other) {
    (void)other;
    const char *name = G(ggml_backend_buft_name)(G(ggml_backend_buffer_get_type)(l->buffer));
    REQUIRE(strcmp(name, state == FRESH ? "PACKHOUSE" : "CPU_REPACK") == 0);
    if (state == FRESH) set_all(l, m);
    name = G(ggml_backend_buft_name)(G(ggml_backend_buffer_get_type)(l->buffer));
    REQUIRE(strcmp(name, "CPU_REPACK") == 0);
    expect_all(l, m, "set");
    for (size_t i = 0; i < m->count; i++) {
        REQUIRE((uintptr_t)l->tensor[i]->data % (uintptr_t)getpagesize() == 0);
        REQUIRE(m->bytes[i] < (2u << 20) || (uintptr_t)l->tensor[i]->data % (2u << 20) == 0);
    }
}

static void second_set(enum state state, struct load *l, const struct model *m,
                       const struct model *other) {
    for (size_t i = 0; i < m->count; i++) {
        set(l, other, i);
        expect_bytes(l, i, other->expected[i], m->bytes[i], "set again");
        if (i + 1 < m->count && state != FRESH)
            expect_bytes(l, i + 1, m->expected[i + 1], m->bytes[i + 1], "the next tensor");
    }
    set_all(l, m);
    expect_all(l, m, "set back");
}

static void partial_write(enum state state, struct load *l, const struct model *m,
                          const struct model *other) {
    for (size_t i = 0; i < m->count; i++) {
        size_t offset = m->bytes[i] / 5 + 3, bytes = m->bytes[i] / 7 + 1;
        uint8_t *expected = before(state, m, i);
        memcpy(expected + offset, other->source[i], bytes);
        G(ggml_backend_tensor_set)(l->tensor[i], other->source[i], offset, bytes);
        expect_bytes(l, i, expected, m->bytes[i], "partial write");
        memcpy(expected, other->source[i], 1);
        G(ggml_backend_tensor_set)(l->tensor[i], other->source[i], 0, 1);
        expect_bytes(l, i, expected, m->bytes[i], "write of the first byte");
        free(expected);
    }
    set_all(l, m);
    expect_all(l, m, "set after partial writes");
}

static void fill_with_value(enum state state, struct load *l, const struct model *m,
                            const struct model *other) {
    for (size_t i = 0; i < m->count; i++) {
        size_t offset = m->bytes[i] / 3, bytes = m->bytes[i] - offset;
        uint8_t *expected = before(state, m, i);
        memset(expected + offset, 0xa7, bytes);
        G(ggml_backend_tensor_memset)(l->tensor[i], 0xa7, offset, bytes);
        expect_bytes(l, i, expected, m->bytes[i], "memset of a part");
        memset(expected, 0x11, m->bytes[i]);
        G(ggml_backend_tensor_memset)(l->tensor[i], 0x11, 0, m->bytes[i]);
        expect_bytes(l, i, expected, m->bytes[i], "memset");
        free(expected);
    }
    set_all(l, other);
    expect_all(l, other, "set after memset");
}

static void clear(enum state state, struct load *l, const struct model *m,
                  const struct model *other) {
    (void)state;
    G(ggml_backend_buffer_clear)(l->buffer, 0x5c);
    for (size_t i = 0; i < m->count; i++) {
        uint8_t *expected = malloc(m->bytes[i]);
        memset(expected, 0x5c, m->bytes[i]);
        expect_bytes(l, i, expected, m->bytes[i], "clear");
        free(expected);
    }
    set_all(l, other);
    expect_all(l, other, "set after clear");
}

static void read_back(enum state state, struct load *l, const struct model *m,
                      const struct model *other) {
    (void)other;
    for (size_t i = 0; i < m->count; i++) {
        uint8_t *expected = before(state, m, i), *actual = malloc(m->bytes[i]);
        memset(actual, 0xee, m->bytes[i]);
        G(ggml_backend_tensor_get)(l->tensor[i], actual, 0, m->bytes[i]);
        same(actual, expected, m->bytes[i], "get", i);
        size_t half = m->bytes[i] / 2;
        G(ggml_backend_tensor_get)(l->tensor[i], actual, half, m->bytes[i] - half);
        same(actual, expected + half, m->bytes[i] - half, "get of the second half", i);
        free(expected);
        free(actual);
    }
}

static void null_extra(enum state state, struct load *l, const struct model *m,
                       const struct model *other) {
    (void)state;
    for (size_t i = 0; i < m->count; i++) {
        void *extra = l->tensor[i]->extra;
        l->tensor[i]->extra = NULL;
        set(l, other, i);
        expect_bytes(l, i, other->source[i], m->bytes[i], "null extra");
        l->tensor[i]->extra = extra;
    }
    set_all(l, m);
    expect_all(l, m, "set after null extra");
}

/* Some tensors set, the last never. */
static void never_set(enum state state, struct load *l, const struct model *m,
                      const struct model *other) {
    (void)other;
    if (state != FRESH) return;
    for (size_t i = 0; i + 1 < m->count; i++) set(l, m, i);
    for (size_t i = 0; i + 1 < m->count; i++)
        expect_bytes(l, i, m->expected[i], m->bytes[i], "set");
    size_t last = m->count - 1;
    uint8_t *expected = calloc(1, m->bytes[last]);
    expect_bytes(l, last, expected, m->bytes[last], "never set");
    free(expected);
}

/* Source bytes at odd addresses of the heap: no file, no alignment. */
static void from_heap(enum state state, struct load *l, const struct model *m,
                      const struct model *other) {
    (void)state;
    for (size_t i = 0; i < m->count; i++) {
        uint8_t *heap = malloc(m->bytes[i] + 1);
        memcpy(heap + 1, other->source[i], m->bytes[i]);
        G(ggml_backend_tensor_set)(l->tensor[i], heap + 1, 0, m->bytes[i]);
        memset(heap, 0, m->bytes[i] + 1);
        free(heap);
        expect_bytes(l, i, other->expected[i], m->bytes[i], "from the heap");
    }
}

static operation *const operations[] = {first_set,       second_set, partial_write,
                                        fill_with_value, clear,      read_back,
                                        null_extra,      never_set,  from_heap};

static void all_entries(void) {
    /* One model of each size goes to the store, since a fill takes seconds to prove what it wrote.
     */
    struct model stored[2] = {0}, m, other;
    for (size_t o = 0; o < COUNT(operations); o++)
        for (enum state state = FRESH; state < STATES; state++) {
            bool large = operations[o] == first_set || operations[o] == second_set;
            const struct spec *specs = large ? large_specs : small_specs;
            size_t count = large ? COUNT(large_specs) : COUNT(small_specs);
            struct model *used = state == MAPPED ? &stored[large] : &m;
            if (used == &m || used->count == 0) open_model(used, specs, count);
            open_model(&other, specs, count);
            struct load l = reach(state, used);
            fprintf(stderr, "entries: operation %zu, %s\n", o, state_names[state]);
            operations[o](state, &l, used, &other);
            end(&l);
            if (used == &m) close_model(&m);
            close_model(&other);
        }
    close_model(&stored[0]);
    close_model(&stored[1]);
}

/* ---- views, placement ---- */

/* A write through a view of some rows: as in a stock buffer with the same bytes before. */
static void view_of(enum state state, const struct model *m, size_t i, int64_t first_row,
                    int64_t rows) {
    struct model other;
    open_model(&other, &m->specs[i], 1);
    ggml_backend_buffer_type_t types[2] = {stock, ours};
    uint8_t *result[2];
    for (int t = 0; t < 2; t++) {
        void *arena = host_begin();
        struct ggml_tensor *parent = host_tensor(arena, m->specs[i].type, m->specs[i].ne, "parent");
        struct ggml_tensor *view = host_view(arena, parent, first_row, rows);
        ggml_backend_buffer_t buffer = host_alloc(arena, types[t]);
        loads += types[t] == ours;
        REQUIRE(view->data == (char *)parent->data + view->view_offs);
        if (state == FRESH) G(ggml_backend_buffer_clear)(buffer, 0);
        else G(ggml_backend_tensor_set)(parent, m->source[i], 0, m->bytes[i]);
        if (types[t] == ours && state == MAPPED) REQUIRE(is_file(parent->data));
        /* Where the view has no packing, a stock buffer would crash: a plain copy is what we do. */
        size_t bytes = G(ggml_nbytes)(view);
        if (view->extra != NULL || types[t] == ours)
            G(ggml_backend_tensor_set)(view, other.source[0], 0, bytes);
        else memcpy(view->data, other.source[0], bytes);
        G(ggml_backend_tensor_memset)(view, 0x3d, bytes - 5, 4);
        result[t] = malloc(m->bytes[i]);
        memcpy(result[t], parent->data, m->bytes[i]);
        G(ggml_backend_buffer_free)(buffer);
        host_end(arena);
    }
    same(result[1], result[0], m->bytes[i], "view", i);
    free(result[0]);
    free(result[1]);
    close_model(&other);
}

static void views(void) {
    struct model m;
    open_model(&m, small_specs, 2);
    for (enum state state = FRESH; state < STATES; state++) {
        if (state == MAPPED) store(&m);
        for (size_t i = 0; i < m.count; i++) {
            view_of(state, &m, i, 16, 16);
            view_of(state, &m, i, 8, 8);
            view_of(state, &m, i, 0, 64);
            view_of(state, &m, i, 60, 4);
        }
    }
    close_model(&m);
}

/* A buffer from plain alloc_buffer, tensors placed by hand at its alignment. */
static void placed_by_hand(void) {
    struct model m;
    open_model(&m, small_specs, COUNT(small_specs));
    struct load l = {.arena = host_begin()};
    tensors_of(l.arena, &m, l.tensor);
    size_t alignment = G(ggml_backend_buft_get_alignment)(ours), end_of = 0;
    for (size_t i = 0; i < m.count; i++)
        end_of += (m.bytes[i] + alignment - 1) / alignment * alignment;
    l.buffer = G(ggml_backend_buft_alloc_buffer)(ours, end_of);
    l.number = loads++;
    char *next = G(ggml_backend_buffer_get_base)(l.buffer);
    for (size_t i = 0; i < m.count; i++) {
        REQUIRE(G(ggml_backend_tensor_alloc)(l.buffer, l.tensor[i], next) == GGML_STATUS_SUCCESS);
        next += (m.bytes[i] + alignment - 1) / alignment * alignment;
    }
    set_all(&l, &m);
    expect_all(&l, &m, "placed by hand");
    end(&l);
    close_model(&m);
}

/* Tensors placed anew over older ones, as a graph allocator does with one buffer. */
static void placed_again(enum state state, struct model *m) {
    if (state == MAPPED) store(m);
    ggml_backend_buffer_t buffer = G(ggml_backend_buft_alloc_buffer)(ours, 4 * m->bytes[1]);
    loads++;
    char *base = G(ggml_backend_buffer_get_base)(buffer);
    size_t page = (size_t)getpagesize();
    /* Same place and smaller, same place and larger, in the middle of an older one, over two. */
    struct {
        size_t tensor, page;
        bool sets;
    } turns[] = {{1, 0, true}, {0, 0, true},  {1, 0, true},  {0, 3, true},  {1, 2, true},
                 {0, 1, true}, {0, 1, false}, {1, 0, false}, {0, 3, true},  {0, 0, false},
                 {1, 0, true}, {0, 0, false}, {1, 4, true},  {0, 5, false}, {1, 0, true}};
    for (size_t turn = 0; turn < COUNT(turns); turn++) {
        size_t i = turns[turn].tensor;
        void *arena = host_begin();
        struct ggml_tensor *t = host_tensor(arena, m->specs[i].type, m->specs[i].ne, "again");
        REQUIRE(G(ggml_backend_tensor_alloc)(buffer, t, base + turns[turn].page * page) ==
                GGML_STATUS_SUCCESS);
        uint8_t *expected = malloc(m->bytes[i]);
        memset(expected, 0x42, m->bytes[i]);
        if (turns[turn].sets) {
            memcpy(expected, m->expected[i], m->bytes[i]);
            G(ggml_backend_tensor_set)(t, m->source[i], 0, m->bytes[i]);
        } else {
            G(ggml_backend_tensor_memset)(t, 0x42, 0, m->bytes[i]);
        }
        same(t->data, expected, m->bytes[i], "placed again", turn);
        free(expected);
        host_end(arena);
    }
    G(ggml_backend_buffer_free)(buffer);
}

/* A tensor placed over one that waits to be stored: what is stored under a weight's key must be
 * that weight's pack, or nothing. The rows between the samples are the ones that would go
 * unnoticed. */
static void placed_over_waiting(void) {
    static const struct spec specs[] = {{GGML_TYPE_Q4_0, {256, 4096, 1}},
                                        {GGML_TYPE_Q4_0, {256, 16, 1}}};
    struct model m, rest;
    open_model(&m, &specs[0], 1);
    open_model(&rest, &specs[1], 1);
    ggml_backend_buffer_t buffer = G(ggml_backend_buft_alloc_buffer)(ours, 2 * m.bytes[0]);
    struct load l = {.buffer = buffer, .number = loads++};
    char *base = G(ggml_backend_buffer_get_base)(buffer);
    size_t page = (size_t)getpagesize(), pages = m.bytes[0] / page;
    void *arena = host_begin();
    struct ggml_tensor *first = host_tensor(arena, specs[0].type, specs[0].ne, "first");
    struct ggml_tensor *over = host_tensor(arena, specs[1].type, specs[1].ne, "over");
    struct ggml_tensor *last = host_tensor(arena, specs[1].type, specs[1].ne, "last");
    G(ggml_backend_tensor_alloc)(buffer, first, base);
    G(ggml_backend_tensor_alloc)(buffer, last, base + m.bytes[0] / page * page + page);
    G(ggml_backend_tensor_set)(first, m.source[0], 0, m.bytes[0]);
    G(ggml_backend_tensor_alloc)(buffer, over, base + pages / 2 * page + 5 * page);
    G(ggml_backend_tensor_set)(over, rest.source[0], 0, rest.bytes[0]);
    G(ggml_backend_tensor_set)(last, rest.source[0], 0, rest.bytes[0]);
    same(over->data, rest.expected[0], rest.bytes[0], "over", 0);
    usleep(200000);
    G(ggml_backend_buffer_free)(buffer);
    host_end(arena);
    for (int i = 0; i < 4; i++) {
        l = begin(&m);
        set_all(&l, &m);
        expect_all(&l, &m, "after another was placed over it");
        end(&l);
    }
    close_model(&m);
    close_model(&rest);
}

static void all_placed_again(void) {
    static const struct spec specs[] = {{GGML_TYPE_Q4_0, {256, 64, 1}},
                                        {GGML_TYPE_Q4_0, {256, 256, 1}}};
    struct model m;
    for (enum state state = FRESH; state < STATES; state++) {
        open_model(&m, specs, COUNT(specs));
        placed_again(state, &m);
        close_model(&m);
    }
}

static void nothing(void) {
    REQUIRE(G(ggml_backend_buft_get_alloc_size_n)(ours, NULL, 0) == 0);
    G(ggml_backend_buffer_free)(G(ggml_backend_buft_alloc_buffer_n)(ours, NULL, 0));
    loads++;
    G(ggml_backend_buffer_free)(G(ggml_backend_buft_alloc_buffer)(ours, 0));
    G(ggml_backend_buffer_free)(G(ggml_backend_buft_alloc_buffer)(ours, 1));
    loads++;
    /* Placed and never set. */
    struct model m;
    open_model(&m, small_specs, COUNT(small_specs));
    struct load l = begin(&m);
    end(&l);
    close_model(&m);
}

/* ---- cycles, threads ---- */

/* Loads and unloads while fills go on: new models come up all the time, three loads live at once,
 * and the one that ends is the newest, the oldest or the one between. */
static void cycles(int count) {
    enum { POOL = 6, LIVE = 3 };
    struct model pool[POOL];
    struct load live[LIVE] = {{0}};
    int of[LIVE] = {0};
    for (int i = 0; i < POOL; i++) open_model(&pool[i], small_specs, COUNT(small_specs));
    for (int i = 0; i < count; i++) {
        int slot = (i * 7 + i / 5) % LIVE, which = (i * 5 + i / 7) % POOL;
        if (live[slot].buffer) {
            const struct model *old = &pool[of[slot]];
            /* Written over while its fill may be reading it; compared; or neither. */
            if (i % 3 == 0) {
                set(&live[slot], &pool[which], 0);
                expect_bytes(&live[slot], 0, pool[which].expected[0], old->bytes[0],
                             "cycle, set again");
            } else if (i % 3 == 1) {
                expect_all(&live[slot], old, "cycle");
            }
            end(&live[slot]);
            live[slot].buffer = NULL;
        }
        bool in_use = false;
        for (int s = 0; s < LIVE; s++) in_use |= live[s].buffer && of[s] == which;
        if (i % 3 != 0 && !in_use) {
            close_model(&pool[which]);
            open_model(&pool[which], small_specs, COUNT(small_specs));
        }
        live[slot] = begin(&pool[which]);
        of[slot] = which;
        set_all(&live[slot], &pool[which]);
    }
    for (int s = 0; s < LIVE; s++)
        if (live[s].buffer) end(&live[s]);
    for (int i = 0; i < POOL; i++) close_model(&pool[i]);
}

static struct model shared_model;

static void *loader_thread(void *argument) {
    int count = *(int *)argument;
    struct model own;
    open_model(&own, small_specs, COUNT(small_specs));
    for (int i = 0; i < count; i++) {
        struct model *m = i % 2 ? &own : &shared_model;
        struct load first = begin(m), second = begin(&own);
        for (size_t t = 0; t < m->count; t++) {
            set(&first, m, t);
            set(&second, &own, t);
        }
        expect_all(&first, m, "thread, first");
        end(&first);
        expect_all(&second, &own, "thread, second");
        end(&second);
    }
    close_model(&own);
    return NULL;
}

/* One buffer whose tensors are set by a thread each. */
static struct load divided;

static void *tensor_thread(void *argument) {
    size_t i = (size_t)(uintptr_t)argument;
    set(&divided, &shared_model, i);
    expect_bytes(&divided, i, shared_model.expected[i], shared_model.bytes[i], "thread, tensor");
    return NULL;
}

static void threads(int count) {
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    open_model(&shared_model, small_specs, COUNT(small_specs));
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&thread[i], NULL, loader_thread, &count) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
    for (int turn = 0; turn < count; turn++) {
        divided = begin(&shared_model);
        for (size_t i = 0; i < THREADS; i++)
            REQUIRE(pthread_create(&thread[i], NULL, tensor_thread, (void *)i) == 0);
        for (int i = 0; i < THREADS; i++) pthread_join(thread[i], NULL);
        end(&divided);
    }
    close_model(&shared_model);
}

/* A canary for the sanitizer: the host reads a model's memory after it was freed. */
static void use_after_free(void) {
    struct model m;
    open_model(&m, small_specs, COUNT(small_specs));
    uint8_t *expected = m.expected[0];
    close_model(&m);
    volatile uint8_t byte = expected[1];
    (void)byte;
}

/* Another: the host forgets memory. */
static void leak(void) {
    void *volatile forgotten = malloc(100);
    forgotten = NULL;
    (void)forgotten;
}

int run_scenario(const char *name, int count) {
    if (strcmp(name, "entries") == 0) all_entries();
    else if (strcmp(name, "views") == 0) views();
    else if (strcmp(name, "by-hand") == 0) placed_by_hand();
    else if (strcmp(name, "again") == 0) all_placed_again();
    else if (strcmp(name, "over-waiting") == 0) placed_over_waiting();
    else if (strcmp(name, "nothing") == 0) nothing();
    else if (strcmp(name, "cycles") == 0) cycles(count);
    else if (strcmp(name, "threads") == 0) threads(count);
    else if (strcmp(name, "use-after-free") == 0) use_after_free();
    else if (strcmp(name, "leak") == 0) leak();
    else return 2;
    return 0;
}
