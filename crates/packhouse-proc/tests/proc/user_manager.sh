#!/usr/bin/env bash
# Runs a command with a user manager of systemd of its own, in this mount namespace.
#   unshare --mount bash user_manager.sh FOLDER COMMAND [WORD...]
# The manager's home and log lie in FOLDER. What it starts ends with it. Exit: the command's code,
# or 77 where no manager can be had.
set -u
folder=$1
shift
for program in systemctl systemd-run; do command -v "$program" >/dev/null || exit 77; done
manager=/usr/lib/systemd/systemd
[ -x "$manager" ] || manager=/lib/systemd/systemd
[ -x "$manager" ] || exit 77
# Nothing of this reaches the machine's own folders: the manager believes to be on a booted system.
mount --make-rprivate / && mount -t tmpfs tmpfs /run || exit 77
export XDG_RUNTIME_DIR=/run/user/$(id -u)
unset DBUS_SESSION_BUS_ADDRESS
mkdir -p /run/systemd/system "$XDG_RUNTIME_DIR" "$folder/manager"
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
HOME=$folder/manager XDG_CONFIG_HOME=$folder/manager/config XDG_DATA_HOME=$folder/manager/data \
  "$manager" --user --log-target=console >"$folder/manager/log" 2>&1 &
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
"$@"
