package coordination

import "strings"

// Index returns the name by which a stream tells this source from its others, as nats-server writes
// it in the header of copied messages: the stream, the filters and the destinations, with blanks
// between them.
func (s *StreamSource) Index() string {
	filter, destination := orAll(s.Filter), ">"
	if len(s.Transforms) > 0 {
		filters, destinations := make([]string, len(s.Transforms)), make([]string, len(s.Transforms))
		for i, t := range s.Transforms {
			filters[i], destinations[i] = orAll(t.Source), orAll(t.Destination)
		}
		filter, destination = strings.Join(filters, "\f"), strings.Join(destinations, "\f")
	}
	return s.Name + " " + filter + " " + destination
}

func orAll(pattern string) string {
	if pattern == "" {
		return ">"
	}
	return pattern
}
