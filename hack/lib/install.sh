# How the demo and the end-to-end tests install the chart and run the benchmark Job.
# shellcheck shell=bash

# image_values IMAGE: the chart's flags for it; a digest follows @, a tag the last colon of the last
# part
image_values() {
  local image=$1 repository
  repository=${image%@*}
  [[ ${repository##*/} != *:* ]] || repository=${repository%:*}
  if [[ $image == *@* ]]; then
    printf '%s\n' --set "image.repository=$repository" --set "image.digest=${image#*@}"
  elif [ "$repository" != "$image" ]; then
    printf '%s\n' --set "image.repository=$repository" --set-string "image.tag=${image##*:}"
  else
    printf '%s\n' --set "image.repository=$repository"
  fi
}

# install_chart NAMESPACE IMAGE [FLAGS...]: install, or upgrade what is there, and wait until the
# operator is ready
install_chart() {
  local namespace=$1 image=$2 values; shift 2
  mapfile -t values < <(image_values "$image")
  "${HELM:-helm}" upgrade --install carillon charts/carillon --namespace "$namespace" --create-namespace \
    "${values[@]}" --wait --timeout 3m "$@"
}

# run_benchmark NAMESPACE IMAGE: the sample Job with this image, again if it ran before; prints its
# log
run_benchmark() {
  local namespace=$1 image=$2 job=benchmark deadline=$((SECONDS + 420)) state
  job=$(kubectl create --dry-run=client -f config/samples/benchmark-job.yaml -o 'jsonpath={.metadata.name}')
  kubectl -n "$namespace" delete job "$job" --ignore-not-found --wait >/dev/null
  kubectl set image --local -f config/samples/benchmark-job.yaml "*=$image" -o yaml | kubectl -n "$namespace" apply -f - >/dev/null
  while :; do
    state=$(kubectl -n "$namespace" get job "$job" -o 'jsonpath={range .status.conditions[?(@.status=="True")]}{.type} {end}')
    case $state in *Complete*) break ;; *Failed*) kubectl -n "$namespace" logs "job/$job"; echo "the benchmark Job failed: $state" >&2; return 1 ;; esac
    [ $SECONDS -lt $deadline ] || { kubectl -n "$namespace" describe job "$job" >&2; echo "the benchmark Job did not end within 7 minutes" >&2; return 1; }
    sleep 1
  done
  kubectl -n "$namespace" logs "job/$job"
}
