package simulation

import (
	"slices"
	"sort"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// value is what a record holds: who published it, and as their how-manyth.
type value struct {
	publisher, session, n int
}

// batch is a group of records under one epoch. It never changes.
type batch struct {
	epoch  uint64
	first  uint64
	values []value
}

func (b *batch) end() uint64 { return b.first + uint64(len(b.values)) }

// modelLog is a log as a disk holds it.
type modelLog struct {
	disk    *disk
	shard   shardID
	part    replica.Part
	batches []*batch
	start   uint64
	end     uint64
	written uint64 // the kernel has it: a kill leaves it
	synced  uint64 // a power cut leaves it
	epoch   uint64 // of its last batch
	gen     int    // one more whenever something was taken off its end
}

// at is the batch that holds the offset, or begins behind it.
func (l *modelLog) at(offset uint64) int {
	return sort.Search(len(l.batches), func(i int) bool { return l.batches[i].end() > offset })
}

// value is what stands at an offset.
func (l *modelLog) value(offset uint64) (value, bool) {
	if offset < l.start || offset >= l.end {
		return value{}, false
	}
	b := l.batches[l.at(offset)]
	return b.values[offset-b.first], true
}

func (l *modelLog) append(b *batch) {
	l.batches = append(l.batches, b)
	l.end, l.epoch = b.end(), b.epoch
	l.disk.kick()
}

// cut takes away everything from the offset on, which is where a batch begins.
func (l *modelLog) cut(to uint64) {
	for len(l.batches) > 0 && l.batches[len(l.batches)-1].end() > to {
		l.batches = l.batches[:len(l.batches)-1]
	}
	l.end = max(to, l.start)
	if n := len(l.batches); n > 0 {
		l.end = l.batches[n-1].end()
	}
	l.written, l.synced = min(l.written, l.end), min(l.synced, l.end)
	l.epoch = 0
	l.gen++
	if n := len(l.batches); n > 0 {
		l.epoch = l.batches[n-1].epoch
	}
}

func (l *modelLog) reset(at uint64) {
	l.batches, l.start, l.end, l.written, l.synced, l.epoch = nil, at, at, at, at, 0
	l.gen++
}

// trim takes away what is below the offset. Batches go whole; the start may lie within one.
func (l *modelLog) trim(to uint64) {
	to = min(to, l.synced)
	if to <= l.start {
		return
	}
	l.start = to
	if i := l.at(to); i > 0 {
		l.batches = slices.Clone(l.batches[i:])
	}
}

// safe is up to where the log keeps what the durability promises.
func (l *modelLog) safe(durability coordination.Durability) uint64 {
	if durability == coordination.Replicated {
		return l.written
	}
	return l.synced
}

// base is where a copy of the log begins: where its first batch does.
func (l *modelLog) base() uint64 {
	if len(l.batches) > 0 {
		return l.batches[0].first
	}
	return l.start
}

func (l *modelLog) lineage() replica.Lineage {
	in := replica.Lineage{Start: l.base(), End: l.end}
	for _, b := range l.batches {
		if n := len(in.Epochs); n == 0 || in.Epochs[n-1].Epoch != b.epoch {
			in.Epochs = append(in.Epochs, log.Epoch{Epoch: b.epoch, Start: b.first})
		}
	}
	return in
}

// disk is a broker's, with one committer.
type disk struct {
	b     *broker
	logs  map[shardID]*[replica.Parts]*modelLog
	order []shardID
	busy  bool
	slow  time.Duration // added to every sync
}

func newDisk(b *broker) *disk { return &disk{b: b, logs: map[shardID]*[replica.Parts]*modelLog{}} }

// open returns the logs of a shard, made if need be.
func (d *disk) open(id shardID) *[replica.Parts]*modelLog {
	if d.logs[id] == nil {
		logs := &[replica.Parts]*modelLog{}
		for p := range replica.Parts {
			logs[p] = &modelLog{disk: d, shard: id, part: p, start: 1, end: 1, written: 1, synced: 1}
		}
		d.logs[id] = logs
		d.order = append(d.order, id)
	}
	return d.logs[id]
}

func (d *disk) all(do func(*modelLog)) {
	for _, id := range d.order {
		for _, l := range d.logs[id] {
			do(l)
		}
	}
}

// kick has the committer begin a round, if it isn't in one: it writes all there is, and syncs it.
func (d *disk) kick() {
	if d.busy {
		return
	}
	d.busy = true
	w, life := d.b.w, d.b.life
	w.after(w.between(20*time.Microsecond, 200*time.Microsecond), func() {
		d.b.do(life, func() {
			type reached struct {
				l   *modelLog
				end uint64
				gen int
			}
			var round []reached
			d.all(func(l *modelLog) {
				if l.synced < l.end {
					l.written = l.end
					round = append(round, reached{l, l.end, l.gen})
				}
			})
			for _, r := range round {
				d.b.kept(r.l)
			}
			w.after(w.between(300*time.Microsecond, 4*time.Millisecond)+d.slow, func() {
				d.b.do(life, func() {
					for _, r := range round {
						if r.gen == r.l.gen { // otherwise other batches stand there by now
							r.l.synced = max(r.l.synced, r.end)
						}
					}
					for _, r := range round {
						d.b.kept(r.l)
					}
					d.busy = false
					again := false
					d.all(func(l *modelLog) { again = again || l.synced < l.end })
					if again {
						d.kick()
					}
				})
			})
		})
	})
}

// crash is what a kill, or a power cut, makes of the logs, after they were opened again: what is left is made safe.
func (d *disk) crash(power bool) {
	d.busy = false
	d.all(func(l *modelLog) {
		to := l.written
		if power && l.written > l.synced {
			to = l.synced + d.b.w.rng.Uint64N(l.written-l.synced+1)
		}
		if i := l.at(to); i < len(l.batches) && l.batches[i].first < to { // whole batches only
			to = l.batches[i].first
		}
		l.cut(to)
		l.written, l.synced = l.end, l.end
	})
}
