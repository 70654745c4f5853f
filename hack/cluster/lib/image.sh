# Images: archives in $state/image, put onto every node; nothing is ever pulled.
# shellcheck shell=bash

ctr_() { ctr -a "$state/node$1/containerd.sock" -n k8s.io "${@:2}"; } # N ...

# archive FILE NAME ROOT CONFIG: a docker-archive of one layer, from the folder ROOT
archive() {
  local file=$1 name=$2 root=$3 config=$4 work
  work=$(mktemp -d)
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$root" -cf "$work/layer.tar" .
  printf '{"architecture":"%s","os":"linux","config":%s,"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(architecture)" "$config" "$(sha256sum "$work/layer.tar" | cut -d' ' -f1)" >"$work/config.json"
  printf '[{"Config":"config.json","RepoTags":["%s"],"Layers":["layer.tar"]}]' "$name" >"$work/manifest.json"
  tar -C "$work" -cf "$file" manifest.json config.json layer.tar
  rm -rf "$work"
}

architecture() { case $(uname -m) in x86_64) echo amd64 ;; aarch64) echo arm64 ;; *) uname -m ;; esac }

# own_images: what the cluster itself runs in pods
own_images() {
  local root; root=$(mktemp -d)
  install -D -m 0755 "$state/bin/toolbox" "$root/toolbox"
  mkdir "$root/bin"
  ln -s /toolbox "$root/bin/sh"
  mkdir -m 1777 "$root/tmp"
  archive "$state/image/pause.tar" localhost/pause:1 "$root" '{"Entrypoint":["/toolbox"],"Cmd":["hold"]}'
  archive "$state/image/toolbox.tar" localhost/toolbox:1 "$root" '{"Entrypoint":["/toolbox"]}'
  rm -rf "${root:?}"/*
  install -m 0755 "$state/bin/local-path-provisioner" "$root/provisioner"
  archive "$state/image/provisioner.tar" localhost/local-path-provisioner:1 "$root" '{"Entrypoint":["/provisioner"]}'
  rm -rf "$root"
}

archive_name() { # FILE: the image's name, from a Docker archive or an OCI one
  tar -xOf "$1" manifest.json 2>/dev/null | sed -n 's/.*"RepoTags": *\[ *"\([^"]*\)".*/\1/p' | head -n 1
}

import() { ctr_ "$1" images import "$2" 2>&1; } # N ARCHIVE

# import_missing N: a node that starts again has its images on its disk, but for what was loaded meanwhile
import_missing() {
  local file name have message
  have=$(ctr_ "$1" images list -q) || die "containerd on node $1 does not list its images"
  for file in "$state"/image/*.tar; do
    name=$(archive_name "$file")
    [ -n "$name" ] && grep -qxF "$name" <<<"$have" && continue
    message=$(import "$1" "$file") || die "node $1 did not take the image $(basename "$file"): $message"
  done
}

load() { # ARCHIVE
  local file=${1:-} n kept failed=() waits=() nodes=() i
  [ -f "$file" ] || die "which archive? \"$file\" is no file (cluster load IMAGE.tar)"
  tar -tf "$file" >/dev/null 2>&1 || die "$file is no tar archive"
  kept=$state/image/$(basename "$file" .tar).tar
  install -m 0600 "$file" "$kept"
  for n in $(node_numbers); do
    alive "node$n-containerd" >/dev/null || { say "node $n is not running; it gets the image when it starts"; continue; }
    { import "$n" "$kept" || exit 1; } >"$state/log/load-node$n.log" &
    waits+=($!) nodes+=("$n")
  done
  for i in "${!waits[@]}"; do wait "${waits[$i]}" || failed+=("${nodes[$i]}"); done
  [ ${#failed[@]} = 0 ] && return
  for n in "${failed[@]}"; do show_log "load-node$n"; done
  rm -f "$kept"
  die "$file was not taken by node ${failed[*]}"
}
