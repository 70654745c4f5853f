# Which cluster to use: the local one, or with CLUSTER=current whatever the kubeconfig's current
# context names. Sets KUBECONFIG where needed, and IMAGE. Sourced by demo, image and test/e2e/run.
# shellcheck shell=bash

on_local_cluster() { [ "${CLUSTER:-local}" = local ]; }

# choose_cluster WHY: for a cluster that is not ours, name it and be told to
choose_cluster() {
  case ${CLUSTER:-local} in local) return ;; current) ;; *) echo "CLUSTER=$CLUSTER: local or current?" >&2; return 2 ;; esac
  local context answer
  command -v kubectl >/dev/null || { echo "CLUSTER=current needs kubectl in PATH" >&2; return 2; }
  context=$(kubectl config current-context 2>/dev/null) || { echo "CLUSTER=current: the kubeconfig has no current context (kubectl config use-context NAME)" >&2; return 2; }
  [ -n "${IMAGE:-}" ] || {
    echo "CLUSTER=current also needs IMAGE=registry/you/carillon:tag, an image that the cluster \"$context\" can pull" >&2
    return 2
  }
  if [ "${CLUSTER_CONFIRM:-}" = "$context" ]; then return; fi
  if [ "${CI:-}" != true ] && [ -t 0 ] && [ -t 2 ]; then
    printf 'This will %s in the cluster of the context "%s". Type its name to go on: ' "$1" "$context" >&2
    read -r answer
    [ "$answer" = "$context" ] && return
  fi
  echo "This would $1 in the cluster of the context \"$context\"; to allow it, set CLUSTER_CONFIRM=$context. Nothing was done." >&2
  return 1
}
