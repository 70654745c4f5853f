package sourcing

import "github.com/carillon-mq/carillon/broker/coordination"

// Streams returns the streams with the records of a stream of a name: those of its shards, if it is
// a Topic with several, and else itself, also if there is none. nil: there are no such Topics.
type Streams func(name string) []string

// streamOf is a stream that is copied for a source.
type streamOf struct {
	source coordination.StreamSource // as it is configured
	named  coordination.StreamSource // with the name of the stream
}

// of returns what is copied for all sources of the shard in a place, at most maxStreams. Each shard
// of an origin is copied on its own: its records are in order, and there is none among shards. A
// stream that two sources name is copied for the first one.
func (s Streams) of(all []coordination.StreamSource, at Place) (streams []streamOf) {
	seen := map[string]bool{}
	for _, source := range all {
		for _, name := range s.names(source, at) {
			one := streamOf{source: source, named: source}
			one.named.Name = name
			if index := one.named.Index(); !seen[index] && len(streams) < maxStreams {
				seen[index] = true
				streams = append(streams, one)
			}
		}
	}
	return streams
}

// names returns the streams of a source. A mirror has the offsets of one stream: that of the
// origin's shard with its number.
func (s Streams) names(source coordination.StreamSource, at Place) []string {
	switch {
	case source.Mirrored:
		return []string{coordination.ShardStream(source.Name, at.shards(), at.Number)}
	case s == nil:
		return []string{source.Name}
	}
	return s(source.Name)
}
