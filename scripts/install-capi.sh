#!/usr/bin/env bash
# Lays the C library out for engines: include/packhouse.h, lib/libpackhouse.{so,a}, and the files by
# which pkg-config and CMake find them. The prefix may be moved afterwards.
#   scripts/install-capi.sh --prefix DIR [--profile NAME | --from DIR]
#   --prefix DIR     where to; made when it is not there
#   --profile NAME   cargo profile to build with; release when not given
#   --from DIR       takes libpackhouse.so and libpackhouse.a from there and builds nothing
# A relative CARGO_TARGET_DIR is taken from the current folder. Needs readelf, which comes with gcc.
# Exit: 0 done, 2 usage, 3 something failed.
set -Eeuo pipefail
trap 'exit 3' ERR
here=$(cd "$(dirname "$0")/.." && pwd)
crate=$here/crates/packhouse-capi
usage() { sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2; exit 2; }

prefix= profile=release from=
while [ $# -gt 0 ]; do
  [ $# -ge 2 ] || usage
  case $1 in
    --prefix) prefix=$2 ;;
    --profile) profile=$2 ;;
    --from) from=$2 ;;
    *) usage ;;
  esac
  shift 2
done
[ -n "$prefix" ] || usage

version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"$/\1/p' "$here/Cargo.toml")
abi=$(sed -n 's/^#define PACKHOUSE_ABI_VERSION \([0-9]*\)u$/\1/p' "$crate/include/packhouse.h")
[ -n "$version" ] && [ -n "$abi" ] || { echo "error: no version found in $here" >&2; exit 3; }

if [ -z "$from" ]; then
  target=${CARGO_TARGET_DIR:-$here/target}
  case $target in /*) ;; *) target=$PWD/$target ;; esac
  (cd "$here" && cargo build --locked --quiet -p packhouse-capi --lib --profile "$profile" \
    --target-dir "$target") || exit 3
  from=$target/$([ "$profile" = dev ] && echo debug || echo "$profile")
fi
for file in libpackhouse.so libpackhouse.a; do
  [ -f "$from/$file" ] || { echo "error: not there: $from/$file" >&2; exit 3; }
done
# Programs ask for the library by the name that it bears, so it must be the interface's.
name=$(readelf -d "$from/libpackhouse.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
if [ "$name" != "libpackhouse.so.$abi" ]; then
  echo "error: $from/libpackhouse.so is called ${name:-nothing}, expected libpackhouse.so.$abi" >&2
  exit 3
fi

lib=$prefix/lib
mkdir -p "$prefix/include" "$lib/pkgconfig" "$lib/cmake/Packhouse"
install -m 644 "$crate/include/packhouse.h" "$prefix/include/packhouse.h"
install -m 755 "$from/libpackhouse.so" "$lib/libpackhouse.so.$version"
install -m 644 "$from/libpackhouse.a" "$lib/libpackhouse.a"
ln -sfn "libpackhouse.so.$version" "$lib/libpackhouse.so.$abi"
ln -sfn "libpackhouse.so.$abi" "$lib/libpackhouse.so"
fill() { sed "s/@VERSION@/$version/g" "$crate/package/$1"; }
fill packhouse.pc.in >"$lib/pkgconfig/packhouse.pc"
fill PackhouseConfigVersion.cmake.in >"$lib/cmake/Packhouse/PackhouseConfigVersion.cmake"
install -m 644 "$crate/package/PackhouseConfig.cmake" "$lib/cmake/Packhouse/PackhouseConfig.cmake"
echo "packhouse $version, interface $abi: $prefix"
