package jetstream

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
)

// mirrors are the names of the mirrors of each stream that has some, as a State has them.
type mirrors struct {
	state *coordination.State
	of    map[string][]string
}

func mirrorsIn(state *coordination.State) *mirrors {
	m := &mirrors{state: state, of: map[string][]string{}}
	for t := range state.Topics() {
		if origin := t.Spec.Stream.Mirror; origin != nil && !t.Deleting {
			m.of[origin.Name] = append(m.of[origin.Name], t.Name)
		}
	}
	return m
}

// alternates returns a stream and its mirrors, or nothing if it has no mirror. The mirrors are
// looked for once per State, however many streams are asked for.
func (s *Server) alternates(stream string) []jsapi.Alternate {
	state := s.state()
	m := s.mirrors.Load()
	if m == nil || m.state != state {
		m = mirrorsIn(state)
		s.mirrors.Store(m)
	}
	names := m.of[stream]
	if len(names) == 0 {
		return nil
	}
	all := []jsapi.Alternate{{Name: stream, Cluster: s.config.Cluster}}
	for _, name := range slices.Sorted(slices.Values(names)) {
		all = append(all, jsapi.Alternate{Name: name, Cluster: s.config.Cluster})
	}
	return all
}
