#!/bin/sh
# Fuzzes the parsers of foreign bytes: fuzz/run.sh [SECONDS], 60 by default. Works with the pinned
# stable compiler (coverage is a code generation option) and a C++ compiler for the fuzzer's
# runtime; builds into target/fuzz, keeps the corpus in target/fuzz/corpus and crashing inputs in
# target/fuzz/crashes.
set -eu
cd "$(dirname "$0")/.."
seconds=${1:-60}
out=target/fuzz
export CARGO_TARGET_DIR="$PWD/$out"
coverage="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4
  -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table
  -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1 --cfg fuzzing
  -Cdebug-assertions=on -Coverflow-checks=on"
host=$(rustc -vV | sed -n 's/^host: //p')
# With a target named, build scripts and macros are built without the coverage options.
RUSTFLAGS=$(echo $coverage) cargo build --locked --release --manifest-path fuzz/Cargo.toml \
  --target "$host" --bin gguf --bin gguf_canary

mkdir -p "$out/crashes" "$out/corpus/gguf"
# No input above 64 KiB, no process above 256 MiB, no single input above 5 s.
limits="-max_len=65536 -rss_limit_mb=256 -timeout=5 -artifact_prefix=$out/crashes/
  -print_final_stats=1 -use_value_profile=1"

echo "canary: a wrong second parser must be found"
rm -rf "$out/canary" && mkdir "$out/canary"
if "$out/$host/release/gguf_canary" $limits -max_total_time=120 -seed=1 \
  -artifact_prefix="$out/canary/" "$out/canary" fuzz/seeds/gguf > "$out/canary.log" 2>&1; then
  echo "error: the fuzz job did not find its canary" >&2
  exit 1
fi
grep -q 'assertion failed: oracle::compare' "$out/canary.log" || {
  echo "error: the canary failed for another reason; see $out/canary.log" >&2
  exit 1
}

echo "gguf: $seconds s"
"$out/$host/release/gguf" $limits -max_total_time="$seconds" "$out/corpus/gguf" fuzz/seeds/gguf
