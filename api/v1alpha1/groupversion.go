package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Group is the API group of every kind of Carillon, and the prefix of its labels and annotations.
const Group = "carillon.dev"

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: Group, Version: "v1alpha1"}

	// SchemeGroupVersion is GroupVersion under the name that generated code uses.
	SchemeGroupVersion = GroupVersion

	// SchemeBuilder registers the kinds of this package with a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Broker{}, &BrokerList{},
		&Topic{}, &TopicList{},
		&Subscription{}, &SubscriptionList{},
		&View{}, &ViewList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
