/* A ggml of our own, as small as the plug-in's needs: backend API 3, written from the layout that
 * `src/abi/v3.rs` states and not copied from ggml, so that a misreading of ggml by the one is not
 * repeated by the other without the engine tests noticing.
 *
 * Tables are arrays of words. Where a slot lies is decided at run time by `MOCK_MUTANT`, see
 * mock_ggml.c; where a tensor's fields lie is decided here, by `TENSOR_MUTANT` and `NAME_BYTES`. */
#ifndef MOCK_GGML_H
#define MOCK_GGML_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifndef NAME_BYTES
#define NAME_BYTES 64
#endif
#ifndef TENSOR_MUTANT
#define TENSOR_MUTANT 0
#endif
#ifndef PROPS_EXTRA
#define PROPS_EXTRA 0
#endif

/* Long enough for every table with one word inserted. */
#define TABLE_WORDS 24

struct ggml_backend_table {
    void *word[TABLE_WORDS];
};

typedef struct ggml_backend_table *ggml_backend_buffer_type_t;
typedef struct ggml_backend_table *ggml_backend_buffer_t;
typedef struct ggml_backend_table *ggml_backend_dev_t;
typedef struct ggml_backend_table *ggml_backend_reg_t;
typedef struct ggml_backend_table *ggml_backend_t;

/* What `ggml_backend_buffer_init` takes by value. */
struct ggml_backend_buffer_i {
    void *word[11];
};

struct ggml_tensor {
#if TENSOR_MUTANT == 1
    uint64_t inserted;
#endif
    int32_t type;
#if TENSOR_MUTANT == 2
    void *inserted;
#endif
#if TENSOR_MUTANT == 3 /* view_src and buffer swapped */
    struct ggml_tensor *view_src;
#else
    ggml_backend_buffer_t buffer;
#endif
#if TENSOR_MUTANT == 4
    size_t nb[4];
    int64_t ne[4];
#else
    int64_t ne[4];
    size_t nb[4];
#endif
#if TENSOR_MUTANT == 5 /* op and flags swapped */
    int32_t flags;
    int32_t op_params[16];
    int32_t op;
#elif TENSOR_MUTANT == 6
    int32_t op;
    int32_t flags;
    int32_t op_params[16];
#else
    int32_t op;
    int32_t op_params[16];
    int32_t flags;
#endif
#if TENSOR_MUTANT == 7
    struct ggml_tensor *src[12];
#else
    struct ggml_tensor *src[10];
#endif
#if TENSOR_MUTANT == 8 /* view_src and view_offs swapped */
    size_t view_offs;
    struct ggml_tensor *view_src;
    void *data;
#elif TENSOR_MUTANT == 9 /* data before the view */
    void *data;
    struct ggml_tensor *view_src;
    size_t view_offs;
#elif TENSOR_MUTANT == 3
    ggml_backend_buffer_t buffer;
    size_t view_offs;
    void *data;
#else
    struct ggml_tensor *view_src;
    size_t view_offs;
    void *data;
#endif
#if TENSOR_MUTANT == 10
    void *extra;
    char name[NAME_BYTES];
#else
    char name[NAME_BYTES];
    void *extra;
#endif
#if TENSOR_MUTANT == 11
    char padding[24];
#else
    char padding[8];
#endif
};

enum { GGML_TYPE_F32 = 0, GGML_TYPE_Q4_0 = 2, GGML_TYPE_Q8_0 = 8, GGML_TYPE_Q4_K = 12 };
enum ggml_status { GGML_STATUS_FAILED = -1, GGML_STATUS_SUCCESS = 0 };

/* The functions that the hosts of these tests call, by name. */
#define MOCK_FUNCTIONS(X)                                                                          \
    X(size_t, ggml_nbytes, (const struct ggml_tensor *))                                           \
    X(const char *, ggml_backend_buft_name, (ggml_backend_buffer_type_t))                          \
    X(size_t, ggml_backend_buft_get_alignment, (ggml_backend_buffer_type_t))                       \
    X(ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer, (ggml_backend_buffer_type_t, size_t)) \
    X(ggml_backend_buffer_t, ggml_backend_buft_alloc_buffer_n,                                     \
      (ggml_backend_buffer_type_t, struct ggml_tensor **, int))                                    \
    X(size_t, ggml_backend_buft_get_alloc_size_n,                                                  \
      (ggml_backend_buffer_type_t, struct ggml_tensor **, int))                                    \
    X(ggml_backend_buffer_type_t, ggml_backend_buffer_get_type, (ggml_backend_buffer_t))           \
    X(void *, ggml_backend_buffer_get_base, (ggml_backend_buffer_t))                               \
    X(void, ggml_backend_buffer_clear, (ggml_backend_buffer_t, uint8_t))                           \
    X(void, ggml_backend_buffer_free, (ggml_backend_buffer_t))                                     \
    X(enum ggml_status, ggml_backend_tensor_alloc,                                                 \
      (ggml_backend_buffer_t, struct ggml_tensor *, void *))                                       \
    X(enum ggml_status, ggml_backend_view_init, (struct ggml_tensor *))                            \
    X(void, ggml_backend_tensor_set, (struct ggml_tensor *, const void *, size_t, size_t))         \
    X(void, ggml_backend_tensor_get, (const struct ggml_tensor *, void *, size_t, size_t))         \
    X(void, ggml_backend_tensor_memset, (struct ggml_tensor *, uint8_t, size_t, size_t))           \
    X(bool, ggml_backend_dev_supports_op, (ggml_backend_dev_t, const struct ggml_tensor *))        \
    X(bool, ggml_backend_dev_supports_buft, (ggml_backend_dev_t, ggml_backend_buffer_type_t))      \
    X(ggml_backend_buffer_type_t, ggml_backend_dev_buffer_type, (ggml_backend_dev_t))              \
    X(ggml_backend_t, ggml_backend_dev_init, (ggml_backend_dev_t, const char *))                   \
    X(int, ggml_backend_dev_type, (ggml_backend_dev_t))                                            \
    X(void, ggml_backend_free, (ggml_backend_t))                                                   \
    X(ggml_backend_buffer_type_t, mock_repack_type, (void))                                        \
    X(ggml_backend_buffer_type_t, mock_plain_type, (void))                                         \
    X(ggml_backend_dev_t, mock_register, (ggml_backend_reg_t))                                     \
    X(int, mock_op, (const char *))                                                                \
    X(size_t, mock_direct_calls, (void))                                                           \
    X(size_t, mock_stray_calls, (void))                                                            \
    X(int, mock_goes_on, (void))

#endif
