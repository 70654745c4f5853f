package controllers

// What the operator may do. controller-gen makes config/rbac/role.yaml of these, and the chart has
// the same rules. Everything is namespaced: one Role for each namespace that is watched, and one
// for the lease in the operator's own namespace.
//
// Deleting a StatefulSet is how its claim template changes (its pods stay), and deleting a pod is
// how it is replaced; nothing else is ever deleted by the operator. Secrets are made, read and
// renewed; one that the user names in spec.auth is only read.

// +kubebuilder:rbac:groups=carillon.dev,resources=brokers;topics;subscriptions,verbs=get;list;watch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=carillon.dev,resources=brokers/status;topics/status;subscriptions/status,verbs=patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=carillon.dev,resources=brokers/finalizers,verbs=update,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=apps,resources=statefulsets,verbs=get;list;watch;create;patch;delete,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=services;serviceaccounts;secrets,verbs=get;list;watch;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=policy,resources=poddisruptionbudgets,verbs=get;list;watch;create;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=pods,verbs=get;list;watch;delete,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups="",resources=persistentvolumeclaims,verbs=get;list;watch;patch,namespace=carillon-system,roleName=carillon-operator
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch,namespace=carillon-system,roleName=carillon-operator

// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=carillon-system,roleName=carillon-operator-leader
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=operator.carillon.dev,verbs=get;patch;update,namespace=carillon-system,roleName=carillon-operator-leader
// +kubebuilder:rbac:groups="";events.k8s.io,resources=events,verbs=create;patch,namespace=carillon-system,roleName=carillon-operator-leader
