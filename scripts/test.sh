#!/usr/bin/env bash
# Every rule and every test of this repository, engine tests included: the whole of CI's rules.
#   scripts/test.sh            everything, at most an hour on two cores with nothing cached
#   scripts/test.sh STAGE...   only these stages, e.g. `scripts/test.sh fmt tidy`
# Needs cargo, a C/C++ compiler, python3 with venv, npm and chromium. Installs cargo-nextest into
# target/tools when it is missing, and chromium by apt where it may; scripts/engine.sh puts the
# engine and the models under target/. Logs and pictures of pages lie in target/test-logs. Prints a
# time table and `N passed, N failed, N skipped` at the end.
# Exit: 0 all passed, 1 something failed, 2 no such stage.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 3
logs=$PWD/target/test-logs
mkdir -p "$logs"
export PATH="$PWD/target/tools/bin:$PATH"
export CARGO_TERM_COLOR=never
export PACKHOUSE_ENGINES=${PACKHOUSE_ENGINES:-$PWD/target/engines}
export PACKHOUSE_MODELS=${PACKHOUSE_MODELS:-$PWD/target/models}
nextest_version=0.9.151
# What tests may use and libraries may not.
bans=(clippy::disallowed_methods clippy::disallowed_types clippy::disallowed_macros
  clippy::unwrap_used)

# The engine comes before the unit tests because its tools bring the cmake that one of them wants.
all=(tools fmt clippy clippy-tests ban-canary tidy build lab engine unit-tests doc-tests mutants
  asan capi fuzz release engine-tests)

stage_tools() {
  isa_of_cpu
  browser
  cargo nextest --version 2>/dev/null && return
  echo "installing cargo-nextest $nextest_version into target/tools"
  # Built for a short build: the runner's own speed is not what takes time here.
  CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off \
    CARGO_TARGET_DIR=$PWD/target/tools/build \
    cargo install cargo-nextest --version "$nextest_version" --locked --quiet \
    --no-default-features --features default-no-update --root target/tools &&
    rm -rf target/tools/build && cargo nextest --version
}

# The browser that looks at the pages; without one their tests are skipped, which fails under CI.
browser() {
  if ! command -v chromium chromium-browser google-chrome >/dev/null && [ "$(id -u)" = 0 ] &&
    command -v apt-get >/dev/null; then
    echo 'installing chromium'
    local patient=(-qq -o Acquire::Retries=5 -o DPkg::Lock::Timeout=300)
    { apt-get update "${patient[@]}" && DEBIAN_FRONTEND=noninteractive \
      apt-get install -y "${patient[@]}" --no-install-recommends chromium fonts-dejavu-core
    } >/dev/null
  fi
  command -v chromium chromium-browser google-chrome || echo 'no browser'
}

isa_of_cpu() {
  local flags
  flags=$(grep -m1 -E '^(flags|Features)' /proc/cpuinfo | cut -d: -f2)
  printf 'isa levels of this cpu:'
  for level in sse4_2 avx avx2 fma f16c bmi2 avx_vnni avx512f avx512bw avx512_vbmi avx512vbmi \
    avx512_vnni avx512_bf16 amx_int8 asimddp i8mm sve; do
    case " $flags " in *" $level "*) printf ' %s' "$level" ;; esac
  done
  echo
}

stage_fmt() { cargo fmt --all --check -- --color never; }

# Libraries and binaries: with the bans of clippy.toml.
stage_clippy() { cargo clippy --locked --workspace --keep-going --quiet -- -D warnings; }

# Every target: without the bans, which tests need not obey.
stage_clippy_tests() {
  cargo clippy --locked --workspace --all-targets --keep-going --quiet -- -D warnings \
    "${bans[@]/#/-A}"
}

# A crate that breaks each kind of ban once must fail, or clippy.toml is not read.
stage_ban_canary() {
  local said
  if said=$(CLIPPY_CONF_DIR=$PWD CARGO_TARGET_DIR=target/ban-canary \
    cargo clippy --quiet --manifest-path xtask/ban-canary/Cargo.toml 2>&1); then
    echo 'error: the ban canary passed clippy'
    return 1
  fi
  local lint count=0
  for lint in 'disallowed method `std::fs::read`' 'disallowed method `std::time::Instant::now`' \
    'disallowed method `std::env::var`' 'disallowed method `std::process::exit`' \
    'disallowed method `usize::to_le_bytes`' 'disallowed macro `std::println`' \
    'disallowed type `std::collections::HashMap`'; do
    case $said in
      *"$lint"*) count=$((count + 1)) ;;
      *) printf 'error: the ban canary was not refused for %s\n%s\n' "$lint" "$said"; return 1 ;;
    esac
  done
  echo "$count bans fire"
}

stage_tidy() { cargo xtask tidy; }

# The plug-in is found beside the binary, so the CLI's tests want both.
stage_build() { cargo build --locked --quiet -p packhouse -p packhouse-ggml; }

# The repository is a lab: its ledger only grows, its kept pages are what the ledger gives, and its
# evidence stands. What this user saw of ledgers elsewhere is nothing to it.
stage_lab() {
  local state status
  bash scripts/ledger.sh --all || return 1
  if [ ! -e ledger.jsonl ]; then
    echo 'no ledger.jsonl: the repository is no lab'
    return 0
  fi
  state=$(mktemp -d) || return 1
  XDG_STATE_HOME=$state target/debug/packhouse lab state --check &&
    XDG_STATE_HOME=$state target/debug/packhouse lab ledger verify
  status=$?
  rm -rf "$state"
  return "$status"
}

nextest() {
  cargo nextest run --locked --no-fail-fast --status-level retry --final-status-level flaky \
    --success-output final --failure-output immediate-final --no-tests=fail "$@"
}

stage_unit_tests() { nextest; }

stage_doc_tests() { cargo test --locked --quiet --doc; }

# A part of the list, another one for each commit: all of them take hours.
stage_mutants() { cargo xtask mutants --some 12; }

stage_asan() { bash scripts/asan.sh; }

stage_capi() { bash scripts/capi.sh; }

stage_fuzz() { sh fuzz/run.sh 36; }

stage_engine() { bash scripts/engine.sh && isa_of_engine; }

isa_of_engine() {
  local stamp
  for stamp in "$PACKHOUSE_ENGINES"/*/ready; do
    printf 'isa flags of %s: %s\n' "$(basename "$(dirname "$stamp")")" \
      "$(grep -oE 'GGML_[A-Z0-9_]+=ON' "$stamp" | tr '\n' ' ')"
  done
}

stage_release() { cargo build --locked --quiet --release -p packhouse -p packhouse-ggml; }

stage_engine_tests() { nextest -p engine-tests; }

passed=0 failed=0 skipped=0
table=

# Counts a log's tests; a stage without tests counts as one. Sets `skips` of the caller.
count() { # LOG STATUS
  local summary stage_passed stage_failed
  summary=$(grep -m1 -aE '^ *Summary \[' "$1")
  stage_passed=$(grep -oE '[0-9]+ passed' <<<"$summary" | grep -oE '[0-9]+')
  stage_failed=$(grep -oE '[0-9]+ (failed|timed out|exec failed)' <<<"$summary" |
    awk '{ sum += $1 } END { print sum + 0 }')
  skips=$(grep -acE '^ *SKIP: ' "$1")
  skips=$((skips + $(grep -oE '[0-9]+ skipped' <<<"$summary" | grep -oE '[0-9]+' || echo 0)))
  if [ -z "$summary" ] && [ "$2" = 0 ]; then stage_passed=1; fi
  if [ "$2" != 0 ] && [ "$stage_failed" = 0 ]; then stage_failed=1; fi
  passed=$((passed + ${stage_passed:-0}))
  failed=$((failed + stage_failed))
  skipped=$((skipped + skips))
}

run_stage() {
  local name=$1 log=$logs/$1.log start=$SECONDS status skips
  printf '== %s\n' "$name"
  "stage_${name//-/_}" >"$log" 2>&1 </dev/null
  status=$?
  count "$log" "$status"
  if [ "$status" != 0 ]; then
    tail -n 200 "$log"
    printf 'failed: %s (whole log: target/test-logs/%s.log)\n' "$name" "$name"
  else
    grep -aE '^(isa |cargo-nextest |tidy: |mutants: |[0-9]+ bans|engine: | *Summary \[)' "$log"
  fi
  grep -aE '^ *NOT EXERCISED: ' "$log" | sort -u
  # What passed only when asked again is told, each time, by name.
  grep -aE '^ *FLAKY ' "$log" | sed -E 's/^ *FLAKY .*\) /    ASKED AGAIN: /' | sort -u
  if [ "$skips" != 0 ]; then
    grep -aE '^ *SKIP: ' "$log"
    if [ "${CI:-}" = true ]; then
      echo "failed: $skips skipped in $name, and CI=true allows no skip"
      failed=$((failed + 1)) status=1
    fi
  fi
  table+=$(printf '%-14s %6d s  %s' "$name" "$((SECONDS - start))" \
    "$([ "$status" = 0 ] && echo ok || echo FAILED)")$'\n'
  return "$status"
}

stages=("$@")
[ $# = 0 ] && stages=("${all[@]}")
for name in "${stages[@]}"; do
  case " ${all[*]} " in *" $name "*) ;; *) echo "error: no such stage: $name" >&2; exit 2 ;; esac
done
for name in "${stages[@]}"; do
  run_stage "$name"
done

printf '\n%-14s %8s  %s\n' stage time result
printf '%s' "$table"
printf '%-14s %6d s\n\n' total "$SECONDS"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
