package controllers

// The operator's permissions. controller-gen makes config/rbac/role.yaml of these markers, and the
// chart has the same rules. All are namespaced: one Role for each watched namespace, and one for
// the lease in the operator's own namespace.
//
// The operator deletes StatefulSets, to change their claim templates (their pods stay), and pods,
// to replace them, and nothing else. It resets the status of a StatefulSet that Kubernetes'
// controller took from a former one of that name. It creates, reads and renews its own Secrets, and
// only reads the Secrets that spec.auth and spec.tls name, those of the type carillon.dev/user, and
// those with the label carillon.dev/push that Subscriptions refer to. It watches its own Secrets
// and those of users. ConfigMaps and cert-manager's Certificates are its own, of spec.tls, and read
// by name only.

// +kubebuilder:rbac:groups=carillon.dev,resources=brokers;topics;subscriptions;views,verbs=get;list;watch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=carillon.dev,resources=brokers/status;topics/status;subscriptions/status;views/status,verbs=patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=carillon.dev,resources=brokers/finalizers,verbs=update,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=apps,resources=statefulsets/status,verbs=patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts;secrets,verbs=get;list;watch;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=configmaps,verbs=get;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=cert-manager.io,resources=certificates,verbs=get;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=carillon-system,roleName=carillon-operator

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=carillon-system,roleName=carillon-operator-leader
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=operator.carillon.dev,verbs=get;patch;update,namespace=carillon-system,roleName=carillon-operator-leader
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch,namespace=carillon-system,roleName=carillon-operator-leader
