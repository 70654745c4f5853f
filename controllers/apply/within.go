package apply

import "reflect"

// within says whether everything in wanted is found in live. What live has besides is somebody
// else's: a default of the API server, a field of another manager.
func within(wanted, live map[string]any) bool {
	for key, want := range wanted {
		// Objects from the cache don't say what kind they are.
		if key == "apiVersion" || key == "kind" {
			if _, ok := live[key]; !ok {
				continue
			}
		}
		have, ok := live[key]
		if !ok || !valueWithin(want, have) {
			return false
		}
	}
	return true
}

func valueWithin(want, have any) bool {
	switch want := want.(type) {
	case map[string]any:
		have, ok := have.(map[string]any)
		return ok && within(want, have)
	case []any:
		have, ok := have.([]any)
		return ok && listWithin(want, have)
	default:
		return reflect.DeepEqual(want, have)
	}
}

// listWithin compares by name, where the elements have names; so a container that somebody added is
// theirs. Other lists are compared element by element.
func listWithin(want, have []any) bool {
	byName := map[string]any{}
	for _, element := range have {
		if name, ok := nameOf(element); ok {
			byName[name] = element
		}
	}
	if len(byName) != len(have) && len(want) != len(have) {
		return false
	}
	for i, element := range want {
		var counterpart any
		if name, ok := nameOf(element); ok {
			counterpart = byName[name]
		} else if i < len(have) {
			counterpart = have[i]
		}
		if counterpart == nil || !valueWithin(element, counterpart) {
			return false
		}
	}
	return true
}

// nameOf is the name of a list's element: its own, or that in its metadata.
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
