package world

import (
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/sourcing"
	"github.com/carillon-mq/carillon/broker/topic"
)

// A Topic may have another one as its source, which then has a lower number, so that no Topic gets
// its own messages. Its log has the records of its source, each once and in their order, beside
// those of its own clients, and in the end all of them. That is judged while the source has lost
// nothing and keeps everything. If the source was made anew under its name, the records of the
// former one stay. A Topic with several shards has each of these records in the shard of its
// subject.

// addSource gives a Topic a source, if there is one before it.
func (w *world) addSource(d *declared) {
	for _, o := range w.topics {
		if o.number < d.number && o.shards() == 1 && !o.expires() && !o.schedules() && (d.source == "" || w.chance(50)) {
			d.source = o.name
		}
	}
	if d.source == "" {
		return
	}
	d.spec.Stream.Sources = []coordination.StreamSource{{Name: d.source}}
	if d.shards() == 1 && !d.schedules() && w.chance(50) {
		d.spec.Shards = 2 + w.rng.IntN(2)
	}
}

// newSourcing returns what copies from sources, as broker.Run assembles it.
func (l *life) newSourcing() *sourcing.Sourcing[*topic.ShardLeader] {
	shard := func(stream string) *topic.Shard {
		if s := l.service.Shard(stream); s != nil && !s.Desired().Deleting {
			return s
		}
		return nil
	}
	return sourcing.New(sourcing.Config[*topic.ShardLeader]{Self: l.m.id, Led: l.service.Leaders, Changed: l.service.Changed, Hub: l.hub, Payload: maxPayload, Logger: l.log,
		Epochs: func() bool { return true }, Streams: func(name string) []string { return []string{name} },
		Mirrors: func(*topic.ShardLeader) error { return nil }, // both have as many shards
		Find: func(stream string) (identity, leader string, err error) {
			if s := shard(stream); s != nil {
				return s.Key(), s.Leader(), nil
			}
			return "", "", &sourcing.NotFoundError{Stream: stream}
		},
		Copies: func(stream string) []coordination.StreamSource {
			if s := shard(stream); s != nil {
				return s.Desired().Spec.Stream.Copies()
			}
			return nil
		},
		Origin: func(identity string) sourcing.Origin {
			if s := l.service.ShardByKey(identity); s != nil {
				if led := s.Led(); led != nil {
					return led
				}
			}
			return nil
		}})
}

// copying returns the histories of the Topics that have records of a Topic, by one source or
// several ones behind each other.
func (j *judge) copying(of *declared) (all []*history) {
	for _, d := range j.w.topics {
		if of != nil && d.source != "" && d.source == of.name {
			for n := range d.shards() {
				all = append(all, j.of(d.shard(n)))
			}
			all = append(all, j.copying(d)...)
		}
	}
	return all
}

// comeAgain returns how often records may come again from a Topic's source: once for each time that
// the source was made anew, if it has them from a source of its own.
func (j *judge) comeAgain(d *declared) (times int) {
	for _, o := range j.w.topics {
		if d.source != "" && o.name == d.source && o.source != "" {
			times += o.again + j.comeAgain(o)
		}
	}
	return times
}

// copies tells the histories of a new Topic which records its source may have, also a former one of
// that name.
func (j *judge) copies(d *declared) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if d.source == "" {
		return
	}
	all := j.copying(d) // d was made anew before them
	for n := range d.shards() {
		all = append(all, j.of(d.shard(n)))
	}
	for id, o := range j.histories {
		if id.topic != d.source {
			continue
		}
		for _, h := range all {
			maps.Copy(h.made, o.made)
			maps.Copy(h.subjects, o.subjects)
		}
	}
}

// lossless returns the history of a Topic's source, or nil if it need not have all of its records.
// Of a mirror it is that of the shard of a number.
func (j *judge) lossless(d *declared, n int) *history {
	if d.origin == nil {
		n = 0 // a source has one shard
	}
	for _, o := range j.w.topics {
		if o.name != d.source || d.origin != nil && o != d.origin {
			continue
		}
		if h := j.of(o.shard(n)); h.since == 0 && !o.retained() && o.kept() == 0 && !o.removes() && len(h.gone) == 0 {
			return h
		}
	}
	return nil
}

// readCopies reads the records of a shard of a Topic with a source, schedules or fast batches as a
// client does, so that the world waits until its Subscriptions have them: some come after the
// clients have stopped, or are answered without an offset.
func (w *world) readCopies(d *declared, n int, leader *life) string {
	if d.source == "" && !d.schedules() && !d.hasFast() {
		return ""
	}
	s := leader.service.Topic(d.name).ShardAt(n)
	call := w.stamp()
	start, high := s.Offsets()
	records, err := readRecords(s.NewCursor(start), start, high)
	if err != nil {
		return "can't be read: " + err.Error()
	}
	w.judge.read(d.shard(n), call, start, high, records)
	return ""
}

// uncopied says that a shard of a Topic lacks records of its source, or returns an empty string.
// leader leads the shard.
func (w *world) uncopied(d *declared, n int, leader *life) string {
	w.judge.mu.Lock()
	o, h := w.judge.lossless(d, n), w.judge.of(d.shard(n))
	loses := h.since > 0 || len(h.gone) > 0 || d.retained() || d.kept() > 0 || d.removes()
	w.judge.mu.Unlock()
	if o == nil || loses {
		return ""
	}
	s := leader.service.Topic(d.name).ShardAt(n)
	start, high := s.Offsets()
	records, err := readRecords(s.NewCursor(start), start, high)
	if err != nil {
		return "can't be read: " + err.Error()
	}
	there := map[string]bool{}
	for _, r := range records {
		there[r.value] = true
	}
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	for _, offset := range slices.Sorted(maps.Keys(o.sure)) {
		if on := o.subjects[o.sure[offset]]; !there[o.sure[offset]] && d.copies(on) && d.shardOf(on) == n {
			return fmt.Sprintf("lacks %s at %d of its source", o.sure[offset], offset)
		}
	}
	return ""
}

// sources judges the copies in logs at the end. That none is in a log twice is judged for every
// log.
func (j *judge) sources(logs map[shardID][]record) {
	for _, d := range j.w.topics {
		for n := range d.shards() {
			if o := j.lossless(d, n); o != nil {
				j.source(o, d, n, logs)
			}
		}
	}
}

func (j *judge) source(o *history, d *declared, n int, logs map[shardID][]record) {
	log := logs[d.shard(n)]
	if log == nil || j.w.broken != nil {
		return
	}
	at, lacks := map[string]uint64{}, map[string]uint64{}
	for _, r := range logs[o.id] {
		if at[r.value] = r.offset; d.copies(r.subject) && d.shardOf(r.subject) == n {
			lacks[r.value] = r.offset
		}
	}
	h, last, again := j.of(d.shard(n)), record{}, j.comeAgain(d) > 0 // then the former source had them in its order
	for _, r := range log {
		offset, copied := at[r.value]
		if !copied {
			continue
		}
		if offset <= last.offset && !again {
			j.w.fail("%s: %s at %d, which is %d of its source, stands behind %s, which is %d", h.id, r.value, r.offset, offset, last.value, last.offset)
			return
		}
		if want := d.shardOf(r.subject); want != n {
			j.w.fail("%s: %s at %d, which is %d of its source, belongs into shard %d", h.id, r.value, r.offset, offset, want)
			return
		}
		last = record{offset: offset, value: r.value}
		delete(lacks, r.value)
		j.copiesJudged++
	}
	if h.since > 0 || len(h.gone) > 0 || d.retained() || d.kept() > 0 || d.removes() {
		return
	}
	for _, value := range slices.Sorted(maps.Keys(lacks)) {
		j.w.fail("%s: %s, which is %d of its source, was never copied", h.id, value, lacks[value])
		return
	}
}
