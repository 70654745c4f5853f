package build

import (
	"encoding/json"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// Attributes returns the attributes that the manifest of a Topic declares of subjects, which are
// among those that the Topic keeps.
func Attributes(topic *v1alpha1.Topic, kept []string) (coordination.Declared, error) {
	texts := map[string]map[string]json.RawMessage{}
	for _, asked := range topic.Spec.Attributes {
		texts[asked.Subject] = map[string]json.RawMessage{}
		for name, value := range asked.Set {
			texts[asked.Subject][name] = value.Raw
		}
	}
	return coordination.ParseDeclared(kept, texts)
}
