/* A host process of the plug-in on the mock ggml: loads the library, loads the plug-in as ggml
 * does, and runs what its arguments say.
 *
 *   mock_host MOCK SCOPE PLUGIN COMMAND [N] [--no-host]
 *
 *   MOCK     paths of mock libraries, separated by ':'; the first is the one that is used
 *   SCOPE    local | global
 *   COMMAND  load | select | select-freed | unload | a scenario of entries.c */
#define _GNU_SOURCE
#include "entries.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct api api;
ggml_backend_buffer_type_t ours, stock;
static ggml_backend_dev_t device;

static void die(const char *what, const char *name) {
    fprintf(stderr, "mock_host: %s: %s\n", what, name);
    exit(3);
}

/* ---- tensors ---- */

struct arena {
    struct ggml_tensor *list[16];
    int count;
};

void *host_begin(void) { return calloc(1, sizeof(struct arena)); }

static size_t row_bytes(int type, int64_t columns) {
    if (type == GGML_TYPE_Q4_0) return columns / 32 * 18;
    if (type == GGML_TYPE_Q8_0) return columns / 32 * 34;
    return type == GGML_TYPE_Q4_K ? columns / 256 * 144 : columns * 4;
}

static size_t block_bytes(int type) { return row_bytes(type, type == GGML_TYPE_Q4_K ? 256 : 32); }

struct ggml_tensor *host_tensor(void *memory, int type, const int64_t ne[3], const char *name) {
    struct arena *arena = memory;
    struct ggml_tensor *t = calloc(1, sizeof *t);
    t->type = type;
    memcpy(t->ne, ne, 3 * sizeof *ne);
    t->ne[3] = 1;
    t->nb[0] = type == GGML_TYPE_F32 ? 4 : block_bytes(type);
    t->nb[1] = row_bytes(type, ne[0]);
    t->nb[2] = t->nb[1] * ne[1];
    t->nb[3] = t->nb[2] * ne[2];
    snprintf(t->name, sizeof t->name, "%s", name);
    return arena->list[arena->count++] = t;
}

struct ggml_tensor *host_view(void *memory, struct ggml_tensor *parent, int64_t first_row,
                              int64_t rows) {
    int64_t ne[3] = {parent->ne[0], rows, 1};
    struct ggml_tensor *t = host_tensor(memory, parent->type, ne, "view");
    t->op = G(mock_op)("VIEW");
    t->src[0] = t->view_src = parent;
    t->view_offs = first_row * parent->nb[1];
    return t;
}

ggml_backend_buffer_t host_alloc(void *memory, ggml_backend_buffer_type_t type) {
    struct arena *arena = memory;
    return G(ggml_backend_buft_alloc_buffer_n)(type, arena->list, arena->count);
}

void host_end(void *memory) {
    struct arena *arena = memory;
    for (int i = 0; i < arena->count; i++) free(arena->list[i]);
    free(arena);
}

/* ---- selection ---- */

/* Asks the plug-in's device about one op and proves that nothing of it was changed. */
static bool asks(struct ggml_tensor *op) {
    struct ggml_tensor copies[11];
    memcpy(&copies[10], op, sizeof *op);
    for (int i = 0; i < 10; i++)
        if (op->src[i]) memcpy(&copies[i], op->src[i], sizeof *op);
    bool answer = G(ggml_backend_dev_supports_op)(device, op);
    if (memcmp(&copies[10], op, sizeof *op) != 0) die("changed", "the op");
    for (int i = 0; i < 10; i++)
        if (op->src[i] && memcmp(&copies[i], op->src[i], sizeof *op) != 0)
            die("changed", "a source");
    return answer;
}

static void say(const char *name, struct ggml_tensor *op) { printf("%s=%d\n", name, asks(op)); }

static struct ggml_tensor op_on(const char *name, struct ggml_tensor *weight,
                                struct ggml_tensor *input) {
    struct ggml_tensor op = {.op = G(mock_op)(name), .type = GGML_TYPE_F32};
    for (int i = 0; i < 4; i++) op.ne[i] = 1, op.nb[i] = 4;
    op.src[0] = weight;
    op.src[1] = input;
    return op;
}

/* Prints `NAME=0|1` for each kind of question an engine asks. */
static void selection(void) {
    void *arena = host_begin();
    struct ggml_tensor *weight = host_tensor(arena, GGML_TYPE_Q4_0, (int64_t[]){64, 16, 1}, "w");
    struct ggml_tensor *odd = host_tensor(arena, GGML_TYPE_Q4_0, (int64_t[]){64, 12, 1}, "odd");
    struct ggml_tensor *plain = host_tensor(arena, GGML_TYPE_Q4_0, (int64_t[]){64, 16, 1}, "plain");
    struct ggml_tensor *input = host_tensor(arena, GGML_TYPE_F32, (int64_t[]){64, 1, 1}, "x");
    struct ggml_tensor *rows = host_tensor(arena, GGML_TYPE_Q8_0, (int64_t[]){64, 1, 1}, "q");
    /* As the engine asks: a zero-sized buffer of the type in the weight. */
    weight->buffer = odd->buffer = G(ggml_backend_buft_alloc_buffer)(ours, 0);
    plain->buffer = G(ggml_backend_buft_alloc_buffer)(G(mock_plain_type)(), 0);
    struct ggml_tensor op = op_on("MUL_MAT", weight, input);
    say("mul_mat", &op);
    say("mul_mat_again", &op);
    op = op_on("MUL_MAT", odd, input);
    say("mul_mat_of_odd_rows", &op);
    op = op_on("MUL_MAT", weight, rows);
    say("mul_mat_by_q8_0", &op);
    op = op_on("MUL_MAT", plain, input);
    say("mul_mat_elsewhere", &op);
    op = op_on("MUL_MAT_ID", weight, input);
    say("mul_mat_id", &op);
    op = op_on("GET_ROWS", weight, input);
    say("get_rows", &op);
    op = op_on("ADD", plain, weight);
    say("add_second", &op);
    const char *empty[] = {"NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"};
    for (int i = 0; i < 5; i++) {
        char name[64];
        op = op_on(empty[i], weight, NULL);
        snprintf(name, sizeof name, "%s_on_ours", empty[i]);
        say(name, &op);
        op = op_on(empty[i], plain, NULL);
        snprintf(name, sizeof name, "%s_elsewhere", empty[i]);
        say(name, &op);
        op = op_on(empty[i], NULL, NULL);
        op.buffer = weight->buffer;
        snprintf(name, sizeof name, "%s_itself_on_ours", empty[i]);
        say(name, &op);
    }
    /* A view has no buffer yet while the engine asks: what counts is what it views. */
    op = op_on("VIEW", NULL, NULL);
    op.view_src = weight;
    say("view_of_ours", &op);
    op = op_on("NONE", NULL, NULL);
    say("none_nowhere", &op);
    printf("own_type=%d\n", G(ggml_backend_dev_supports_buft)(device, ours));
    printf("stock_type=%d\n", G(ggml_backend_dev_supports_buft)(device, stock));
    ggml_backend_t stream = G(ggml_backend_dev_init)(device, NULL);
    G(ggml_backend_free)(stream);
    G(ggml_backend_buffer_free)(weight->buffer);
    G(ggml_backend_buffer_free)(plain->buffer);
    host_end(arena);
}

/* A canary for the sanitizer: the plug-in reads an op that the host has freed. */
static void select_freed(void) {
    struct ggml_tensor *volatile op = calloc(1, sizeof(struct ggml_tensor));
    free(op);
    G(ggml_backend_dev_supports_op)(device, op);
}

int main(int count, char **words) {
    if (count < 5) die("usage", "mock_host MOCK SCOPE PLUGIN COMMAND [N]");
    int scope = strcmp(words[2], "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL;
    void *mock = NULL;
    for (char *path = strtok(words[1], ":"); path; path = strtok(NULL, ":")) {
        void *library = dlopen(path, RTLD_NOW | scope);
        if (!library) die("dlopen", dlerror());
        if (!mock) mock = library;
    }
    /* Absent functions stay null: a mutant may lack one that this command does not need. */
#define LOOK_UP(result, name, arguments) api.name = (result(*) arguments)dlsym(mock, #name);
    MOCK_FUNCTIONS(LOOK_UP)
    void *plugin = dlopen(words[3], RTLD_NOW | RTLD_LOCAL);
    if (!plugin) die("dlopen", dlerror());
    int (*score)(void) = (int (*)(void))dlsym(plugin, "ggml_backend_score");
    ggml_backend_reg_t (*init)(void) =
        (ggml_backend_reg_t (*)(void))dlsym(plugin, "ggml_backend_init");
    if (!score || !init) die("dlsym", "the plug-in's functions");
    int served = score();
    ggml_backend_reg_t reg = init();
    if (!served != !reg) die("score and init", "disagree");
    printf("served=%d\n", served);
    printf("direct=%zu\n", G(mock_direct_calls)());
    printf("stray=%zu\n", G(mock_stray_calls)());
    if (strcmp(words[4], "load") == 0) {
        printf("goes_on=%d\n", G(mock_goes_on)());
        return 0;
    }
    if (!reg) die("not served", words[4]);
    device = G(mock_register)(reg);
    ours = G(ggml_backend_dev_buffer_type)(device);
    stock = G(mock_repack_type)();
    if (strcmp(words[4], "select") == 0) {
        selection();
        return 0;
    }
    if (strcmp(words[4], "select-freed") == 0) {
        select_freed();
        return 0;
    }
    if (strcmp(words[4], "unload") == 0) {
        /* As ggml_backend_unload does, which knows nothing of threads that still run. */
        run_scenario("by-hand", 0);
        dlclose(plugin);
        usleep(300000);
        printf("ok\n");
        return 0;
    }
    int status = run_scenario(words[4], count > 5 ? atoi(words[5]) : 0);
    printf("direct_after=%zu\n", G(mock_direct_calls)());
    if (status == 0) printf("ok\n");
    return status;
}
