#!/usr/bin/env bash
# The C library with everything instrumented: AddressSanitizer in the library, AddressSanitizer and
# UndefinedBehaviorSanitizer in the C programs that use it: the example, eight threads, and every
# refusal. Canaries are among them: a set used after its release, a payload read after its release,
# and a leaked set must all be reported. Then the library is installed as for engines, and must
# bear the name that programs ask for.
#   scripts/capi.sh [WORD...]     words for the test runner, as in `scripts/capi.sh programs`
# Needs gcc with its libasan and libubsan. Builds into target/asan. Two minutes on two cores.
# Exit: 0 all passed; else something failed or a canary went unnoticed.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-gnu
[ "$(uname -m)" = x86_64 ] || target=$(uname -m)-unknown-linux-gnu
export CARGO_TERM_COLOR=never

# As in scripts/asan.sh: rustc links the sanitizer's runtime into programs only, so the library uses
# that of the C program, which is gcc's.
RUSTC_BOOTSTRAP=1 RUSTFLAGS=-Zsanitizer=address \
  cargo build --locked --quiet -p packhouse-capi --target "$target" --target-dir target/asan
export PACKHOUSE_TEST_LIBRARY=$PWD/target/asan/$target/debug
export PACKHOUSE_TEST_CFLAGS='-fsanitize=address,undefined -fno-sanitize-recover=all'
PACKHOUSE_TEST_CFLAGS+=' -fno-omit-frame-pointer'
export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99:detect_stack_use_after_return=1
export UBSAN_OPTIONS=print_stacktrace=1
export PACKHOUSE_TEST_ASAN=1
cargo test --locked --quiet -p packhouse-capi --test capi -- "$@"

unset PACKHOUSE_TEST_LIBRARY PACKHOUSE_TEST_CFLAGS PACKHOUSE_TEST_ASAN
prefix=$(mktemp -d)
trap 'rm -rf "$prefix"' EXIT
scripts/install-capi.sh --prefix "$prefix" --profile dev
name=$(readelf -d "$prefix/lib/libpackhouse.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
if [ ! -L "$prefix/lib/$name" ] || [ "$name" = libpackhouse.so ]; then
  echo "error: the library is called ${name:-nothing}, and no such link is in $prefix/lib"
  exit 1
fi
gcc -std=c11 crates/packhouse-capi/examples/dot.c -o "$prefix/dot" -I "$prefix/include" \
  -L "$prefix/lib" -lpackhouse -lm
if ! readelf -d "$prefix/dot" | grep -q "NEEDED.*\[$name\]"; then
  echo "error: a program linked with -lpackhouse does not ask for $name"
  exit 1
fi
# Without arguments it says how it is used, which needs the library to be found and loaded.
if LD_LIBRARY_PATH=$prefix/lib "$prefix/dot" 2>/dev/null; then
  echo 'error: the example took no arguments for some'
  exit 1
elif [ $? != 2 ]; then
  echo 'error: the installed library can not be loaded'
  exit 1
fi
