/* What a host gives to the scenarios of entries.c: its ggml, and tensors of it. */
#ifndef ENTRIES_H
#define ENTRIES_H

#ifdef REAL_GGML
#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml.h"
#define G(name) name
#else
#include "mock_ggml.h"
#define DECLARE(result, name, arguments) result(*name) arguments;
struct api {
    MOCK_FUNCTIONS(DECLARE)
};
#undef DECLARE
extern struct api api;
#define G(name) (api.name)
#endif

/* Ours and the stock CPU_REPACK. */
extern ggml_backend_buffer_type_t ours, stock;

/* Tensors without data. They live until `host_end`. */
void *host_begin(void);
struct ggml_tensor *host_tensor(void *arena, int type, const int64_t ne[3], const char *name);
/* A view of some rows of a matrix. */
struct ggml_tensor *host_view(void *arena, struct ggml_tensor *parent, int64_t first_row,
                              int64_t rows);
ggml_backend_buffer_t host_alloc(void *arena, ggml_backend_buffer_type_t type);
void host_end(void *arena);

/* Runs a scenario; ends the process with status 1 and a line where bytes differ. Returns 0, or 2
 * when there is no such scenario. */
int run_scenario(const char *name, int count);

#endif
