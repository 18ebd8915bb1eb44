/* Calls that break the interface's rules, each with what it is called in the tests. */

#include "misuse.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static packhouse_refusal refusal;

static void say(const char *name, packhouse_status status) {
    printf("misuse %s %s %s\n", name, packhouse_status_name(status), refusal.text);
    memset(&refusal, 0, sizeof refusal);
    refusal.struct_size = sizeof refusal;
}

static int32_t no_weights(void *context, uint64_t offset, void *target, uint64_t bytes) {
    (void)context, (void)offset, (void)target, (void)bytes;
    return 1;
}

static packhouse_contract good_contract(void) {
    packhouse_contract contract = {
        .struct_size = sizeof contract,
        .layout = "identity-v1",
        .layout_version = 1,
        .dims = {8, 4},
        .dim_count = 2,
    };
    return contract;
}

static void null_pointers(const packhouse_open_options *good, packhouse_set *set) {
    packhouse_open_options options = *good;
    packhouse_set *opened;
    packhouse_entry entry = {.struct_size = sizeof entry};
    packhouse_contract contract = good_contract();
    packhouse_counters counters = {.struct_size = sizeof counters};
    say("null-options", packhouse_set_open(NULL, &opened, &refusal));
    say("null-set-place", packhouse_set_open(&options, NULL, &refusal));
    options.store = NULL;
    say("null-store", packhouse_set_open(&options, &opened, &refusal));
    options = *good, options.state = NULL;
    say("null-state", packhouse_set_open(&options, &opened, &refusal));
    say("null-set", packhouse_set_counters(NULL, &counters, &refusal));
    say("null-entry", packhouse_set_entry_at(set, 0, NULL, &refusal));
    say("null-contract", packhouse_set_lookup_slot(set, 0, NULL, &entry, &refusal));
    say("null-tensor", packhouse_set_lookup_tensor(set, NULL, &contract, &entry, &refusal));
    contract.layout = NULL;
    say("null-layout", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    contract = good_contract(), contract.parameter_count = 1;
    say("null-parameters", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    packhouse_mapping *mapping;
    say("null-map-entry", packhouse_set_map(set, NULL, &mapping, &refusal));
    say("null-mapping-place", packhouse_set_map(set, &entry, NULL, &refusal));
    packhouse_view view = {.struct_size = sizeof view};
    say("null-mapping", packhouse_mapping_view(NULL, &view, &refusal));
    say("null-live", packhouse_set_sample(set, &entry, NULL, NULL, NULL, NULL, &refusal));
    say("null-last", packhouse_set_last_refusal(set, NULL));
    contract = good_contract();
    say("null-fingerprint", packhouse_fingerprint(&contract, NULL, &refusal));
    say("null-source", packhouse_pack(&contract, NULL, 128, &entry, 128, 1, &refusal));
    packhouse_set_retain(NULL), packhouse_set_release(NULL);
    packhouse_mapping_retain(NULL), packhouse_mapping_release(NULL);
}

static void sizes(const packhouse_open_options *good, packhouse_set *set) {
    packhouse_open_options options = *good;
    packhouse_set *opened = set;
    options.struct_size = 8;
    say("small-options", packhouse_set_open(&options, &opened, &refusal));
    printf("misuse place-is-null %s\n", opened ? "no" : "yes");
    packhouse_entry entry = {0};
    say("small-entry", packhouse_set_entry_at(set, 0, &entry, &refusal));
    refusal.struct_size = 4;
    opened = set;
    packhouse_status status = packhouse_set_open(good, &opened, &refusal);
    say("small-refusal", status);
    packhouse_mapping *mapping = (packhouse_mapping *)set;
    refusal.struct_size = 4;
    say("small-refusal-map", packhouse_set_map(set, &entry, &mapping, &refusal));
    printf("misuse places-are-null %s\n", opened || mapping ? "no" : "yes");
    /* A caller of a later version: what it adds must be zero, and is set to zero. */
    struct {
        packhouse_open_options known;
        uint64_t later;
    } large = {*good, 0};
    large.known.struct_size = sizeof large;
    status = packhouse_set_open(&large.known, &opened, &refusal);
    say("later-options", status);
    packhouse_set_release(opened);
    large.later = 1;
    say("later-field", packhouse_set_open(&large.known, &opened, &refusal));
    struct {
        packhouse_counters known;
        uint64_t later;
        uint64_t beyond;
    } counters = {{.struct_size = sizeof counters - sizeof(uint64_t)}, 77, 77};
    status = packhouse_set_counters(set, &counters.known, &refusal);
    int is_zeroed = counters.later == 0 && counters.beyond == 77;
    say(is_zeroed ? "later-counters" : "later-counters-left", status);
    /* The greatest size, and one more: a size that nobody set is not followed. */
    union {
        packhouse_open_options options;
        unsigned char bytes[4104];
    } huge = {.bytes = {0}};
    huge.options = *good, huge.options.struct_size = 4096;
    status = packhouse_set_open(&huge.options, &opened, &refusal);
    say("large-options", status);
    packhouse_set_release(opened);
    huge.options.struct_size = 4097;
    status = packhouse_set_open(&huge.options, &opened, &refusal);
    say("huge-options", status);
    packhouse_set_release(opened);
    options = *good, options.reserved = 1;
    say("reserved", packhouse_set_open(&options, &opened, &refusal));
    options = *good, options.flags = 2;
    say("flags", packhouse_set_open(&options, &opened, &refusal));
    packhouse_contract contract = good_contract();
    contract.reserved = 1;
    entry.struct_size = sizeof entry;
    say("contract-reserved", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    packhouse_sample_options choice = {.struct_size = sizeof choice, .reserved = 1};
    say("sample-reserved",
        packhouse_set_sample(set, &entry, no_weights, NULL, &choice, NULL, &refusal));
}

static void values(const packhouse_open_options *good, packhouse_set *set) {
    packhouse_open_options options = *good;
    packhouse_set *opened;
    packhouse_entry entry = {.struct_size = sizeof entry};
    packhouse_contract contract = good_contract();
    options.trust = 9;
    say("trust", packhouse_set_open(&options, &opened, &refusal));
    options = *good, options.trusted_uid_count = 65;
    say("uid-count", packhouse_set_open(&options, &opened, &refusal));
    options.trusted_uid_count = 1;
    say("null-uids", packhouse_set_open(&options, &opened, &refusal));
    options = *good, options.set = "\xff\xfe";
    say("text", packhouse_set_open(&options, &opened, &refusal));
    say("tensor-text", packhouse_set_lookup_tensor(set, "a\x80", &contract, &entry, &refusal));
    contract.dim_count = 9;
    say("dim-count", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    contract = good_contract();
    packhouse_parameter parameter = {"n_tile", 8};
    contract.parameters = &parameter, contract.parameter_count = UINT64_MAX;
    say("parameter-count", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    packhouse_parameter twice[2] = {{"n_tile", 8}, {"n_tile", 16}};
    contract.parameters = twice, contract.parameter_count = 2;
    say("parameter-twice", packhouse_set_lookup_slot(set, 0, &contract, &entry, &refusal));
    say("entry-index", packhouse_set_entry_at(set, 1000, &entry, &refusal));
    packhouse_refused refused = {.struct_size = sizeof refused};
    packhouse_status none = packhouse_set_refused_after(set, 1000, &refused, &refusal);
    say(refused.status == PACKHOUSE_OK ? "refused-end" : "refused-more", none);
    say("null-refused", packhouse_set_refused_after(set, 0, NULL, &refusal));
    packhouse_layout_summary info = {.struct_size = sizeof info};
    say("layout-index", packhouse_layout_at(1000, &info, &refusal));
    packhouse_layout_parameter one = {.struct_size = sizeof one};
    say("parameter-index", packhouse_layout_parameter_at(0, 1000, &one, &refusal));
}

static void buffers(void) {
    packhouse_contract contract = good_contract();
    unsigned char source[256] = {0}, payload[256];
    say("short-source", packhouse_pack(&contract, source, 127, payload, 128, 1, &refusal));
    say("long-payload", packhouse_pack(&contract, source, 128, payload, 129, 1, &refusal));
    say("overlap", packhouse_pack(&contract, source, 128, source + 127, 128, 1, &refusal));
    say("beside", packhouse_pack(&contract, source, 128, source + 128, 128, 1, &refusal));
    say("unpack-overlap", packhouse_unpack(&contract, source, 128, source, 128, &refusal));
    say("no-refusal", packhouse_pack(&contract, source, 1, payload, 128, 1, NULL));
    /* 2 to the 63 bytes are no object of C. */
    uint64_t bytes = UINT64_C(1) << 63;
    contract.dims[0] = UINT64_C(1) << 61, contract.dim_count = 1;
    void *near = (void *)(uintptr_t)64, *far = (void *)(uintptr_t)(bytes + 64);
    say("no-object", packhouse_pack(&contract, near, bytes, far, bytes, 1, &refusal));
}

void misuse(const packhouse_open_options *good, packhouse_set *set) {
    refusal.struct_size = sizeof refusal;
    null_pointers(good, set);
    sizes(good, set);
    values(good, set);
    buffers();
}
