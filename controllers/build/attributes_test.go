package build_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
)

func TestAttributesAreThoseOfTheTopicsSubjects(t *testing.T) {
	declared := func(of, name, value string) *v1alpha1.Topic {
		topic := &v1alpha1.Topic{}
		topic.Spec.Attributes = []v1alpha1.SubjectAttributes{{Subject: of, Set: map[string]apiextensionsv1.JSON{name: {Raw: []byte(value)}}}}
		return topic
	}
	kept := []string{"sensors.>", "room.*"}
	for subject, value := range map[string]string{"sensors.7": `"410"`, "sensors.7.8": `4`, "room.1": `["a",1,true]`} {
		got, err := build.Attributes(declared(subject, "x", value), kept)
		set := got[subject]
		if err != nil || !slices.Equal(slices.Collect(maps.Keys(got)), []string{subject}) || string(set.AppendJSON(nil)) != `{"x":`+value+`}` {
			t.Errorf("%s of %s is %v, %v", value, subject, got, err)
		}
	}
	if got, err := build.Attributes(&v1alpha1.Topic{}, kept); err != nil || len(got) != 0 {
		t.Errorf("none are %v, %v", got, err)
	}
	for _, tc := range []struct{ subject, name, value, says string }{
		{"other.7", "x", `1`, "none of this Topic"}, {"room.1.2", "x", `1`, "none of this Topic"}, {"sensors.*", "x", `1`, "no subject"},
		{"sensors.7", "1x", `1`, "named"}, {"sensors.7", "x", `{}`, `attribute "x"`}, {"sensors.7", "x", `"` + strings.Repeat("x", 5000) + `"`, "4096"},
	} {
		if _, err := build.Attributes(declared(tc.subject, tc.name, tc.value), kept); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s=%.20s of %s: %v, want %q", tc.name, tc.value, tc.subject, err, tc.says)
		}
	}
}
