# The servers of the sites, on free ports of 127.0.0.1; run reads this file. Each start_ function
# waits until clients can connect, and sets urls, and web for WebSocket.
# shellcheck shell=bash

patience=60 # seconds for a server to be ready

# start FOLDER COMMAND...: runs it with its output in FOLDER/out and FOLDER/log
start() {
  folder=$1
  mkdir -p "$folder"
  "${@:2}" >"$folder/out" 2>"$folder/log" &
  pids+=($!)
}

# await COMMAND...: until it prints URLs with commas between them, which it puts into found
await() {
  local deadline=$((SECONDS + patience))
  found=()
  until IFS=, read -ra found < <("$@" 2>/dev/null) && [ ${#found[@]} -gt 0 ]; do
    kill -0 "${pids[-1]}" 2>/dev/null && [ $SECONDS -lt $deadline ] || {
      echo "run: $folder: not ready within $patience s:" >&2
      cat "$folder/log" >&2
      exit 1
    }
    sleep 0.1
  done
}

await_urls() { # COMMAND...: that takes which URLs
  await "$@" nats
  urls=("${found[@]}")
  await "$@" websocket
  web=("${found[@]}")
}

# start_nats_server FOLDER FLAGS...: its configuration says where it serves WebSocket
start_nats_server() {
  start "$1" "$NATS_SERVER" -js -a 127.0.0.1 -p -1 -sd "$1/data" --ports_file_dir "$1" "${@:2}"
  await_urls ports_file
}

# ports_file KEY
ports_file() { cat "$folder"/*.ports | tr -d ' \n' | sed -n 's/.*"'"$1"'":\["\([^"]*\)".*/\1\n/p'; }

# start_dev FOLDER FLAGS...
start_dev() {
  start "$1" "$carillon" dev --listen 127.0.0.1:0 --websocket-listen 127.0.0.1:0 --data "$1/data" "${@:2}"
  await_urls dev_line
}

# dev_line nats|websocket
dev_line() { sed -n "s/^${1/nats/ready}: //p" "$folder/out"; }

# start_broker FOLDER TLS FLAGS...: a broker for TLS, and its coordinator. TLS is a folder with
# ca.crt, tls.crt and tls.key for both.
start_broker() {
  local client peer
  client=$(free_port)
  peer=$(free_port "$client")
  start "$1/coordinator" "$carillon" coordinator --name main --data "$1/coordinator/data" --tls-dir "$2" \
    --advertise-host localhost --cluster-token tours --initial-cluster "main=https://localhost:$peer" \
    --client-listen "127.0.0.1:$client" --peer-listen "127.0.0.1:$peer" --http-listen 127.0.0.1:0
  start "$1" "$carillon" broker --name main --cluster default/main --data "$1/data" --tls-dir "$2" \
    --etcd-endpoints "https://localhost:$client" --client-listen 127.0.0.1:0 --route-listen 127.0.0.1:0 \
    --http-listen 127.0.0.1:0 --websocket-listen 127.0.0.1:0 --profile small --disk-stall-limit 0 --lame-duck 0 \
    --log-format json --client-tls-dir "$2" "${@:3}"
  await_urls ready_line
}

# ready_line nats|websocket: as the broker logs it
ready_line() {
  local key=${1/nats/clients} scheme=${1/nats/tls}
  sed -n '/"msg":"Ready"/s/.*"'"$key"'":"\([^"]*\)".*/'"${scheme/websocket/wss}"':\/\/\1/p' "$folder/log"
}

# free_port [TAKEN]: prints a port below those that outgoing connections get
free_port() {
  local port
  while port=$((20000 + RANDOM % 10000)); [ "$port" = "${1:-}" ] || (: 2>/dev/null <>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; do :; done
  echo "$port"
}

# The secured sites have three servers each:
#
#   PLAIN, WS   plaintext, with users
#   TLS, WSS    TLS, with users
#   MTLS        TLS with client certificates, which name the user
#
# CA is the file with the CA of the latter two, and IDENTITIES the folder of what identities.sh
# makes.
start_secured_nats_servers() { # FOLDER
  local secured='cert_file: "'$1'/tls.crt", key_file: "'$1'/tls.key"'
  make_users "$1"
  make_authority "$1/ca" tours
  make_certificate "$1/ca" "$1/tls" server subjectAltName=DNS:localhost,IP:127.0.0.1
  make_client_certificates "$1" "$1/ca"
  cat >"$1/plain.conf" <<END
include ./users.conf
websocket { host: "127.0.0.1", port: -1, no_tls: true }
END
  cat >"$1/tls.conf" <<END
include ./users.conf
tls { $secured }
websocket { host: "127.0.0.1", port: -1, tls { $secured } }
END
  cat >"$1/mtls.conf" <<END
include ./users.conf
tls { $secured, ca_file: "$1/ca.crt", verify_and_map: true }
websocket { host: "127.0.0.1", port: -1, tls { $secured } }
END
  start_nats_server "$1/plain" -c "$1/plain.conf"
  export PLAIN=${urls[0]} WS=${web[0]}
  start_nats_server "$1/tls" -c "$1/tls.conf"
  export TLS=${urls[0]/nats:/tls:} WSS=${web[0]/ws:/wss:}
  start_nats_server "$1/mtls" -c "$1/mtls.conf"
  export MTLS=${urls[0]/nats:/tls:} CA=$1/ca.crt IDENTITIES=$1
}

start_secured_brokers() { # FOLDER
  local made=$1/tls/data/tls # by carillon dev --tls
  make_users "$1"
  start_dev "$1/plain" --users "$1/users.json"
  export PLAIN=${urls[0]} WS=${web[0]}
  start_dev "$1/tls" --users "$1/users.json" --tls
  export TLS=${urls[0]} WSS=${web[0]}
  make_client_certificates "$1" "$made/authority/tls"
  start_broker "$1/mtls" "$made" --users "$1/users.json" --client-tls-verify
  export MTLS=${urls[0]} CA=$made/ca.crt IDENTITIES=$1
}
