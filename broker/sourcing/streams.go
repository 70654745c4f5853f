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

// of returns what is copied for all sources of a shard, at most maxStreams. Each shard of an origin
// is copied on its own: its records are in order, and there is none among shards. A stream that two
// sources name is copied for the first one. A mirror has the offsets of one stream only.
func (s Streams) of(all []coordination.StreamSource) (streams []streamOf) {
	seen := map[string]bool{}
	for _, source := range all {
		for _, name := range s.names(source) {
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

func (s Streams) names(source coordination.StreamSource) []string {
	if s == nil || source.Mirrored {
		return []string{source.Name}
	}
	return s(source.Name)
}
