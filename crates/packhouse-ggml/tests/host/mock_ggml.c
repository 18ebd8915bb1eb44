/* See mock_ggml.h. One CPU device with a plain type, extra types and a row-interleaving packer; a
 * GPU device with a host buffer type on demand. Environment:
 *
 *   MOCK_MUTANT     "TABLE insert N" or "TABLE swap N": moves slots of a table (buft, buffer,
 *                   device, backend, reg) for the whole library: consistent, and no API 3
 *   MOCK_API        API number of the CPU registry (3)
 *   MOCK_NO_CPU, MOCK_NO_REPACK   set: the device, the type is not there
 *   MOCK_GPU        accept | refuse: a GPU device before the CPU whose supports_op says so
 *   MOCK_GPU_TYPE   none: that device has no host buffer type
 *   MOCK_EARLY      accept | refuse: an extra type before CPU_REPACK
 *   MOCK_PACKER     lies | whole | random: a packer that packs other bytes when the plug-in calls
 *                   it, one whose bytes depend on the number of rows, one that packs golden weights
 *                   (three blocks wide) to other bytes each time
 *   MOCK_OPS_SHIFT  N: the numbers of all ops but NONE are N higher
 *
 * Every slot of the library's own tables counts who called it: the library itself says which slot
 * it is about to call, a call that was not so announced came from the plug-in. */
#include "mock_ggml.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "mock: assertion failed: %s, line %d\n", #condition, __LINE__);        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

typedef struct ggml_backend_table table;
typedef struct ggml_tensor tensor;

enum { BUFT, BUFFER, DEVICE, BACKEND, REG };
static const char *const table_names[] = {"buft", "buffer", "device", "backend", "reg"};

enum {
    T_NAME,
    T_ALLOC,
    T_ALLOC_N,
    T_ALIGNMENT,
    T_MAX_SIZE,
    T_ALLOC_SIZE,
    T_ALLOC_SIZE_N,
    T_IS_HOST,
    T_DEVICE,
    T_CONTEXT
};
enum {
    B_FREE,
    B_BASE,
    B_INIT,
    B_MEMSET,
    B_SET,
    B_GET,
    B_SET_2D,
    B_GET_2D,
    B_CPY,
    B_CLEAR,
    B_RESET,
    B_TYPE,
    B_CONTEXT,
    B_SIZE,
    B_USAGE
};
enum {
    D_NAME,
    D_DESCRIPTION,
    D_MEMORY,
    D_TYPE,
    D_PROPS,
    D_INIT,
    D_BUFT,
    D_HOST_BUFT,
    D_FROM_PTR,
    D_SUPPORTS_OP,
    D_SUPPORTS_BUFT,
    D_OFFLOAD,
    D_EVENT_NEW,
    D_EVENT_FREE,
    D_EVENT_SYNC,
    D_REG,
    D_CONTEXT
};
enum {
    S_GUID,
    S_NAME,
    S_FREE,
    S_SET_ASYNC,
    S_GET_ASYNC,
    S_SET_2D_ASYNC,
    S_GET_2D_ASYNC,
    S_CPY_ASYNC,
    S_SYNC,
    S_PLAN_CREATE,
    S_PLAN_FREE,
    S_PLAN_UPDATE,
    S_PLAN_COMPUTE,
    S_COMPUTE,
    S_EVENT_RECORD,
    S_EVENT_WAIT,
    S_OPTIMIZE,
    S_DEVICE,
    S_CONTEXT
};
enum { R_API, R_NAME, R_COUNT, R_GET, R_PROC, R_CONTEXT };

static int mutant_table = -1, mutant_at, mutant_inserts;

/* Where a slot of a table lies. */
static int word(int which, int slot) {
    if (which != mutant_table) return slot;
    if (mutant_inserts) return slot >= mutant_at ? slot + 1 : slot;
    if (slot == mutant_at) return slot + 1;
    return slot == mutant_at + 1 ? mutant_at : slot;
}

#define W(which, object, slot) ((object)->word[word(which, slot)])

static __thread void *announced;
static size_t direct_calls, stray_calls;

/* Calls a slot, telling it so. */
#define CALL(which, object, slot, result, ...)                                                     \
    ((result (*)(__VA_ARGS__))(announced = W(which, object, slot)))

static void enter(void *slot) {
    if (announced != slot) __atomic_add_fetch(&direct_calls, 1, __ATOMIC_RELAXED);
    announced = NULL;
}

/* The word that the mutant inserted, in the library's own tables: nobody may call it. */
static size_t stray(void) {
    __atomic_add_fetch(&stray_calls, 1, __ATOMIC_RELAXED);
    return 0;
}

size_t mock_direct_calls(void) { return __atomic_load_n(&direct_calls, __ATOMIC_RELAXED); }
size_t mock_stray_calls(void) { return __atomic_load_n(&stray_calls, __ATOMIC_RELAXED); }

/* ---- types and ops ---- */

struct traits {
    int type;
    size_t block_elements, block_bytes;
    int rows; /* of one group */
};

static const struct traits packings[] = {
    {GGML_TYPE_Q4_0, 32, 18, 8},
    {GGML_TYPE_Q8_0, 32, 34, 8},
    {GGML_TYPE_Q8_0, 32, 34,
     16}, /* for row counts that 16 divides: the choice depends on the shape */
    {GGML_TYPE_Q4_K, 256, 144, 8},
};

static size_t block_elements(int type) {
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (packings[i].type == type) return packings[i].block_elements;
    return 1;
}

static const struct traits *choose(const tensor *t) {
    const struct traits *best = NULL;
    for (size_t i = 0; i < sizeof packings / sizeof *packings; i++)
        if (packings[i].type == t->type && t->ne[1] % packings[i].rows == 0) best = &packings[i];
    return best;
}

static const char *const op_names[] = {"NONE",    "DUP",        "ADD",     "GET_ROWS",
                                       "MUL_MAT", "MUL_MAT_ID", "CPY",     "CONT",
                                       "RESHAPE", "VIEW",       "PERMUTE", "TRANSPOSE"};
enum { OP_COUNT = sizeof op_names / sizeof *op_names };
static int ops_shift;

const char *ggml_op_name(int op) {
    if (op == 0) return op_names[0];
    int index = op - ops_shift;
    return index > 0 && index < OP_COUNT ? op_names[index] : "OTHER";
}

const char *ggml_op_desc(const tensor *t) { return ggml_op_name(t->op); }

int mock_op(const char *name) {
    for (int i = 0; i < OP_COUNT; i++)
        if (strcmp(op_names[i], name) == 0) return i == 0 ? 0 : i + ops_shift;
    ASSERT(!"a known op");
    return -1;
}

/* ---- tensors ---- */

size_t ggml_nbytes(const tensor *t) {
    size_t block = block_elements(t->type);
    for (int i = 0; i < 4; i++)
        if (t->ne[i] <= 0) return 0;
    size_t bytes = block == 1 ? 4 : t->ne[0] * t->nb[0] / block;
    for (int i = block == 1 ? 0 : 1; i < 4; i++) bytes += (t->ne[i] - 1) * t->nb[i];
    return bytes;
}

int64_t ggml_nelements(const tensor *t) { return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; }
void *ggml_get_data(const tensor *t) { return t->data; }
const char *ggml_get_name(const tensor *t) { return t->name; }
void ggml_set_output(tensor *t) { t->flags |= 1; }
size_t ggml_tensor_overhead(void) { return 32 + sizeof(tensor); }

tensor *ggml_set_name(tensor *t, const char *name) {
    size_t i = 0;
    for (; i < sizeof t->name - 1 && name[i] != 0; i++) t->name[i] = name[i];
    t->name[i] = 0;
    return t;
}

const char *ggml_version(void) { return "0.26.0-mock"; }

/* ---- buffer types ---- */

const char *ggml_backend_buft_name(table *t) {
    return CALL(BUFT, t, T_NAME, const char *, table *)(t);
}

table *ggml_backend_buffer_init(table *type, struct ggml_backend_buffer_i slots, void *context,
                                size_t size) {
    table *buffer = calloc(1, sizeof *buffer);
    memcpy(buffer->word, slots.word, sizeof slots);
    W(BUFFER, buffer, B_TYPE) = type;
    W(BUFFER, buffer, B_CONTEXT) = context;
    W(BUFFER, buffer, B_SIZE) = (void *)size;
    W(BUFFER, buffer, B_USAGE) = 0;
    return buffer;
}

table *ggml_backend_buft_alloc_buffer(table *type, size_t size) {
    struct ggml_backend_buffer_i none = {{0}};
    if (size == 0) return ggml_backend_buffer_init(type, none, NULL, 0);
    return CALL(BUFT, type, T_ALLOC, table *, table *, size_t)(type, size);
}

size_t ggml_backend_buft_get_alignment(table *t) {
    return CALL(BUFT, t, T_ALIGNMENT, size_t, table *)(t);
}

size_t ggml_backend_buft_get_max_size(table *t) {
    if (W(BUFT, t, T_MAX_SIZE) == NULL) return SIZE_MAX;
    return CALL(BUFT, t, T_MAX_SIZE, size_t, table *)(t);
}

size_t ggml_backend_buft_get_alloc_size(table *type, const tensor *t) {
    if (W(BUFT, type, T_ALLOC_SIZE) == NULL) return ggml_nbytes(t);
    return CALL(BUFT, type, T_ALLOC_SIZE, size_t, table *, const tensor *)(type, t);
}

bool ggml_backend_buft_is_host(table *t) {
    if (W(BUFT, t, T_IS_HOST) == NULL) return false;
    return CALL(BUFT, t, T_IS_HOST, bool, table *)(t);
}

table *ggml_backend_buft_get_device(table *t) { return W(BUFT, t, T_DEVICE); }

/* ---- buffers ---- */

table *ggml_backend_buffer_get_type(table *b) { return W(BUFFER, b, B_TYPE); }
size_t ggml_backend_buffer_get_size(table *b) { return (size_t)W(BUFFER, b, B_SIZE); }
int ggml_backend_buffer_get_usage(table *b) { return (int)(intptr_t)W(BUFFER, b, B_USAGE); }

void *ggml_backend_buffer_get_base(table *b) {
    if (ggml_backend_buffer_get_size(b) == 0) return NULL;
    void *base = CALL(BUFFER, b, B_BASE, void *, table *)(b);
    ASSERT(base != NULL);
    return base;
}

enum ggml_status ggml_backend_buffer_init_tensor(table *b, tensor *t) {
    if (W(BUFFER, b, B_INIT) == NULL) return GGML_STATUS_SUCCESS;
    return CALL(BUFFER, b, B_INIT, enum ggml_status, table *, tensor *)(b, t);
}

void ggml_backend_buffer_clear(table *b, uint8_t value) {
    if (ggml_backend_buffer_get_size(b) == 0) return;
    CALL(BUFFER, b, B_CLEAR, void, table *, uint8_t)(b, value);
}

void ggml_backend_buffer_reset(table *b) {
    if (W(BUFFER, b, B_RESET) != NULL) CALL(BUFFER, b, B_RESET, void, table *)(b);
}

void ggml_backend_buffer_free(table *b) {
    if (b == NULL) return;
    if (W(BUFFER, b, B_FREE) != NULL) CALL(BUFFER, b, B_FREE, void, table *)(b);
    free(b);
}

static table *buffer_of(const tensor *t) { return t->view_src ? t->view_src->buffer : t->buffer; }

static table *writable(const tensor *t, size_t offset, size_t size) {
    table *b = buffer_of(t);
    ASSERT(b != NULL && t->data != NULL && offset + size <= ggml_nbytes(t));
    return b;
}

void ggml_backend_tensor_set(tensor *t, const void *data, size_t offset, size_t size) {
    if (size == 0) return;
    table *b = writable(t, offset, size);
    CALL(BUFFER, b, B_SET, void, table *, tensor *, const void *, size_t, size_t)(b, t, data,
                                                                                  offset, size);
}

void ggml_backend_tensor_get(const tensor *t, void *data, size_t offset, size_t size) {
    if (size == 0) return;
    table *b = writable(t, offset, size);
    CALL(BUFFER, b, B_GET, void, table *, const tensor *, void *, size_t, size_t)(b, t, data,
                                                                                  offset, size);
}

void ggml_backend_tensor_memset(tensor *t, uint8_t value, size_t offset, size_t size) {
    if (size == 0) return;
    table *b = writable(t, offset, size);
    CALL(BUFFER, b, B_MEMSET, void, table *, tensor *, uint8_t, size_t, size_t)(b, t, value, offset,
                                                                                size);
}

void ggml_backend_tensor_set_2d(tensor *t, const void *data, size_t offset, size_t size,
                                size_t copies, size_t stride, size_t data_stride) {
    table *b = writable(t, offset, size);
    CALL(BUFFER, b, B_SET_2D, void, table *, tensor *, const void *, size_t, size_t, size_t, size_t,
         size_t)(b, t, data, offset, size, copies, stride, data_stride);
}

void ggml_backend_tensor_get_2d(const tensor *t, void *data, size_t offset, size_t size,
                                size_t copies, size_t stride, size_t data_stride) {
    table *b = writable(t, offset, size);
    CALL(BUFFER, b, B_GET_2D, void, table *, const tensor *, void *, size_t, size_t, size_t, size_t,
         size_t)(b, t, data, offset, size, copies, stride, data_stride);
}

bool ggml_backend_buffer_copy_tensor(const tensor *from, tensor *to) {
    table *b = buffer_of(to);
    if (W(BUFFER, b, B_CPY) == NULL) return false;
    return CALL(BUFFER, b, B_CPY, bool, table *, const tensor *, tensor *)(b, from, to);
}

enum ggml_status ggml_backend_tensor_alloc(table *b, tensor *t, void *address) {
    ASSERT(t->buffer == NULL && t->data == NULL && t->view_src == NULL);
    char *base = ggml_backend_buffer_get_base(b);
    ASSERT((char *)address >= base);
    ASSERT((char *)address + ggml_nbytes(t) <= base + ggml_backend_buffer_get_size(b));
    t->buffer = b;
    t->data = address;
    return ggml_backend_buffer_init_tensor(b, t);
}

enum ggml_status ggml_backend_view_init(tensor *t) {
    ASSERT(t->buffer == NULL && t->view_src != NULL && t->view_src->data != NULL);
    t->buffer = t->view_src->buffer;
    t->data = (char *)t->view_src->data + t->view_offs;
    return ggml_backend_buffer_init_tensor(t->buffer, t);
}

/* Lays tensors one after the other at the type's alignment. */
table *ggml_backend_buft_alloc_buffer_n(table *type, tensor **tensors, int count) {
    if (W(BUFT, type, T_ALLOC_N) != NULL)
        return CALL(BUFT, type, T_ALLOC_N, table *, table *, tensor **, int)(type, tensors, count);
    size_t alignment = ggml_backend_buft_get_alignment(type), end = 0;
    for (int i = 0; i < count; i++)
        if (tensors[i]->data == NULL && tensors[i]->view_src == NULL)
            end += (ggml_nbytes(tensors[i]) + alignment - 1) / alignment * alignment;
    if (end == 0) return NULL;
    table *b = ggml_backend_buft_alloc_buffer(type, end);
    char *next = ggml_backend_buffer_get_base(b);
    for (int i = 0; i < count; i++) {
        if (tensors[i]->view_src != NULL) {
            if (tensors[i]->buffer == NULL) ggml_backend_view_init(tensors[i]);
        } else if (tensors[i]->data == NULL) {
            ggml_backend_tensor_alloc(b, tensors[i], next);
            next += (ggml_nbytes(tensors[i]) + alignment - 1) / alignment * alignment;
        }
    }
    return b;
}

size_t ggml_backend_buft_get_alloc_size_n(table *type, tensor **tensors, int count) {
    ASSERT(W(BUFT, type, T_ALLOC_SIZE_N) != NULL);
    return CALL(BUFT, type, T_ALLOC_SIZE_N, size_t, table *, tensor **, int)(type, tensors, count);
}

/* ---- devices, backends, registries ---- */

const char *ggml_backend_dev_name(table *d) {
    return CALL(DEVICE, d, D_NAME, const char *, table *)(d);
}

const char *ggml_backend_dev_description(table *d) {
    return CALL(DEVICE, d, D_DESCRIPTION, const char *, table *)(d);
}

void ggml_backend_dev_memory(table *d, size_t *available, size_t *total) {
    CALL(DEVICE, d, D_MEMORY, void, table *, size_t *, size_t *)(d, available, total);
}

int ggml_backend_dev_type(table *d) { return CALL(DEVICE, d, D_TYPE, int, table *)(d); }

void ggml_backend_dev_get_props(table *d, void *props) {
    memset(props, 0, 56 + PROPS_EXTRA);
    CALL(DEVICE, d, D_PROPS, void, table *, void *)(d, props);
}

table *ggml_backend_dev_init(table *d, const char *parameters) {
    return CALL(DEVICE, d, D_INIT, table *, table *, const char *)(d, parameters);
}

table *ggml_backend_dev_buffer_type(table *d) {
    return CALL(DEVICE, d, D_BUFT, table *, table *)(d);
}

table *ggml_backend_dev_host_buffer_type(table *d) {
    if (W(DEVICE, d, D_HOST_BUFT) == NULL) return NULL;
    return CALL(DEVICE, d, D_HOST_BUFT, table *, table *)(d);
}

table *ggml_backend_dev_buffer_from_host_ptr(table *d, void *start, size_t size, size_t largest) {
    return CALL(DEVICE, d, D_FROM_PTR, table *, table *, void *, size_t, size_t)(d, start, size,
                                                                                 largest);
}

bool ggml_backend_dev_supports_op(table *d, const tensor *op) {
    return CALL(DEVICE, d, D_SUPPORTS_OP, bool, table *, const tensor *)(d, op);
}

bool ggml_backend_dev_supports_buft(table *d, table *type) {
    return CALL(DEVICE, d, D_SUPPORTS_BUFT, bool, table *, table *)(d, type);
}

bool ggml_backend_dev_offload_op(table *d, const tensor *op) {
    if (W(DEVICE, d, D_OFFLOAD) == NULL) return false;
    return CALL(DEVICE, d, D_OFFLOAD, bool, table *, const tensor *)(d, op);
}

table *ggml_backend_event_new(table *d) {
    if (W(DEVICE, d, D_EVENT_NEW) == NULL) return NULL;
    return CALL(DEVICE, d, D_EVENT_NEW, table *, table *)(d);
}

table *ggml_backend_dev_backend_reg(table *d) { return W(DEVICE, d, D_REG); }

void *ggml_backend_guid(table *s) { return W(BACKEND, s, S_GUID); }
const char *ggml_backend_name(table *s) {
    return CALL(BACKEND, s, S_NAME, const char *, table *)(s);
}
void ggml_backend_free(table *s) { CALL(BACKEND, s, S_FREE, void, table *)(s); }

void ggml_backend_synchronize(table *s) {
    if (W(BACKEND, s, S_SYNC) != NULL) CALL(BACKEND, s, S_SYNC, void, table *)(s);
}

void *ggml_backend_graph_plan_create(table *s, void *graph) {
    return CALL(BACKEND, s, S_PLAN_CREATE, void *, table *, void *)(s, graph);
}

void ggml_backend_graph_plan_free(table *s, void *plan) {
    CALL(BACKEND, s, S_PLAN_FREE, void, table *, void *)(s, plan);
}

int ggml_backend_graph_plan_compute(table *s, void *plan) {
    return CALL(BACKEND, s, S_PLAN_COMPUTE, int, table *, void *)(s, plan);
}

int ggml_backend_graph_compute_async(table *s, void *graph) {
    return CALL(BACKEND, s, S_COMPUTE, int, table *, void *)(s, graph);
}

void ggml_backend_event_wait(table *s, void *event) {
    CALL(BACKEND, s, S_EVENT_WAIT, void, table *, void *)(s, event);
}

table *ggml_backend_get_device(table *s) { return W(BACKEND, s, S_DEVICE); }

const char *ggml_backend_reg_name(table *r) {
    return CALL(REG, r, R_NAME, const char *, table *)(r);
}
size_t ggml_backend_reg_dev_count(table *r) { return CALL(REG, r, R_COUNT, size_t, table *)(r); }

table *ggml_backend_reg_dev_get(table *r, size_t index) {
    return CALL(REG, r, R_GET, table *, table *, size_t)(r, index);
}

void *ggml_backend_reg_get_proc_address(table *r, const char *name) {
    if (W(REG, r, R_PROC) == NULL) return NULL;
    return CALL(REG, r, R_PROC, void *, table *, const char *)(r, name);
}

/* ---- the library's own objects ---- */

static table plain_type, early_type, repack_type, gpu_host_type, cpu_device, gpu_device, cpu_reg;
static table *devices[4], *extra_types[3];
static size_t device_count;
static bool gpu_accepts, early_accepts;

size_t ggml_backend_dev_count(void) { return device_count; }
table *ggml_backend_dev_get(size_t index) { return devices[index]; }
table *mock_repack_type(void) { return &repack_type; }
table *mock_plain_type(void) { return &plain_type; }

table *ggml_backend_dev_by_type(int type) {
    for (size_t i = 0; i < device_count; i++)
        if (ggml_backend_dev_type(devices[i]) == type) return devices[i];
    return NULL;
}

table *mock_register(table *reg) {
    ASSERT((int)(intptr_t)W(REG, reg, R_API) == 3 && ggml_backend_reg_dev_count(reg) == 1);
    return devices[device_count++] = ggml_backend_reg_dev_get(reg, 0);
}

static const char *type_name(table *t) {
    enter(type_name);
    if (t == &repack_type) return "CPU_REPACK";
    return t == &plain_type ? "CPU" : t == &early_type ? "MOCK_EARLY" : "MOCK_GPU_HOST";
}

static size_t type_alignment(table *t) {
    (void)t;
    enter(type_alignment);
    return 32;
}

static void plain_free(table *b) {
    enter(plain_free);
    free(W(BUFFER, b, B_CONTEXT));
}

static void *plain_base(table *b) {
    enter(plain_base);
    return W(BUFFER, b, B_CONTEXT);
}

static void plain_memset(table *b, tensor *t, uint8_t value, size_t offset, size_t size) {
    (void)b;
    enter(plain_memset);
    memset((char *)t->data + offset, value, size);
}

static void plain_set(table *b, tensor *t, const void *data, size_t offset, size_t size) {
    (void)b;
    enter(plain_set);
    memcpy((char *)t->data + offset, data, size);
}

static void plain_get(table *b, const tensor *t, void *data, size_t offset, size_t size) {
    (void)b;
    enter(plain_get);
    memcpy(data, (char *)t->data + offset, size);
}

static void plain_clear(table *b, uint8_t value) {
    enter(plain_clear);
    memset(W(BUFFER, b, B_CONTEXT), value, (size_t)W(BUFFER, b, B_SIZE));
}

static enum ggml_status repack_init(table *b, tensor *t) {
    (void)b;
    enter(repack_init);
    t->extra = (void *)choose(t);
    return GGML_STATUS_SUCCESS;
}

static bool packer_lies, packer_wants_all, packer_is_random;

/* Groups of rows, block after block; every byte is changed too, so that a plain copy shows. */
static void repack_set(table *b, tensor *t, const void *data, size_t offset, size_t size) {
    (void)b;
    bool by_host = announced == (void *)repack_set;
    enter(repack_set);
    const struct traits *by = t->extra;
    ASSERT(offset == 0 && size == ggml_nbytes(t) && by != NULL);
    size_t blocks = t->ne[0] / by->block_elements, bytes = by->block_bytes, rows = by->rows;
    size_t groups = size / (rows * blocks * bytes);
    static uint8_t turn;
    uint8_t change = 0x88;
    if (packer_wants_all) change ^= (uint8_t)groups;
    if (packer_is_random && blocks == 3) change ^= __atomic_add_fetch(&turn, 1, __ATOMIC_RELAXED);
    const uint8_t *source = data;
    uint8_t *target = t->data;
    for (size_t group = 0; group < groups; group++)
        for (size_t block = 0; block < blocks; block++)
            for (size_t row = 0; row < rows; row++)
                for (size_t i = 0; i < bytes; i++)
                    *target++ =
                        source[((group * rows + row) * blocks + block) * bytes + i] ^ change;
    if (packer_lies && !by_host) target[-1] ^= 1;
}

static table *plain_alloc(table *type, size_t size) {
    enter(plain_alloc);
    struct ggml_backend_buffer_i slots = {{0}};
    void *memory = NULL;
    if (posix_memalign(&memory, 64, size) != 0) return NULL;
    table *b = ggml_backend_buffer_init(type, slots, memory, size);
    W(BUFFER, b, B_FREE) = plain_free;
    W(BUFFER, b, B_BASE) = plain_base;
    W(BUFFER, b, B_MEMSET) = plain_memset;
    W(BUFFER, b, B_SET) = plain_set;
    W(BUFFER, b, B_GET) = plain_get;
    W(BUFFER, b, B_CLEAR) = plain_clear;
    if (type == &repack_type) {
        W(BUFFER, b, B_INIT) = repack_init;
        W(BUFFER, b, B_SET) = repack_set;
        W(BUFFER, b, B_GET) = NULL;
    }
    return b;
}

static const char *device_name(table *d) {
    enter(device_name);
    return d == &gpu_device ? "MOCK_GPU" : "CPU";
}

static void device_memory(table *d, size_t *available, size_t *total) {
    (void)d;
    enter(device_memory);
    *available = *total = 1 << 30;
}

static int device_type(table *d) {
    enter(device_type);
    return d == &gpu_device ? 1 : 0;
}

static table *device_buft(table *d) {
    (void)d;
    enter(device_buft);
    return &plain_type;
}

static table *device_host_buft(table *d) {
    (void)d;
    enter(device_host_buft);
    return &gpu_host_type;
}

static bool device_supports_op(table *d, const tensor *op) {
    enter(device_supports_op);
    const tensor *weight = op->src[0];
    table *type = weight && weight->buffer ? W(BUFFER, weight->buffer, B_TYPE) : NULL;
    if (d == &gpu_device) return gpu_accepts && type == &gpu_host_type;
    bool is_mul_mat = op->op == mock_op("MUL_MAT");
    if (type == &early_type) return early_accepts && is_mul_mat;
    if (type == &repack_type)
        return is_mul_mat && choose(weight) && op->src[1]->type == GGML_TYPE_F32;
    /* All else is computed from plain memory. */
    for (int i = 0; i < 10; i++) {
        table *b = op->src[i] ? op->src[i]->buffer : NULL;
        if (b && W(BUFFER, b, B_TYPE) != &plain_type) return false;
    }
    return true;
}

static bool device_supports_buft(table *d, table *type) {
    (void)d;
    enter(device_supports_buft);
    return type == &plain_type || type == &repack_type;
}

static const char *reg_name(table *r) {
    (void)r;
    enter(reg_name);
    return "MOCK";
}

static size_t reg_count(table *r) {
    (void)r;
    enter(reg_count);
    return 1;
}

static table *reg_get(table *r, size_t index) {
    (void)r, (void)index;
    enter(reg_get);
    return &cpu_device;
}

static table **list_extra_types(table *d) {
    (void)d;
    return extra_types;
}

static void *reg_proc(table *r, const char *name) {
    (void)r;
    enter(reg_proc);
    return strcmp(name, "ggml_backend_dev_get_extra_bufts") == 0 ? list_extra_types : NULL;
}

static void make_type(table *t, table *device) {
    W(BUFT, t, T_NAME) = type_name;
    W(BUFT, t, T_ALLOC) = plain_alloc;
    W(BUFT, t, T_ALIGNMENT) = type_alignment;
    W(BUFT, t, T_DEVICE) = device;
}

static void make_device(table *d) {
    W(DEVICE, d, D_NAME) = device_name;
    W(DEVICE, d, D_DESCRIPTION) = device_name;
    W(DEVICE, d, D_MEMORY) = device_memory;
    W(DEVICE, d, D_TYPE) = device_type;
    W(DEVICE, d, D_BUFT) = device_buft;
    W(DEVICE, d, D_SUPPORTS_OP) = device_supports_op;
    W(DEVICE, d, D_SUPPORTS_BUFT) = device_supports_buft;
    W(DEVICE, d, D_REG) = &cpu_reg;
    devices[device_count++] = d;
}

static bool is_set(const char *name, const char *value) {
    const char *actual = getenv(name);
    return actual != NULL && strcmp(actual, value) == 0;
}

/* Puts a function into the word that an insertion opened in a table of the library's own. */
static void fill_gap(int which, table *t) {
    if (which == mutant_table && mutant_inserts) t->word[mutant_at] = stray;
}

__attribute__((constructor)) static void start(void) {
    char name[16] = "", how[16] = "";
    const char *mutant = getenv("MOCK_MUTANT");
    if (mutant && sscanf(mutant, "%15s %15s %d", name, how, &mutant_at) == 3) {
        for (int i = 0; i < 5; i++)
            if (strcmp(name, table_names[i]) == 0) mutant_table = i;
        mutant_inserts = strcmp(how, "insert") == 0;
        ASSERT(mutant_table >= 0 && (mutant_inserts || strcmp(how, "swap") == 0));
    }
    if (getenv("MOCK_OPS_SHIFT")) ops_shift = atoi(getenv("MOCK_OPS_SHIFT"));
    table *types[] = {&plain_type, &early_type, &repack_type, &gpu_host_type};
    for (int i = 0; i < 4; i++) {
        fill_gap(BUFT, types[i]);
        make_type(types[i], &cpu_device);
    }
    fill_gap(REG, &cpu_reg);
    W(REG, &cpu_reg, R_API) = (void *)(intptr_t)(getenv("MOCK_API") ? atoi(getenv("MOCK_API")) : 3);
    W(REG, &cpu_reg, R_NAME) = reg_name;
    W(REG, &cpu_reg, R_COUNT) = reg_count;
    W(REG, &cpu_reg, R_GET) = reg_get;
    W(REG, &cpu_reg, R_PROC) = reg_proc;
    fill_gap(DEVICE, &cpu_device);
    fill_gap(DEVICE, &gpu_device);
    packer_lies = is_set("MOCK_PACKER", "lies");
    packer_wants_all = is_set("MOCK_PACKER", "whole");
    packer_is_random = is_set("MOCK_PACKER", "random");
    gpu_accepts = is_set("MOCK_GPU", "accept");
    early_accepts = is_set("MOCK_EARLY", "accept");
    if (getenv("MOCK_GPU")) make_device(&gpu_device);
    if (!is_set("MOCK_GPU_TYPE", "none")) W(DEVICE, &gpu_device, D_HOST_BUFT) = device_host_buft;
    if (!getenv("MOCK_NO_CPU")) make_device(&cpu_device);
    size_t count = 0;
    if (getenv("MOCK_EARLY")) extra_types[count++] = &early_type;
    if (!getenv("MOCK_NO_REPACK")) extra_types[count++] = &repack_type;
}

/* Packs a tensor in a stock buffer and compares with a second way to the bytes: 1 when equal. */
int mock_goes_on(void) {
    tensor t = {0};
    t.type = GGML_TYPE_Q4_0;
    t.ne[0] = 64, t.ne[1] = 16, t.ne[2] = t.ne[3] = 1;
    t.nb[0] = 18, t.nb[1] = 36, t.nb[2] = t.nb[3] = 576;
    uint8_t source[576];
    for (int i = 0; i < 576; i++) source[i] = (uint8_t)(i * 7 + i / 251);
    tensor *list[] = {&t};
    table *b = ggml_backend_buft_alloc_buffer_n(&repack_type, list, 1);
    ggml_backend_tensor_set(&t, source, 0, sizeof source);
    int equal = 1;
    for (int row = 0; row < 16; row++)
        for (int block = 0; block < 2; block++)
            for (int i = 0; i < 18; i++) {
                int at = row / 8 * 288 + block * 144 + row % 8 * 18 + i;
                equal &= ((uint8_t *)t.data)[at] == (source[row * 36 + block * 18 + i] ^ 0x88);
            }
    ggml_backend_buffer_free(b);
    return equal;
}
