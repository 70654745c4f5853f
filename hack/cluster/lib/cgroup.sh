# Every node has a control group of its own, /carillon/nodeN, below which its kubelet puts
# pods. It holds pods only; daemons are found by their network namespace.
# shellcheck shell=bash

cgroup_mount=${cgroup_mount:-/sys/fs/cgroup}
cgroup_controllers=(cpu cpuset memory pids hugetlb) # what a kubelet insists on, where the kernel has it

cgroup_v2() { [ -f "$cgroup_mount/cgroup.controllers" ]; }

# one root with version 2, one for each controller with version 1
cgroup_roots() {
  if cgroup_v2; then echo "$cgroup_mount"; else find "$cgroup_mount" -mindepth 1 -maxdepth 1 -type d; fi
}

# delegate DIR: let the children of DIR have every controller that DIR has
delegate() {
  local controller
  for controller in "${cgroup_controllers[@]}"; do
    grep -qw "$controller" "$1/cgroup.controllers" || continue
    grep -qw "$controller" "$1/cgroup.subtree_control" && continue
    echo "+$controller" >"$1/cgroup.subtree_control" 2>/dev/null ||
      die "the $controller controller can't be handed to children of $1; a container without a cgroup of its own, or one whose root cgroup has processes in it, can't hold a cluster"
  done
}

cgroup_make() { # N
  local root path dir
  while read -r root; do
    dir=$root
    for path in carillon "node$1"; do
      ! cgroup_v2 || delegate "$dir"
      mkdir -p "$dir/$path" || die "no control group can be made in $dir"
      if [ -f "$dir/cpuset.cpus" ] && ! cgroup_v2; then # version 1 starts them empty, and useless
        cat "$dir/cpuset.cpus" >"$dir/$path/cpuset.cpus"
        cat "$dir/cpuset.mems" >"$dir/$path/cpuset.mems"
      fi
      dir=$dir/$path
    done
    ! cgroup_v2 || delegate "$dir"
  done < <(cgroup_roots)
}

cgroup_processes() { # PATH below the roots
  local root
  while read -r root; do
    [ ! -d "$root/$1" ] || find "$root/$1" -name cgroup.procs -exec cat {} + 2>/dev/null || true
  done < <(cgroup_roots)
}

cgroup_remove() {
  local root
  while read -r root; do
    [ ! -d "$root/carillon" ] || find "$root/carillon" -depth -type d -exec rmdir {} + 2>/dev/null || true
  done < <(cgroup_roots)
  while read -r root; do [ ! -d "$root/carillon" ] || return 1; done < <(cgroup_roots)
}
