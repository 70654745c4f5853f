# A node: containerd, kubelet and kube-proxy in a network namespace and a control group of
# their own, with all their files in one folder, which is the node's disk.
# shellcheck shell=bash

node_daemons=(containerd kubelet proxy)

reserved() { # what to hide of this machine, so that NODE_MEMORY and NODE_CPU are left for pods
  local memory=${NODE_MEMORY:-2800Mi} cpu=${NODE_CPU:-940m} total
  case $memory in
    *Gi) memory=$((${memory%Gi} * 1024)) ;;
    *Mi) memory=${memory%Mi} ;;
    *) die "NODE_MEMORY=$memory: please write it in Gi or Mi" ;;
  esac
  case $cpu in *m) cpu=${cpu%m} ;; *) cpu=$((cpu * 1000)) ;; esac
  total=$(awk '/^MemTotal/ {print int($2 / 1024)}' /proc/meminfo)
  memory=$((total - memory - 100)) cpu=$(($(nproc) * 1000 - cpu)) # 100: what evictionHard keeps back
  echo "{memory: $((memory > 0 ? memory : 0))Mi, cpu: $((cpu > 0 ? cpu : 0))m}"
}

node_files() { # N
  local n=$1 dir=$state/node$1
  mkdir -p "$dir/cni" "$dir/kubelet"
  certificate "node$n" "system:node:node$n" system:nodes "DNS:node$n,IP:$(node_address "$n")"
  # The network's name stands in file names outside this folder (/var/lib/cni), where down looks for it.
  cat >"$dir/cni/bridge.conflist" <<EOF
{"cniVersion": "1.0.0", "name": "carillon-node$n", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "$dir/cni/leases", "ranges": [[{"subnet": "$(node_pods "$n")"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
EOF
  cat >"$dir/containerd.toml" <<EOF
version = 2
root = "$dir/containerd"
state = "$dir/run"
[grpc]
  address = "$dir/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$dir/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true # not every kernel and user may lower it
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$(cni_plugins)"
    conf_dir = "$dir/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "$dir/runc"
EOF
  # Kubelets on one machine need a control group and a log folder each, else one removes what is another's.
  cat >"$dir/kubelet.yaml" <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: /carillon/node$n
podLogsDir: $dir/podlogs
volumePluginDir: $dir/volumeplugins
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $state/pki/ca.crt}}
authorization: {mode: Webhook}
tlsCertFile: $state/pki/node$n.crt
tlsPrivateKeyFile: $state/pki/node$n.key
clusterDomain: cluster.local
clusterDNS: ["$control_address"]
resolvConf: $state/resolv.conf
containerRuntimeEndpoint: unix://$dir/containerd.sock
failSwapOn: false
systemReserved: $(reserved)
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 4s
EOF
}

node_numbers() { # those that exist
  local dir
  for dir in "$state"/node*/; do [ ! -d "$dir" ] || { dir=${dir%/}; echo "${dir##*node}"; }; done
}

node_exists() { [[ $1 =~ ^[0-9]+$ ]] && [ -d "$state/node$1" ] || die "there is no node $1, only $(node_numbers | tr '\n' ' ')"; }

node_running() { # N: prints how many of its daemons run
  local daemon count=0
  for daemon in "${node_daemons[@]}"; do ! alive "node$1-$daemon" >/dev/null || count=$((count + 1)); done
  echo $count
}

containerd_answers() { [ -S "$state/node$1/containerd.sock" ] && ctr_ "$1" version; }

node_start() { # N
  local n=$1 dir=$state/node$1 running
  running=$(node_running "$n")
  if [ "$running" = ${#node_daemons[@]} ]; then say "node $n is running already"; return; fi
  [ "$running" = 0 ] || die "only $running of the ${#node_daemons[@]} programs of node $n run; the logs are in $state/log; \`cluster node kill $n\`, then start it"
  cgroup_make "$n"
  spawn "node$n-containerd" "node$n" containerd --config "$dir/containerd.toml"
  wait_for 60 "containerd on node $n" "node$n-containerd" containerd_answers "$n"
  import_missing "$n"
  spawn "node$n-kubelet" "node$n" "$state/bin/hyperkube" kubelet --config="$dir/kubelet.yaml" --kubeconfig="$state/node$n.kubeconfig" \
    --hostname-override="node$n" --node-ip="$(node_address "$n")" --root-dir="$dir/kubelet" --cert-dir="$dir/pki" \
    --node-labels="topology.kubernetes.io/zone=zone$n"
  spawn "node$n-proxy" "node$n" "$state/bin/hyperkube" kube-proxy --kubeconfig="$state/proxy.kubeconfig" --hostname-override="node$n" \
    --proxy-mode=iptables --cluster-cidr="$pod_net" --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
}

node_ready() { kubectl_ wait --for=condition=Ready "node/node$1" --timeout=1s; }

node_kill() { # N: all its processes at once, pods included; what they wrote stays in the page cache
  kill_all node_processes "$1" || die "node $1 is not dead"
}

node() { # cut|heal|kill|start N [OTHER]
  local verb=${1:-} n=${2:-} other=${3:-}
  [ -n "$n" ] || die "which node? (cluster node cut|heal|kill|start N)"
  [ "$n" = control ] && [ -n "$other" ] && { n=$other other=control; }
  node_exists "$n"
  if [ -n "$other" ]; then
    [ "$other" = control ] || node_exists "$other"
    [ "$n" != "$other" ] || die "a node can't be cut off from itself"
  fi
  case $verb in
    cut) if [ -n "$other" ]; then pair_cut "$n" "$other" add; else within lan ip link set "node$n" down; fi ;;
    heal) if [ -n "$other" ]; then pair_cut "$n" "$other" delete; else within lan ip link set "node$n" up; fi ;;
    kill) node_kill "$n" ;;
    start) node_start "$n" ;;
    *) die "cut, heal, kill or start node $n?" ;;
  esac
}
