# The control plane and the cluster's DNS, all in the namespace "lan".
# shellcheck shell=bash

kubectl_() { "$state/bin/kubectl" --kubeconfig "$state/admin.kubeconfig" --cache-dir "$state/kubectl" "$@"; }

certificate() { # NAME COMMON-NAME ORGANISATION ALTERNATIVE-NAMES: with a kubeconfig that uses it
  local pki=$state/pki
  openssl req -newkey rsa:2048 -nodes -keyout "$pki/$1.key" -subj "/O=$3/CN=$2" 2>/dev/null |
    openssl x509 -req -CA "$pki/ca.crt" -CAkey "$pki/ca.key" -CAcreateserial -days 365 \
      -extfile <(echo "subjectAltName=$4") -out "$pki/$1.crt" 2>/dev/null || die "openssl made no certificate for $1"
  # The certificates stand in the file itself, so that a copy works without this folder.
  cat >"$state/$1.kubeconfig" <<EOF
apiVersion: v1
kind: Config
clusters: [{name: carillon-local, cluster: {server: "$api", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64 -w0 "$pki/$1.crt"), client-key-data: $(base64 -w0 "$pki/$1.key")}}]
contexts: [{name: carillon-local, context: {cluster: carillon-local, user: $1}}]
current-context: carillon-local
EOF
}

certificates() {
  local pki=$state/pki
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$pki/ca.key" -out "$pki/ca.crt" -days 365 -subj /CN=carillon-local 2>/dev/null
  openssl genrsa -out "$pki/sa.key" 2048 2>/dev/null
  openssl rsa -in "$pki/sa.key" -pubout -out "$pki/sa.pub" 2>/dev/null
  certificate apiserver kube-apiserver local "IP:$control_address,IP:${service_net%.0/16}.1,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
  certificate admin admin system:masters DNS:admin
  certificate manager system:kube-controller-manager local DNS:manager
  certificate scheduler system:kube-scheduler local DNS:scheduler
  certificate proxy system:kube-proxy local DNS:proxy
}

control_plane() {
  local bin=$state/bin pki=$state/pki
  # --unsafe-no-fsync: this etcd forgets everything with the cluster anyway.
  spawn etcd lan "$bin/etcd" --data-dir "$state/etcd" --unsafe-no-fsync --log-level warn \
    --listen-client-urls http://127.0.0.1:2379 --advertise-client-urls http://127.0.0.1:2379 --listen-peer-urls http://127.0.0.1:2380
  spawn apiserver lan "$bin/hyperkube" kube-apiserver --etcd-servers=http://127.0.0.1:2379 \
    --advertise-address="$control_address" --service-cluster-ip-range="$service_net" --allow-privileged=true \
    --tls-cert-file="$pki/apiserver.crt" --tls-private-key-file="$pki/apiserver.key" --client-ca-file="$pki/ca.crt" \
    --service-account-key-file="$pki/sa.pub" --service-account-signing-key-file="$pki/sa.key" \
    --service-account-issuer=https://kubernetes.default.svc.cluster.local --authorization-mode=Node,RBAC \
    --kubelet-client-certificate="$pki/admin.crt" --kubelet-client-key="$pki/admin.key" \
    --kubelet-preferred-address-types=InternalIP
  spawn manager lan "$bin/hyperkube" kube-controller-manager --kubeconfig="$state/manager.kubeconfig" --leader-elect=false \
    --service-account-private-key-file="$pki/sa.key" --root-ca-file="$pki/ca.crt" --use-service-account-credentials=true \
    --cluster-signing-cert-file="$pki/ca.crt" --cluster-signing-key-file="$pki/ca.key" \
    --flex-volume-plugin-dir="$state/volumeplugins" --node-monitor-grace-period=20s --node-monitor-period=2s
  spawn scheduler lan "$bin/hyperkube" kube-scheduler --kubeconfig="$state/scheduler.kubeconfig" --leader-elect=false
  cat >"$state/Corefile" <<EOF
.:53 {
    bind $control_address
    errors
    kubernetes cluster.local in-addr.arpa {
        kubeconfig $state/admin.kubeconfig
        pods insecure
        ttl 1
    }
    cache 1
}
EOF
  spawn coredns lan "$bin/coredns" -conf "$state/Corefile"
}
