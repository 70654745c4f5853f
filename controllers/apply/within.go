package apply

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// missing returns the path of the first field of wanted that live lacks or has with another value;
// empty: none. Further fields of live are ignored: they are defaults of the API server or belong to
// other managers.
func missing(wanted, live map[string]any) string {
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		have, ok := live[key]
		// Objects from the cache lack their kind.
		if !ok && (key == "apiVersion" || key == "kind") {
			continue
		}
		if !ok {
			return "." + key
		}
		if path, same := valueWithin(wanted[key], have); !same {
			return "." + key + path
		}
	}
	return ""
}

func valueWithin(want, have any) (path string, same bool) {
	switch want := want.(type) {
	case map[string]any:
		if have, ok := have.(map[string]any); ok {
			path = missing(want, have)
			return path, path == ""
		}
		return "", false
	case []any:
		if have, ok := have.([]any); ok {
			return listWithin(want, have)
		}
		return "", false
	default:
		return "", reflect.DeepEqual(want, have)
	}
}

// listWithin compares elements by name if they have names, so a container that somebody added is
// ignored. Other lists are compared element by element.
func listWithin(want, have []any) (path string, same bool) {
	byName := map[string]any{}
	for _, element := range have {
		if name, ok := nameOf(element); ok {
			byName[name] = element
		}
	}
	if len(byName) != len(have) && len(want) != len(have) {
		return "", false
	}
	for i, element := range want {
		at := fmt.Sprintf("[%d]", i)
		var counterpart any
		if name, ok := nameOf(element); ok {
			at = fmt.Sprintf("[%s]", name)
			counterpart = byName[name]
		} else if i < len(have) {
			counterpart = have[i]
		}
		if counterpart == nil {
			return at, false
		}
		if path, same := valueWithin(element, counterpart); !same {
			return at + path, false
		}
	}
	return "", true
}

// nameOf returns the name of a list's element: its field, or the one in its metadata.
func nameOf(element any) (string, bool) {
	fields, ok := element.(map[string]any)
	if !ok {
		return "", false
	}
	if metadata, ok := fields["metadata"].(map[string]any); ok {
		fields = metadata
	}
	name, ok := fields["name"].(string)
	return name, ok
}
