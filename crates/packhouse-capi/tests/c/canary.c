/* Breaks the rules of ownership on purpose: a sanitizer must report each.
     canary STORE STATE SET use-after-release|read-after-release|leak */

#include <packhouse.h>

#include <stdio.h>
#include <string.h>

static packhouse_mapping *map_first(packhouse_set *set) {
    packhouse_entry entry = {.struct_size = sizeof entry};
    packhouse_mapping *mapping = NULL;
    packhouse_set_entry_at(set, 0, &entry, NULL);
    packhouse_set_map(set, &entry, &mapping, NULL);
    return mapping;
}

/* The set's memory is gone when it is asked. */
static void use_after_release(packhouse_set *set) {
    packhouse_summary info = {.struct_size = sizeof info};
    packhouse_set_release(set);
    packhouse_set_summary(set, &info, NULL);
    printf("entries=%lu\n", (unsigned long)info.entry_count);
}

/* The payload's pages are gone when they are read. */
static void read_after_release(packhouse_set *set) {
    packhouse_mapping *mapping = map_first(set);
    packhouse_view view = {.struct_size = sizeof view};
    packhouse_mapping_view(mapping, &view, NULL);
    packhouse_mapping_release(mapping);
    packhouse_set_release(set);
    printf("byte=%d\n", *(const volatile unsigned char *)view.payload);
}

int main(int count, char **words) {
    if (count != 5) return 2;
    packhouse_open_options options = {
        .struct_size = sizeof options,
        .trust = PACKHOUSE_TRUST_RECEIPT,
        .store = words[1],
        .state = words[2],
        .set = words[3],
    };
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_set *set;
    if (packhouse_set_open(&options, &set, &refusal)) {
        fprintf(stderr, "%s\n", refusal.text);
        return 3;
    }
    if (strcmp(words[4], "use-after-release") == 0) use_after_release(set);
    else if (strcmp(words[4], "read-after-release") == 0) read_after_release(set);
    else if (strcmp(words[4], "leak") == 0) set = NULL;
    else packhouse_set_release(set);
    return 0;
}
