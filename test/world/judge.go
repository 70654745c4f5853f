package world

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/test/recount"
)

// judge knows what clients did and were told, and checks the brokers' promises: as far as possible
// while they run, and against the logs at the end.
type judge struct {
	w         *world
	mu        sync.Mutex
	histories map[shardID]*history
	// lives maps each registration, which is an entry of in-sync sets, to its process.
	lives map[coordination.Replica]*life
	// forgotten is a Topic whose shard etcd forgot while all its copies were away; nil: none.
	forgotten *declared
	// ended says that the world is being stopped. From now on no loss is allowed.
	ended bool

	takings, expired, marked, firings, batched, fasts, totalled, copiesJudged, mirroredRecords, snapshots, deliveries, repeated, losses, given, oldIDs, displacements, results, alerts int // what happened, for tests of the tests
}

// history is what clients know of one shard's log.
type history struct {
	w     *world
	id    shardID
	topic *declared
	// since is the stamp at which the shard last lost what all its in-sync replicas held, as the
	// Topic's durability allows; 0: never. Answers to requests before that stamp need not hold any
	// more.
	since    uint64
	ops      []*operation
	sure     map[uint64]string        // by offset: acknowledged, read or delivered
	made     map[string]time.Duration // published values, and when each was published first
	subjects map[string]string        // of values
	looks    []look
	lasts    []subjectLook
	gone     map[uint64]bool    // offsets that a leader gave up, since no replica has them
	removed  map[uint64]uint64  // offsets that were removed for a reader, and a stamp after that
	deleted  map[uint64]ackedAt // offsets whose deletion by a client was answered
	asked    map[uint64]string  // by offset: the value of the record whose deletion was asked for
	rollups  []*operation
	parts    map[string]*operation // of atomic batches, by value
	fast     map[string]*operation // of fast batches, by value
	ttls     map[string]*operation // with a TTL, by value
	// schedules are by value.
	schedules map[string]*operation
	readings  map[string]*recount.Reading // what messages say to Views, by value
	counted   map[string]int              // increments of counters, by value
	// cursors are those of the Topic's Subscriptions, by name.
	cursors map[string]*cursorHistory

	lately time.Duration // time of the last ack, duplicate or refusal by condition
	ever   bool
}

// longestGap is how long a Topic may go without an answer in a world whose only fault is one
// hanging disk at a time: the ten seconds within which another broker leads, and the time that
// clients take to find it.
const longestGap = 15 * time.Second

// look is an answer about the end of a log: at some time between the question and the answer, last
// was the last offset.
type look struct {
	call, back uint64
	last       uint64
	what       string
}

// subjectLook is an answer about the last message of a subject; last is 0 if there is none.
type subjectLook struct {
	call, back uint64
	subject    string
	last       uint64
}

func newJudge(w *world) *judge {
	return &judge{w: w, histories: map[shardID]*history{}, lives: map[coordination.Replica]*life{}}
}

func (j *judge) of(id shardID) *history {
	h := j.histories[id]
	if h == nil {
		h = &history{w: j.w, id: id, sure: map[uint64]string{}, gone: map[uint64]bool{}, removed: map[uint64]uint64{}, deleted: map[uint64]ackedAt{}, made: map[string]time.Duration{}, subjects: map[string]string{},
			asked: map[uint64]string{}, parts: map[string]*operation{}, fast: map[string]*operation{}, ttls: map[string]*operation{}, schedules: map[string]*operation{}, counted: map[string]int{}, readings: map[string]*recount.Reading{}, cursors: map[string]*cursorHistory{}}
		j.histories[id] = h
	}
	return h
}

func (j *judge) called(op *operation) {
	op.call, op.at = j.w.stamp(), j.w.now()
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(op.shard)
	h.ops = append(h.ops, op)
	h.subjects[op.value] = op.subject
	h.reads(op.value, op.reading)
	switch {
	case op.rollup != "":
		h.rollups = append(h.rollups, op)
	case op.due > 0:
		h.scheduled(op)
	case op.ttl > 0:
		h.ttls[op.value] = op
	case op.increment != 0:
		h.counted[op.value] = op.increment
	case op.batch != nil:
		h.parts[op.value] = op
	case op.fast != nil:
		h.fast[op.value] = op
	}
	if _, again := h.made[op.value]; !again {
		h.made[op.value] = op.at
	}
	for _, copying := range j.copying(h.topic) {
		copying.made[op.value], copying.subjects[op.value] = h.made[op.value], op.subject
	}
}

func (j *judge) answered(op *operation) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(op.shard)
	if op.outcome != refused {
		j.gap(h)
		h.lately, h.ever = j.w.now(), true
	}
	switch op.outcome {
	case kept:
		if (op.expects == expecting) && op.offset != op.expected+1 {
			j.w.fail("%s is kept at %d, and expected %d to be the last message of %s", op.value, op.offset, op.expected, op.shard)
		}
		h.learn(j.w, op.call, op.offset, op.value, "acknowledged")
	case duplicate:
		h.learn(j.w, op.call, op.offset, op.value, "acknowledged as a duplicate")
	case wrongLast:
		if op.offset == op.expected {
			j.w.fail("%s was refused, since %d is the last message, which it expected", op.value, op.offset)
		}
	}
}

// gap judges the time since the last answer.
func (j *judge) gap(h *history) {
	if gap := j.w.now() - h.lately; j.w.patient && h.ever && gap > longestGap {
		j.w.fail("%s: nobody was answered for %v, and nothing was wrong but one disk", h.id, gap)
	}
}

// learn records which value stands at an offset, by the answer to a request with the stamp call.
func (h *history) learn(w *world, call, offset uint64, value, how string) {
	if _, ok := h.made[value]; !ok {
		w.fail("%s: %s is %s at %d, and nobody published it", h.id, value, how, offset)
	}
	if call <= h.since {
		return
	}
	if was, ok := h.sure[offset]; ok && was != value {
		w.fail("%s: %s is %s at %d, where %s was acknowledged or read before", h.id, h.titled(value), how, offset, h.titled(was))
	}
	h.sure[offset] = value
}

// titled returns a value for a message, which says whether it is a part of an atomic batch: the
// offsets of such parts follow from the answer to the last one.
func (h *history) titled(value string) string {
	if h.parts[value] != nil {
		return value + " of an atomic batch"
	}
	return value
}

// read judges the records that a reader got for the offsets from up to, not including, end.
func (j *judge) read(id shardID, call, from, end uint64, records []record) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	for i, r := range records {
		if i > 0 && r.offset <= records[i-1].offset {
			j.w.fail("%s: record %d is read behind %d", id, r.offset, records[i-1].offset)
		}
		h.meet(r)
		h.fired(r)
		h.learn(j.w, call, r.offset, r.value, "read")
	}
	if call > h.since {
		h.gaps(j.w, from, end, records)
		h.halved(j.w, end, records)
	}
}

func (j *judge) saw(id shardID, call, back, last uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	h.looks = append(h.looks, look{call, back, last, "the last message is asked for"})
}

func (j *judge) sawLast(id shardID, l subjectLook) {
	j.mu.Lock()
	defer j.mu.Unlock()
	h := j.of(id)
	h.lasts = append(h.lasts, l)
}

func (j *judge) snapshotLost(id shardID, start, high uint64, what string) {
	j.w.fail("%s: a snapshot of %d to %d changed while it was held: %s", id, start, high, what)
}

// copied is a replica's log at the end.
type copied struct {
	machine string
	start   uint64
	end     uint64
	bytes   int64 // of its segments
	records []record
}

// final compares the replicas of a shard with each other, and with what clients were told.
func (j *judge) final(id shardID, copies []copied) {
	h := j.of(id)
	if len(copies) == 0 {
		j.w.fail("%s: there is no copy at the end", id)
		return
	}
	for i, c := range copies {
		if err := h.differ(copies[0], c); err != nil {
			j.w.fail("%s: %w", id, err)
			return
		}
		j.audit(h, c)
		if i == 0 {
			for _, name := range h.topic.subscriptions {
				h.cursor(name).complete(j.w, h, c)
			}
		}
	}
	all := h.everything(copies)
	j.sequence(h, all)
	j.answers(h, all)
	j.registers(h, all)
	j.batches(h, all)
	j.fastBatches(h, all)
	j.totals(h, all)
	j.markers(h, all)
	j.schedules(h, all)
}

// connection is a client's connection to one process.
type connection struct {
	client *client
	life   *life
}

// sequence checks that the messages of a connection stand in the order in which it published them.
// A message that was published twice may stand where its second copy arrived.
func (j *judge) sequence(h *history, log copied) {
	published := map[string]*operation{}
	for _, op := range h.ops {
		if _, again := published[op.value]; again {
			published[op.value] = nil
		} else {
			published[op.value] = op
		}
	}
	last := map[connection]*operation{}
	for _, r := range log.records {
		op := published[r.value]
		if op == nil {
			continue
		}
		from := connection{op.client, op.life}
		if before := last[from]; before != nil && before.call > op.call {
			j.w.fail("%s: %s stands at %d behind %s, which its connection published later", h.id, op.value, r.offset, before.value)
			return
		}
		last[from] = op
	}
}

// audit checks one copy: its offsets and epochs, that every record was published once, and that it
// has every acknowledged record.
func (j *judge) audit(h *history, c copied) {
	h.limits(j.w, c)
	there := map[uint64]record{}
	where, again := map[string]uint64{}, map[string]int{}
	for i, r := range c.records {
		if i > 0 {
			before := c.records[i-1]
			if r.offset <= before.offset || r.epoch < before.epoch || !h.mayLack(before.offset+1, r.offset) {
				j.w.fail("%s: record %d of epoch %d stands behind %d of epoch %d", h.id, r.offset, r.epoch, before.offset, before.epoch)
			}
		}
		h.meet(r)
		h.fired(r)
		if _, ok := h.made[r.value]; !ok || h.subjects[r.value] != r.subject {
			j.w.fail("%s: %q on %s stands at %d, and nobody published it", h.id, r.value, r.subject, r.offset)
		}
		if other, ok := where[r.value]; ok && !j.w.jumps { // while the time is in doubt, a broker may forget ids that it read from a log
			if again[r.value]++; again[r.value] > j.comeAgain(h.topic) {
				j.w.fail("%s: %s stands at %d and at %d", h.id, r.value, other, r.offset)
			}
		}
		there[r.offset], where[r.value] = r, r.offset
	}
	newer := newerIn(c.records)
	for offset, value := range h.sure {
		r, ok := there[offset]
		switch {
		case ok && r.value != value:
			j.w.fail("%s: %s was acknowledged or read at %d, where %s is", h.id, value, offset, r.value)
		case ok, offset < c.start && h.topic.retained(), h.mayBeTaken(offset, value):
		case h.topic.kept() > 0 && newer.than(offset, h.subjects[value]) >= h.topic.kept():
			h.old(j.w, offset, value)
		default:
			j.w.fail("%s: %s was acknowledged or read at %d, and is lost; the log on %s goes from %d to %d", h.id, value, offset, c.machine, c.start, c.end)
		}
	}
}

// mayLack reports whether a log may have no record from an offset up to another one, because newer
// ones have replaced the records or they were given up. Whether an acknowledged record may be
// missing is judged elsewhere.
func (h *history) mayLack(from, next uint64) bool {
	for ; from < next && h.topic.kept() == 0 && h.topic.origin == nil; from++ { // a mirror lacks what its origin did not have any more
		if !h.gone[from] && !h.mayBeGone(from) {
			return false
		}
	}
	return true
}

// gaveUp receives the log line of a leader that gives up damaged records, which no replica has.
func (j *judge) gaveUp(topicID string, shard int, from, next uint64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, d := range j.w.topics {
		for at := from; at < next && d.id == topicID; at++ {
			j.of(d.shard(shard)).gone[at] = true
		}
	}
	j.given += int(next - from)
}

// differ compares two copies where both retain records. Replicas compact independently: a record
// that one lacks must have a newer record of its subject there.
func (h *history) differ(a, b copied) error {
	if a.end != b.end {
		return fmt.Errorf("replicas differ: the copy on %s ends at %d, that on %s at %d", a.machine, a.end, b.machine, b.end)
	}
	from := max(a.start, b.start)
	x, y := tail(a.records, from), tail(b.records, from)
	if n := h.topic.kept(); n > 0 {
		if err := lacks(a.machine, x, b.machine, y, n); err != nil {
			return err
		}
		return lacks(b.machine, y, a.machine, x, n)
	}
	if h.topic.removes() {
		x, y = h.inBoth(x, y)
	}
	for i := range min(len(x), len(y)) {
		if x[i] != y[i] {
			return fmt.Errorf("replicas differ: on %s %d is %+v, on %s %+v", a.machine, x[i].offset, x[i], b.machine, y[i])
		}
	}
	if len(x) != len(y) {
		return fmt.Errorf("replicas differ: %s has %d records from %d on, %s has %d", a.machine, len(x), from, b.machine, len(y))
	}
	return nil
}

// lacks names a record of copy a that copy b has differently, or lacks without n newer records of
// the same subject.
func lacks(a string, x []record, b string, y []record, n int) error {
	there, newer := map[uint64]record{}, newerIn(y)
	for _, r := range y {
		there[r.offset] = r
	}
	for _, r := range x {
		other, ok := there[r.offset]
		switch {
		case ok && other != r:
			return fmt.Errorf("replicas differ: on %s %d is %+v, on %s %+v", a, r.offset, r, b, other)
		case !ok && newer.than(r.offset, r.subject) < n:
			return fmt.Errorf("replicas differ: %s has %+v, and %s has neither that nor %d newer records of its subject", a, r, b, n)
		}
	}
	return nil
}

func differing(first, second []record) string {
	for _, r := range first {
		if !slices.Contains(second, r) {
			return fmt.Sprintf("%d (%s) is gone", r.offset, r.value)
		}
	}
	return fmt.Sprintf("%d records became %d", len(first), len(second))
}

func tail(records []record, from uint64) []record {
	for i, r := range records {
		if r.offset >= from {
			return records[i:]
		}
	}
	return nil
}

// everything returns the log with all records that it ever had, as far as clients know. Records
// that retention and compaction removed are taken from answers. Offsets are dense; an unknown
// record has no value.
func (h *history) everything(copies []copied) copied {
	all := copied{machine: copies[0].machine, start: copies[0].start, end: copies[0].end}
	all.records = make([]record, all.end-1)
	for i := range all.records {
		all.records[i].offset = uint64(i) + 1
	}
	for offset, value := range h.sure {
		if offset < all.end {
			all.records[offset-1].value, all.records[offset-1].subject = value, h.subjects[value]
		}
	}
	for _, c := range copies {
		all.start = max(all.start, c.start)
		for _, r := range c.records {
			all.records[r.offset-1] = r
		}
	}
	return all
}

// convergeTime bounds how long a world may take to be whole after its last fault.
const convergeTime = 90 * time.Second
