{{/*
What the operator may do with the objects of a namespace that it serves. One Role per watched
namespace holds these, or one ClusterRole where all are watched.
*/}}
{{- define "carillon.rules" -}}
- apiGroups: [carillon.dev]
  resources: [brokers, topics, subscriptions]
  verbs: [get, list, watch]
- apiGroups: [carillon.dev]
  resources: [brokers/status, topics/status, subscriptions/status]
  verbs: [get, patch, update]
# Where ownerReferences that block deletion are checked, setting one takes this.
- apiGroups: [carillon.dev]
  resources: [brokers/finalizers]
  verbs: [update]
- apiGroups: [apps]
  resources: [statefulsets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""]
  resources: [services, serviceaccounts, secrets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
# Rolling a pod is deleting it; volumes grow by a patch and go with deletionPolicy Delete.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, delete]
- apiGroups: [""]
  resources: [persistentvolumeclaims]
  verbs: [get, list, watch, patch, delete]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
