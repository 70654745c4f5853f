package expiring

import (
	"context"
	"errors"
	"slices"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/subject"
)

// asked is a marker that was published, and perhaps not kept.
type asked struct {
	tries int
	next  int64 // when it is published again, on the clock's Mono
}

// mark publishes markers in place of records that have expired and are the only ones of their
// subjects, and reports whether it did. It returns the others of those that have expired. due is in
// order. After an error it returns some of them.
func (e *expirer[S]) mark(ctx context.Context, s S, p *place, rules Rules, due []uint64, mono int64) (others []uint64, marked bool, err error) {
	for offset := range p.asked {
		if _, found := slices.BinarySearch(due, offset); !found {
			delete(p.asked, offset)
		}
	}
	var markers []protocol.Message
	var replaced []uint64
	gone := map[string]uint64{} // how many of others a subject has
	_, end := s.Offsets()
	for _, offset := range due {
		a := p.asked[offset]
		if mono < a.next {
			continue
		}
		r, none := s.Get(offset)
		if _, removed := errors.AsType[*records.NoRecordError](none); removed {
			others = append(others, offset)
			continue
		}
		if err = none; err != nil {
			break
		}
		name := string(r.Subject)
		only := false
		if !e.conditions(&r).Marks {
			var count uint64
			if _, count, err = s.OldestBelow(ctx, name, end, 1, false); err != nil {
				break
			}
			only = count <= gone[name]+1
		}
		// A marker is a rollup, and one of a subject with wildcards would remove those that match it.
		if only && a.tries < markerTries && !subject.HasWildcards(r.Subject) {
			markers, replaced = append(markers, e.marker(rules, r.Subject, offset)), append(replaced, offset)
			continue
		}
		if only {
			e.Logger.Warn("a message has expired and is removed without a marker: its topic does not take one", "topic", s.Name(), "subject", name, "offset", offset)
		}
		gone[name]++
		others = append(others, offset)
	}
	if len(markers) > 0 {
		tried := s.Publish(markers)
		for _, offset := range replaced {
			a := p.asked[offset]
			if a.next = mono + int64(markerRest); tried {
				a.tries++
			}
			p.asked[offset] = a
		}
	}
	return others, len(markers) > 0, err
}

// marker returns the marker of a subject whose only record has an offset.
func (e *expirer[S]) marker(rules Rules, subject []byte, offset uint64) protocol.Message {
	header := e.Codec.AppendMarker(nil, rules.Marker, offset)
	return protocol.Message{Subject: slices.Clone(subject), Data: header, Header: len(header)}
}
