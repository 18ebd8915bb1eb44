// logits: greedy decoding against the stock engine's own libllama, every logit accounted for.
//
// For each prompt and step it prints one line to stdout:
//
//     <prompt index> <step> <token id> <SHA-256 of that step's raw f32 logits>
//
// so two runs are equal if and only if their outputs are equal bytes. Backends are loaded the way
// the engine's tools load them, so whatever serves the tools (GGML_BACKEND_PATH) serves here too.
// It never samples, never seeds, and never reads the environment itself.
//
//     logits -m MODEL -p PROMPT [-p PROMPT]... [-n TOKENS] [-t THREADS] [--no-mmap] [--no-repack]
//            [--raw FILE] [--cycles N]
//
// --raw FILE writes the raw f32 logits of all steps, one after another, in host byte order.
// --cycles N loads and frees the model N times before the decoding (or instead of it, without -p).

#include "ggml-backend.h"
#include "llama.h"

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

constexpr uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

uint32_t rotate(uint32_t x, int n) { return (x >> n) | (x << (32 - n)); }

// FIPS 180-4, one 64-byte block.
void compress(std::array<uint32_t, 8> & state, const uint8_t * block) {
    uint32_t w[64];
    for (int i = 0; i < 16; i++) {
        w[i] = uint32_t(block[4*i]) << 24 | uint32_t(block[4*i + 1]) << 16 |
               uint32_t(block[4*i + 2]) << 8 | uint32_t(block[4*i + 3]);
    }
    for (int i = 16; i < 64; i++) {
        const uint32_t s0 = rotate(w[i - 15], 7) ^ rotate(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const uint32_t s1 = rotate(w[i - 2], 17) ^ rotate(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (int i = 0; i < 64; i++) {
        const uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
        const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_constants[i] + w[i];
        const uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
        const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g; g = f; f = e; e = d + t1; d = c; c = b; b = a; a = t1 + t2;
    }
    const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++) { state[i] += sum[i]; }
}

std::string sha256(const uint8_t * bytes, size_t length) {
    std::array<uint32_t, 8> state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    size_t at = 0;
    for (; at + 64 <= length; at += 64) { compress(state, bytes + at); }
    uint8_t tail[128] = {};
    const size_t rest = length - at;
    std::memcpy(tail, bytes + at, rest);
    tail[rest] = 0x80;
    const size_t tail_length = rest < 56 ? 64 : 128;
    for (int i = 0; i < 8; i++) {
        tail[tail_length - 1 - i] = uint8_t(uint64_t(length) * 8 >> 8*i);
    }
    for (size_t i = 0; i < tail_length; i += 64) { compress(state, tail + i); }
    char text[65];
    for (int i = 0; i < 8; i++) { std::snprintf(text + 8*i, 9, "%08x", state[i]); }
    return text;
}

struct options {
    std::string model;
    std::string raw;
    std::vector<std::string> prompts;
    int tokens = 64;
    int threads = 2;
    int cycles = 0;
    bool mmap = true;
    bool repack = true;
};

[[noreturn]] void fail(int status, const std::string & what) {
    std::fprintf(stderr, "error: %s\n", what.c_str());
    std::exit(status);
}

options parse(int argc, char ** argv) {
    options o;
    for (int i = 1; i < argc; i++) {
        const std::string flag = argv[i];
        if (flag == "--no-mmap")   { o.mmap = false;   continue; }
        if (flag == "--no-repack") { o.repack = false; continue; }
        if (i + 1 == argc) { fail(2, "unknown option, or no value for it: " + flag); }
        const char * value = argv[++i];
        if      (flag == "-m")       { o.model = value; }
        else if (flag == "-p")       { o.prompts.push_back(value); }
        else if (flag == "-n")       { o.tokens = std::atoi(value); }
        else if (flag == "-t")       { o.threads = std::atoi(value); }
        else if (flag == "--raw")    { o.raw = value; }
        else if (flag == "--cycles") { o.cycles = std::atoi(value); }
        else { fail(2, "unknown option: " + flag); }
    }
    if (o.model.empty()) { fail(2, "no model: give -m MODEL"); }
    return o;
}

llama_model * load(const options & o) {
    llama_model_params params = llama_model_default_params();
    params.load_mode       = o.mmap ? LLAMA_LOAD_MODE_AUTO : LLAMA_LOAD_MODE_NONE;
    params.use_extra_bufts = o.repack;
    llama_model * model = llama_model_load_from_file(o.model.c_str(), params);
    if (model == nullptr) { fail(3, "the engine could not load " + o.model); }
    return model;
}

// The lowest token id wins a tie, so the choice is a function of the logits alone.
llama_token greedy(const float * logits, int count) {
    int best = 0;
    for (int i = 1; i < count; i++) {
        if (logits[i] > logits[best]) { best = i; }
    }
    return best;
}

void decode(const options & o, llama_context * ctx, const llama_vocab * vocab, size_t prompt,
        FILE * raw) {
    const std::string & text = o.prompts[prompt];
    std::vector<llama_token> tokens(text.size() + 8);
    const int count = llama_tokenize(vocab, text.data(), int(text.size()), tokens.data(),
                                     int(tokens.size()), true, true);
    if (count <= 0) { fail(3, "the engine could not tokenize prompt " + std::to_string(prompt)); }
    const int vocabulary = llama_vocab_n_tokens(vocab);
    const size_t bytes = sizeof(float) * size_t(vocabulary);
    llama_memory_clear(llama_get_memory(ctx), true);
    llama_batch batch = llama_batch_get_one(tokens.data(), count);
    llama_token next = 0;
    for (int step = 0; step < o.tokens; step++) {
        if (llama_decode(ctx, batch) != 0) {
            fail(3, "llama_decode failed at step " + std::to_string(step));
        }
        const float * logits = llama_get_logits_ith(ctx, -1);
        next = greedy(logits, vocabulary);
        const std::string digest = sha256(reinterpret_cast<const uint8_t *>(logits), bytes);
        std::printf("%zu %d %d %s\n", prompt, step, next, digest.c_str());
        if (raw != nullptr && std::fwrite(logits, 1, bytes, raw) != bytes) {
            fail(3, "short write to " + o.raw);
        }
        batch = llama_batch_get_one(&next, 1);
    }
}

} // namespace

int main(int argc, char ** argv) {
    const options o = parse(argc, argv);
    ggml_backend_load_all();
    llama_backend_init();
    for (int i = 0; i < o.cycles; i++) { llama_model_free(load(o)); }
    if (o.prompts.empty()) { return 0; }
    FILE * raw = o.raw.empty() ? nullptr : std::fopen(o.raw.c_str(), "wb");
    if (!o.raw.empty() && raw == nullptr) { fail(3, "cannot create " + o.raw); }
    llama_model * model = load(o);
    llama_context_params params = llama_context_default_params();
    params.n_ctx = 512;
    params.n_batch = 512;
    params.n_threads = o.threads;
    params.n_threads_batch = o.threads;
    llama_context * ctx = llama_init_from_model(model, params);
    if (ctx == nullptr) { fail(3, "the engine could not make a context"); }
    for (size_t i = 0; i < o.prompts.size(); i++) {
        decode(o, ctx, llama_model_get_vocab(model), i, raw);
    }
    if (raw != nullptr && std::fclose(raw) != 0) { fail(3, "short write to " + o.raw); }
    llama_free(ctx);
    llama_model_free(model);
    llama_backend_free();
    return 0;
}
