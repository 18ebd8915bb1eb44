#!/usr/bin/env bash
# A user manager of systemd in this mount namespace, to start UNIT with the words given, and then
# FILE, a unit in FOLDER. Both run FOLDER/keeper, which says in keeper.said how it was called.
#   unshare --mount bash user_manager.sh FOLDER UNIT FILE WORD...
# Moves what was said to keeper.run and keeper.file. Prints what the manager says of UNIT while it
# runs, and after it was stopped. Everything that it starts ends with it. Exit: 0, or 77 where no
# manager can be had, or what failed.
set -u
folder=$1 unit=$2 file=$3
shift 3
for program in systemctl systemd-run; do command -v "$program" >/dev/null || exit 77; done
manager=/usr/lib/systemd/systemd
[ -x "$manager" ] || manager=/lib/systemd/systemd
[ -x "$manager" ] || exit 77
# Nothing of this reaches the machine's own folders: the manager believes to be on a booted system.
mount --make-rprivate / && mount -t tmpfs tmpfs /run || exit 77
export XDG_RUNTIME_DIR=/run/user/$(id -u) HOME=$folder/home
export XDG_CONFIG_HOME=$HOME/.config XDG_DATA_HOME=$HOME/.local/share
unset DBUS_SESSION_BUS_ADDRESS
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" "$HOME"
chmod 700 "$XDG_RUNTIME_DIR"
# The manager's control groups lie below one of this script's own.
group=
for root in /sys/fs/cgroup/unified /sys/fs/cgroup; do
  if [ -f "$root/cgroup.procs" ] && mkdir "$root/packhouse-test-$$" 2>/dev/null; then
    group=$root/packhouse-test-$$
    break
  fi
done
[ -n "$group" ] || exit 77
echo $$ >"$group/cgroup.procs" || exit 77
"$manager" --user --log-target=console >"$folder/manager.log" 2>&1 &
pid=$!
finish() {
  kill "$pid" 2>/dev/null
  wait "$pid" 2>/dev/null
  echo $$ >"$(dirname "$group")/cgroup.procs"
  # A group can be removed once its last process is gone.
  for _ in $(seq 100); do
    find "$group" -depth -type d -exec rmdir {} + 2>/dev/null
    [ -d "$group" ] || break
    sleep 0.02
  done
}
trap finish EXIT
for _ in $(seq 200); do
  systemctl --user show --property=Version >/dev/null 2>&1 && break
  kill -0 "$pid" 2>/dev/null || exit 77
  sleep 0.02
done
systemctl --user show --property=Version >/dev/null || exit 77
wait_for_keeper() { # NAME
  for _ in $(seq 200); do
    [ -f "$folder/keeper.said" ] && break
    sleep 0.02
  done
  mv "$folder/keeper.said" "$folder/$1"
}
systemd-run "$@" || exit 1
wait_for_keeper keeper.run
systemctl --user show --property=ActiveState,SubState -- "$unit"
systemctl --user stop -- "$unit"
echo stopped
systemctl --user show --property=LoadState -- "$unit"
systemctl --user --quiet link --runtime -- "$folder/$file" || exit 1
systemctl --user start -- "$file" || exit 1
wait_for_keeper keeper.file
systemctl --user stop -- "$file"
