#!/bin/sh
# Fuzzes the parsers of foreign bytes: fuzz/run.sh [SECONDS], 60 by default, shared by the parsers.
# Works with the pinned stable compiler (coverage is a code generation option) and a C++ compiler
# for the fuzzer's runtime; builds into target/fuzz, keeps the corpus in target/fuzz/corpus and
# crashing inputs in target/fuzz/crashes.
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
  --target "$host" --bins

# Each parser: target and canary, seeds, and what the canary must die of.
targets="gguf plan bundle xe2_manifest image fleet sources records component bag ledger prereg"
died_of() {
  case $1 in
    gguf) echo 'assertion failed: oracle::compare' ;;
    plan) echo 'round trip: another plan' ;;
    bundle) echo 'readers disagree' ;;
    xe2_manifest) echo 'round trip: another set' ;;
    image | fleet | sources | records | component) echo 'readers disagree' ;;
    bag | ledger | prereg) echo 'readers disagree' ;;
  esac
}

# No input above 64 KiB, no process above 256 MiB, no single input above 5 s.
limits="-max_len=65536 -rss_limit_mb=256 -timeout=5 -artifact_prefix=$out/crashes/
  -print_final_stats=1 -use_value_profile=1"

# The fuzzer judges an input's time by the clock on the wall, and a machine that stood still makes
# any input slow. One that is told to be slow is run again alone, for as much processor time; any
# other end of the fuzzer is what it says.
is_wrong() { # PROGRAM FOLDER
  for input in "$2"/timeout-*; do
    [ -e "$input" ] || return 0
    (ulimit -t 5 && "$1" -rss_limit_mb=256 -timeout=600 "$input") || return 0
    echo "$input: in time by processor time"
    rm "$input"
  done
  return 1
}

# Fuzzes again where the fuzzer was ended by an input that is not slow.
fuzz() { # PROGRAM FOLDER WORD...
  program=$1 folder=$2
  shift 2
  rm -f "$folder"/timeout-*
  for attempt in 1 2 3; do
    "$program" "$@" && return 0
    is_wrong "$program" "$folder" && return 1
  done
  echo "error: the machine stood still in each of $attempt attempts" >&2
  return 1
}

for target in $targets; do
  echo "$target: its canary must be found"
  rm -rf "$out/canary" && mkdir "$out/canary"
  # A bound for canaries that are not found: the others take seconds.
  if fuzz "$out/$host/release/${target}_canary" "$out/canary" $limits -max_total_time=600 -seed=1 \
    -artifact_prefix="$out/canary/" "$out/canary" "fuzz/seeds/$target" > "$out/canary.log" 2>&1
  then
    echo "error: the fuzz job did not find the canary of $target" >&2
    exit 1
  fi
  grep -q "$(died_of "$target")" "$out/canary.log" || {
    echo "error: the canary of $target failed for another reason; see $out/canary.log" >&2
    exit 1
  }
done

for target in $targets; do
  mkdir -p "$out/crashes" "$out/corpus/$target"
  each=$((seconds / $(echo $targets | wc -w)))
  echo "$target: $each s"
  fuzz "$out/$host/release/$target" "$out/crashes" $limits -max_total_time="$each" \
    "$out/corpus/$target" "fuzz/seeds/$target"
done
