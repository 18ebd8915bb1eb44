/* Maps one packed Q4_0 matrix, decodes a row of it, and compares a dot product with the one
   computed from the row as the model's file has it.

     dot STORE STATE SET TENSOR COLUMNS ROWS ROW [MODEL OFFSET]

   SET is the set's key, or "" for the only one of the store. With MODEL and OFFSET the source row
   is read from the model's file, where the tensor's data begin at OFFSET; else the library unpacks
   the payload. Exit: 0 equal, 1 not equal, 2 usage, 3 refused.

   Build: cc dot.c $(pkg-config --cflags --libs packhouse) -lm */

#include <packhouse.h>

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GGML_TYPE_Q4_0 2
#define BLOCK 32
#define BLOCK_BYTES 18

/* What the program is asked. */
typedef struct request {
    const char *store, *state, *set, *tensor, *model;
    uint64_t columns, rows, row, offset;
} request;

static int refused(const char *what, const packhouse_refusal *refusal) {
    fprintf(stderr, "%s refused: %s: %s\n", what, packhouse_status_name(refusal->status),
            refusal->text);
    return 3;
}

static float from_half(unsigned bits) {
    float sign = bits & 0x8000 ? -1.0f : 1.0f;
    int exponent = (int)(bits >> 10 & 31);
    float mantissa = (float)(bits & 1023);
    if (exponent == 0) return sign * ldexpf(mantissa, -24);
    if (exponent == 31) return mantissa != 0 ? NAN : sign * INFINITY;
    return sign * ldexpf(1024 + mantissa, exponent - 25);
}

/* The vector that the row is multiplied with. */
static double activation(uint64_t column) {
    return (double)((int)((column * 37 + 11) % 101) - 50) / 64;
}

/* A row of a Q4_0 tensor as GGUF has it: blocks of a half scale and 16 bytes of two nibbles. */
static double dot_of_source(const unsigned char *row, uint64_t columns) {
    double sum = 0;
    for (uint64_t column = 0; column < columns; column++) {
        const unsigned char *block = row + column / BLOCK * BLOCK_BYTES;
        uint64_t at = column % BLOCK;
        int nibble = at < 16 ? block[2 + at] & 15 : block[2 + at - 16] >> 4;
        float scale = from_half((unsigned)block[0] | (unsigned)block[1] << 8);
        sum += (double)scale * (nibble - 8) * activation(column);
    }
    return sum;
}

/* The same row in q4_0-xe2-dpas-v2: signed nibbles by block, 16 rows, 8 columns and row, then all
   scales by block and row. */
static double dot_of_pack(const unsigned char *pack, const request *asked) {
    uint64_t tiles = asked->rows / 16, scales = asked->columns * asked->rows / 2;
    double sum = 0;
    for (uint64_t column = 0; column < asked->columns; column++) {
        uint64_t block = column / BLOCK, group = column % BLOCK / 8;
        uint64_t tile = asked->row / 16, lane = asked->row % 16;
        uint64_t at = (((block * tiles + tile) * 4 + group) * 16 + lane) * 8 + column % 8;
        int nibble = at % 2 ? pack[at / 2] >> 4 : pack[at / 2] & 15;
        const unsigned char *scale = pack + scales + 2 * (block * asked->rows + asked->row);
        float factor = from_half((unsigned)scale[0] | (unsigned)scale[1] << 8);
        sum += (double)factor * ((nibble ^ 8) - 8) * activation(column);
    }
    return sum;
}

/* Reads the source row from the model's file. */
static int read_row(const request *asked, unsigned char *row, size_t row_bytes) {
    FILE *file = fopen(asked->model, "rb");
    if (!file) {
        fprintf(stderr, "%s: %s\n", asked->model, strerror(errno));
        return 3;
    }
    uint64_t at = asked->offset + asked->row * row_bytes;
    int is_read = fseek(file, (long)at, SEEK_SET) == 0;
    is_read = is_read && fread(row, 1, row_bytes, file) == row_bytes;
    fclose(file);
    if (!is_read) {
        fprintf(stderr, "%s: no %zu bytes at %" PRIu64 "\n", asked->model, row_bytes, at);
        return 3;
    }
    return 0;
}

/* Unpacks the whole payload and keeps one row. */
static int unpack_row(const request *asked, const packhouse_contract *contract,
                      const packhouse_view *view, unsigned char *row, size_t row_bytes) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    size_t source_bytes = (size_t)asked->rows * row_bytes;
    unsigned char *source = malloc(source_bytes);
    if (!source) return 3;
    packhouse_status status = packhouse_unpack(contract, view->payload, view->payload_bytes, source,
                                               source_bytes, &refusal);
    if (status == PACKHOUSE_OK) memcpy(row, source + asked->row * row_bytes, row_bytes);
    free(source);
    return status == PACKHOUSE_OK ? 0 : refused("unpacking", &refusal);
}

static int compare(const request *asked, const packhouse_contract *contract,
                   const packhouse_mapping *mapping) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_view view = {.struct_size = sizeof view};
    if (packhouse_mapping_view(mapping, &view, &refusal) != PACKHOUSE_OK)
        return refused("the view", &refusal);
    size_t row_bytes = asked->columns / BLOCK * BLOCK_BYTES;
    unsigned char *row = malloc(row_bytes);
    if (!row) return 3;
    int failure = asked->model ? read_row(asked, row, row_bytes)
                               : unpack_row(asked, contract, &view, row, row_bytes);
    if (failure) {
        free(row);
        return failure;
    }
    double packed = dot_of_pack(view.payload, asked), source = dot_of_source(row, asked->columns);
    free(row);
    int is_equal = packed == source;
    printf("%s row %" PRIu64 ": dot %.17g packed, %.17g in the source: %s\n", asked->tensor,
           asked->row, packed, source, is_equal ? "equal" : "NOT EQUAL");
    return is_equal ? 0 : 1;
}

static int run(const request *asked) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_open_options options = {
        .struct_size = sizeof options,
        .trust = PACKHOUSE_TRUST_RECEIPT,
        .store = asked->store,
        .state = asked->state,
        .set = *asked->set ? asked->set : NULL,
    };
    packhouse_set *set;
    if (packhouse_set_open(&options, &set, &refusal) != PACKHOUSE_OK)
        return refused("the set", &refusal);
    packhouse_contract contract = {
        .struct_size = sizeof contract,
        .type_id = GGML_TYPE_Q4_0,
        .layout = "q4_0-xe2-dpas-v2",
        .layout_version = 2,
        .dims = {asked->columns, asked->rows},
        .dim_count = 2,
    };
    packhouse_entry entry = {.struct_size = sizeof entry};
    packhouse_mapping *mapping = NULL;
    int outcome;
    if (packhouse_set_lookup_tensor(set, asked->tensor, &contract, &entry, &refusal) ||
        packhouse_set_map(set, &entry, &mapping, &refusal))
        outcome = refused("the pack", &refusal); /* an engine would pack by itself now */
    else
        outcome = compare(asked, &contract, mapping);
    packhouse_mapping_release(mapping);
    packhouse_set_release(set);
    return outcome;
}

static int number(const char *text, uint64_t *value) {
    char *end;
    errno = 0;
    *value = strtoull(text, &end, 10);
    return errno == 0 && end != text && *end == 0;
}

int main(int count, char **words) {
    if (packhouse_abi_version() != PACKHOUSE_ABI_VERSION) {
        fprintf(stderr, "libpackhouse %s has ABI %u, this program was built for %u\n",
                packhouse_version(), packhouse_abi_version(), PACKHOUSE_ABI_VERSION);
        return 2;
    }
    request asked = {0};
    int is_good = (count == 8 || count == 10) && number(words[5], &asked.columns) &&
                  number(words[6], &asked.rows) && number(words[7], &asked.row) &&
                  asked.columns % BLOCK == 0 && asked.columns > 0 && asked.row < asked.rows &&
                  (count == 8 || number(words[9], &asked.offset));
    if (!is_good) {
        fprintf(stderr, "usage: %s STORE STATE SET TENSOR COLUMNS ROWS ROW [MODEL OFFSET]\n",
                count ? words[0] : "dot");
        return 2;
    }
    asked.store = words[1], asked.state = words[2], asked.set = words[3], asked.tensor = words[4];
    asked.model = count == 10 ? words[8] : NULL;
    return run(&asked);
}
