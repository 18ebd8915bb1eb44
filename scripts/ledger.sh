#!/usr/bin/env bash
# The ledger of a lab in Git only grows: that of an earlier commit must be a byte prefix of the one
# in the work tree.
#   scripts/ledger.sh BASE [FILE]   BASE: a commit of FILE's own repository; FILE: a lab's ledger
#                                   [default: that of this repository]
#   scripts/ledger.sh --all [FILE]  of HEAD and its parents, which a shallow clone fetches
# A commit that has no such file demands nothing; one whose file is gone now is a refusal.
# Exit: 0 it continues, or there was none; 1 truncated, rewritten or forked; 2 usage; 3 no such
# commit, or git failed.
set -uo pipefail
if [ $# -lt 1 ] || [ $# -gt 2 ] || { [ "${1#-}" != "$1" ] && [ "$1" != --all ]; }; then
  echo 'usage: scripts/ledger.sh BASE|--all [FILE]' >&2
  exit 2
fi
base=$1
here=$(cd -- "$(dirname -- "$0")" && pwd)/$(basename -- "$0")
path=${2:-$(dirname -- "$0")/../ledger.jsonl}
file=$(basename -- "$path")
cd -- "$(dirname -- "$path")" || exit 3
if [ "$base" = --all ]; then
  head=$(git rev-parse --verify --quiet 'HEAD^{commit}') || {
    echo 'error: no commit to continue from: is this a Git repository?' >&2
    exit 3
  }
  # What a commit says of its parents; whether they are here is another question.
  parents=$(git cat-file commit "$head" | sed -n '/^$/q; s/^parent //p')
  for parent in $parents; do
    git cat-file -e "$parent" 2>/dev/null || git fetch --quiet --deepen 1 2>/dev/null
  done
  for commit in $head $parents; do
    git cat-file -e "$commit" 2>/dev/null || {
      printf 'NOT EXERCISED: the ledger of %s: a shallow clone, and it cannot be fetched\n' \
        "${commit:0:12}"
      continue
    }
    bash "$here" "$commit" "./$file" || exit
  done
  exit 0
fi
commit=$(git rev-parse --verify --quiet "$base^{commit}") || {
  printf 'error: no such commit: %s\n' "$base" >&2
  exit 3
}
# `ls-tree` says whether the file was there without failing: a failure is never "not there".
entry=$(git ls-tree "$commit" -- "./$file") || exit 3
if [ -z "$entry" ]; then
  printf '%s: not in commit %s: nothing to continue\n' "$file" "${commit:0:12}"
  exit 0
fi
case $entry in
  "100644 blob "* | "100755 blob "*) ;;
  *)
    printf 'error: no file in commit %s: %s\n' "${commit:0:12}" "$file" >&2
    exit 1
    ;;
esac
earlier=$(mktemp) || exit 3
trap 'rm -f "$earlier"' EXIT
git show "$commit:./$file" >"$earlier" || exit 3
if [ ! -f "$file" ] || [ -L "$file" ]; then
  printf 'error: the ledger of commit %s is gone: %s\n' "${commit:0:12}" "$file" >&2
  exit 1
fi
# What follows the last newline was never reported, and a writer may have cut it off since.
end='import sys; print(open(sys.argv[1], "rb").read().rfind(b"\n") + 1)'
bytes=$(python3 -c "$end" "$earlier") || exit 3
now=$(stat -c %s "$file") || exit 3
if [ "$now" -lt "$bytes" ]; then
  printf 'error: truncated since commit %s: %s has %s bytes, and had %s\n' \
    "${commit:0:12}" "$file" "$now" "$bytes" >&2
  exit 1
fi
if ! cmp -s -n "$bytes" "$earlier" "$file"; then
  line=$(cmp -n "$bytes" "$earlier" "$file" | sed -n 's/.* line \([0-9]*\)$/\1/p')
  printf 'error: rewritten or forked since commit %s: %s differs from entry %s on\n' \
    "${commit:0:12}" "$file" "$((${line:-1} - 1))" >&2
  exit 1
fi
printf '%s continues that of commit %s: %s bytes of %s\n' \
  "$file" "${commit:0:12}" "$bytes" "$now"
