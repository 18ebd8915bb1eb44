#!/usr/bin/env bash
# Where pointers are raw, with everything instrumented by AddressSanitizer: the kernels that pack
# and hash, then the plug-in, the mock ggml and the host program. Canaries are among them: a read
# of freed memory in the host, one of the host's freed memory from inside the plug-in, and a leak
# must all be reported.
#   scripts/asan.sh [WORD...]     words for the test runner, as in `scripts/asan.sh entries`
# Needs gcc with its libasan. Builds into target/asan. One to three minutes on two cores.
# Exit: 0 all passed; else something failed or a canary went unnoticed.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-gnu
[ "$(uname -m)" = x86_64 ] || target=$(uname -m)-unknown-linux-gnu
export CARGO_TERM_COLOR=never

# A read past a source's end shows here; writes beside a target show in the tests themselves.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
  cargo test --locked --quiet -p packhouse-hash -p packhouse-pack --target "$target" \
  --target-dir target/asan

# The pinned compiler has the sanitizer behind a switch for its own developers. rustc links the
# sanitizer's runtime into programs only, so the plug-in uses that of the host program, which is
# gcc's: both speak version 8 of the interface, and a mismatch fails the plug-in's loading.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
  cargo build --locked --quiet -p packhouse-ggml --target "$target" --target-dir target/asan
export PACKHOUSE_TEST_PLUGIN=$PWD/target/asan/$target/debug/libpackhouse_ggml.so
export PACKHOUSE_TEST_CFLAGS='-fsanitize=address -fno-omit-frame-pointer'
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1
export PACKHOUSE_TEST_ASAN=1

cargo test --locked --quiet -p packhouse-ggml --test ggml -- "$@"
