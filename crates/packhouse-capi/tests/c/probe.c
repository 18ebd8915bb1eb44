/* Makes calls that the command line names and prints what came of each, one line a call:
     <word> <status name> <text of the refusal>
   Every handle is released at the end, so that a leak checker has nothing to say. */

#define _GNU_SOURCE
#include "misuse.h"
#include <packhouse.h>

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

typedef struct state {
    packhouse_open_options options;
    packhouse_set *set;
    packhouse_contract contract;
    packhouse_parameter parameters[8];
    uint8_t source[32], fingerprint[32];
    packhouse_entry entry;
    packhouse_mapping *mapping;
    char **next;
    uint32_t trusted_uids[2];
} state;

static char *word(state *s) {
    if (!*s->next) {
        fprintf(stderr, "a word is missing\n");
        exit(2);
    }
    return *s->next++;
}

static uint64_t integer(const char *text) {
    char *end;
    uint64_t value = strtoull(text, &end, 0);
    if (*end) {
        fprintf(stderr, "no integer: %s\n", text);
        exit(2);
    }
    return value;
}

static void say(const char *what, packhouse_status status, const packhouse_refusal *refusal) {
    int is_told = status != PACKHOUSE_OK && refusal->status == status;
    printf("%s %s %s\n", what, packhouse_status_name(status), is_told ? refusal->text : "");
}

static const uint8_t *digest(const char *text, uint8_t *bytes) {
    if (strcmp(text, "-") == 0) return NULL;
    for (int i = 0; i < 32; i++) {
        char pair[3] = {text[2 * i], text[2 * i + 1], 0};
        bytes[i] = (uint8_t)strtoul(pair, NULL, 16);
    }
    return bytes;
}

static void open_set(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_set_release(s->set);
    say("open", packhouse_set_open(&s->options, &s->set, &refusal), &refusal);
}

/* contract LAYOUT VERSION TYPE DIM,DIM NAME=VALUE,NAME=VALUE|=|- SOURCE|- FINGERPRINT|-
   where = is a list of no parameters. */
static void read_contract(state *s) {
    packhouse_contract contract = {.struct_size = sizeof contract};
    contract.layout = word(s);
    contract.layout_version = integer(word(s));
    contract.type_id = (uint32_t)integer(word(s));
    char *dims = word(s);
    for (char *dim = strtok(dims, ","); dim; dim = strtok(NULL, ","))
        contract.dims[contract.dim_count++] = integer(dim);
    char *parameters = word(s);
    if (strcmp(parameters, "-") != 0) {
        contract.parameters = s->parameters;
        for (char *name = strtok(parameters, ",="); name; name = strtok(NULL, ",=")) {
            packhouse_parameter *at = &s->parameters[contract.parameter_count++];
            at->name = name;
            at->value = integer(strtok(NULL, ",="));
        }
    }
    contract.source_sha256 = digest(word(s), s->source);
    contract.fingerprint = digest(word(s), s->fingerprint);
    s->contract = contract;
}

static void map(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_mapping *mapping;
    say("map", packhouse_set_map(s->set, &s->entry, &mapping, &refusal), &refusal);
    packhouse_mapping_release(s->mapping);
    s->mapping = mapping;
}

static void view(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_view view = {.struct_size = sizeof view};
    packhouse_status status = packhouse_mapping_view(s->mapping, &view, &refusal);
    uint64_t sum = 0;
    for (uint64_t i = 0; status == PACKHOUSE_OK && i < view.payload_bytes; i++)
        sum = sum * 31 + ((const unsigned char *)view.payload)[i];
    say("view", status, &refusal);
    printf("bytes=%" PRIu64 " held=%u proof=%u sum=%016" PRIx64 " page=%d\n",
           view.payload_bytes, view.held, view.proof, sum, (int)((uintptr_t)view.payload % 4096));
}

static int32_t from_file(void *context, uint64_t offset, void *target, uint64_t bytes) {
    return pread(*(int *)context, target, bytes, (off_t)offset) != (ssize_t)bytes;
}

/* sample FILE GROUPS SEED */
static void sample(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_sample_report report = {.struct_size = sizeof report};
    int file = open(word(s), O_RDONLY);
    packhouse_sample_options options = {.struct_size = sizeof options};
    options.group_count = integer(word(s));
    options.seed = integer(word(s));
    packhouse_status status = packhouse_set_sample(s->set, &s->entry, from_file, &file, &options,
                                                   &report, &refusal);
    say("sample", status, &refusal);
    if (status == PACKHOUSE_OK)
        printf("compared=%" PRIu64 " of=%" PRIu64 " source=%" PRIu64 " payload=%" PRIu64 "\n",
               report.compared_groups, report.group_count, report.source_bytes,
               report.payload_bytes);
    if (file >= 0) close(file);
}

static void print_count(const char *name, packhouse_count count) {
    printf("%s=%" PRIu64 "/%" PRIu64 " ", name, count.tensors, count.bytes);
}

static void counters(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_counters c = {.struct_size = sizeof c};
    say("counters", packhouse_set_counters(s->set, &c, &refusal), &refusal);
    print_count("mapped", c.mapped);
    print_count("copied", c.copied);
    print_count("deep", c.deep);
    print_count("receipt", c.receipt);
    print_count("reverified", c.reverified);
    print_count("sample", c.sample);
    print_count("sampled", c.sampled);
    printf("groups=%" PRIu64 "\n", c.sampled_groups);
    packhouse_refused refused = {.struct_size = sizeof refused};
    for (uint32_t i = 0; i < c.refused_count; i++) {
        packhouse_set_refused_after(s->set, refused.status, &refused, NULL);
        printf("refused %s %" PRIu64 "/%" PRIu64 "\n", packhouse_status_name(refused.status),
               refused.count.tensors, refused.count.bytes);
    }
}

static void print_entry(const packhouse_entry *e) {
    printf("entry index=%" PRIu64 " slot=%" PRIu64 " tensor=%s layout=%s/%" PRIu64 " type=%u dims=",
           e->index, e->slot, e->tensor, e->layout, e->layout_version, e->type_id);
    for (uint32_t i = 0; i < e->dim_count; i++)
        printf("%s%" PRIu64, i ? "," : "", e->dims[i]);
    for (uint64_t i = 0; i < e->parameter_count; i++)
        printf(" %s=%" PRIu64, e->parameters[i].name, e->parameters[i].value);
    printf(" bytes=%" PRIu64 " rows=%" PRIu64 "x%" PRIu64 "/%" PRIu64 "\n", e->payload_bytes,
           e->row_count, e->row_bytes, e->unit_rows);
}

/* Finds an entry by `slot N`, `tensor NAME` or `at INDEX`. */
static void find(state *s, const char *what) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_entry entry = {.struct_size = sizeof entry};
    packhouse_status status;
    if (strcmp(what, "slot") == 0)
        status = packhouse_set_lookup_slot(s->set, integer(word(s)), &s->contract, &entry,
                                           &refusal);
    else if (strcmp(what, "tensor") == 0)
        status = packhouse_set_lookup_tensor(s->set, word(s), &s->contract, &entry, &refusal);
    else
        status = packhouse_set_entry_at(s->set, integer(word(s)), &entry, &refusal);
    say(what, status, &refusal);
    if (status == PACKHOUSE_OK) {
        s->entry = entry;
        print_entry(&entry);
    }
}

static void lengths(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    uint64_t source = 0, payload = 0;
    say("lengths", packhouse_lengths(&s->contract, &source, &payload, &refusal), &refusal);
    printf("source=%" PRIu64 " payload=%" PRIu64 "\n", source, payload);
}

/* Packs a file and unpacks what came of it: pack SOURCE THREADS TARGET */
static void pack(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    uint64_t source_bytes = 0, payload_bytes = 0;
    packhouse_lengths(&s->contract, &source_bytes, &payload_bytes, NULL);
    char *source = malloc(source_bytes + 1), *again = calloc(1, source_bytes + 1);
    char *payload = calloc(1, payload_bytes + 1);
    int file = open(word(s), O_RDONLY);
    from_file(&file, 0, source, source_bytes);
    close(file);
    packhouse_status status =
        packhouse_pack(&s->contract, source, source_bytes, payload, payload_bytes,
                       (uint32_t)integer(word(s)), &refusal);
    say("pack", status, &refusal);
    status = packhouse_unpack(&s->contract, payload, payload_bytes, again, source_bytes, &refusal);
    say("unpack", status, &refusal);
    printf("inverse %s\n", memcmp(source, again, source_bytes) ? "differs" : "equal");
    file = open(word(s), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, payload, payload_bytes) != (ssize_t)payload_bytes) exit(2);
    close(file);
    free(source), free(again), free(payload);
}

static void fingerprint(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    uint8_t made[32] = {0};
    say("fingerprint", packhouse_fingerprint(&s->contract, made, &refusal), &refusal);
    for (int i = 0; i < 32; i++) printf("%02x", made[i]);
    printf("\n");
}

static void layouts(void) {
    for (uint32_t i = 0; i < packhouse_layout_count(); i++) {
        packhouse_layout_summary info = {.struct_size = sizeof info};
        packhouse_layout_at(i, &info, NULL);
        printf("layout %s %" PRIu64 " %u", info.id, info.version, info.is_invertible);
        for (uint64_t p = 0; p < info.parameter_count; p++) {
            packhouse_layout_parameter one = {.struct_size = sizeof one};
            packhouse_layout_parameter_at(i, p, &one, NULL);
            printf(" %s=%" PRIu64 "..%" PRIu64 "/%u/%" PRIu64, one.name, one.min, one.max,
                   one.has_default, one.default_value);
        }
        printf("\n");
    }
}

static void set_info(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_summary info = {.struct_size = sizeof info};
    say("info", packhouse_set_summary(s->set, &info, &refusal), &refusal);
    printf("staged=%u entries=%" PRIu64 " plan=%s key=", info.is_staged, info.entry_count,
           info.plan);
    for (int i = 0; i < 32; i++) printf("%02x", info.key[i]);
    printf("\n");
}

static void last(state *s) {
    packhouse_refusal refusal = {.struct_size = sizeof refusal};
    packhouse_status status = packhouse_set_last_refusal(s->set, &refusal);
    printf("last %s %s\n", packhouse_status_name(status ? status : refusal.status), refusal.text);
}

/* Leaves the process no more descriptors than it has. */
static void no_files(void) {
    int next = dup(0);
    close(next);
    struct rlimit limit = {(rlim_t)next, (rlim_t)next};
    setrlimit(RLIMIT_NOFILE, &limit);
}

/* Leaves the process so many more bytes of address space. */
static void memory(uint64_t bytes) {
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%lu", &pages) != 1) exit(2);
    fclose(file);
    rlim_t size = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + bytes;
    struct rlimit limit = {size, size};
    setrlimit(RLIMIT_AS, &limit);
}

static void obey(state *s, const char *what) {
    if (strcmp(what, "open") == 0) open_set(s);
    else if (strcmp(what, "contract") == 0) read_contract(s);
    else if (strcmp(what, "slot") == 0 || strcmp(what, "tensor") == 0 || strcmp(what, "at") == 0)
        find(s, what);
    else if (strcmp(what, "map") == 0) map(s);
    else if (strcmp(what, "view") == 0) view(s);
    else if (strcmp(what, "sample") == 0) sample(s);
    else if (strcmp(what, "counters") == 0) counters(s);
    else if (strcmp(what, "lengths") == 0) lengths(s);
    else if (strcmp(what, "pack") == 0) pack(s);
    else if (strcmp(what, "fingerprint") == 0) fingerprint(s);
    else if (strcmp(what, "layouts") == 0) layouts();
    else if (strcmp(what, "info") == 0) set_info(s);
    else if (strcmp(what, "last") == 0) last(s);
    else if (strcmp(what, "forge") == 0) s->entry.slot++;
    else if (strcmp(what, "trust") == 0) {
        s->trusted_uids[s->options.trusted_uid_count++] = (uint32_t)integer(word(s));
        s->options.trusted_uids = s->trusted_uids;
    }
    else if (strcmp(what, "no-files") == 0) no_files();
    else if (strcmp(what, "memory") == 0) memory(integer(word(s)));
    else if (strcmp(what, "misuse") == 0) misuse(&s->options, s->set);
    else if (strcmp(what, "close") == 0) packhouse_set_release(s->set), s->set = NULL;
    else {
        fprintf(stderr, "no such word: %s\n", what);
        exit(2);
    }
}

/* probe STORE STATE STAGE|- SET|- TRUST FLAGS WORD... */
int main(int count, char **words) {
    if (count < 7) return 2;
    state s = {.next = words + 7};
    s.options = (packhouse_open_options){
        .struct_size = sizeof s.options,
        .trust = (uint32_t)integer(words[5]),
        .flags = (uint32_t)integer(words[6]),
        .store = words[1],
        .state = words[2],
        .stage = strcmp(words[3], "-") ? words[3] : NULL,
        .set = strcmp(words[4], "-") ? words[4] : NULL,
    };
    while (*s.next) obey(&s, word(&s));
    packhouse_mapping_release(s.mapping);
    packhouse_set_release(s.set);
    return 0;
}
