# shellcheck shell=bash
# Servers to measure, for the scripts that source this: carillon and nats-server, alone or as a
# cluster of three, all in one folder that goes with them. Needs top and NATS_SERVER.
carillon=${CARILLON:-$top/bin/carillon}
: "${NATS_SERVER:?give the path of nats-server, or use the make target}"
me=bench-$(basename "$0")
pids=()

# in_folder: make the folder, and see to it that it and the servers go when the script ends
in_folder() {
  mkdir -p "${BENCH_DIR:=$top/bin}"
  dir=$(mktemp -d "$BENCH_DIR/$me.XXXXXX")
  trap finish EXIT
  trap 'exit 130' INT TERM
  if [ "$(stat -f -c %T "$dir" 2>/dev/null)" = tmpfs ]; then
    echo "$me: $BENCH_DIR is in memory, where a sync costs nothing: set BENCH_DIR to a folder on a disk" >&2
    exit 1
  fi
}

finish() {
  touch "$dir/ending"
  for pid in "${pids[@]}" $(cat "$dir"/*/*/pid 2>/dev/null); do
    # One that is paused can't end.
    kill -CONT "$pid" 2>/dev/null || true
    kill "$pid" 2>/dev/null || true
  done
  wait
  rm -rf "$dir"
}

# ready NAME COMMAND...: wait for what was started last; prints what the command says once that is
# something
ready() {
  local name=$1 pid=${pids[-1]} said; shift
  for _ in $(seq 300); do
    said=$("$@" 2>/dev/null) || true
    if [ -n "$said" ]; then echo "$said"; return; fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  echo "$me: $name did not start; its log:" >&2
  cat "$dir/$name"*.log >&2
  return 1
}

# carillon_dev NAME [FLAG...]: start carillon dev on free ports
carillon_dev() {
  local name=$1; shift
  "$carillon" dev --listen 127.0.0.1:0 --data "$dir/$name" "$@" >"$dir/$name.out" 2>"$dir/$name.log" &
  pids+=($!)
}
carillon_url() { sed -n 's/^ready: //p' "$dir/$1.out"; }

# peer NAME [SETTING]: start a nats-server on a free port
peer() {
  mkdir "$dir/$1"
  cat >"$dir/$1.conf" <<END
host: 127.0.0.1
port: -1
ports_file_dir: "$dir/$1"
jetstream {
  store_dir: "$dir/$1"
  ${2:-}
}
END
  "$NATS_SERVER" -c "$dir/$1.conf" >"$dir/$1.log" 2>&1 &
  pids+=($!)
}
# It writes its port to a file of JSON: {"nats":["nats://127.0.0.1:PORT"]}
peer_url() { sed -n 's|.*"\(nats://[0-9.:]*\)".*|\1|p' "$dir/$1"/*.ports; }

# peers NAME PORT [SETTING]: start three nats-servers as a cluster, on six ports from the one given.
# Each is started again when it dies, and has its pid in NAME/broker-N/pid.
peers() {
  local name=$1 port=$2 n
  mkdir "$dir/$name"
  for n in 0 1 2; do
    mkdir "$dir/$name/broker-$n"
    cat >"$dir/$name-$n.conf" <<END
server_name: $name-$n
listen: 127.0.0.1:$((port + n))
cluster {
  name: $name
  listen: 127.0.0.1:$((port + 3 + n))
  routes: [nats://127.0.0.1:$((port + 3)), nats://127.0.0.1:$((port + 4)), nats://127.0.0.1:$((port + 5))]
}
jetstream {
  store_dir: "$dir/$name/broker-$n"
  ${3:-}
}
END
    again "$dir/$name/broker-$n/pid" "$NATS_SERVER" -c "$dir/$name-$n.conf" >"$dir/$name-$n.log" 2>&1 &
    pids+=($!)
    ready "$name" cat "$dir/$name/broker-$n/pid" >/dev/null
  done
}
peers_url() { echo "nats://127.0.0.1:$1,nats://127.0.0.1:$(($1 + 1)),nats://127.0.0.1:$(($1 + 2))"; }

# again PIDFILE COMMAND...: run it, with its pid in the file, again and again until the script ends;
# not while there is a file "hold" beside that one
again() {
  local file=$1; shift
  trap - EXIT
  trap 'kill "$child" 2>/dev/null; wait "$child"; exit' TERM INT
  while [ ! -e "$dir/ending" ]; do
    if [ -e "${file%/*}/hold" ]; then sleep 0.05; continue; fi
    "$@" &
    child=$!
    echo "$child" >"$file.new"
    mv "$file.new" "$file"
    wait "$child" || true
  done
}

# processes NAME: the pids of a cluster's brokers, with + between them
processes() { cat "$dir/$1"/broker-*/pid | paste -sd+ -; }

# compared: start carillon, nats-server as it is by default, and if SYNCED is 1 another one that
# syncs, one process each, or with BROKERS=3 clusters of three from PORT on; sets the array "servers"
# to the flags of `carillon bench` that name them
compared() {
  local ours theirs
  case ${BROKERS:-1} in
    1)
      carillon_dev carillon
      ours=$(ready carillon carillon_url carillon)
      servers=(--name carillon --server "$ours" --server-pid "${pids[-1]}")
      peer default
      theirs=$(ready default peer_url default)
      servers+=(--against "default=$theirs" --against-pid "${pids[-1]}")
      [ "${SYNCED:-0}" = 1 ] || return 0
      peer synced 'sync_interval: always'
      theirs=$(ready synced peer_url synced)
      servers+=(--against "synced=$theirs" --against-pid "${pids[-1]}")
      ;;
    3)
      carillon_dev carillon --brokers 3
      ours=$(ready carillon carillon_url carillon)
      servers=(--name carillon --server "$ours" --server-pid "$(processes carillon)")
      peers default "$PORT"
      servers+=(--against "default=$(peers_url "$PORT")" --against-pid "$(processes default)")
      [ "${SYNCED:-0}" = 1 ] || return 0
      peers synced $((PORT + 6)) 'sync_interval: always'
      servers+=(--against "synced=$(peers_url $((PORT + 6)))" --against-pid "$(processes synced)")
      ;;
    *) echo "$me: BROKERS is $BROKERS; give 1 or 3" >&2; exit 2 ;;
  esac
}
