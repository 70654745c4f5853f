package world

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
)

// Result is the outcome of a world.
type Result struct {
	Broken    string        `json:"broken,omitempty"` // empty: nothing broke
	Hash      string        `json:"hash"`             // of the transcript
	Steps     int           `json:"steps"`
	Acks      int           `json:"acks"`
	Records   int           `json:"records"`
	Epochs    int64         `json:"epochs"`
	Virtual   time.Duration `json:"virtual"`
	Converged time.Duration `json:"converged"` // after the last fault
	Struck    []string      `json:"struck,omitempty"`
	Kinds     []string      `json:"kinds,omitempty"` // of all Topics
	Did       Did           `json:"did"`
	Logs      string        `json:"logs,omitempty"` // of brokers, if a promise was broken
}

// Did counts events that not every world has, so that tests can require them.
type Did struct {
	Deliveries int    `json:"deliveries"` // to subscribers
	Displaced  int    `json:"displaced"`  // messages that newer ones have removed for a reader
	Taken      int    `json:"taken"`      // messages that acks or deletions have removed, for a reader
	Expired    int    `json:"expired"`    // messages with a TTL that are gone, for a reader
	Marked     int    `json:"marked"`     // markers that took the place of such messages
	Fired      int    `json:"fired"`      // schedules whose message stands in a log
	Batches    int    `json:"batches"`    // atomic batches that stand in a log
	Fasts      int    `json:"fasts"`      // fast batches that stand in a log
	Totals     int    `json:"totals"`     // of counters that were answered
	Copies     int    `json:"copies"`     // records that a source has brought
	Mirrored   int    `json:"mirrored"`   // records that a mirror has
	Results    int    `json:"results"`    // of windows of Views
	Alerts     int    `json:"alerts"`     // of Views
	Repeated   int    `json:"repeated"`   // deliveries of a message that was delivered before
	Snapshots  int    `json:"snapshots"`  // that were read twice
	Trimmed    int    `json:"trimmed"`    // readers that saw what limits had removed
	Compacted  uint64 `json:"compacted"`  // records that compaction removed
	GivenUp    int    `json:"givenUp"`    // records that were given up because no replica had them
	Losses     int    `json:"losses"`     // losses that a Topic's durability allows
	Emptied    int    `json:"emptied"`    // empty Topics that waited for their logs until they were deleted by hand
	RolledBack int    `json:"rolledBack"` // volumes that were rolled back by an hour
	OldIDs     int    `json:"oldIDs"`     // message ids of more than an hour ago that were duplicates
}

// Run runs the world of a seed to its end. The caller must be in a bubble of testing/synctest, in a
// program whose runtime takes its random choices from the seed (replay.go).
func Run(seed uint64, o Options) (r Result) {
	w := newWorld(seed, o)
	w.jumps = !o.leaveOut(JumpingClocks) && (w.chance(20) || slices.Contains(o.Faults, "clock jumps") || slices.Contains(o.Faults, clocksAhead) || slices.Contains(o.Faults, clocksBack))
	w.old = !w.jumps && (slices.Contains(o.Readers, "hour") || len(o.Readers)+len(o.Faults) == 0 && seed%(100/hourShare) == 80)
	w.create()
	w.supervise()
	length := w.between(8*time.Second, 25*time.Second)
	if o.For > 0 {
		length = o.For
	}
	every := w.between(200*time.Millisecond, 3*time.Second)
	if w.jumps { // ids are used again
		length += reuseAfter
	}
	if w.patient = !w.jumps && !w.old && !o.leaveOut(HungDisks) && (w.chance(15) || slices.Equal(o.Faults, []string{"disk hangs"})); w.patient { // hanging disks are the only fault
		w.options.Faults = []string{"disk hangs"}
		length, every = 2*time.Minute, 40*time.Second
	}
	settle := w.between(0, 5*time.Second) // faults may come before anything is settled
	w.run(settle, nil)
	w.trouble(settle+length, every)
	w.run(settle+length, nil)
	if w.old && w.broken == nil {
		w.hour()
	}
	healed := w.now()
	if w.broken == nil {
		if w.patient {
			for _, id := range w.allShards() {
				w.judge.gap(w.judge.of(id))
			}
		}
		w.patient = false
		w.heal()
		w.converge()
	}
	if w.broken == nil && slices.Contains(o.Readers, "silence") {
		w.silence()
	}
	if w.broken == nil && (slices.Contains(o.Readers, "decay") || len(o.Readers) == 0 && seed%(100/decayShare) == 0) {
		w.decay()
	}
	r.Converged = w.now() - healed
	if w.broken == nil {
		w.end()
	}
	r.Steps, r.Virtual, r.Hash, r.Struck = w.steps, w.now(), fmt.Sprintf("%016x", w.hash.Sum64()), w.struck
	for _, c := range w.clients {
		r.Acks += c.acks
	}
	if w.broken == nil {
		r.Records = w.compare()
	}
	for _, d := range w.topics {
		r.Kinds = append(r.Kinds, strings.Join(d.kinds, "+"))
		for n := range d.shards() {
			if s := w.shard(d, n); s != nil {
				r.Epochs += s.Epoch
			}
		}
	}
	r.Did = Did{Deliveries: w.judge.deliveries, Taken: w.judge.takings, Expired: w.judge.expired, Marked: w.judge.marked, Fired: w.judge.firings, Batches: w.judge.batched, Fasts: w.judge.fasts, Totals: w.judge.totalled, Copies: w.judge.copiesJudged, Mirrored: w.judge.mirroredRecords, Results: w.judge.results, Alerts: w.judge.alerts, Repeated: w.judge.repeated, Displaced: w.judge.displacements, Snapshots: w.judge.snapshots, Trimmed: w.trimmed, Compacted: w.compaction.Load(), Losses: w.judge.losses, GivenUp: w.judge.given, Emptied: w.emptied, RolledBack: w.rolledBack, OldIDs: w.judge.oldIDs}
	if w.broken != nil {
		r.Broken, r.Logs = w.broken.Error(), w.logged.String()
	}
	return r
}

// create makes the machines, Topics and clients.
func (w *world) create() {
	machines := 3 + w.rng.IntN(3)
	for i := range machines {
		w.machines = append(w.machines, newMachine(w, fmt.Sprintf("b%d", i), fmt.Sprintf("z%d", i%3)))
	}
	n := 1 + w.rng.IntN(3)
	w.viewed = slices.Contains(w.options.Kinds, "views")
	if w.sourced = slices.Contains(w.options.Kinds, "sources") || slices.Contains(w.options.Kinds, "mirrors"); w.sourced {
		n = max(n, 2)
	}
	for i := range n {
		w.declare(i, false)
	}
	if w.jumps {
		w.declare(n, true)
	}
	if w.viewed {
		w.declareOutputs()
	}
	for _, m := range w.machines {
		w.again(m, w.between(0, 300*time.Millisecond))
	}
}

// converge waits, in a healed world, until all clients make progress. It then stops them, and waits
// until all replicas are in sync and equal.
func (w *world) converge() {
	until := w.now() + convergeTime
	healed := w.now()
	w.run(until, func() bool {
		w.giveUpEmpty(healed)
		return w.idle(healed) == "" && !w.empty()
	})
	if why := w.idle(healed); why != "" && w.broken == nil {
		w.fail("stuck: %s %v after everything is well again: %s", why, convergeTime, w.await(w.state))
		return
	}
	publishers := slices.DeleteFunc(slices.Clone(w.clients), func(c *client) bool { return c.kind == subscribing })
	w.stopClients(publishers, until)
	w.waitWhole(until)
	w.stopClients(w.clients, until+convergeTime)
}

// waitWhole waits until all shards are whole.
func (w *world) waitWhole(until time.Duration) {
	why := "nobody looked"
	for n := 1; why != "" && w.now() < until && w.broken == nil; n++ {
		why = w.await(w.whyNotWhole)
		if n%collectLooks == 0 { // each look reads whole logs, and takes few steps
			collect()
		}
		w.run(w.now()+50*time.Millisecond, nil)
	}
	if why != "" && w.broken == nil {
		w.fail("stuck: %s %v after everything is well again: %s", why, convergeTime, w.await(w.state))
	}
}

// stopClients stops clients, and waits until they have stopped.
func (w *world) stopClients(clients []*client, until time.Duration) {
	for _, c := range clients {
		c.stopping.Store(true)
	}
	w.run(until, func() bool { return over(clients) })
}

// over reports whether clients have stopped.
func over(clients []*client) bool {
	return !slices.ContainsFunc(clients, func(c *client) bool {
		select {
		case <-c.over:
			return false
		default:
			return true
		}
	})
}

// await calls ask, which may wait for I/O, while the world goes on, and returns its answer.
func (w *world) await(ask func() string) string {
	answer := make(chan string, 1)
	go func() { answer <- ask() }()
	said, over := "no answer", false
	w.run(w.now()+10*time.Second, func() bool {
		select {
		case said = <-answer:
			over = true
		default:
		}
		return over
	})
	return said
}

// idle names a client that made no progress since a moment, or returns an empty string.
func (w *world) idle(since time.Duration) string {
	if w.deleting != nil {
		return w.deleting.name + ", which is to be deleted and made again, gets nowhere"
	}
	for _, c := range w.clients {
		c.mu.Lock()
		lately := c.lately
		c.mu.Unlock()
		if lately <= since && w.judge.follows(c.topic) {
			return c.name + " of " + c.topic.name + " gets nowhere"
		}
	}
	return ""
}

// whyNotWhole says why a shard is not whole or not fully delivered, or returns an empty string.
func (w *world) whyNotWhole() string {
	if why := w.left(); why != "" {
		return why
	}
	for _, d := range w.topics {
		for n := range d.shards() {
			if why := w.whyShardNotWhole(d, n); why != "" {
				return d.shard(n).String() + " " + why
			}
		}
	}
	return w.whyUnlikeARecount()
}

func (w *world) whyShardNotWhole(d *declared, n int) string {
	leader, why := w.inSync(d, n)
	if why != "" {
		return why
	}
	t := leader.service.Topic(d.name)
	if t == nil || t.ShardAt(n) == nil {
		return "isn't led"
	}
	s := t.ShardAt(n)
	start, high := s.Offsets()
	if _, end, _ := s.Data().Offsets(); high != end || s.Epoch() != uint64(w.shard(d, n).Epoch) {
		return "has records that are not safe"
	}
	if over := d.exceeded(start, high, s.Data().SegmentInfos(), time.Now()); over != "" && !w.jumps {
		if reason, _ := s.AgePaused(); reason != clock.None {
			return ""
		}
		return over
	}
	if d.kept() > 0 && !d.compacted() {
		removed := removedFrom(s.Removed(), start)
		records, err := readRecords(s.NewCursor(start), start, high)
		if err != nil {
			return "can't be read: " + err.Error()
		}
		if over := d.crowded(records, removed); over != "" {
			return over
		}
	}
	if d.removes() {
		if left := w.judge.untaken(d.shard(n), start, high, removedFrom(s.Removed(), start), s); left != "" {
			return left
		}
	}
	if why := w.readCopies(d, n, leader); why != "" {
		return why
	}
	if why := w.uncopied(d, n, leader); why != "" {
		return why
	}
	if why := w.unmirrored(d, n, leader); why != "" {
		return why
	}
	if len(d.subscriptions) > 0 {
		if left := w.judge.undelivered(d.shard(n), start, high); len(left) > 0 {
			return fmt.Sprintf("has %d records that were never delivered, from %d on", len(left), slices.Min(left))
		}
	}
	return ""
}

// inSync returns the leader of a shard if all its replicas are in sync in their present processes.
// Otherwise it returns what is missing.
func (w *world) inSync(d *declared, n int) (leader *life, why string) {
	shard := w.shard(d, n)
	switch {
	case shard == nil || shard.Leader == "":
		return nil, "has no leader"
	case len(shard.Replicas) != d.spec.Replicas || len(shard.Adding)+len(shard.Removing) > 0:
		return nil, "is being moved"
	case len(shard.InSync) != len(shard.Replicas):
		return nil, "has replicas that are not in sync"
	}
	for _, member := range shard.InSync {
		m := w.machine(member.Broker)
		if m == nil || m.life == nil || m.life.dead.Load() || m.life.member.Incarnation() != member.Incarnation {
			return nil, "has a member of an earlier life"
		}
		if member.Broker == shard.Leader {
			leader = m.life
		}
	}
	return leader, ""
}

// state describes the shards in messages.
func (w *world) state() string {
	var b strings.Builder
	for _, d := range w.topics {
		for n := range d.shards() {
			if s := w.shard(d, n); s != nil {
				fmt.Fprintf(&b, "%s/%d: epoch %d leader %s replicas %v in sync %v adding %v removing %v; ", d.name, n, s.Epoch, s.Leader, s.Replicas, s.InSync, s.Adding, s.Removing)
			}
			for _, m := range w.machines {
				if l := m.life; l != nil && l.service != nil && l.service.Topic(d.name) != nil {
					p := l.service.Topic(d.name).Shards()[n]
					fmt.Fprintf(&b, "%s@%d: %v %s; ", l, l.member.Incarnation(), p.WhyNot(), p.Trouble())
				}
			}
		}
	}
	return b.String()
}

// end stops clients and brokers, the brokers in order.
func (w *world) end() {
	w.judge.ended = true
	for _, c := range w.clients {
		c.stopping.Store(true)
	}
	for _, m := range w.machines {
		m.stopped, m.wanted = true, false
		m.stalled, m.slow = false, 0
		m.stop(func() {})
	}
	over := make(chan struct{})
	go func() {
		w.running.Wait()
		close(over)
	}()
	w.run(w.now()+2*convergeTime, func() bool {
		select {
		case <-over:
			return true
		default:
			return false
		}
	})
	select {
	case <-over:
	default:
		w.fail("stuck: not everything ends when it is told to")
	}
}

// compare reads the logs of all replicas from their disks, and judges them.
func (w *world) compare() (records int) {
	w.setAside()
	logs := map[shardID][]record{}
	defer func() {
		w.judge.sources(logs)
		w.judge.mirrors(logs)
		w.judge.views(logs)
	}()
	for _, d := range w.topics {
		for n := range d.shards() {
			shard, id := w.shard(d, n), d.shard(n)
			if shard == nil {
				continue
			}
			var copies []copied
			unnoticed := false
			for _, m := range w.machines {
				if !slices.Contains(shard.Replicas, m.id) || w.flipped && !m.damaged && m == w.altered { // damage there may be unnoticed
					continue
				}
				c, err := m.read(d.id, n)
				if _, damage := errors.AsType[*log.CorruptError](err); damage && m.damaged {
					unnoticed = true
					continue
				}
				if err != nil {
					w.fail("%s: the copy on %s: %w", id, m.id, err)
					return records
				}
				copies = append(copies, c)
			}
			if len(copies) > 0 || !unnoticed {
				w.judge.final(id, copies)
			}
			if len(copies) > 0 {
				logs[id] = copies[0].records
			}
			if len(copies) > 0 {
				records += len(copies[0].records)
			}
		}
	}
	return records
}

// read reads a copy from the machine's disk after its process has ended.
func (m *machine) read(id string, shard int) (c copied, err error) {
	m.fs.SetHook(nil)
	d, err := log.OpenDisk(m.fs, dataDir, diskOptions)
	if err != nil {
		return c, err
	}
	defer d.Close()
	l, err := d.Open(log.Identity{Topic: id, Shard: shard}, 1, 1, nil)
	if err != nil {
		return c, err
	}
	c.machine = m.id
	c.start, c.end, _ = l.Offsets()
	for _, s := range l.SegmentInfos() {
		c.bytes += s.Bytes
	}
	c.records, err = readRecords(l.NewCursor(c.start), c.start, c.end)
	return c, err
}

// loseCopy removes the folder of one log.
func (m *machine) loseCopy() {
	dir := filepath.Join(dataDir, "shards")
	names, err := m.fs.List(dir)
	if err != nil || len(names) == 0 {
		return
	}
	name := names[m.w.rng.IntN(len(names))]
	m.w.notef("%s loses %s", m.id, name)
	m.w.cursorsLost = m.w.cursorsLost || strings.HasSuffix(name, ".state")
	m.remove(filepath.Join(dir, name))
}

// loseEnd removes the last segment of one log.
func (m *machine) loseEnd() {
	dir := filepath.Join(dataDir, "shards")
	names, err := m.fs.List(dir)
	if err != nil || len(names) == 0 {
		return
	}
	m.loseEndOf(names[m.w.rng.IntN(len(names))])
}

// loseEndOf removes the last segment of a log.
func (m *machine) loseEndOf(name string) {
	dir := filepath.Join(dataDir, "shards")
	files, _ := m.fs.List(filepath.Join(dir, name))
	files = slices.DeleteFunc(files, func(file string) bool { return !strings.HasSuffix(file, ".log") })
	if len(files) == 0 {
		return
	}
	last := slices.Max(files) // their names begin with their first offsets
	m.w.notef("%s loses %s of %s", m.id, last, name)
	m.w.cursorsLost = m.w.cursorsLost || strings.HasSuffix(name, ".state")
	m.remove(filepath.Join(dir, name, last))
}

func (m *machine) remove(path string) {
	info, err := m.fs.Stat(path)
	if err != nil {
		return
	}
	if info.Dir {
		names, _ := m.fs.List(path)
		for _, name := range names {
			m.remove(filepath.Join(path, name))
		}
	}
	_ = m.fs.Remove(path)
	_ = m.fs.SyncDir(filepath.Dir(path))
}

// flip inverts some bits of the files of one log.
func (m *machine) flip() {
	dir := filepath.Join(dataDir, "shards")
	names, err := m.fs.List(dir)
	if err != nil || len(names) == 0 {
		return
	}
	name := names[m.w.rng.IntN(len(names))]
	files, _ := m.fs.List(filepath.Join(dir, name))
	for range 1 + m.w.rng.IntN(3) {
		if len(files) == 0 {
			return
		}
		path := filepath.Join(dir, name, files[m.w.rng.IntN(len(files))])
		if info, err := m.fs.Stat(path); err == nil && info.Size > 0 {
			m.w.notef("%s has a bit flipped in %s", m.id, path)
			_ = m.fs.Flip(path, m.w.rng.Int64N(8*info.Size))
		}
	}
}
