package attribute

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// Set is the attributes of a subject. It is not changed once it is shared.
type Set map[string]Value

// Equal reports whether both have the same names with equal values.
func (s Set) Equal(o Set) bool { return maps.EqualFunc(s, o, Value.Equal) }

// Size returns the size of the set as JSON, in bytes.
func (s Set) Size() int { return len(s.AppendJSON(nil)) }

// AppendJSON appends the set as JSON, with the names in order.
func (s Set) AppendJSON(b []byte) []byte {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(s)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = s[name].AppendJSON(b)
	}
	return append(b, '}')
}

// MarshalJSON implements json.Marshaler.
func (s Set) MarshalJSON() ([]byte, error) { return s.AppendJSON(nil), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (s *Set) UnmarshalJSON(data []byte) (err error) {
	*s, err = SetFromJSON(data)
	return err
}

// SetFromJSON returns the set of an object, or an error that names the attribute that can't be one.
func SetFromJSON(data []byte) (Set, error) {
	var texts map[string]json.RawMessage
	if err := json.Unmarshal(data, &texts); err != nil {
		return nil, err
	}
	s := make(Set, len(texts))
	for name, text := range texts {
		if !ValidName(name) {
			return nil, badName(name)
		}
		value, err := FromJSON(text)
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		s[name] = value
	}
	return s, nil
}

// ValidName reports whether an attribute may have the name: a letter or an underscore, and up to 63
// letters, digits, underscores, dots and hyphens.
func ValidName(name string) bool {
	if name == "" || len(name) > maxName {
		return false
	}
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '.' || c == '-'):
		default:
			return false
		}
	}
	return true
}

func badName(name string) error {
	return fmt.Errorf("an attribute named %.100q (begin with a letter or _, and go on with letters, digits, _, . and -, %d at most)", name, maxName)
}

// Check returns an error if the set exceeds the bounds of a subject's attributes.
func (s Set) Check() error {
	for name := range s {
		if !ValidName(name) {
			return badName(name)
		}
	}
	if size := s.Size(); size > MaxBytes {
		return fmt.Errorf("attributes of %d bytes as JSON (a subject may have %d: delete some, or shorten them)", size, MaxBytes)
	}
	return nil
}
