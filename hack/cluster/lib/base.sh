# What every other part uses: messages, whose files these are, bounded waits.
# shellcheck shell=bash disable=SC2034 # the variables are read by the other files

state=/var/lib/carillon-cluster          # root's, mode 0700; see state.sh
lock=/run/lock/carillon-cluster.lock
maker="carillon local cluster"           # written wherever something of ours needs a mark

say() { printf 'cluster: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

# The user is who called, also under sudo: programs are built as them and into their cache.
user_id=$(id -u) user_home=$HOME
if [ "$user_id" = 0 ] && [ "${SUDO_UID:-0}" != 0 ]; then
  user_id=$SUDO_UID
  user_home=$(getent passwd "$user_id" | cut -d: -f6)
  [ -n "$user_home" ] || die "user $user_id, who called sudo, has no home folder; set CARILLON_CACHE and call as root"
fi
if [ -z "${CARILLON_CACHE:-}" ]; then
  # sudo may keep XDG_CACHE_HOME or not; what it keeps belongs to the user.
  CARILLON_CACHE=${XDG_CACHE_HOME:-$user_home/.cache}/carillon
fi
cache=$CARILLON_CACHE/cluster
user_kubeconfig=$cache/kubeconfig

# as_user COMMAND...: without root's rights even if root runs this script for a user
as_user() {
  if [ "$(id -u)" = "$user_id" ]; then "$@"; return; fi
  setpriv --reuid="$user_id" --regid="$(id -g "$user_id")" --init-groups \
    env -u SUDO_UID -u SUDO_USER -u SUDO_GID HOME="$user_home" USER="$(id -un "$user_id")" "$@"
}

# Names that sudo must carry over; it drops most of the environment.
settings_from_caller=(CARILLON_CACHE CLUSTER_NODES NODE_MEMORY NODE_CPU CLUSTER_NODE_NET CLUSTER_POD_NET CLUSTER_SERVICE_NET CI)

# need_root WHY COMMAND ARGUMENTS...: call this script again through sudo, unless it is root
need_root() {
  local why=$1 name carried=(); shift
  [ "$(id -u)" = 0 ] && return
  command -v sudo >/dev/null || die "$1 needs root ($why) and there is no sudo: call it as root, with CARILLON_CACHE=$CARILLON_CACHE"
  for name in "${settings_from_caller[@]}"; do
    [ -z "${!name:-}" ] || carried+=("$name=${!name}")
  done
  say "root is needed: $why"
  exec sudo env "${carried[@]}" "$here/cluster" "$@"
}

# take_lock: one call at a time changes the cluster. Its daemons must not inherit the descriptor.
take_lock() {
  mkdir -p "${lock%/*}"
  exec 9>"$lock"
  flock -n 9 && return
  say "waiting for another call of this script to end"
  flock -w 300 9 || die "another call of this script has held $lock for five minutes; is it stuck?"
}

# wait_for SECONDS WHAT LOG COMMAND...: until COMMAND succeeds; else say so with the end of LOG (may be "")
wait_for() {
  local limit=$1 what=$2 log=$3 start=$SECONDS; shift 3
  until "$@" >/dev/null 2>&1; do
    if [ $((SECONDS - start)) -ge "$limit" ]; then
      say "$what is not ready after $limit s"
      show_log "$log"
      return 1
    fi
    sleep 0.3
  done
}

show_log() { # NAME
  local file=$state/log/$1.log
  [ -n "$1" ] || return 0
  [ -s "$file" ] || { say "$file is empty"; return; }
  say "the last lines of $file:"
  tail -n 15 "$file" | cut -c1-400 | sed 's/^/    /' >&2
}

# interactive: is there somebody to ask?
interactive() { [ "${CI:-}" != true ] && [ -t 0 ] && [ -t 2 ]; }
