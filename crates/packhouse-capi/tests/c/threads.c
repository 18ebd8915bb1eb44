/* Eight threads that open, look up, map, read and release one set, each its own handle of it and
   all one shared handle, while the others do the same.
     threads STORE STATE SET ROUNDS */

#define _GNU_SOURCE
#include <packhouse.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define THREADS 8
#define ENTRIES_MAX 64

static packhouse_open_options options;
static packhouse_set *shared;
static unsigned long rounds;
/* What each entry's payload adds up to, as the first reader saw it. */
static unsigned long sums[ENTRIES_MAX];
static pthread_barrier_t together;

static void fail(const char *what, const packhouse_refusal *refusal) {
    fprintf(stderr, "%s: %s: %s\n", what, packhouse_status_name(refusal->status), refusal->text);
    exit(1);
}

static unsigned long sum_of(const packhouse_mapping *mapping, const packhouse_entry *entry) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_view view = {.struct_size = sizeof view};
    if (packhouse_mapping_view(mapping, &view, &refusal)) fail("view", &refusal);
    if (view.payload_bytes != entry->payload_bytes || memcmp(view.object, entry->object, 32) != 0) {
        fprintf(stderr, "the view of %s is of another payload\n", entry->tensor);
        exit(1);
    }
    unsigned long sum = 0;
    for (uint64_t at = 0; at < view.payload_bytes; at++)
        sum = sum * 31 + ((const unsigned char *)view.payload)[at];
    return sum;
}

/* Finds an entry again as an engine would, by its slot and by its name where that is enough. */
static void find_again(const packhouse_set *set, const packhouse_entry *entry) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_contract contract = {
        .struct_size = sizeof contract,
        .type_id = entry->type_id,
        .layout = entry->layout,
        .layout_version = entry->layout_version,
        .dim_count = entry->dim_count,
        .parameters = entry->parameters,
        .parameter_count = entry->parameter_count,
        .source_sha256 = entry->source_sha256,
        .fingerprint = entry->fingerprint,
    };
    memcpy(contract.dims, entry->dims, sizeof contract.dims);
    packhouse_entry again = {.struct_size = sizeof again};
    if (packhouse_set_lookup_slot(set, entry->slot, &contract, &again, &refusal))
        fail("slot", &refusal);
    packhouse_status status =
        packhouse_set_lookup_tensor(set, entry->tensor, &contract, &again, &refusal);
    if (status != PACKHOUSE_OK && status != PACKHOUSE_MANY_SLOTS) fail("tensor", &refusal);
    if (packhouse_set_lookup_tensor(set, "no such tensor", &contract, &again, &refusal) !=
        PACKHOUSE_NO_TENSOR)
        fail("no tensor", &refusal);
}

/* Goes through all entries and returns the last one's mapping, still counted. */
static packhouse_mapping *read_all(packhouse_set *set, unsigned start) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_summary info = {.struct_size = sizeof info};
    if (packhouse_set_summary(set, &info, &refusal)) fail("info", &refusal);
    packhouse_mapping *kept = NULL;
    for (uint64_t step = 0; step < info.entry_count; step++) {
        uint64_t index = (step + start) % info.entry_count;
        packhouse_entry entry = {.struct_size = sizeof entry};
        if (packhouse_set_entry_at(set, index, &entry, &refusal)) fail("entry", &refusal);
        find_again(set, &entry);
        packhouse_mapping *mapping;
        if (packhouse_set_map(set, &entry, &mapping, &refusal)) fail("map", &refusal);
        if (sum_of(mapping, &entry) != sums[index]) {
            fprintf(stderr, "entry %lu differs\n", (unsigned long)index);
            exit(1);
        }
        packhouse_mapping_retain(mapping);
        packhouse_mapping_release(mapping);
        packhouse_mapping_release(kept);
        kept = mapping;
    }
    return kept;
}

static void *work(void *argument) {
    unsigned start = *(unsigned *)argument;
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    pthread_barrier_wait(&together);
    for (unsigned long round = 0; round < rounds; round++) {
        packhouse_set *own;
        if (packhouse_set_open(&options, &own, &refusal)) fail("open", &refusal);
        packhouse_mapping *outlives = read_all(own, start);
        packhouse_set_release(own);
        packhouse_mapping_release(read_all(shared, start));
        packhouse_counters counters = {.struct_size = sizeof counters};
        if (packhouse_set_counters(shared, &counters, &refusal)) fail("counters", &refusal);
        packhouse_set_last_refusal(shared, &refusal);
        packhouse_view view = {.struct_size = sizeof view};
        packhouse_mapping_view(outlives, &view, NULL);
        if (!view.payload) exit(1);
        packhouse_mapping_release(outlives);
    }
    packhouse_set_release(shared);
    return NULL;
}

int main(int count, char **words) {
    if (count != 5) return 2;
    options.struct_size = sizeof options;
    options.trust = PACKHOUSE_TRUST_RECEIPT;
    options.store = words[1], options.state = words[2], options.set = words[3];
    rounds = strtoul(words[4], NULL, 10);
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    if (packhouse_set_open(&options, &shared, &refusal)) fail("open", &refusal);
    packhouse_summary info = {.struct_size = sizeof info};
    packhouse_set_summary(shared, &info, NULL);
    for (uint64_t index = 0; index < info.entry_count && index < ENTRIES_MAX; index++) {
        packhouse_entry entry = {.struct_size = sizeof entry};
        packhouse_mapping *mapping;
        if (packhouse_set_entry_at(shared, index, &entry, &refusal)) fail("entry", &refusal);
        if (packhouse_set_map(shared, &entry, &mapping, &refusal)) fail("map", &refusal);
        sums[index] = sum_of(mapping, &entry);
        packhouse_mapping_release(mapping);
    }
    pthread_barrier_init(&together, NULL, THREADS);
    pthread_t threads[THREADS];
    unsigned starts[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        starts[i] = i;
        packhouse_set_retain(shared);
        if (pthread_create(&threads[i], NULL, work, &starts[i])) return 3;
    }
    packhouse_set_release(shared); /* each thread has a count of its own */
    for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&together);
    printf("threads=%d rounds=%lu entries=%lu\n", THREADS, rounds, (unsigned long)info.entry_count);
    return 0;
}
