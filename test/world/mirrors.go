package world

import (
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/subject"
)

// A Topic may mirror another one, which then has a lower number. Nobody else publishes there. Its
// log has the records of its origin, or those of some subjects, at their offsets, and in the end
// each of them that the origin still shows, each shard those of the shard of its number. That is
// judged while the origin has lost nothing and is the one that the mirror began with: a mirror
// never goes back.

// addMirror makes a Topic a mirror, if there is another one before it.
func (w *world) addMirror(d *declared) {
	if d.removes() || d.counts() || d.source != "" {
		return
	}
	for _, o := range w.topics {
		if o.number < d.number && !o.expires() && !o.schedules() && (d.origin == nil || w.chance(50)) {
			d.origin = o
		}
	}
	if d.origin != nil {
		d.source, d.spec.Subjects, d.spec.Shards = d.origin.name, nil, d.origin.shards()
		d.spec.Stream.Mirror = &coordination.StreamSource{Name: d.source}
		if w.chance(50) {
			d.spec.Stream.Mirror.Filter = mirroredSubjects
		}
	}
}

// mirroredSubjects are some of those that clients publish on.
const mirroredSubjects = "*.*.0"

// copies reports whether a Topic with a source gets the records of a subject from there.
func (d *declared) copies(on string) bool {
	m := d.spec.Stream.Mirror
	return m == nil || m.Filter == "" || subject.Matches([]byte(m.Filter), []byte(on))
}

// mirrored returns the origin of a mirror, if the mirror must have all that the origin shows; nil:
// it is none, or its origin was deleted, or has lost records. The judge is locked.
func (j *judge) mirrored(d *declared) *declared {
	for _, o := range j.w.topics {
		if o == d.origin && !o.lost && !o.returned && j.keeps(o) && (o.origin == nil || j.mirrored(o) != nil) {
			return o
		}
	}
	return nil
}

// keeps reports whether no shard of a Topic has lost anything. The judge is locked.
func (j *judge) keeps(d *declared) bool {
	for n := range d.shards() {
		if h := j.of(d.shard(n)); h.since > 0 || len(h.gone) > 0 {
			return false
		}
	}
	return true
}

// follows reports whether a Topic gets the messages that clients publish: a mirror whose origin has
// lost records waits until the origin has as many again.
func (j *judge) follows(d *declared) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return d.origin == nil || j.mirrored(d) != nil
}

// unmirrored says that a shard of a mirror lacks a record that its origin shows, or has it
// elsewhere, or returns an empty string. leader leads the shard.
func (w *world) unmirrored(d *declared, n int, leader *life) string {
	w.judge.mu.Lock()
	o, h := w.judge.mirrored(d), w.judge.of(d.shard(n))
	loses := h.since > 0 || len(h.gone) > 0 || d.retained() || d.kept() > 0
	w.judge.mu.Unlock()
	if o == nil || loses {
		return ""
	}
	of, why := w.inSync(o, n)
	if why != "" {
		return "mirrors a Topic that " + why
	}
	t := of.service.Topic(o.name)
	if t == nil || t.ShardAt(n) == nil {
		return "mirrors a Topic that isn't led"
	}
	from, s := t.ShardAt(n), leader.service.Topic(d.name).ShardAt(n)
	start, end := from.Offsets()
	removed := removedFrom(from.Removed(), start)
	shown, err := readRecords(from.NewCursor(start), start, end)
	if err != nil {
		return "mirrors a Topic that can't be read: " + err.Error()
	}
	start, end = s.Offsets()
	missing := removedFrom(s.Removed(), start)
	records, err := readRecords(s.NewCursor(start), start, end)
	if err != nil {
		return "can't be read: " + err.Error()
	}
	there := map[uint64]record{}
	for _, r := range records {
		if !missing[r.offset] {
			there[r.offset] = r
		}
	}
	for _, r := range shown {
		if other := there[r.offset]; !removed[r.offset] && d.copies(r.subject) && (other.value != r.value || other.subject != r.subject || other.time != r.time) {
			return fmt.Sprintf("has %q at %d, where the Topic that it mirrors has %s", other.value, r.offset, r.value)
		}
	}
	return ""
}

// mirrors judges the mirrors in logs at the end: what is in both logs has the same offset.
func (j *judge) mirrors(logs map[shardID][]record) {
	for _, d := range j.w.topics {
		if o := j.mirrored(d); o != nil {
			for n := range d.shards() {
				j.mirror(o, d, n, logs)
			}
		}
	}
}

func (j *judge) mirror(o, d *declared, n int, logs map[shardID][]record) {
	if j.w.broken != nil {
		return
	}
	at := map[string]uint64{}
	for _, r := range logs[o.shard(n)] {
		at[r.value] = r.offset
	}
	for _, r := range logs[d.shard(n)] {
		if offset, both := at[r.value]; both && offset != r.offset {
			j.w.fail("%s: %s stands at %d, and at %d of the Topic that it mirrors", d.shard(n), r.value, r.offset, offset)
			return
		}
		j.mirroredRecords++
	}
}
