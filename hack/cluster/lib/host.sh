# What the machine must offer: packages, kernel modules, limits. Checked before anything is made.
# shellcheck shell=bash

# command:package, as Debian and Ubuntu name them
wanted=(containerd:containerd runc:runc iptables:iptables ip:iproute2 openssl:openssl modprobe:kmod)
cni_folders=(/usr/lib/cni /usr/libexec/cni /opt/cni/bin)

cni_plugins() {
  local dir
  for dir in "${cni_folders[@]}"; do [ -x "$dir/bridge" ] && [ -x "$dir/host-local" ] && { echo "$dir"; return; }; done
  return 1
}

missing_packages() {
  local pair
  for pair in "${wanted[@]}"; do command -v "${pair%%:*}" >/dev/null || printf '%s ' "${pair##*:}"; done
  cni_plugins >/dev/null || printf '%s ' containernetworking-plugins
}

packages() {
  local missing answer
  missing=$(missing_packages)
  [ -z "$missing" ] && return
  command -v apt-get >/dev/null ||
    die "please install what these Debian packages hold, then call again: $missing(CNI plugins are looked for in ${cni_folders[*]})"
  if interactive; then
    printf 'cluster: these Debian packages are needed: %s\ncluster: install them now? [y/N] ' "$missing" >&2
    read -r answer
    case $answer in [yY]*) ;; *) die "nothing was installed; call again once they are there" ;; esac
  fi
  say "installing $missing"
  local options=(-o DPkg::Lock::Timeout=120 -qq)
  # shellcheck disable=SC2086 # one word per package
  apt-get update "${options[@]}" >&2 && DEBIAN_FRONTEND=noninteractive apt-get install "${options[@]}" -y --no-install-recommends $missing >/dev/null ||
    die "apt-get could not install $missing; its messages are above"
  [ -z "$(missing_packages)" ] || die "still missing after the installation: $(missing_packages)"
}

kernel_modules() {
  local module
  for module in overlay br_netfilter; do modprobe -q "$module" 2>/dev/null || true; done # no module where it is built in
  grep -qw overlay /proc/filesystems || die "this kernel has no overlay file system, and modprobe overlay failed"
  [ -e /proc/sys/net/bridge/bridge-nf-call-iptables ] || die "this kernel has no bridge netfilter, and modprobe br_netfilter failed"
}

# A node's kubelet, containerd and kube-proxy hold about 7 inotify instances, with cgroup v2
# one more per container, all of them root's; the limit is per user, and desktops and IDEs leave little of it.
inotify_per_node=20

limits() { # NODES
  local most=/proc/sys/fs/inotify/max_user_instances used need
  used=$(find /proc/[0-9]*/fd -lname 'anon_inode:inotify' -user root 2>/dev/null | wc -l) || true # processes come and go
  need=$((used + inotify_per_node * $1))
  [ "$(cat $most)" -ge $need ] ||
    die "root uses $used of $(cat $most) inotify instances and $1 nodes take up to $((inotify_per_node * $1)) more: sysctl -w fs.inotify.max_user_instances=$((need * 2))"
  ulimit -Hn 1048576 2>/dev/null || true
  ulimit -Sn "$(ulimit -Hn)"
  [ "$(ulimit -n)" = unlimited ] || [ "$(ulimit -n)" -ge 16384 ] ||
    die "only $(ulimit -n) files may be open at once; the cluster's programs and pods want 16384 (ulimit -n, or LimitNOFILE of the service that calls this)"
  local memory; memory=$(awk '/^MemAvailable/ {print int($2 / 1024)}' /proc/meminfo)
  [ "$memory" -ge $((1024 + 700 * $1)) ] || say "only $memory MiB of memory are free; $1 nodes with pods may not fit"
}
