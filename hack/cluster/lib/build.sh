# The programs: each is built from a Go module beside this script and named after what it is
# made of, so that another version is another file and clones can share one cache.
# shellcheck shell=bash

recipe=1 # raise it when the way of building below changes what comes out

# find_go: sudo and cron reset PATH, and Go is usually in none of the folders that they set
find_go() {
  local dir
  command -v go >/dev/null && return
  for dir in /usr/local/go/bin "$user_home"/sdk/go*/bin "$user_home/go/bin" "$user_home/.local/go/bin" /usr/lib/go/bin /usr/lib/go-*/bin /snap/bin /opt/homebrew/bin; do
    [ -x "$dir/go" ] && { PATH=$dir:$PATH; return; }
  done
  die "there is no Go in PATH ($PATH) nor where it usually is; install Go 1.26 or later (https://go.dev/dl)"
}

# key MODULE: the hash of all that a program of this module is made of. The Go version is not
# part of it: a newer compiler is no reason to wait a quarter of an hour.
key() {
  (cd "$here/$1" && { echo "recipe $recipe"; uname -sm; for f in go.mod go.sum *.go; do [ ! -f "$f" ] || { echo "$f"; cat "$f"; }; done; }) |
    sha256 | cut -c1-12
}
sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

program() { echo "$cache/$1@$(key "$2")"; } # NAME MODULE

build_one() { # NAME MODULE PACKAGE [LDFLAGS]
  local out; out=$(program "$1" "$2")
  [ -x "$out" ] && return
  find_go
  say "building $1"
  as_user mkdir -p "$cache"
  as_user env CGO_ENABLED=0 GOWORK=off GOFLAGS=-buildvcs=false go build -C "$here/$2" -ldflags "-s -w ${4:-}" -o "$out.$$" "$3" ||
    die "$1 could not be built; the messages are above"
  as_user mv "$out.$$" "$out"
}

version_flags() { # what Kubernetes reports as its version
  local v minor p=k8s.io/component-base/version
  v=$(sed -n 's/^\tk8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' "$here/kubernetes/go.mod")
  minor=${v#v1.}
  echo "-X $p.gitVersion=$v -X $p.gitMajor=1 -X $p.gitMinor=${minor%%.*}"
}

build_hyperkube() { build_one hyperkube kubernetes . "$(version_flags)"; }
build_etcd() { build_one etcd etcd go.etcd.io/etcd/server/v3; }

build() {
  build_hyperkube
  build_etcd
  build_one coredns coredns github.com/coredns/coredns
  build_one local-path-provisioner provisioner github.com/rancher/local-path-provisioner
  build_one toolbox toolbox .
  link_folder "$(tools_dir)" hyperkube kubernetes kubectl
}

# link_folder DIR (PROGRAM MODULE LINK)...: a folder of links, made whole or not at all
link_folder() {
  local dir=$1 work=$1.$$; shift
  [ -d "$dir" ] && return
  as_user mkdir -p "$work"
  while [ $# -gt 0 ]; do as_user ln -s "../$(basename "$(program "$1" "$2")")" "$work/$3"; shift 3; done
  as_user mv "$work" "$dir"
}

# The controller tests start the API server and etcd by these names and need no more.
assets_dir() { echo "$cache/assets@$({ key kubernetes; key etcd; } | sha256 | cut -c1-12)"; }
build_assets() {
  build_hyperkube
  build_etcd
  link_folder "$(assets_dir)" hyperkube kubernetes kube-apiserver etcd etcd etcd hyperkube kubernetes kubectl
}

tools_dir() { echo "$cache/tools@$(key kubernetes)"; } # for people: kubectl

# install_programs DIR: root runs copies of its own, that no later build can change under it
install_programs() {
  local pair
  for pair in hyperkube:kubernetes etcd:etcd coredns:coredns local-path-provisioner:provisioner toolbox:toolbox; do
    install -m 0755 "$(program "${pair%:*}" "${pair#*:}")" "$1/${pair%:*}"
  done
  ln -s hyperkube "$1/kubectl"
}
