package coordination

// Cyclic reports whether a stream gets messages of its own back by its sources, all, or by theirs,
// whatever their filters and subjects are. copies returns the sources of other Topics. The shards
// of a Topic count as the Topic.
func Cyclic(stream string, all []StreamSource, copies func(stream string) []StreamSource) bool {
	stream = topicOf(stream)
	visited := map[string]bool{}
	for todo := all; len(todo) > 0; {
		name := topicOf(todo[len(todo)-1].Name)
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

// topicOf returns the name of the Topic of a stream. No other Topic has a name like a shard's.
func topicOf(stream string) string {
	if name, _, ok := ParseShardName(stream); ok {
		return name
	}
	return stream
}

// CopiesItself is Cyclic for a stream of the Topics in a State.
func CopiesItself(stream string, all []StreamSource, state *State) bool {
	return Cyclic(stream, all, func(name string) []StreamSource {
		if t := state.Topic(name); t != nil && !t.Deleting {
			return t.Spec.Stream.Copies()
		}
		return nil
	})
}
