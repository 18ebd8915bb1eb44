/* packhouse.h: the C interface of Packhouse.

   A model's weights, packed once in the order that some kernels read, are kept in a store under
   the SHA-256 of their bytes. A set is the packs of one model under one plan. This library opens a
   set, finds a tensor's pack under the contract that a kernel has, proves its bytes and maps them;
   and it says why not, so that an engine can pack by itself.

   Calls. Every call that can fail returns a status, PACKHOUSE_OK or not, and writes its reason to
   *refusal, which may be NULL; a call that succeeds leaves *refusal as it was, so look at what was
   returned, not at refusal.status. Structs begin with struct_size, which the caller sets to sizeof
   before every call, at most 4096; the rest of a struct that the library fills need not be set. A
   library older than this header takes larger structs than it knows: the bytes that it does not
   know must be zero in a struct that the caller fills, and are set to zero in one that the library
   fills. A call that fails changes nothing but *refusal, if it does not say otherwise, and sets the
   place for a new handle to NULL, whatever else is wrong with the call. A defect in the library
   becomes PACKHOUSE_BUG, after its words were written to standard error.

   Ownership. Sets, mappings, images and serves are counted: whoever gets one from
   packhouse_set_open, packhouse_set_map, packhouse_images_open or packhouse_serve_begin owns a
   count and gives it back by the matching release. A mapping stays valid after its set is released,
   and a serve after its images are. Texts in structs belong to the set, and payload bytes to the
   mapping, that they were told of. All other memory is the caller's, and no call keeps it.

   Threads. There is no global state. Any number of threads may use one set, mapping or images at
   once, as long as each use ends before the last count is given back. A serve is for one call at a
   time: a second one, of another thread or of a callback, gets PACKHOUSE_SERVE_BUSY at once. So
   several threads on one head either begin a serve each, of the same images, each of which counts
   by itself and has a line of its own; or they share one, and fill its tiles one after the other.

   Bytes. Mapped payloads are read-only pages of the store's own file, shared by all processes that
   map it. Nothing of Packhouse ever changes or cuts such a file; if somebody else cuts one while it
   is mapped, reading past its new end is SIGBUS.

   Images of head tiles. An engine that multiplies with an int8 head packs its tiles at each start.
   packhouse_images_open opens the folder that keeps them, packhouse_head_digest and
   packhouse_serve_begin say which weights are held, and packhouse_serve_tile fills one tile: from
   its image when that proves to be the tile, else by packing the columns that the engine's callback
   gives, and writes the image for the next start. Images cost time at worst: a file that is absent,
   damaged, of other weights or not writable is told in the report and never fails a tile, and the
   bytes in the engine's buffers are the same with images and without.
   - What a hit proves. Every byte that was copied was hashed, and the hash is the header's, so
     damage is found wherever it is. The header names the layout, sizes, tile, head digest and
     packer's fingerprint that were asked for. And sampled columns, both ends among them, were
     packed again from the weights held now and were equal bit for bit.
   - What it does not prove. Columns that no sample looked at are as whoever wrote the file made
     them: somebody with this user's rights could write an image that passes. The seed moves the
     samples from start to start, and PACKHOUSE_CHECK_FULL compares every column.
   - What must not change. From packhouse_head_digest until the last packhouse_serve_tile that
     leans on its digest, the tensors that it was taken of, and what the callback gives, stay the
     same: the digest is taken at its word, and a change would be written into images.
   - What the digest must cover. All that decides what the callback gives: the matrix, scales that
     lie apart from it, a merged adapter and its factor, and the code that makes floats of them. So
     the last tensor is a name of that code, another one as soon as any value is another: the 13
     bytes ggml-values/1 for ggml's own values, bit for bit; an engine's own name else. Without it a
     start with a repaired reader would hit images of the old one, and only samples could tell.
   - Device buffers. Codes and scales are written and never read: they may be a device's memory,
     slow to read and open to others. An image's bytes are hashed in private memory and copied from
     there. A tile whose image will be written is packed in private memory, hashed and written from
     there, and copied; the serve keeps that memory, a tile's codes and scales, until its release.
     Without it the tile is packed straight into the buffers, and no image is written. The buffers
     hold the tile when the call returned PACKHOUSE_OK. When it refused the request they are
     untouched; after PACKHOUSE_TILE_COLUMN they are of no value.
   - Overlap. A serve may go from thread to thread, and tiles need nothing but the head: load them
     on a thread of their own while the rest of the model comes up, and join before the first use.

   Written from the library's source (cargo xtask docs); a test compares both. */

#ifndef PACKHOUSE_H
#define PACKHOUSE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Most dims that an entry or contract can tell. */
#define PACKHOUSE_DIMS_MAX 8
/* Bytes of a digest: SHA-256 of payloads and tensors, BLAKE3 of heads. */
#define PACKHOUSE_DIGEST_BYTES 32
/* Bytes of a refusal's text, its final NUL among them. */
#define PACKHOUSE_TEXT_BYTES 496
/* Bytes of a layout's or parameter's name, its final NUL among them. */
#define PACKHOUSE_NAME_BYTES 48
/* Samples of live weights alone: nothing is hashed, and a payload of the store is mapped only
   after packhouse_set_sample found it equal. */
#define PACKHOUSE_TRUST_SAMPLE 1u
/* A receipt of this user, else a hash now. */
#define PACKHOUSE_TRUST_RECEIPT 2u
/* A hash now. */
#define PACKHOUSE_TRUST_DEEP 3u
/* The first refusal fails the whole set, and opening proves every payload. Samples come after
   opening: not together with PACKHOUSE_TRUST_SAMPLE. */
#define PACKHOUSE_OPEN_STRICT 1u
/* The object's own pages, shared with every process that maps it. */
#define PACKHOUSE_HELD_MAPPED 1u
/* Private memory. */
#define PACKHOUSE_HELD_COPIED 2u
/* Hashed as asked. */
#define PACKHOUSE_PROOF_DEEP 1u
/* A receipt. */
#define PACKHOUSE_PROOF_RECEIPT 2u
/* Hashed because no receipt matched. */
#define PACKHOUSE_PROOF_REVERIFIED 3u
/* Samples alone. */
#define PACKHOUSE_PROOF_SAMPLE 4u
/* Most bytes of a dtype's text, without its NUL. */
#define PACKHOUSE_DTYPE_MAX 16
/* Most bytes of an owner's text, without its NUL. */
#define PACKHOUSE_OWNER_MAX 1024
/* Bytes of a serve's line, its final NUL among them. */
#define PACKHOUSE_LINE_BYTES 1008
/* No image is read, written, removed or touched: every tile is packed. */
#define PACKHOUSE_IMAGES_OFF 1u
/* Images are read; nothing is written, removed or touched. */
#define PACKHOUSE_IMAGES_READ_ONLY 2u
/* Images are read, and written where one was absent or refused. */
#define PACKHOUSE_IMAGES_READ_WRITE 3u
/* A few columns of each image are packed again and compared: both ends, and others that the
   seed moves. */
#define PACKHOUSE_CHECK_SAMPLE 1u
/* Every column of each image is packed again and compared, which costs more than packing: for
   tests and for doubt. */
#define PACKHOUSE_CHECK_FULL 2u
/* seed is used as it is; without this bit the library draws one at each start. */
#define PACKHOUSE_IMAGES_SEEDED 1u
/* The code of depth row i of column j lies at i * nd + j: layout int8-tile-rm-v1. */
#define PACKHOUSE_TILE_ROW_MAJOR 1u
/* Blocks of 64 rows by 128 columns of 8 by 8 microtiles: layout int8-tile-b8-v1. kd must be a
   multiple of 64 and nd one of 128. */
#define PACKHOUSE_TILE_BLOCKED 2u
/* The column callback may be called by several threads at once. */
#define PACKHOUSE_TILE_COLUMNS_PARALLEL 1u
/* The tile came from an image. */
#define PACKHOUSE_TILE_HIT 1u
/* The tile was packed. */
#define PACKHOUSE_TILE_PACKED 2u
/* Goes up with every change that a program built against an earlier header would not survive. */
#define PACKHOUSE_ABI_VERSION 1u

/* A status: PACKHOUSE_OK or one of the numbers below, which never change meaning. */
typedef int32_t packhouse_status;

enum {
    /* Done. */
    PACKHOUSE_OK = 0,
    /* A pointer that must not be NULL is. */
    PACKHOUSE_NULL_POINTER = 1,
    /* A struct_size is less than the struct's first version has, or more than 4096. */
    PACKHOUSE_STRUCT_SIZE = 2,
    /* A field is set that this library doesn't know. */
    PACKHOUSE_UNKNOWN_FIELD = 3,
    /* A text is not UTF-8. */
    PACKHOUSE_TEXT = 4,
    /* A number is none of those that mean something. */
    PACKHOUSE_VALUE = 5,
    /* An index is past the end. */
    PACKHOUSE_INDEX = 6,
    /* A buffer has the wrong length. */
    PACKHOUSE_BUFFER = 7,
    /* Two buffers of a call overlap. */
    PACKHOUSE_OVERLAP = 8,
    /* A defect in this library; please report it. */
    PACKHOUSE_BUG = 99,
    /* What was given for a set is no key, no digits of one and no folder of one. */
    PACKHOUSE_SET_NAME = 100,
    /* There is no store at the place given. */
    PACKHOUSE_STORE_MISSING = 101,
    /* The store's place is no absolute path, is no store, or can be changed by others. */
    PACKHOUSE_STORE_UNTRUSTED = 102,
    /* There is no such set. */
    PACKHOUSE_NO_SET = 103,
    /* More than one set fits. */
    PACKHOUSE_MANY_SETS = 104,
    /* The set's manifest is damaged, or not the one of its key. */
    PACKHOUSE_MANIFEST_CORRUPT = 105,
    /* The set's runtime index is absent, damaged, or not its manifest's. */
    PACKHOUSE_INDEX_CORRUPT = 106,
    /* The set's files belong to others or can be changed by others. */
    PACKHOUSE_SET_UNTRUSTED = 107,
    /* The stage or a copy in it is not used; the store is instead. */
    PACKHOUSE_STAGE_REFUSED = 108,
    /* The private state is not used, so that every payload is hashed. */
    PACKHOUSE_STATE_REFUSED = 109,
    /* Opening a strict set proves every payload, which samples alone can't. */
    PACKHOUSE_STRICT_SAMPLE = 110,
    /* The set fills no such slot. */
    PACKHOUSE_NO_SLOT = 120,
    /* The set has no tensor of this name. */
    PACKHOUSE_NO_TENSOR = 121,
    /* More than one slot has a pack of the tensor that fits the contract. */
    PACKHOUSE_MANY_SLOTS = 122,
    /* The entry is not of this set. */
    PACKHOUSE_OTHER_ENTRY = 123,
    /* The pack's record is absent. */
    PACKHOUSE_PACK_MISSING = 124,
    /* The pack's record is damaged. */
    PACKHOUSE_PACK_CORRUPT = 125,
    /* The pack's record belongs to others or can be changed by others. */
    PACKHOUSE_PACK_UNTRUSTED = 126,
    /* The pack's record names another payload than the set. */
    PACKHOUSE_PACK_DISAGREES = 127,
    /* The pack has more dims than an entry can tell. */
    PACKHOUSE_TOO_MANY = 128,
    /* The pack has another layout than the contract. */
    PACKHOUSE_LAYOUT = 130,
    /* The pack has another version of the layout than the contract. */
    PACKHOUSE_LAYOUT_VERSION = 131,
    /* The pack is of another type than the contract. */
    PACKHOUSE_TYPE = 132,
    /* The pack is of another shape than the contract. */
    PACKHOUSE_DIMS = 133,
    /* The layout parameters are others than the contract's. */
    PACKHOUSE_PARAMETERS = 134,
    /* The weights are others than the contract's. */
    PACKHOUSE_SOURCE = 135,
    /* The pack was made by another packer than the contract's. */
    PACKHOUSE_FINGERPRINT = 136,
    /* The layout's order depends on its packer, and the contract has no fingerprint. */
    PACKHOUSE_FINGERPRINT_NEEDED = 137,
    /* The payload is absent. */
    PACKHOUSE_OBJECT_MISSING = 140,
    /* The payload is damaged. */
    PACKHOUSE_OBJECT_CORRUPT = 141,
    /* The payload belongs to others or can be changed by others. */
    PACKHOUSE_OBJECT_UNTRUSTED = 142,
    /* The payload changed while it was hashed. */
    PACKHOUSE_OBJECT_CHANGED = 143,
    /* Samples are the only proof that was chosen, and none were compared yet. */
    PACKHOUSE_NOT_SAMPLED = 144,
    /* There is no address space or memory for the payload. */
    PACKHOUSE_NO_MEMORY = 145,
    /* The live weights to compare with could not be had. */
    PACKHOUSE_LIVE_WEIGHTS = 150,
    /* The payload is not what the packer makes of the live weights. */
    PACKHOUSE_SAMPLE_DIFFERS = 151,
    /* The packer of the pack or contract is not at hand: no samples, and no packing. */
    PACKHOUSE_OTHER_PACKER = 152,
    /* There is no packer for a layout of this name and version. */
    PACKHOUSE_LAYOUT_UNKNOWN = 160,
    /* The layout does not take this type, shape or these parameters. */
    PACKHOUSE_NOT_ADMITTED = 161,
    /* The layout is known, but only an engine packs this type in it. */
    PACKHOUSE_NO_PACKER = 162,
    /* The layout rounds what it packs, so that no payload gives its source back. */
    PACKHOUSE_NOT_INVERTIBLE = 163,
    /* A strict set had a refusal before. */
    PACKHOUSE_SET_FAILED = 170,
    /* The operating system said no. */
    PACKHOUSE_HOST = 180,
    /* The sizes make no tile, or the layout needs others. */
    PACKHOUSE_TILE_GEOMETRY = 200,
    /* The head has no tiles in this geometry. */
    PACKHOUSE_TILE_HEAD = 201,
    /* A dtype is no name of a stored type. */
    PACKHOUSE_TILE_DTYPE = 202,
    /* The kernel's depth is not the one that the tiles are packed for. */
    PACKHOUSE_TILE_DEPTH = 203,
    /* The column callback returned an error. */
    PACKHOUSE_TILE_COLUMN = 204,
    /* Another call is using the serve. */
    PACKHOUSE_SERVE_BUSY = 205,
    /* Images are off because the caller said so. */
    PACKHOUSE_IMAGES_OFF_ASKED = 210,
    /* Images are off because no folder was given for them. */
    PACKHOUSE_IMAGES_OFF_NO_ROOT = 211,
    /* Images are off because their folder is not there, and they are only read. */
    PACKHOUSE_IMAGES_OFF_ABSENT = 212,
    /* Images are off because their folder can't be used. */
    PACKHOUSE_IMAGES_OFF_ROOT = 213,
    /* An image is not a regular file. */
    PACKHOUSE_IMAGE_NOT_REGULAR = 220,
    /* An image belongs to somebody else. */
    PACKHOUSE_IMAGE_OWNER = 221,
    /* An image can be changed by others. */
    PACKHOUSE_IMAGE_WRITABLE = 222,
    /* An image could not be read. */
    PACKHOUSE_IMAGE_UNREADABLE = 223,
    /* An image is too short, or bytes follow it. */
    PACKHOUSE_IMAGE_LENGTH = 224,
    /* An image's file is none. */
    PACKHOUSE_IMAGE_MAGIC = 225,
    /* An image is of another version of the format. */
    PACKHOUSE_IMAGE_VERSION = 226,
    /* An image's header is damaged. */
    PACKHOUSE_IMAGE_HEADER_HASH = 227,
    /* An image's header contradicts itself or the format. */
    PACKHOUSE_IMAGE_HEADER = 228,
    /* An image is in another layout. */
    PACKHOUSE_IMAGE_LAYOUT = 229,
    /* An image is of other sizes. */
    PACKHOUSE_IMAGE_GEOMETRY = 230,
    /* An image is of another tile. */
    PACKHOUSE_IMAGE_TILE = 231,
    /* An image is of another head. */
    PACKHOUSE_IMAGE_HEAD = 232,
    /* An image was made by another packer. */
    PACKHOUSE_IMAGE_FINGERPRINT = 233,
    /* An image's codes or scales are damaged. */
    PACKHOUSE_IMAGE_PAYLOAD_HASH = 234,
    /* An image changed while it was read. */
    PACKHOUSE_IMAGE_CHANGED = 235,
    /* A scale of an intact image is not what the packer makes of the weights held now. */
    PACKHOUSE_IMAGE_SAMPLE_SCALE = 236,
    /* A code of an intact image is not what the packer makes of the weights held now. */
    PACKHOUSE_IMAGE_SAMPLE_CODE = 237,
    /* An image was not written because images are only read. */
    PACKHOUSE_IMAGE_READ_ONLY = 240,
    /* An image was not written because it fits no bound, or others kept room from being made. */
    PACKHOUSE_IMAGE_NO_ROOM = 241,
    /* An image could not be written, or room for it could not be made. */
    PACKHOUSE_IMAGE_WRITE_FAILED = 242,
    /* An image was not written because there is no private memory to pack it in. */
    PACKHOUSE_IMAGE_NO_MEMORY = 243,
};

/* An open set, and the texts of it that C was shown. */
typedef struct packhouse_set packhouse_set;

/* A mapped payload. */
typedef struct packhouse_mapping packhouse_mapping;

/* Images of head tiles, as they were opened. */
typedef struct packhouse_images packhouse_images;

/* One head being served. */
typedef struct packhouse_serve packhouse_serve;

/* What packhouse_set_open is told. */
typedef struct packhouse_open_options {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_TRUST_*: what proof a payload needs before it is mapped. */
    uint32_t trust;
    /* PACKHOUSE_OPEN_* bits. */
    uint32_t flags;
    /* Zero. */
    uint32_t reserved;
    /* The store's root, an absolute path. */
    const char *store;
    /* The folder of this user's private state, an absolute path; receipts live there. */
    const char *state;
    /* The folder of stages, an absolute path; NULL looks for none. */
    const char *stage;
    /* The set: 8 to 64 digits of its key, or its folder; NULL is the only one of the store. */
    const char *set;
    /* User ids that may own the store, beside this user's and root's; NULL when there are
       none. */
    const uint32_t *trusted_uids;
    /* How many. */
    uint64_t trusted_uid_count;
} packhouse_open_options;

/* One named layout parameter. */
typedef struct packhouse_parameter {
    /* Its name. */
    const char *name;
    /* Its value. */
    uint64_t value;
} packhouse_parameter;

/* What an engine's kernel reads; a pack must be exactly this to be found. */
typedef struct packhouse_contract {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* ggml type id of the source tensor. */
    uint32_t type_id;
    /* Layout id. */
    const char *layout;
    /* Layout version. */
    uint64_t layout_version;
    /* Dims, ne0 first; trailing ones don't matter. */
    uint64_t dims[PACKHOUSE_DIMS_MAX];
    /* How many of them are given. */
    uint32_t dim_count;
    /* Zero. */
    uint32_t reserved;
    /* The layout's parameters, all of them, however few: not NULL and a count of 0 says that
       there are none. NULL means the layout's defaults and what follows from the tensor, in
       look-ups as in packing; a layout that the library doesn't know has none. */
    const packhouse_parameter *parameters;
    /* How many. */
    uint64_t parameter_count;
    /* 32 bytes, SHA-256 of the source tensor; NULL takes any. packhouse_pack hashes what it is
       given, and packhouse_unpack what it made. */
    const uint8_t *source_sha256;
    /* 32 bytes, the packer's fingerprint; NULL takes any, which a layout whose order depends
       on its packer does not allow. To pack, unpack or tell lengths it must be the one of this
       library. */
    const uint8_t *fingerprint;
} packhouse_contract;

/* One tensor of a set: what its pack is. The texts and parameters belong to the set. */
typedef struct packhouse_entry {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* ggml type id of the source tensor. */
    uint32_t type_id;
    /* Place among the set's entries. */
    uint64_t index;
    /* The plan's fixed number for the tensor. */
    uint64_t slot;
    /* The tensor's name, NUL-terminated UTF-8. */
    const char *tensor;
    /* Its length without the NUL. */
    uint64_t tensor_bytes;
    /* Layout id, NUL-terminated. */
    const char *layout;
    /* Layout version. */
    uint64_t layout_version;
    /* The layout's parameters. */
    const packhouse_parameter *parameters;
    /* How many. */
    uint64_t parameter_count;
    /* Dims, ne0 first. */
    uint64_t dims[PACKHOUSE_DIMS_MAX];
    /* How many. */
    uint32_t dim_count;
    /* Zero. */
    uint32_t reserved;
    /* Length of the payload. */
    uint64_t payload_bytes;
    /* Rows of the source, over all matrices. */
    uint64_t row_count;
    /* Bytes of one row of the source. */
    uint64_t row_bytes;
    /* Rows in one sample group. */
    uint64_t unit_rows;
    /* The pack's key. */
    uint8_t pack_key[PACKHOUSE_DIGEST_BYTES];
    /* SHA-256 of the payload. */
    uint8_t object[PACKHOUSE_DIGEST_BYTES];
    /* SHA-256 of the source tensor. */
    uint8_t source_sha256[PACKHOUSE_DIGEST_BYTES];
    /* The packer's fingerprint. */
    uint8_t fingerprint[PACKHOUSE_DIGEST_BYTES];
} packhouse_entry;

/* What an open set is. The text belongs to the set. */
typedef struct packhouse_summary {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* 1 when payloads come from a stage in RAM, else 0. */
    uint32_t is_staged;
    /* Tensors in the set. */
    uint64_t entry_count;
    /* The plan's name, NUL-terminated UTF-8. */
    const char *plan;
    /* The set's key. */
    uint8_t key[PACKHOUSE_DIGEST_BYTES];
} packhouse_summary;

/* A mapped payload. The bytes belong to the mapping. */
typedef struct packhouse_view {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_HELD_*: what holds the bytes. */
    uint32_t held;
    /* PACKHOUSE_PROOF_*: how the bytes were proved. */
    uint32_t proof;
    /* Zero. */
    uint32_t reserved;
    /* The payload, page-aligned and read-only. */
    const void *payload;
    /* Its length. */
    uint64_t payload_bytes;
    /* Its SHA-256. */
    uint8_t object[PACKHOUSE_DIGEST_BYTES];
} packhouse_view;

/* Tensors and the bytes of their payloads. */
typedef struct packhouse_count {
    /* Tensors. */
    uint64_t tensors;
    /* Bytes of their payloads. */
    uint64_t bytes;
} packhouse_count;

/* Where a set's tensors went. A tensor counts once in each, however often it is asked for. */
typedef struct packhouse_counters {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* How many reasons packhouse_set_refused_after can tell. */
    uint32_t refused_count;
    /* Mapped from files. */
    packhouse_count mapped;
    /* Read into private memory. */
    packhouse_count copied;
    /* Of these two: hashed because deep was asked for. */
    packhouse_count deep;
    /* Proved by a receipt. */
    packhouse_count receipt;
    /* Hashed because no receipt matched. */
    packhouse_count reverified;
    /* Proved by samples alone. */
    packhouse_count sample;
    /* Whose samples equalled the live weights. */
    packhouse_count sampled;
    /* Groups compared. */
    uint64_t sampled_groups;
} packhouse_counters;

/* One reason and what it refused. */
typedef struct packhouse_refused {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* The reason. */
    packhouse_status status;
    /* What it refused; what names no tensor of the set counts 0 bytes. */
    packhouse_count count;
} packhouse_refused;

/* Why a call failed, in words. */
typedef struct packhouse_refusal {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* The same number that the call returned, when it failed; no success writes here. */
    packhouse_status status;
    /* Length of the whole text, which may be more than fits. */
    uint64_t text_bytes;
    /* The text, cut between characters, NUL-terminated UTF-8. */
    char text[PACKHOUSE_TEXT_BYTES];
} packhouse_refusal;

/* How many samples are compared. */
typedef struct packhouse_sample_options {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* Zero. */
    uint32_t reserved;
    /* Groups to compare; 0 is 4 to 8 of them by the tensor's size, UINT64_MAX is all. */
    uint64_t group_count;
    /* Shifts the places of the groups; give another one at each start. */
    uint64_t seed;
} packhouse_sample_options;

/* What was compared. */
typedef struct packhouse_sample_report {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* Zero. */
    uint32_t reserved;
    /* Groups compared, all of them equal. */
    uint64_t compared_groups;
    /* Groups of the whole tensor. */
    uint64_t group_count;
    /* Bytes of live weights that were asked for. */
    uint64_t source_bytes;
    /* Bytes of payload that were compared. */
    uint64_t payload_bytes;
} packhouse_sample_report;

/* One layout that this library packs. */
typedef struct packhouse_layout_summary {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* 1 when packhouse_unpack gives the source back of each type that packhouse_pack packs in
       this layout, else 0. Which types these are is the answer of packhouse_lengths. */
    uint32_t is_invertible;
    /* Layout version. */
    uint64_t version;
    /* How many parameters it has. */
    uint64_t parameter_count;
    /* Layout id, NUL-terminated. */
    char id[PACKHOUSE_NAME_BYTES];
} packhouse_layout_summary;

/* One parameter of a layout. */
typedef struct packhouse_layout_parameter {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* 1 when the parameter may be left out, else 0. */
    uint32_t has_default;
    /* Its value then. */
    uint64_t default_value;
    /* Least value. */
    uint64_t min;
    /* Greatest value. */
    uint64_t max;
    /* Its name, NUL-terminated. */
    char name[PACKHOUSE_NAME_BYTES];
} packhouse_layout_parameter;

/* What packhouse_images_open is told. */
typedef struct packhouse_images_options {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_IMAGES_OFF, _READ_ONLY or _READ_WRITE. */
    uint32_t mode;
    /* PACKHOUSE_CHECK_*: how provenance is proved. */
    uint32_t check;
    /* PACKHOUSE_IMAGES_SEEDED or 0. */
    uint32_t flags;
    /* The folder of images, an absolute path, made when it is not there; it is this user's
       alone. NULL is none: then images are off. */
    const char *root;
    /* Most bytes of all images: 0 is the default, a fifth of the file system; UINT64_MAX sets
       no limit. What was used longest ago goes first. */
    uint64_t max_bytes;
    /* Bytes that must stay free in the file system: 0 is the default, 10 GiB; UINT64_MAX sets
       no limit, so that none need stay free. */
    uint64_t min_free_bytes;
    /* Images not used for so many nanoseconds go at the next write; 0, the default, sets no
       limit, nor does UINT64_MAX. */
    uint64_t max_age_ns;
    /* Moves the sampled columns, when flags say so. */
    uint64_t seed;
    /* Most threads that read, hash and pack, the calling one among them, but no more than the
       process has CPUs; 0 is one. */
    uint32_t thread_count;
    /* Zero. */
    uint32_t reserved;
} packhouse_images_options;

/* The bytes of one tensor, as the model's file has them. */
typedef struct packhouse_tensor {
    /* The bytes; NULL when there are none. */
    const void *data;
    /* How many. */
    uint64_t bytes;
} packhouse_tensor;

/* What a head is, beside its tiles: part of each image's identity. */
typedef struct packhouse_head {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* 1 when the head is the token embedding, else 0. */
    uint32_t is_tied;
    /* Rows of the stored [vocabulary, hidden] tensor: columns of the head. */
    uint64_t vocabulary;
    /* Values that the column callback gives per column: what a row of the tensor holds. */
    uint64_t width;
    /* The stored type's name, NUL-terminated: 1 to PACKHOUSE_DTYPE_MAX printable ASCII
       characters without blanks, bytes 0x21 to 0x7e. */
    const char *dtype;
    /* What the head's content is, by packhouse_head_digest. Not looked at while images are
       off. */
    uint8_t digest[PACKHOUSE_DIGEST_BYTES];
    /* Nanoseconds that the digest took, by the same call; told in counters and line. */
    uint64_t digest_ns;
} packhouse_head;

/* The sizes of one tile: what the device's buffer and kernel take. */
typedef struct packhouse_tile_geometry {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_TILE_ROW_MAJOR or _BLOCKED. */
    uint32_t order;
    /* Depth rows of the device's buffer. */
    uint64_t kd;
    /* Columns of the device's buffer. */
    uint64_t nd;
    /* Depth rows that are packed: the head's width, padded for the kernel; at most kd. */
    uint64_t kpad;
    /* Columns of the head in a full tile; at most nd. The last tile may have fewer. */
    uint64_t t;
} packhouse_tile_geometry;

/* What follows from a geometry and a vocabulary. */
typedef struct packhouse_tile_sizes {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* Zero. */
    uint32_t reserved;
    /* Bytes of a tile's codes: kd times nd. */
    uint64_t code_bytes;
    /* Bytes of a tile's scales: 4 times nd. */
    uint64_t scale_bytes;
    /* Bytes of a tile's image file. */
    uint64_t image_bytes;
    /* Tiles of a head with so many columns. */
    uint64_t tile_count;
} packhouse_tile_sizes;

/* One tile to fill, and where. The buffers are the caller's, and may be a device's, mapped. */
typedef struct packhouse_tile {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_TILE_COLUMNS_PARALLEL or 0. */
    uint32_t flags;
    /* Which tile, below tile_count. */
    uint64_t index;
    /* The depth that the kernel is about to multiply with: kpad, or the tile is refused. */
    uint64_t k;
    /* Where the codes go: every one of them is written. */
    int8_t *codes;
    /* How many bytes there are: kd times nd. */
    uint64_t code_bytes;
    /* Where the scales go, aligned as floats are: every one of them is written. */
    float *scales;
    /* How many floats there are: nd. */
    uint64_t scale_count;
} packhouse_tile;

/* How a tile was filled. */
typedef struct packhouse_tile_report {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* PACKHOUSE_TILE_HIT or PACKHOUSE_TILE_PACKED; 0 when the callback failed. */
    uint32_t outcome;
    /* Why a file that was there was not used; PACKHOUSE_OK when none was refused. */
    packhouse_status refused;
    /* Why a packed tile was not written; PACKHOUSE_OK when it was, or was a hit. */
    packhouse_status unwritten;
    /* Bytes of the image that was written. */
    uint64_t written_bytes;
    /* The sum of the tile's scales, those of padding among them, in the order of the columns. */
    double scale_sum;
    /* Nanoseconds of the whole call. */
    uint64_t elapsed_ns;
    /* The column whose callback failed, when one did. */
    uint64_t failed_column;
    /* What that callback returned; 0 when none failed. */
    int32_t column_error;
    /* Files that were removed, and what was in the way of noting the owner: notes_text has
       them. */
    uint32_t note_count;
    /* Which file was refused and why, in words, cut between characters, NUL-terminated UTF-8. */
    char refused_text[PACKHOUSE_TEXT_BYTES];
    /* Why a packed tile was not written, likewise. */
    char unwritten_text[PACKHOUSE_TEXT_BYTES];
    /* Each file that was removed, with its bytes and why, and each problem, likewise, with
       semicolons between. */
    char notes_text[PACKHOUSE_TEXT_BYTES];
} packhouse_tile_report;

/* What a serve did so far. */
typedef struct packhouse_image_counters {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* Zero. */
    uint32_t reserved;
    /* The seed of the samples, given or drawn. */
    uint64_t seed;
    /* Tiles from images. */
    uint64_t tiles_hit;
    /* Tiles packed. */
    uint64_t tiles_packed;
    /* Of these, tiles written. */
    uint64_t tiles_written;
    /* Packed tiles that were not written; packhouse_serve_reason_after has them by reason. */
    uint64_t tiles_unwritten;
    /* Files that were there and not used, likewise. */
    uint64_t tiles_refused;
    /* Columns that the callback gave for packing. */
    uint64_t columns_gathered;
    /* Columns that the callback gave for comparing. */
    uint64_t columns_sampled;
    /* Bytes read from images. */
    uint64_t bytes_read;
    /* Bytes written to images. */
    uint64_t bytes_written;
    /* Files removed to make room, or because their owner left them. */
    uint64_t files_removed;
    /* Their bytes. */
    uint64_t bytes_removed;
    /* What was in the way of noting the owner, or of removing what it left. */
    uint64_t owner_problems;
    /* Nanoseconds of hashing the head. */
    uint64_t digest_ns;
    /* Nanoseconds of reading and hashing. */
    uint64_t read_ns;
    /* Nanoseconds of packing sampled columns and comparing. */
    uint64_t sample_ns;
    /* Nanoseconds of packing tiles. */
    uint64_t pack_ns;
    /* Nanoseconds of writing images. */
    uint64_t write_ns;
    /* Nanoseconds of taking the packer's fingerprint; 0 when an earlier serve of the same
       images took it, or images are off. */
    uint64_t fingerprint_ns;
} packhouse_image_counters;

/* One reason and how many tiles it was given for. */
typedef struct packhouse_tile_reason {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* The reason. */
    packhouse_status status;
    /* Tiles. */
    uint64_t tiles;
} packhouse_tile_reason;

/* The one line that says where a serve's tiles came from. */
typedef struct packhouse_line {
    /* sizeof of this struct. */
    uint32_t struct_size;
    /* Zero. */
    uint32_t reserved;
    /* Length of the whole line, which may be more than fits. */
    uint64_t text_bytes;
    /* The line without its newline, cut between characters, NUL-terminated UTF-8. */
    char text[PACKHOUSE_LINE_BYTES];
} packhouse_line;

/* Gives live weights: writes bytes source bytes from offset on to target and returns 0, or
   returns anything else when it can't. It must not throw, unwind or jump out. */
typedef int32_t (*packhouse_live_weights)(
    void *context,
    uint64_t offset,
    void *target,
    uint64_t bytes);

/* Gives one column of the head, row column of the stored tensor as floats: writes value_count
   values, the head's width, and returns 0; anything else is an error, which ends the tile's
   call. The values are zero before. It must not throw, unwind or jump out, nor use the serve
   that calls it, and for one column it gives the same values each time. */
typedef int32_t (*packhouse_column)(
    void *context,
    uint64_t column,
    float *values,
    uint64_t value_count);

/* The library's version, as in 0.1.0. The text is static. */
const char *packhouse_version(void);

/* The version of the interface that the library has; a program compares it with the header's
   PACKHOUSE_ABI_VERSION before anything else. */
uint32_t packhouse_abi_version(void);

/* A status' name, as in PACKHOUSE_NO_SET; PACKHOUSE_UNKNOWN_STATUS for numbers that are none.
   The text is static. */
const char *packhouse_status_name(packhouse_status status);

/* Opens a set. The stage is searched first, where one is given, then the store. Nothing below
   the store's root is written; receipts, and that the set was used, are noted in the state
   folder. On success *set is the caller's: packhouse_set_release gives it back. */
packhouse_status packhouse_set_open(
    const packhouse_open_options *options,
    packhouse_set **set,
    packhouse_refusal *refusal);

/* Takes one more count of a set; each is given back by packhouse_set_release. NULL is fine. */
void packhouse_set_retain(packhouse_set *set);

/* Gives one count of a set back; the last one closes it. Mappings of it stay. NULL is fine. */
void packhouse_set_release(packhouse_set *set);

/* Tells what a set is. The plan's name belongs to the set. */
packhouse_status packhouse_set_summary(
    const packhouse_set *set,
    packhouse_summary *summary,
    packhouse_refusal *refusal);

/* Reads the entry at an index, 0 to entry_count, whatever its contract: for engines that look
   at a whole set before they choose. Its texts belong to the set. */
packhouse_status packhouse_set_entry_at(
    const packhouse_set *set,
    uint64_t index,
    packhouse_entry *entry,
    packhouse_refusal *refusal);

/* Finds the pack of a slot. It must be exactly what the contract says. */
packhouse_status packhouse_set_lookup_slot(
    const packhouse_set *set,
    uint64_t slot,
    const packhouse_contract *contract,
    packhouse_entry *entry,
    packhouse_refusal *refusal);

/* Finds the pack of a tensor by its name. It must be exactly what the contract says; where a
   plan has several packs of one tensor, exactly one of them must be. */
packhouse_status packhouse_set_lookup_tensor(
    const packhouse_set *set,
    const char *tensor,
    const packhouse_contract *contract,
    packhouse_entry *entry,
    packhouse_refusal *refusal);

/* Puts an entry's payload into memory: proves it as the set's trust says, then maps it. On
   success *mapping is the caller's: packhouse_mapping_release gives it back. It outlives the
   set. */
packhouse_status packhouse_set_map(
    const packhouse_set *set,
    const packhouse_entry *entry,
    packhouse_mapping **mapping,
    packhouse_refusal *refusal);

/* Packs groups of live weights again and compares them with the payload, bit for bit. live is
   called on this thread, with context; options may be NULL, and so may report. */
packhouse_status packhouse_set_sample(
    const packhouse_set *set,
    const packhouse_entry *entry,
    packhouse_live_weights live,
    void *context,
    const packhouse_sample_options *options,
    packhouse_sample_report *report,
    packhouse_refusal *refusal);

/* Tells where the set's tensors went since it was opened. */
packhouse_status packhouse_set_counters(
    const packhouse_set *set,
    packhouse_counters *counters,
    packhouse_refusal *refusal);

/* Tells the first reason whose number is above after, and what it refused; status is
   PACKHOUSE_OK in it when there is none. Begin with PACKHOUSE_OK and go on with each status
   told: whatever other threads do meanwhile, no reason is told twice, and none that was there
   at the beginning is left out. */
packhouse_status packhouse_set_refused_after(
    const packhouse_set *set,
    packhouse_status after,
    packhouse_refused *refused,
    packhouse_refusal *refusal);

/* Tells the last refusal of any thread since the set was opened; status is PACKHOUSE_OK in it
   when there was none. */
packhouse_status packhouse_set_last_refusal(
    const packhouse_set *set,
    packhouse_refusal *refusal);

/* Takes one more count of a mapping. NULL is fine. */
void packhouse_mapping_retain(packhouse_mapping *mapping);

/* Gives one count of a mapping back; after the last one its bytes are gone. NULL is fine. */
void packhouse_mapping_release(packhouse_mapping *mapping);

/* Tells where a mapping's bytes are. They belong to the mapping. */
packhouse_status packhouse_mapping_view(
    const packhouse_mapping *mapping,
    packhouse_view *view,
    packhouse_refusal *refusal);

/* How many layouts this library packs. */
uint32_t packhouse_layout_count(void);

/* Tells the layout at an index, 0 to packhouse_layout_count(). */
packhouse_status packhouse_layout_at(
    uint32_t index,
    packhouse_layout_summary *summary,
    packhouse_refusal *refusal);

/* Tells a parameter of the layout at an index. */
packhouse_status packhouse_layout_parameter_at(
    uint32_t layout_index,
    uint64_t parameter_index,
    packhouse_layout_parameter *parameter,
    packhouse_refusal *refusal);

/* Tells the lengths of a contract's source and payload, if this library packs what the
   contract says. Either place may be NULL. */
packhouse_status packhouse_lengths(
    const packhouse_contract *contract,
    uint64_t *source_bytes,
    uint64_t *payload_bytes,
    packhouse_refusal *refusal);

/* Writes the 32 bytes of the fingerprint of this library's packer for a contract: what packs
   of the layout have in their records when it made them. Which fingerprint the contract has
   makes no difference here. */
packhouse_status packhouse_fingerprint(
    const packhouse_contract *contract,
    uint8_t *fingerprint,
    packhouse_refusal *refusal);

/* Packs one tensor on up to thread_count threads, the calling one among them, but on no more
   than the process has CPUs; 0 is one. Writes every byte of payload, whose length must be the
   one of packhouse_lengths. A source that is not the contract's source_sha256 is refused. */
packhouse_status packhouse_pack(
    const packhouse_contract *contract,
    const void *source,
    uint64_t source_bytes,
    void *payload,
    uint64_t payload_bytes,
    uint32_t thread_count,
    packhouse_refusal *refusal);

/* Gives the source of a payload back. Writes every byte of source, whose length must be the
   one of packhouse_lengths. What turns out not to be the contract's source_sha256 is refused,
   and source is set to zero. Of a layout that is not invertible nothing is unpacked or
   written. */
packhouse_status packhouse_unpack(
    const packhouse_contract *contract,
    const void *payload,
    uint64_t payload_bytes,
    void *source,
    uint64_t source_bytes,
    packhouse_refusal *refusal);

/* Tells the lengths of a tile's buffers and file, and how many tiles a head with so many
   columns has. Sizes that make no tile are refused, and a vocabulary of 0 or of more than
   100,000 tiles. */
packhouse_status packhouse_tile_measure(
    const packhouse_tile_geometry *geometry,
    uint64_t vocabulary,
    packhouse_tile_sizes *sizes,
    packhouse_refusal *refusal);

/* Tells where among a tile's codes the one of depth row i of column j lies, with i below kd
   and j below nd. */
packhouse_status packhouse_tile_position(
    const packhouse_tile_geometry *geometry,
    uint64_t i,
    uint64_t j,
    uint64_t *position,
    packhouse_refusal *refusal);

/* Writes a head's digest, and how long it took, into the head: a hash over its vocabulary,
   width, tied and dtype, and the bytes of all that feeds a column, in an order that stays the
   same: the matrix, scales that lie apart from it, and last a name of the code that makes
   floats of them, as the 13 bytes ggml-values/1. Hashes on up to thread_count threads, the
   calling one among them, but on no more than the process has CPUs; 0 is one. While images are
   off it need not be called. */
packhouse_status packhouse_head_digest(
    packhouse_head *head,
    const packhouse_tensor *tensors,
    uint64_t tensor_count,
    uint32_t thread_count,
    packhouse_refusal *refusal);

/* Opens the folder of images. What stands in the way of using it is no failure: images are off
   then, and packhouse_images_why_off says why. The environment is not read: an engine that has
   switches there sets mode. On success *images is the caller's: packhouse_images_release gives
   it back. */
packhouse_status packhouse_images_open(
    const packhouse_images_options *options,
    packhouse_images **images,
    packhouse_refusal *refusal);

/* Takes one more count of images; each is given back by packhouse_images_release. NULL is
   fine. */
void packhouse_images_retain(packhouse_images *images);

/* Gives one count of images back. Serves of them stay. NULL is fine. */
void packhouse_images_release(packhouse_images *images);

/* Tells why images are off, for one warning at the start; status is PACKHOUSE_OK in reason
   when they are on. */
packhouse_status packhouse_images_why_off(
    const packhouse_images *images,
    packhouse_refusal *reason,
    packhouse_refusal *refusal);

/* Begins the serve of one head: owner says whose images these are by a text that stays the
   same from start to start, as the model's path, 1 to PACKHOUSE_OWNER_MAX bytes. When an owner
   comes with other weights in the same geometry, the images that nobody else uses go. On
   success *serve is the caller's: packhouse_serve_release gives it back. The first serve of
   these images in an order takes the packer's fingerprint, some milliseconds on threads of its
   own, unless images are off; later ones have it. */
packhouse_status packhouse_serve_begin(
    const packhouse_images *images,
    const packhouse_head *head,
    const packhouse_tile_geometry *geometry,
    const char *owner,
    packhouse_serve **serve,
    packhouse_refusal *refusal);

/* Takes one more count of a serve. NULL is fine. */
void packhouse_serve_retain(packhouse_serve *serve);

/* Gives one count of a serve back. NULL is fine. */
void packhouse_serve_release(packhouse_serve *serve);

/* Fills one tile: every byte of its codes and scales, whatever was there before. The callback
   is called with context for the sampled columns of an image, or for each column of a tile
   that is packed; on this thread, or by several at once when the tile's flags allow it. report
   may be NULL. A callback's error ends the call with PACKHOUSE_TILE_COLUMN; report has its
   number. */
packhouse_status packhouse_serve_tile(
    const packhouse_serve *serve,
    const packhouse_tile *tile,
    packhouse_column column,
    void *context,
    packhouse_tile_report *report,
    packhouse_refusal *refusal);

/* Tells what a serve did since it began. */
packhouse_status packhouse_serve_counters(
    const packhouse_serve *serve,
    packhouse_image_counters *counters,
    packhouse_refusal *refusal);

/* Tells the first reason whose number is above after why files were not used or packed tiles
   not written, and of how many tiles; status is PACKHOUSE_OK in it when there is none. Begin
   with PACKHOUSE_OK and go on with each status told. */
packhouse_status packhouse_serve_reason_after(
    const packhouse_serve *serve,
    packhouse_status after,
    packhouse_tile_reason *reason,
    packhouse_refusal *refusal);

/* Tells the one line that a user should see once the head is there, whether images were used
   or not: how many tiles came from images, were packed and were written, what was refused, and
   what it took. The engine prints it; the library prints nothing. */
packhouse_status packhouse_serve_line(
    const packhouse_serve *serve,
    packhouse_line *line,
    packhouse_refusal *refusal);

#ifdef __cplusplus
}
#endif

#endif
