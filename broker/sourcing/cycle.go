package sourcing

import "github.com/carillon-mq/carillon/broker/coordination"

// Cyclic reports whether a stream gets messages of its own back by its sources, all, or by theirs,
// whatever their filters and subjects are. copies returns the sources of other streams.
func Cyclic(stream string, all []coordination.StreamSource, copies func(stream string) []coordination.StreamSource) bool {
	visited := map[string]bool{}
	for todo := all; len(todo) > 0; {
		name := todo[len(todo)-1].Name
		if name == stream {
			return true
		}
		todo = todo[: len(todo)-1 : len(todo)-1]
		if !visited[name] {
			visited[name] = true
			todo = append(todo, copies(name)...)
		}
	}
	return false
}
