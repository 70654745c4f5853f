package simulation

import (
	"fmt"
	"maps"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/replica"
)

// judge knows what was promised, and to whom, and holds the brokers to it.
type judge struct {
	w     *world
	books map[shardID]*[replica.Parts]*book
	// inside has it look into brokers, too: whether who is in sync has all that is safe. It then sees a fault
	// long before a client could.
	inside bool
}

// book is what is known of one log from outside.
type book struct {
	w     *world
	shard shardID
	part  replica.Part
	safe  []value // by offset, as of a watermark that passed it; zero: none has
	seen  map[uint64]value
	sure  map[uint64]value // acknowledged
	where map[value]uint64 // of safe
	acked uint64           // greatest offset that was acknowledged
	start uint64           // what is below was trimmed
	highs map[int64]uint64 // the greatest watermark of each epoch
	loose bool             // it lost what only one disk had, as the Topic's durability allows
}

func newJudge(w *world, inside bool) *judge {
	return &judge{w: w, inside: inside, books: map[shardID]*[replica.Parts]*book{}}
}

func (j *judge) of(id shardID, p replica.Part) *book {
	if j.books[id] == nil {
		j.books[id] = &[replica.Parts]*book{}
		for p := range replica.Parts {
			j.books[id][p] = &book{w: j.w, shard: id, part: p, safe: make([]value, 1, 256), start: 1,
				seen: map[uint64]value{}, sure: map[uint64]value{}, where: map[value]uint64{}, highs: map[int64]uint64{}}
		}
	}
	return j.books[id][p]
}

func (b *book) String() string { return fmt.Sprintf("%s %s", b.shard, b.part) }

func (v value) String() string { return fmt.Sprintf("p%d.%d#%d", v.publisher, v.session, v.n) }

// published says whether somebody has published that value there.
func (b *book) published(v value) bool {
	if v.publisher < 1 || v.publisher > len(b.w.clients) {
		return false
	}
	p := b.w.clients[v.publisher-1]
	return p.shard == b.shard && p.part == b.part && v.n >= 1 && v.n <= p.count
}

// safe is told that a leader has moved its watermark.
func (j *judge) safe(l *leading, p replica.Part, from, to uint64) {
	b := j.of(l.id, p)
	for at := max(from, l.logs[p].start); at < to; at++ {
		v, ok := l.logs[p].value(at)
		if !ok {
			j.w.fail(Impossible, "%s: the watermark of %s is at %d, beyond its end", l.b.id, b, to)
			return
		}
		b.passed(l, at, v)
	}
	b.highs[l.epoch] = max(b.highs[l.epoch], to)
	if !j.inside {
		return
	}
	if l.b.durability(l.id) == coordination.Synced {
		j.hold(l.id, p, from, to)
		j.enough(l, p, to)
	}
}

// opened is told that a leader lets read, up to a watermark. All that was safe in earlier epochs is below it.
func (b *book) opened(l *leading, high uint64) {
	for _, epoch := range slices.Sorted(maps.Keys(b.highs)) {
		before := b.highs[epoch]
		if epoch < l.epoch && before > high && !b.loose {
			b.w.fail(StaleRead, "%s lets %s be read in epoch %d up to %d; in epoch %d it was read up to %d", l.b.id, b, l.epoch, high, epoch, before)
		}
	}
}

// enough checks that what a watermark passed is on as many brokers as the Topic asks for.
func (j *judge) enough(l *leading, p replica.Part, to uint64) {
	b, copies := j.of(l.id, p), 0
	if b.loose || to-1 < b.start {
		return
	}
	for _, other := range j.w.brokers {
		log := other.disk.open(l.id)[p]
		if other.damaged[l.id] {
			copies++ // it may have had it
		} else if v, ok := log.value(to - 1); ok && v == b.safe[to-1] && log.safe(l.b.durability(l.id)) >= to || log.start >= to {
			copies++
		}
	}
	if least := j.w.minimum(l.core.Shard()); copies < least {
		j.w.fail(TooFew, "%s has %v safe at %d of %s in epoch %d, which is on %d brokers (%d are the minimum)", l.b.id, b.safe[to-1], to-1, b, l.epoch, copies, least)
	}
}

// passed is told that a watermark has passed a value.
func (b *book) passed(l *leading, at uint64, v value) {
	if b.loose {
		return
	}
	for uint64(len(b.safe)) <= at {
		b.safe = append(b.safe, value{})
	}
	switch was := b.safe[at]; {
	case was == v:
		return
	case was != value{}:
		b.w.fail(SplitWatermark, "%s, which leads %s in epoch %d, has %v safe at %d, where %v was safe before", l.b.id, b, l.epoch, v, at, was)
	case !b.published(v):
		b.w.fail(Unpublished, "%s has %v at %d, which nobody published there", b, v, at)
	}
	b.safe[at] = v
	if other, ok := b.where[v]; ok {
		b.w.fail(Duplicated, "%s has %v at %d and at %d", b, v, other, at)
	}
	b.where[v] = at
	b.compare(at, v)
}

// compare holds a value against what clients were told is there.
func (b *book) compare(at uint64, v value) {
	if was, ok := b.sure[at]; ok && was != v {
		b.w.fail(ChangedRecord, "%s has %v at %d, where %v was acknowledged", b, v, at, was)
	}
	if was, ok := b.seen[at]; ok && was != v {
		b.w.fail(ChangedRecord, "%s has %v at %d, where %v was read before", b, v, at, was)
	}
}

// promised is told of an ack, and up to where acks were known when it was asked for.
func (b *book) promised(asked, first uint64, values []value) {
	if b.loose {
		return
	}
	if first <= asked {
		b.w.fail(StaleAnswer, "%s: %v was acknowledged at %d, but %d was before it was published", b, values[0], first, asked)
	}
	for i, v := range values {
		at := first + uint64(i)
		if at < uint64(len(b.safe)) && b.safe[at] != (value{}) && b.safe[at] != v {
			b.w.fail(ChangedRecord, "%s: %v was acknowledged at %d, where %v is", b, v, at, b.safe[at])
		}
		b.compare(at, v)
		b.sure[at] = v
		b.acked = max(b.acked, at)
	}
}

// refused is told that a condition failed since another offset was the last. It must have been, at some time between
// the question and the answer.
func (b *book) refused(asked, expected, last uint64) {
	switch {
	case b.loose:
	case last == expected || last < asked:
		b.w.fail(StaleAnswer, "%s: offset %d was expected, and refused since %d were the last; but %d was acknowledged before", b, expected, last, asked)
	case last >= uint64(len(b.safe)):
		b.w.fail(StaleAnswer, "%s: offset %d was expected, and refused since %d were the last; but only those below %d are safe", b, expected, last, len(b.safe))
	}
}

// read is told what a reader got.
func (b *book) read(first uint64, values []value) {
	if b.loose {
		return
	}
	for i, v := range values {
		at := first + uint64(i)
		if !b.published(v) {
			b.w.fail(Unpublished, "%v was read at %d of %s, which nobody published there", v, at, b)
		}
		if at < uint64(len(b.safe)) && b.safe[at] != (value{}) && b.safe[at] != v {
			b.w.fail(ChangedRecord, "%v was read at %d of %s, where %v is safe", v, at, b, b.safe[at])
		}
		b.compare(at, v)
		b.seen[at] = v
	}
}

func (j *judge) trimmed(id shardID, to uint64) {
	b := j.of(id, replica.Data)
	b.start = max(b.start, to)
}

// setChanged is told what etcd says of a shard from now on.
func (j *judge) setChanged(id shardID, shard *coordination.Shard) {
	if !j.inside || j.w.topic(id).Spec.Durability != coordination.Synced {
		return
	}
	for p := range replica.Parts {
		j.hold(id, p, j.of(id, p).start, uint64(len(j.of(id, p).safe)))
	}
}

// crashed is told that a broker died, and what it lost is gone.
func (j *judge) crashed(dead *broker) {
	for _, id := range j.w.ids {
		shard := j.w.etcd.facts.shards[id]
		if shard == nil {
			continue
		}
		for p := range replica.Parts {
			b := j.of(id, p)
			if j.w.topic(id).Spec.Durability == coordination.Synced {
				if j.inside {
					j.hold(id, p, b.start, uint64(len(b.safe)))
				}
				continue
			}
			// What only lay with the operating systems of brokers that lost their power may go.
			var end uint64
			for _, m := range shard.InSync {
				end = max(end, j.has(id, p, m.Broker))
			}
			if end < uint64(len(b.safe)) && !b.loose {
				j.w.logf("judge: %s lost what is safe from %d up to %d with the power", b, end, len(b.safe))
				b.loose = true
			}
		}
	}
}

// leastLoss is told that of all copies, none of which is vouched for, one was chosen, and that this is reported. It is the one whose
// records go furthest; another's cursors may go further, if the power took some of its own.
func (j *judge) leastLoss(id shardID, chosen string) {
	if b := j.of(id, replica.State); j.w.broker(chosen).lostPower && j.has(id, replica.State, chosen) < uint64(len(b.safe)) {
		b.loose = true
	}
}

// has is up to where a broker's log holds what is safe.
func (j *judge) has(id shardID, p replica.Part, broker string) uint64 {
	b, log := j.of(id, p), j.w.broker(broker).disk.open(id)[p]
	for at := uint64(len(b.safe)); at > b.start; at-- {
		if v, ok := log.value(at - 1); ok && v == b.safe[at-1] {
			return at
		}
	}
	return b.start
}

// hold checks that each member of the set that etcd has keeps what is safe.
func (j *judge) hold(id shardID, p replica.Part, from, to uint64) {
	b, shard := j.of(id, p), j.w.etcd.facts.shards[id]
	for _, m := range shard.InSync {
		if j.w.broker(m.Broker).damaged[id] {
			continue // nobody counts on it
		}
		log := j.w.broker(m.Broker).disk.open(id)[p]
		for at := max(from, b.start); at < to; at++ {
			if b.safe[at] == (value{}) || at < log.start {
				continue
			}
			if v, ok := log.value(at); !ok || v != b.safe[at] || at >= log.synced {
				j.w.fail(NotInSync, "%s is in the set %s of %s (epoch %d), and has not %v safe at %d: it ends at %d, synced to %d",
					m.Broker, members(shard.InSync), b, shard.Epoch, b.safe[at], at, log.end, log.synced)
				return
			}
		}
	}
}

// final holds all replicas to all promises, when everything has come to rest.
func (j *judge) final() {
	for _, id := range j.w.ids {
		shard := j.w.etcd.facts.shards[id]
		for p := range replica.Parts {
			for _, m := range shard.Replicas {
				j.of(id, p).audit(m, j.w.broker(m).disk.open(id)[p])
			}
			j.equal(id, p, shard)
		}
	}
}

// audit goes through one replica's log.
func (b *book) audit(broker string, log *modelLog) {
	there := map[value]uint64{}
	newest := map[[2]int]int{}
	for at := log.start; at < log.end; at++ {
		v, _ := log.value(at)
		if other, ok := there[v]; ok {
			b.w.fail(Duplicated, "%s on %s has %v at %d and at %d", b, broker, v, other, at)
		}
		there[v] = at
		if !b.published(v) {
			b.w.fail(Unpublished, "%s on %s has %v at %d, which nobody published there", b, broker, v, at)
		}
		session := [2]int{v.publisher, v.session}
		if v.n < newest[session] {
			b.w.fail(OutOfOrder, "%s on %s has %v at %d, behind number %d of the same session", b, broker, v, at, newest[session])
		}
		newest[session] = v.n
		if !b.loose {
			b.compare(at, v)
		}
	}
	if b.loose {
		return
	}
	var lost []uint64
	first, last := uint64(0), uint64(0) // of those acknowledged that are there
	for _, at := range b.acks() {
		if at < log.start && log.start <= b.start {
			continue
		}
		if _, ok := there[b.sure[at]]; ok {
			if first == 0 {
				first = at
			}
			last = at
		} else {
			lost = append(lost, at)
		}
	}
	if len(lost) > 0 {
		at, kind := lost[0], LostMiddle
		switch {
		case at > last:
			kind = LostPostfix
		case at < first:
			kind = LostPrefix
		}
		b.w.fail(kind, "%s on %s lacks %d acknowledged records, the first of them %v at %d; it holds %d to %d", b, broker, len(lost), b.sure[at], at, log.start, log.end)
		return
	}
	for _, at := range slices.Sorted(maps.Keys(b.seen)) {
		v := b.seen[at]
		if w, ok := log.value(at); at >= log.start && (!ok || w != v) {
			b.w.fail(ChangedRecord, "%s on %s lacks %v, which was read at %d", b, broker, v, at)
		}
	}
}

func (b *book) acks() []uint64 {
	return slices.Sorted(maps.Keys(b.sure))
}

// equal compares the replicas batch by batch, where both retain them.
func (j *judge) equal(id shardID, p replica.Part, shard *coordination.Shard) {
	first := j.w.broker(shard.Leader).disk.open(id)[p]
	for _, m := range shard.Replicas {
		log := j.w.broker(m).disk.open(id)[p]
		if log.end != first.end {
			j.w.fail(Diverged, "%s %s ends at %d on %s, and at %d on its leader %s", id, p, log.end, m, first.end, shard.Leader)
			return
		}
		for at := max(log.start, first.start); at < log.end; {
			a, b := first.batches[first.at(at)], log.batches[log.at(at)]
			if a.epoch != b.epoch || a.first != b.first || !slices.Equal(a.values, b.values) {
				j.w.fail(Diverged, "%s %s differs at %d: %v of epoch %d on its leader %s, %v of epoch %d on %s",
					id, p, at, a.values, a.epoch, shard.Leader, b.values, b.epoch, m)
				return
			}
			at = a.end()
		}
	}
}
