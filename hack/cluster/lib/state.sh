# The state folder: root's alone, marked as ours, and gone with the cluster. It holds whole
# disks of nodes, so nothing in it is removed before the mark was seen and all mounts are gone.
# shellcheck shell=bash

mark=$state/.made-by-carillon-cluster

state_exists() { [ -e "$state" ] || [ -L "$state" ]; }
state_is_ours() { [ -d "$state" ] && [ ! -L "$state" ] && [ -O "$state" ] && [ -f "$mark" ] && [ ! -L "$mark" ]; }

refuse_foreign_state() {
  if state_exists && ! state_is_ours; then
    die "$state exists without the mark $(basename "$mark"): this script did not make it and does not touch it; move it away"
  fi
}

state_make() { # NODES
  mkdir -m 0700 "$state" || die "$state can't be made"
  chmod 0700 "$state" # whatever its parent's ACLs say
  echo "$maker: \`hack/cluster/down\` removes this folder" >"$mark"
  mkdir "$state"/{bin,log,process,pki,etcd,image}
  : >"$state/resolv.conf"
  cat >"$state/settings" <<EOF
boot $(boot)
nodes $1
CLUSTER_NODE_NET $node_net
CLUSTER_POD_NET $pod_net
CLUSTER_SERVICE_NET $service_net
kubeconfig $user_kubeconfig
user $user_id
EOF
  local path
  for path in "${outside[@]}"; do [ -e "$path" ] || echo "made $path"; done >>"$state/settings"
}

# Where daemons write although nothing in their configuration says so. Those that are not there
# yet are removed with the cluster, once they are empty.
outside=(/run/containerd/s /run/containerd /var/log/containers /var/lib/cni/results /var/lib/cni
  /var/lib/kubelet/device-plugins /var/lib/kubelet)

refuse_other_kubelet() {
  [ ! -e /var/lib/kubelet/device-plugins/kubelet.sock ] ||
    die "/var/lib/kubelet/device-plugins/kubelet.sock is there: this machine is, or was, a Kubernetes node, whose kubelet the cluster's would disturb. If none runs any more, remove that file"
}

setting() { [ ! -f "$state/settings" ] || awk -v key="$1" '$1 == key {sub(/^[^ ]* /, ""); print}' "$state/settings"; }

# settings_of_running: what `up` was called with holds for every later call
settings_of_running() {
  state_is_ours && [ -f "$state/ready" ] || die "there is no cluster; \`cluster up\` starts one"
  [ "$(setting boot)" = "$(boot)" ] || die "the cluster is from before this machine was restarted; \`cluster up\` makes a new one"
  CLUSTER_NODE_NET=$(setting CLUSTER_NODE_NET) CLUSTER_POD_NET=$(setting CLUSTER_POD_NET) CLUSTER_SERVICE_NET=$(setting CLUSTER_SERVICE_NET)
  network_settings
}

# ailing: prints what is wrong with the cluster, nothing if it is well
ailing() {
  local name n
  for name in etcd apiserver manager scheduler coredns; do alive "$name" >/dev/null || { echo "$name does not run (log: $state/log/$name.log)"; return; }; done
  kubectl_ get --raw /readyz >/dev/null 2>&1 || { echo "the API server is not ready"; return; }
  for n in $(node_numbers); do
    [ "$(node_running "$n")" = ${#node_daemons[@]} ] || { echo "node $n does not run; \`cluster node start $n\`"; return; }
    node_ready "$n" >/dev/null 2>&1 || { echo "node $n is not ready; is it cut off?"; return; }
  done
}

give_kubeconfig() {
  # shellcheck disable=SC2016 # expanded by the inner shell, which has the user's rights only
  as_user sh -c 'umask 077 && mkdir -p "${1%/*}" && cat >"$1.new" && mv "$1.new" "$1"' sh "$user_kubeconfig" <"$state/admin.kubeconfig"
}

keep_logs() { # DIR: where the user may read them
  local dir=$1
  # shellcheck disable=SC2016
  tar -C "$state" -cf - log 2>/dev/null | as_user sh -c 'mkdir -p "$1" && tar -C "$1" --no-same-owner -xf -' sh "$dir"
}

mounts_below() { awk -v d="$state/" 'index($2, d) == 1 {print $2}' /proc/self/mounts | sort -r; }

# leftovers_outside: sockets of shims, links to logs, network leases, by the names that only ours have
leftovers_outside() {
  local file id path
  for file in "$state"/node*/run/io.containerd.runtime.v2.task/*/*/address; do
    [ -f "$file" ] || continue
    file=$(cat "$file")
    case $file in unix:///run/containerd/s/*) rm -f "${file#unix://}" ;; esac
  done
  for file in /var/log/containers/*; do
    case $(readlink "$file") in "$state"/*) rm -f "$file" ;; esac
  done
  rm -f /var/lib/cni/results/carillon-node[0-9]*
  for id in "$state"/node*/containerd/io.containerd.grpc.v1.cri/sandboxes/*/; do
    rm -f /var/lib/cni/results/cni-loopback-"$(basename "$id")"-*
  done
  rm -f /var/lib/kubelet/device-plugins/{kubelet.sock,DEPRECATION,kubelet_internal_checkpoint}
  while read -r path; do rmdir "$path" 2>/dev/null || true; done < <(setting made)
}

# remove: everything that `up` makes, by marks and not by memory, so that it works half-way and
# without the folder. It goes on after a failure, and tells.
remove() {
  local path failed=0 file owner
  [ -n "$(namespaces)" ] || refuse_foreign_state # marked namespaces are proof enough for all but the folder itself
  kill_all cluster_processes || failed=1
  while read -r path; do umount -l "$path" || failed=1; done < <(mounts_below)
  network_remove || { say "network namespaces or links are left: ip netns, ip link"; failed=1; }
  wait_for 10 "the end of the control groups" "" cgroup_remove || failed=1
  leftovers_outside
  if state_exists && ! state_is_ours; then
    say "$state has lost its mark $(basename "$mark"), so it is left for you to remove"
    failed=1
  elif state_exists; then
    file=$(setting kubeconfig) owner=$(setting user)
    if [ -n "$file" ] && [ "$owner" = "$user_id" ]; then as_user rm -f "$file"; fi
    if [ -z "$(mounts_below)" ]; then rm -rf --one-file-system "${state:?}" || failed=1; else say "still mounted: $(mounts_below)"; failed=1; fi
  fi
  [ $failed = 0 ] || die "not everything could be removed; call \`cluster down\` again once what is named above is mended"
}
