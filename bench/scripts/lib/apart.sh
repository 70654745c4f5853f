# shellcheck shell=bash
# A cluster whose processes are machines of their own to each other: three coordinators and three
# brokers, each in a network namespace on one bridge, for the scripts that source this after
# servers.sh. Needs Linux and root. The bridge, too, is in a namespace, so nothing of this machine's
# network is touched; who is to talk to the cluster runs `inside` it.
: "${APART:=cbf}" # begins the namespaces' names; another run beside this one needs another
apart_net=10.249.0

# apart_network: the bridge. Leaves nothing behind when the script ends.
apart_network() {
  [ "$(uname -s)" = Linux ] && [ "$(id -u)" = 0 ] || { echo "$me: network namespaces take Linux and root" >&2; exit 1; }
  for tool in ip nsenter openssl; do
    command -v "$tool" >/dev/null || { echo "$me: $tool is missing (on Debian: apt-get install iproute2 util-linux openssl)" >&2; exit 1; }
  done
  ip netns add "$APART-lan" || { echo "$me: is another run under way? Else: ip -all netns delete, or another APART=" >&2; exit 1; }
  trap 'finish; apart_remove' EXIT
  ip -n "$APART-lan" link set lo up
  ip -n "$APART-lan" link add lan address 02:cb:f0:00:00:01 type bridge
  ip -n "$APART-lan" address add "$apart_net.1/24" dev lan
  ip -n "$APART-lan" link set lan up
  certificates
}

apart_remove() {
  local name
  for name in $(ip netns list | sed -n "s/^\($APART-[a-z0-9]*\).*/\1/p"); do ip netns delete "$name"; done
}

inside() { nsenter --net="/run/netns/$APART-lan" "$@"; }

# machine NAME NUMBER: a namespace with an address. Who is where is known for good, as in a routed
# network: that a machine is gone is not told by the neighbours' table, but by silence only.
machine() {
  local name=$1 n=$2 other
  ip netns add "$APART-$name"
  ip link add eth0 netns "$APART-$name" address "02:cb:f0:00:00:$n" type veth peer name "$name" netns "$APART-lan"
  ip -n "$APART-lan" link set "$name" master lan up
  ip -n "$APART-$name" link set lo up
  ip -n "$APART-$name" address add "$apart_net.$n/24" dev eth0
  ip -n "$APART-$name" link set eth0 up
  ip -n "$APART-lan" neigh replace "$apart_net.$n" lladdr "02:cb:f0:00:00:$n" dev lan nud permanent
  for other in 1:1 $machines; do
    ip -n "$APART-$name" neigh replace "$apart_net.${other#*:}" lladdr "02:cb:f0:00:00:$(printf %02d "${other#*:}")" dev eth0 nud permanent
    [ "${other%:*}" = 1 ] || ip -n "$APART-${other%:*}" neigh replace "$apart_net.$n" lladdr "02:cb:f0:00:00:$n" dev eth0 nud permanent
  done
  machines+=" $name:$n"
}
machines=

# certificates: a CA and one certificate for all addresses, in $dir/tls
certificates() {
  local names=DNS:localhost n tls=$dir/tls
  mkdir "$tls"
  for n in $(seq 10 40); do names+=",IP:$apart_net.$n"; done
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=bench" -keyout "$tls/ca.key" -out "$tls/ca.crt" 2>/dev/null
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=bench" -keyout "$tls/tls.key" 2>/dev/null |
    openssl x509 -req -CA "$tls/ca.crt" -CAkey "$tls/ca.key" -CAcreateserial -days 2 -extfile <(echo "subjectAltName=$names") -out "$tls/tls.crt" 2>/dev/null
}

# apart_carillon NAME [FLAG...]: three coordinators (c0 to c2) and three brokers (b0 to b2), whose
# flags follow. Each is started again when it dies, with its pid in NAME/coordinator-N/pid and
# NAME/broker-N/pid.
apart_carillon() {
  local name=$1 n initial='' endpoints=''; shift
  mkdir "$dir/$name"
  for n in 0 1 2; do
    machine "c$n" $((10 + n))
    initial+=,coordinator-$n=https://$apart_net.$((10 + n)):2380
    endpoints+=,https://$apart_net.$((10 + n)):2379
  done
  for n in 0 1 2; do
    mkdir "$dir/$name/coordinator-$n"
    again "$dir/$name/coordinator-$n/pid" nsenter --net="/run/netns/$APART-c$n" "$carillon" coordinator --name "coordinator-$n" --data "$dir/$name/coordinator-$n" \
      --tls-dir "$dir/tls" --advertise-host "$apart_net.$((10 + n))" --initial-cluster "${initial#,}" --cluster-token "$name" \
      >"$dir/$name-coordinator-$n.log" 2>&1 &
    pids+=($!)
  done
  for n in 0 1 2; do
    machine "b$n" $((20 + n))
    mkdir "$dir/$name/broker-$n"
    again "$dir/$name/broker-$n/pid" nsenter --net="/run/netns/$APART-b$n" "$carillon" broker --name "broker-$n" --cluster "bench/$name" --data "$dir/$name/broker-$n" \
      --etcd-endpoints "${endpoints#,}" --tls-dir "$dir/tls" --client-listen "$apart_net.$((20 + n)):4222" --route-listen "$apart_net.$((20 + n)):6222" \
      --http-listen "$apart_net.$((20 + n)):8222" --lame-duck 1s "$@" >"$dir/$name-broker-$n.log" 2>&1 &
    pids+=($!)
  done
  for n in 0 1 2; do ready "$name" inside curl -sf -m 1 "http://$apart_net.$((20 + n)):8222/healthz/ready" >/dev/null; done
}
apart_url() { echo "nats://$apart_net.20:4222,nats://$apart_net.21:4222,nats://$apart_net.22:4222"; }

# apart_peers NAME [SETTING]: three nats-servers as a cluster (p0 to p2), each in a namespace of its
# own
apart_peers() {
  local name=$1 n; mkdir "$dir/$name"
  for n in 0 1 2; do
    machine "p$n" $((30 + n))
    mkdir "$dir/$name/broker-$n"
    cat >"$dir/$name-$n.conf" <<END
server_name: $name-$n
listen: $apart_net.$((30 + n)):4222
cluster {
  name: $name
  listen: $apart_net.$((30 + n)):6222
  routes: [nats://$apart_net.30:6222, nats://$apart_net.31:6222, nats://$apart_net.32:6222]
}
jetstream {
  store_dir: "$dir/$name/broker-$n"
  ${2:-}
}
END
    again "$dir/$name/broker-$n/pid" nsenter --net="/run/netns/$APART-p$n" "$NATS_SERVER" -c "$dir/$name-$n.conf" >"$dir/$name-$n.log" 2>&1 &
    pids+=($!)
  done
}
apart_peers_url() { echo "nats://$apart_net.30:4222,nats://$apart_net.31:4222,nats://$apart_net.32:4222"; }

# unplug MACHINE and plug MACHINE: what it sends goes nowhere, without a word, and nothing reaches
# it
unplug() { ip -n "$APART-lan" link set "$1" nomaster; }
plug() { ip -n "$APART-lan" link set "$1" master lan; }

# etcd_leader: the number of the coordinator that leads
etcd_leader() {
  local n said
  for n in 0 1 2; do
    said=$(inside curl -sf -m 2 "http://$apart_net.$((10 + n)):8223/metrics") || continue
    if [[ $said == *$'\netcd_server_is_leader 1'* ]]; then echo "$n"; return; fi
  done
  echo "no coordinator says that it leads etcd" >&2
  return 1
}
