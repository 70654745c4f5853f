// Package v1alpha1 is what users of Carillon write: the kinds Broker, Topic and Subscription.
//
// Everything that can be judged without looking at the cluster is judged by the API server, by
// the schema and the CEL rules in these types, whose messages say what to write instead; there is
// no webhook. What is not served yet is not in the schema: kubectl, Helm and every client that
// applies server-side refuse such a field by name, so that nobody believes in what nobody does.
//
// Every kind follows the kstatus convention: Ready always, Reconciling while work is under way,
// Stalled when only a person can help. The schema's default status has observedGeneration -1, so
// that an object that no controller has looked at is never taken for one that is well.
//
// The package holds types and pure functions of them, and imports nothing else of Carillon.
//
// +kubebuilder:object:generate=true
// +kubebuilder:ac:generate=true
// +kubebuilder:ac:output:package="applyconfiguration"
// +groupName=carillon.dev
package v1alpha1
