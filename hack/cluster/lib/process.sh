# The cluster's own processes. A pid alone proves nothing after a restart of the machine, or
# once pids came round: a record holds the boot and the process's start time too.
# shellcheck shell=bash

boot() { cat /proc/sys/kernel/random/boot_id; }

start_time() { # PID: in ticks since boot; the command's name may hold spaces, so cut it off first
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) }
  # shellcheck disable=SC2086
  set -- $stat
  [ "$1" != Z ] || return 1
  echo "${20}"
}

# spawn NAME NAMESPACE COMMAND...: run in the background, with a log and a record
spawn() {
  local name=$1 namespace=$2; shift 2
  nsenter --net="/run/netns/carillon-$namespace" setsid \
    env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME="$state" LANG=C.UTF-8 \
    "$@" >>"$state/log/$name.log" 2>&1 </dev/null 9>&- &
  echo "$! $(boot) $(start_time $!)" >"$state/process/$name"
  disown
}

# alive NAME: prints the pid if the very process that was recorded still runs
alive() {
  local pid booted started
  { read -r pid booted started <"$state/process/$1"; } 2>/dev/null || return 1
  [ "$booted" = "$(boot)" ] && [ "$(start_time "$pid")" = "$started" ] || return 1
  echo "$pid"
}

# in_namespace NAMESPACE: whatever runs in it, whoever started it: daemons and containers' shims
in_namespace() {
  local process
  [ -e "/run/netns/carillon-$1" ] || return 0
  for process in /proc/[0-9]*; do
    [ ! "$process/ns/net" -ef "/run/netns/carillon-$1" ] || echo "${process#/proc/}"
  done
}

# kill_all LIST-COMMAND...: kill what it prints, again until it prints nothing
kill_all() {
  local pids round
  for round in $(seq 40); do
    pids=$("$@" | sort -un)
    [ -n "$pids" ] || return 0
    # shellcheck disable=SC2086
    kill -9 $pids 2>/dev/null || true
    sleep 0.25
  done
  say "these processes do not die: $(echo "$pids" | tr '\n' ' ')(round $round)"
  return 1
}

recorded() { # GLOB of names
  local file
  # shellcheck disable=SC2231
  for file in "$state"/process/$1; do
    [ ! -f "$file" ] || alive "$(basename "$file")" || true
  done
}

node_processes() { recorded "node$1-*"; in_namespace "node$1"; cgroup_processes "carillon/node$1"; } # N

# every process of the cluster, also if the state folder is gone
cluster_processes() {
  local name
  recorded '*'
  for name in $(namespaces); do in_namespace "$name"; done
  cgroup_processes carillon
}
