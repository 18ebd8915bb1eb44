/* A host process of the plug-in on the real ggml: linked to an engine's libraries, loads the
 * plug-in by GGML_BACKEND_PATH as every tool of the engine does, and runs a scenario of entries.c.
 *
 *   engine_host FOLDER SCENARIO [N]
 *
 * FOLDER is where the engine's backends lie. Compiled with -DREAL_GGML. */
#include "entries.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ggml_backend_buffer_type_t ours, stock;

static void die(const char *what) {
    fprintf(stderr, "engine_host: %s\n", what);
    exit(3);
}

void *host_begin(void) {
    struct ggml_init_params parameters = {
        .mem_size = 64 * ggml_tensor_overhead(), .mem_buffer = NULL, .no_alloc = true};
    return ggml_init(parameters);
}

struct ggml_tensor *host_tensor(void *arena, int type, const int64_t ne[3], const char *name) {
    return ggml_set_name(ggml_new_tensor(arena, (enum ggml_type)type, 3, ne), name);
}

struct ggml_tensor *host_view(void *arena, struct ggml_tensor *parent, int64_t first_row,
                              int64_t rows) {
    size_t offset = (size_t)first_row * parent->nb[1];
    return ggml_view_2d(arena, parent, parent->ne[0], rows, parent->nb[1], offset);
}

ggml_backend_buffer_t host_alloc(void *arena, ggml_backend_buffer_type_t type) {
    return ggml_backend_alloc_ctx_tensors_from_buft(arena, type);
}

void host_end(void *arena) { ggml_free(arena); }

static ggml_backend_buffer_type_t repack_type(void) {
    ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    ggml_backend_dev_get_extra_bufts_t list =
        (ggml_backend_dev_get_extra_bufts_t)ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(cpu), "ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t *next = list(cpu); next && *next; next++)
        if (strcmp(ggml_backend_buft_name(*next), "CPU_REPACK") == 0) return *next;
    return NULL;
}

int main(int count, char **words) {
    if (count < 3) die("usage: engine_host FOLDER SCENARIO [N]");
    ggml_backend_load_all_from_path(words[1]);
    ggml_backend_dev_t device = ggml_backend_dev_by_name("PACKHOUSE");
    if (!device) die("the engine has no device of the plug-in");
    if (ggml_backend_dev_type(device) != GGML_BACKEND_DEVICE_TYPE_ACCEL) die("not an ACCEL device");
    ours = ggml_backend_dev_buffer_type(device);
    stock = repack_type();
    if (!stock) die("the engine has no CPU_REPACK");
    int status = run_scenario(words[2], count > 3 ? atoi(words[3]) : 0);
    if (status == 0) printf("ok\n");
    return status;
}
