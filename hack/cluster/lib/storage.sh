# The default StorageClass: folders on the node's own disk, made by local-path-provisioner.
# shellcheck shell=bash

node_paths() { # NODES: one entry for each, as JSON
  local n comma=
  for n in $(seq "$1"); do
    printf '%s{"node": "node%s", "paths": ["%s/node%s/volumes"]}' "$comma" "$n" "$state" "$n"
    comma=', '
  done
}

storage() { # NODES
  kubectl_ apply -f - >/dev/null <<EOF
apiVersion: v1
kind: Namespace
metadata: {name: local-path-storage}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: local-path-provisioner, namespace: local-path-storage}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: local-path-provisioner}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: local-path-provisioner, namespace: local-path-storage}]
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local-path, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}
provisioner: rancher.io/local-path
volumeBindingMode: WaitForFirstConsumer
reclaimPolicy: Delete
---
apiVersion: v1
kind: ConfigMap
metadata: {name: local-path-config, namespace: local-path-storage}
data:
  config.json: |
    {"nodePathMap": [$(node_paths "$1")]}
  setup: "toolbox makes VOL_DIR"
  teardown: "toolbox removes VOL_DIR"
  helperPod.yaml: |
    apiVersion: v1
    kind: Pod
    metadata: {name: helper-pod}
    spec: {containers: [{name: helper-pod, image: "localhost/toolbox:1", imagePullPolicy: Never}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: local-path-provisioner, namespace: local-path-storage}
spec:
  selector: {matchLabels: {app: local-path-provisioner}}
  template:
    metadata: {labels: {app: local-path-provisioner}}
    spec:
      serviceAccountName: local-path-provisioner
      tolerations: [{operator: Exists, tolerationSeconds: 5, effect: NoExecute}]
      containers:
        - name: provisioner
          image: localhost/local-path-provisioner:1
          imagePullPolicy: Never
          args: [start, --config, /etc/config/config.json, --helper-image, "localhost/toolbox:1", --service-account-name, local-path-provisioner]
          env: [{name: POD_NAMESPACE, value: local-path-storage}]
          volumeMounts: [{name: config, mountPath: /etc/config}]
      volumes: [{name: config, configMap: {name: local-path-config}}]
EOF
}
