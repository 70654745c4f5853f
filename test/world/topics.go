package world

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/upkeep"
)

// topicKind is one way to declare a Topic. Each Topic of a world has one or two kinds.
type topicKind struct {
	name  string
	share int // of 100 Topics; 0: only where Options.Kinds names it
	set   func(w *world, spec *coordination.TopicSpec)
}

// topicKinds are the kinds. The judge uses the spec, not the kind: it checks for each Topic what
// docs/topics.md promises for its spec.
var topicKinds = []topicKind{
	{"plain", 34, func(*world, *coordination.TopicSpec) {}},
	{"sharded", 11, func(w *world, spec *coordination.TopicSpec) { spec.Shards = 2 + w.rng.IntN(3) }},
	{"replicated", 11, func(_ *world, spec *coordination.TopicSpec) { spec.Durability = coordination.Replicated }},
	{"memory", 11, func(_ *world, spec *coordination.TopicSpec) { spec.Durability = coordination.Memory }},
	{"compacted", 11, func(_ *world, spec *coordination.TopicSpec) {
		spec.Compaction = coordination.LatestOnly
		spec.Deduplication = shortWindow // records younger than the window are not compacted
	}},
	{"retained", 11, func(w *world, spec *coordination.TopicSpec) {
		switch w.rng.IntN(3) {
		case 0:
			spec.Retention = coordination.Retention{Messages: int64(50 + w.rng.IntN(400))}
		case 1:
			spec.Retention = coordination.Retention{Bytes: int64(20_000 + w.rng.IntN(100_000))}
		default:
			spec.Retention = coordination.Retention{Age: w.between(8*time.Second, 20*time.Second)}
		}
	}},
	{"limited", 11, func(w *world, spec *coordination.TopicSpec) {
		spec.Stream.MaxPerSubject = int64(1 + w.rng.IntN(3))
		spec.Deduplication = shortWindow // records younger than the window stay in the files
	}},
	{"queue", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.Retention = coordination.WorkQueue }},
	{"deletions", 0, func(*world, *coordination.TopicSpec) {}},
	{"interest", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.Retention = coordination.InterestPolicy }},
	{"rollups", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.AllowRollup = true }},
	{"batches", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.AllowAtomic = true }},
	{"fast batches", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.AllowBatched = true }},
	{"sources", 0, func(*world, *coordination.TopicSpec) {}},
	{"mirrors", 0, func(w *world, spec *coordination.TopicSpec) {
		if w.chance(40) {
			spec.Shards = 2
		}
	}},
	{"ttls", 0, func(w *world, spec *coordination.TopicSpec) {
		spec.Stream.AllowMessageTTL = true
		if w.chance(50) {
			spec.Stream.AllowRollup = true // a marker is one
			spec.Stream.SubjectDeleteMarkerTTL = w.between(1, 4) * time.Second
		}
	}},
	{"schedules", 0, func(_ *world, spec *coordination.TopicSpec) {
		spec.Stream.AllowSchedules, spec.Stream.AllowRollup = true, true // a schedule is a rollup
	}},
	{"counters", 0, func(_ *world, spec *coordination.TopicSpec) { spec.Stream.AllowCounter = true }},
	{"views", 0, func(w *world, spec *coordination.TopicSpec) { spec.Shards = max(spec.Shards, 1+w.rng.IntN(3)) }},
	{"one in sync", 11, func(_ *world, spec *coordination.TopicSpec) { spec.MinInSync = 1 }},
}

// compacting makes logs of a few hundred records worth compacting. Records younger than Age stay:
// they are needed to recognise a message that a sender may publish again, and brokers' clocks
// differ by up to twice little.
var compacting = upkeep.Compacting{Every: 600 * time.Millisecond, Age: forward.OutboxTime + 4*time.Second, Share: 0.2, Least: 4 << 10}

// declared is a Topic of a world as etcd has it.
type declared struct {
	name, id string
	number   int // of the name
	again    int // earlier, deleted Topics of that name
	kinds    []string
	spec     coordination.TopicSpec
	source   string    // the name of the Topic that it copies; empty: none
	origin   *declared // the Topic that it mirrors, which is its source; nil: it is no mirror
	output   bool      // Views write into it, and nobody else does
	viewed   *viewed   // nil: it has no Views
	// subscriptions are the names of its Subscriptions.
	subscriptions []string
	back          bool // it was deleted, and a restored etcd contains it
	returned      bool // back was true at some time
	lost          bool // etcd lost it without a deletion
	away          []leftLog
}

func (d *declared) shards() int { return d.spec.Shards }

func (d *declared) shard(n int) shardID { return shardID{d.name, n, d.again} }

func (d *declared) compacted() bool { return d.spec.Compaction == coordination.LatestOnly }

// kept is how many records of a subject stay at least, where newer ones replace them; 0: all stay.
func (d *declared) kept() int {
	if limit := int(d.spec.Stream.MaxPerSubject); limit > 0 && !d.compacted() {
		return limit
	} else if d.compacted() {
		return 1
	}
	return 0
}

// interest reports whether the acks of all Subscriptions together remove records.
func (d *declared) interest() bool { return d.spec.Stream.Retention == coordination.InterestPolicy }

// acksRemove reports whether acks remove records.
func (d *declared) acksRemove() bool {
	return d.spec.Stream.Retention == coordination.WorkQueue || d.interest()
}

// rolls reports whether messages may remove older ones.
func (d *declared) rolls() bool { return d.spec.Stream.AllowRollup }

// counts reports whether all messages are increments of counters.
func (d *declared) counts() bool { return d.spec.Stream.AllowCounter }

// deletes reports whether a client deletes single messages.
func (d *declared) deletes() bool { return slices.Contains(d.kinds, "deletions") }

// removes reports whether records are removed one by one: by acks, by a client, by rollups, by
// their age or because they are due.
func (d *declared) removes() bool {
	return d.acksRemove() || d.deletes() || d.rolls() || d.expires() || d.schedules()
}

// retained reports whether limits remove records within the time of a world.
func (d *declared) retained() bool {
	r := d.spec.Retention
	return r.Messages > 0 || r.Bytes > 0 || r.Age > 0 && r.Age < time.Hour
}

// shardOf returns the shard that keeps a subject: 64-bit FNV-1a modulo the number of shards. It
// never changes.
func (d *declared) shardOf(subject string) int {
	h := fnv.New64a()
	h.Write([]byte(subject))
	return int(h.Sum64() % uint64(d.shards()))
}

// shardID is one shard of a world.
type shardID struct {
	topic string // name
	shard int
	again int // how often a Topic of that name was deleted before
}

func (id shardID) String() string { return id.topic + "/" + strconv.Itoa(id.shard) }

// someKinds returns the kinds of the next Topic: those that the options name, or random ones.
func (w *world) someKinds() (kinds []topicKind) {
	pick := func() topicKind {
		among, all := topicKinds, 0
		if len(w.options.Kinds) > 0 {
			among = slices.DeleteFunc(slices.Clone(topicKinds), func(k topicKind) bool { return !slices.Contains(w.options.Kinds, k.name) })
		}
		share := func(k topicKind) int {
			if len(w.options.Kinds) > 0 {
				return max(k.share, 1)
			}
			return k.share
		}
		for _, k := range among {
			all += share(k)
		}
		at := w.rng.IntN(all)
		for _, k := range among {
			if at -= share(k); at < 0 {
				return k
			}
		}
		return among[0]
	}
	kinds = append(kinds, pick())
	if second := pick(); w.chance(25) && second.name != kinds[0].name {
		kinds = append(kinds, second)
	}
	return kinds
}

// declare writes a Topic to etcd, and starts clients that use it. reused says that its clients
// reuse message ids.
func (w *world) declare(i int, reused bool) {
	w.make(&declared{name: fmt.Sprintf("t%d", i), number: i}, reused)
}

// makeUnused writes a Topic of some shards and without clients to etcd.
func (w *world) makeUnused(d *declared, shards int) {
	d.id = fmt.Sprintf("%032x", 1+d.number+16*d.again)
	d.spec = coordination.TopicSpec{Subjects: []string{d.name + ".>"}, Shards: shards, Replicas: 3, MinInSync: 2, Durability: coordination.Synced}
	w.writeTopic(d)
}

func (w *world) writeTopic(d *declared) {
	keys := map[string]string{keyOf("topics/" + d.name): encoded(map[string]any{"spec": d.spec, "id": d.id})}
	for _, name := range d.subscriptions {
		spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromEarliest}, Ack: coordination.Ack{Wait: ackWait}}
		keys[keyOf("subscriptions/"+d.id+"/"+name)] = encoded(map[string]any{"spec": spec})
	}
	if d.viewed != nil {
		for name, spec := range d.viewed.specs(d.name) {
			keys[keyOf("views/"+name)] = encoded(map[string]any{"spec": spec})
		}
	}
	w.etcd.writeAll(keys) // a Topic whose records go when no Subscription needs them has them from its beginning
	w.topics = append(w.topics, d)
	for n := range d.shards() {
		w.judge.of(d.shard(n)).topic = d
	}
	w.judge.copies(d)
}

// make writes a Topic to etcd, and starts clients that use it.
func (w *world) make(d *declared, reused bool) {
	d.id = fmt.Sprintf("%032x", 1+d.number+16*d.again)
	n := 10*d.number + 1000*d.again // of its first client
	d.spec = coordination.TopicSpec{Subjects: []string{d.name + ".>"}, Shards: 1, Replicas: 3, MinInSync: 2, Durability: coordination.Synced,
		Deduplication: 2 * time.Minute, Retention: coordination.Retention{Age: time.Hour}}
	if w.old {
		d.spec.Deduplication, d.spec.Retention.Age = longWindow, longAge
	}
	if reused {
		d.spec.Deduplication = shortWindow
	} else {
		for _, k := range w.someKinds() {
			k.set(w, &d.spec)
			d.kinds = append(d.kinds, k.name)
		}
		if d.kept() > 0 || d.counts() { // what a subject keeps would be judged by two rules at once
			d.spec.Stream.AllowMessageTTL, d.spec.Stream.SubjectDeleteMarkerTTL = false, 0
		}
		d.spec.Stream.AllowSchedules = d.spec.Stream.AllowSchedules && d.kept() == 0 && !d.counts() && d.shards() == 1
		if w.chance(35) || d.acksRemove() || slices.Contains(w.options.Readers, "subscription") {
			d.subscriptions = []string{"s"}
		}
		if d.interest() {
			d.subscriptions = append(d.subscriptions, "another")
		}
	}
	if slices.Contains(d.kinds, "sources") {
		w.addSource(d)
	}
	if slices.Contains(d.kinds, "mirrors") {
		w.addMirror(d)
	}
	if slices.Contains(d.kinds, "views") {
		d.viewed = w.newViewed(d)
	}
	w.writeTopic(d)
	slow, quick := func() time.Duration { return w.between(30*time.Millisecond, 150*time.Millisecond) }, func() time.Duration { return w.between(15*time.Millisecond, 80*time.Millisecond) }
	if reused {
		newClient(w, n, reusing, d, w.between(100*time.Millisecond, time.Second))
		newClient(w, n+1, plain, d, quick())
		return
	}
	if d.origin != nil { // it has readers only
		newClient(w, n+5, reading, d, slow())
		for i, name := range d.subscriptions {
			newSubscriber(w, n+6+100*i, name, d, quick())
		}
		newClient(w, n+7, snapping, d, 5*slow())
		return
	}
	newClient(w, n, plain, d, quick())
	if d.kept() == 0 { // its window is shorter than the time for which a client republishes a message
		newClient(w, n+1, withIDs, d, quick())
	}
	if d.shards() == 1 && !d.counts() { // no shard knows the last message of a Topic of several
		newClient(w, n+2, expecting, d, slow())
	}
	if !d.removes() && !d.counts() { // the last message of a subject may be removed there
		newClient(w, n+3, swapping, d, slow())
		newClient(w, n+4, swapping, d, slow())
	}
	newClient(w, n+5, reading, d, slow())
	for i, name := range d.subscriptions {
		newSubscriber(w, n+6+100*i, name, d, quick())
	}
	if d.rolls() && !d.counts() && (!d.schedules() || slices.Contains(d.kinds, "rollups")) { // it would remove most schedules before they are due
		newClient(w, n+106, rolling, d, 3*slow())
	}
	if d.spec.Stream.AllowAtomic && d.shards() == 1 && !d.counts() {
		newClient(w, n+107, batching, d, slow())
	}
	if d.hasFast() {
		newClient(w, n+108, fasting, d, slow())
		newClient(w, n+109, fasting, d, slow())
	}
	if d.schedules() {
		newClient(w, n+111, schedulingAt, d, quick())
	}
	if d.expires() {
		newClient(w, n+110, expiring, d, slow())
	}
	if d.deletes() {
		newClient(w, n+9, deleting, d, quick())
	}
	if !d.removes() && (w.chance(30) || slices.Contains(w.options.Readers, "snapshot")) {
		newClient(w, n+7, snapping, d, 5*slow())
	}
	// A Subscription would take long to read all of a flood, and no client knows how much that is.
	if (slices.Contains(w.options.Readers, "flood") || w.chance(5)) && len(d.subscriptions) == 0 && !d.counts() && d.viewed == nil {
		newClient(w, n+8, flooding, d, w.between(50*time.Millisecond, 100*time.Millisecond))
	}
}

// encoded is a value of etcd that a client declared.
func encoded(value map[string]any) string {
	value["v"], value["generation"], value["owner"], value["created"] = 1, 1, map[string]any{"kind": "Client"}, time.Now().UTC()
	data, _ := json.Marshal(value) // all its values can be encoded
	return string(data)
}

// allShards are the shards of a world's Topics, in order.
func (w *world) allShards() (all []shardID) {
	for _, d := range w.topics {
		for n := range d.shards() {
			all = append(all, d.shard(n))
		}
	}
	return all
}

// parseShard returns the shard of this Topic whose name an answer contains.
func (d *declared) parseShard(name string) (id shardID, ok bool) {
	of, number, several := strings.Cut(name, "--")
	if of != d.name || several != (d.shards() > 1) {
		return id, false
	}
	n := 0
	if several {
		var err error
		if n, err = strconv.Atoi(number); err != nil || n < 0 || n >= d.shards() {
			return id, false
		}
	}
	return d.shard(n), true
}
