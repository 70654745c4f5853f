# Addresses and wires: a bridge in the namespace "lan", where the control plane and DNS live,
# one namespace per node, and one leg for this machine. Nothing is routed off the machine.
# shellcheck shell=bash

# network_settings: the ranges, with what follows from them
network_settings() {
  node_net=${CLUSTER_NODE_NET:-10.250.0.0/24} pod_net=${CLUSTER_POD_NET:-10.244.0.0/16} service_net=${CLUSTER_SERVICE_NET:-10.96.0.0/16}
  range "$node_net" 24 CLUSTER_NODE_NET
  range "$pod_net" 16 CLUSTER_POD_NET
  range "$service_net" 16 CLUSTER_SERVICE_NET
  node_prefix=${node_net%.0/24} pod_prefix=${pod_net%.0.0/16}
  control_address=$node_prefix.1
  api=https://$control_address:6443
}

node_address() { echo "$node_prefix.$((10 + $1))"; }
node_pods() { echo "$pod_prefix.$1.0/24"; }

number() { # ADDRESS: as one number
  local IFS=.
  # shellcheck disable=SC2086
  set -- $1
  echo $((($1 << 24) + ($2 << 16) + (${3:-0} << 8) + ${4:-0}))
}

range() { # CIDR LENGTH OPTION
  local octet='(25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])'
  [[ $1 =~ ^$octet\.$octet\.$octet\.$octet/$2$ ]] && [ $(($(number "${1%/*}") & ((1 << (32 - $2)) - 1))) = 0 ] ||
    die "$3=$1: please give the first address of an IPv4 range, and the length /$2 (${4:-such as 172.30.0.0/$2})"
}

overlap() { # CIDR CIDR
  local shorter=${1#*/}
  [ "$shorter" -le "${2#*/}" ] || shorter=${2#*/}
  [ $(($(number "${1%/*}") >> (32 - shorter))) = $(($(number "${2%/*}") >> (32 - shorter))) ]
}

# ranges_in_use: this machine's addresses and routes, as "CIDR what"
ranges_in_use() {
  ip -4 -o address show | awk '{print $4, "address of " $2}'
  # "type" words stand before the destination; a default route overlaps everything and means nothing
  ip -4 route show table all | awk '
    $1 ~ /^(broadcast|local|multicast|anycast|throw|unreachable|prohibit|blackhole|nat)$/ {$1 = ""; sub(/^ /, "")}
    $1 == "default" || $1 ~ /^(127|22[4-9]|23[0-9]|255)\./ {next}
    {d = "?"; for (i = 1; i < NF; i++) if ($i == "dev") d = $(i + 1); print ($1 ~ /\// ? $1 : $1 "/32"), "route through " d}'
}

refuse_conflicts() {
  local pair ours option used what
  if overlap "$node_net" "$pod_net" || overlap "$node_net" "$service_net" || overlap "$pod_net" "$service_net"; then
    die "the ranges overlap each other: nodes $node_net, pods $pod_net, services $service_net"
  fi
  while read -r used what; do
    for pair in "$node_net=CLUSTER_NODE_NET" "$pod_net=CLUSTER_POD_NET" "$service_net=CLUSTER_SERVICE_NET"; do
      ours=${pair%=*} option=${pair#*=}
      ! overlap "$ours" "$used" || die "$ours is in use on this machine ($used, $what); give another range: $option=172.30.0.0/${ours#*/}, for example"
    done
  done < <(ranges_in_use)
}

within() { nsenter --net="/run/netns/carillon-$1" "${@:2}"; } # not `ip netns exec`: it hides the cgroup mounts

namespaces() { # ours that exist, without "carillon-"
  local file name
  for file in /run/netns/carillon-*; do
    name=${file##*/carillon-}
    [[ $name =~ ^(lan|node[0-9]+)$ ]] || continue
    [ "$(ip -n "carillon-$name" -o link show lo 2>/dev/null | grep -c "alias $maker")" = 0 ] || echo "$name"
  done
}

namespace_add() { # NAME: with a mark by which down knows it
  ip netns add "carillon-$1" || die "there is a network namespace carillon-$1 that this script did not make; is it in use? Else: ip netns delete carillon-$1"
  within "$1" ip link set lo alias "$maker" up
}

network_make() {
  [ ! -e /sys/class/net/carillon0 ] || die "there is a network link carillon0 that this script did not make; is it in use? Else: ip link delete carillon0"
  namespace_add lan
  within lan ip link add lan0 type bridge
  within lan ip address add "$control_address/24" dev lan0
  within lan ip link set lan0 up
  ip link add carillon0 type veth peer name host netns carillon-lan
  ip link set carillon0 alias "$maker"
  within lan ip link set host master lan0 up
  ip address add "$node_prefix.254/24" dev carillon0
  ip link set carillon0 up
}

node_network() { # N
  local n=$1 address; address=$(node_address "$1")
  namespace_add "node$n"
  ip link add eth0 netns "carillon-node$n" type veth peer name "node$n" netns carillon-lan
  within lan ip link set "node$n" master lan0 up
  within "node$n" ip address add "$address/24" dev eth0
  within "node$n" ip link set eth0 up
  within "node$n" ip route add default via "$control_address"
  within "node$n" sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward && echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables'
  ip route add "$(node_pods "$n")" via "$address"
  within lan ip route add "$(node_pods "$n")" via "$address"
}

nodes_routes() { # NODES: from every node to every other's pods
  local n m
  for n in $(seq "$1"); do
    for m in $(seq "$1"); do
      [ "$n" = "$m" ] || within "node$n" ip route replace "$(node_pods "$m")" via "$(node_address "$m")"
    done
  done
}

network_remove() {
  local name failed=0
  if [ "$(ip -o link show carillon0 2>/dev/null | grep -c "alias $maker")" != 0 ]; then ip link delete carillon0 || failed=1; fi
  for name in $(namespaces); do ip netns delete "carillon-$name" || failed=1; done
  return $failed
}

# cut_side NAMESPACE FROM TO ADD-OR-DELETE: drop what arrives there, before anything else sees it
cut_side() {
  local rule=(PREROUTING -t raw -s "$2" -m comment --comment "$maker: cut" -j DROP)
  [ -z "$3" ] || rule+=(-d "$3")
  if [ "$4" = add ]; then
    within "$1" iptables -w 5 -C "${rule[@]}" 2>/dev/null || within "$1" iptables -w 5 -A "${rule[@]}"
  else
    while within "$1" iptables -w 5 -D "${rule[@]}" 2>/dev/null; do :; done
  fi
}

# pair_cut A B ADD-OR-DELETE: a node is its number; "control" is the control plane and DNS
pair_cut() {
  local from to ends=("$1" "$2") i
  for i in 0 1; do
    to=${ends[$i]} from=${ends[$((1 - i))]}
    if [ "$to" = control ]; then
      # Frames from node to node pass here too, so only what is meant for this address.
      cut_side lan "$(node_address "$from")" "$control_address" "$3"
      cut_side lan "$(node_pods "$from")" "$control_address" "$3"
    elif [ "$from" = control ]; then
      cut_side "node$to" "$control_address" "" "$3"
    else
      cut_side "node$to" "$(node_address "$from")" "" "$3"
      cut_side "node$to" "$(node_pods "$from")" "" "$3"
    fi
  done
}
