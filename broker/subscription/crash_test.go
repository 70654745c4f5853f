package subscription

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/topic"
)

// witness is a DeliverySink that checks a Subscription against its answered acks.
type witness struct {
	mu       sync.Mutex
	all      bool            // an ack includes all records before
	answered map[uint64]bool // acks that were answered as durable
	tried    map[uint64]bool // acks that may be durable
	got      map[uint64]bool // deliveries of this life
	open     []uint64        // deliveries that may be acknowledged
	wrong    []string
}

func (w *witness) Deliver(_ []byte, d *Delivery, r *log.Record) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered[d.Offset] {
		w.wrong = append(w.wrong, fmt.Sprintf("offset %d was delivered after its ack was answered", d.Offset))
	}
	if d.Offset != r.Offset {
		w.wrong = append(w.wrong, fmt.Sprintf("offset %d was delivered as %d", r.Offset, d.Offset))
	}
	w.got[d.Offset] = true
	w.open = append(w.open, d.Offset)
}
func (w *witness) End([]byte, End, int, int)                     {}
func (w *witness) Heartbeat([]byte, uint64, uint64, uint64)      {}
func (w *witness) FlowControl([]byte, uint64)                    {}
func (w *witness) Flush()                                        {}
func (w *witness) Interested([]byte) bool                        { return true }
func (w *witness) Watch(string, []byte, string, func()) Interest { return always{} }

// each notes every offset that an ack of one offset covers.
func (w *witness) each(offset uint64, note map[uint64]bool) {
	note[offset] = true
	for o := uint64(1); w.all && o < offset; o++ {
		note[o] = true
	}
}

// ack acknowledges a random delivery, of this life or an earlier one.
func (w *witness) ack(s *Subscription, rng *rand.Rand) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.open) == 0 {
		return
	}
	i := max(len(w.open)-1-rng.IntN(12), 0)
	offset := w.open[i]
	kind := Done
	switch rng.IntN(8) {
	case 0:
		kind = Retry
	case 1:
		kind = Progress
	case 2:
		kind = Term
	}
	var done func(error)
	if kind == Done || kind == Term {
		note := w.each
		if kind == Term {
			note = func(offset uint64, note map[uint64]bool) { note[offset] = true }
		}
		note(offset, w.tried)
		if rng.IntN(2) == 0 {
			done = func(err error) {
				w.mu.Lock()
				defer w.mu.Unlock()
				if err == nil {
					note(offset, w.answered)
				}
			}
		}
	}
	w.mu.Unlock()
	s.Ack(offset, 0, 0, kind, time.Duration(rng.IntN(2))*time.Millisecond, done)
	w.mu.Lock()
}

func TestCrashesNeitherUndoAnswersNorLoseRecords(t *testing.T) {
	for seed := range uint64(300) {
		synctest.Test(t, func(t *testing.T) { crashStory(t, seed) })
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// crashStory runs a few lives of a broker with three Subscriptions. Each life ends at a random
// operation of its disk. Every second story removes what all have acknowledged.
func crashStory(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 11))
	fsys := crashfs.New()
	w := &world{t: t, fs: fsys, opts: log.Options{
		SegmentSmallest: 4 << 10, SegmentLargest: 16 << 10, TailBytes: 1 + rng.Int64N(16<<10), SyncAllFrom: 1 + rng.IntN(3)}}
	witnesses := map[string]*witness{}
	for i, name := range []string{"each", "all", "some"} {
		spec := earliest()
		spec.Ack.Wait = time.Second
		spec.Ack.MaxPending = []int{0, 5, 50}[rng.IntN(3)]
		if name == "some" {
			spec.Subjects = []string{"even.*"}
		}
		if name == "all" {
			spec.Ack.Policy = coordination.AckAll
		}
		witnesses[name] = &witness{all: name == "all", answered: map[uint64]bool{}, tried: map[uint64]bool{}}
		w.desired.subs = append(w.desired.subs, &coordination.Subscription{Topic: topicID, Name: name, Made: int64(i + 1), Spec: &spec})
	}
	interest := seed%2 == 0
	if interest {
		w.desired.retention = coordination.InterestPolicy
	}
	published := uint64(1) // end of what was acknowledged to publishers
	removed := &removalsMade{answered: map[uint64]bool{}}
	for life := range 4 {
		for _, x := range witnesses {
			x.got = map[uint64]bool{}
		}
		if err := w.revive(witnesses); err != nil {
			t.Fatalf("life %d: %v", life, err)
		}
		removed.check(t, w.shard)
		if life == 3 {
			w.drain(witnesses, published)
			time.Sleep(4 * lazyFor)
			synctest.Wait()
			if left := w.left(); interest && len(left) > 0 {
				t.Errorf("all is acknowledged, and %v are left", left)
			}
			w.stop()
			break
		}
		fsys.StopAfter(rng.IntN(150))
		for range 150 {
			var err error
			switch name := []string{"each", "all", "some"}[rng.IntN(3)]; rng.IntN(12) {
			case 10, 11:
				if !interest {
					err = removed.remove(w.shard, 1+rng.Uint64N(2000))
				}
			case 0, 1:
				err = w.keep(rng, &published)
			case 2, 3:
				if s := w.service.Find(topicID, name); s != nil {
					s.Pull(Pull{To: []byte("x"), Batch: 1 + rng.IntN(20), Expires: time.Second})
				}
			case 4:
				time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			default:
				if s := w.service.Find(topicID, name); s != nil {
					witnesses[name].ack(s, rng)
				}
			}
			synctest.Wait()
			if err != nil {
				break
			}
		}
		if rng.IntN(4) == 0 { // an orderly stop, or a crash during one
			_ = w.service.Close()
			_ = w.disk.Close()
			fsys = fsys.Crash(rng)
		} else {
			fsys = fsys.Crash(rng)
			_ = w.service.Close()
			_ = w.disk.Close()
		}
		w.fs = fsys
	}
	for name, x := range witnesses {
		for _, wrong := range x.wrong {
			t.Errorf("%s: %s", name, wrong)
		}
	}
}

// removalsMade are the removals that were answered as durable.
type removalsMade struct {
	mu       sync.Mutex
	answered map[uint64]bool
}

func (r *removalsMade) remove(s *shard, offset uint64) error {
	return s.remove(offset, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.answered[offset] = true
	})
}

// check checks that a state log, as it was opened, has what was answered.
func (r *removalsMade) check(t *testing.T, s *shard) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for offset := range r.answered {
		if !s.removed.Has(offset) {
			t.Errorf("the removal of %d is lost, and was answered", offset)
		}
	}
}

// revive starts the broker, after lives that crash while it starts.
func (w *world) revive(witnesses map[string]*witness) error {
	var err error
	if w.disk, err = log.OpenDisk(w.fs, "data", w.opts); err != nil {
		return err
	}
	if w.shard, err = w.open(); err != nil {
		return err
	}
	if err = w.shard.loadRemoved(); err != nil {
		return err
	}
	w.service = New(Config{Logger: slog.New(slog.DiscardHandler), Sink: func(_ *topic.Shard, name string) DeliverySink { return witnesses[name] }})
	w.service.wholeAfter = 200
	w.follow()
	w.service.lead(&servedShard{Source: w.shard, topicID: topicID, name: "orders"})
	synctest.Wait()
	return nil
}

// keep publishes a few records.
func (w *world) keep(rng *rand.Rand, published *uint64) error {
	records := make([]log.Record, 1+rng.IntN(8))
	for i := range records {
		name := "odd.x"
		if rng.IntN(2) == 0 {
			name = "even.x"
		}
		records[i] = log.Record{Time: time.Now().UnixNano(), Subject: []byte(name), Data: make([]byte, rng.IntN(200))}
	}
	if _, err := w.shard.data.Append(&log.Append{Epoch: w.shard.epoch, Records: records}); err != nil {
		return err
	}
	if err := w.shard.data.Flush(); err != nil {
		if errors.Is(err, crashfs.ErrCrashed) {
			return err
		}
		w.t.Fatal(err)
	}
	_, *published, _ = w.shard.data.Offsets()
	w.shard.moved()
	return nil
}

// drain delivers everything that is left, and checks each Subscription against its acks.
func (w *world) drain(witnesses map[string]*witness, published uint64) {
	_, end := w.shard.Offsets()
	if end < published {
		w.t.Errorf("the log ends at %d, and %d was acknowledged", end, published)
	}
	even := map[uint64]bool{}
	c := w.shard.NewCursor(1)
	for {
		v, err := c.Read(1 << 20)
		if err != nil {
			w.t.Fatal(err)
		}
		if v.End == v.From {
			break
		}
		for b, ok := v.Next(); ok; b, ok = v.Next() {
			it := b.Records()
			for r := (log.Record{}); it.Next(&r); {
				even[r.Offset] = string(r.Subject) == "even.x"
			}
		}
		v.Release()
	}
	for name, x := range witnesses {
		s := w.find(name)
		time.Sleep(1100 * time.Millisecond) // so that pending records come before new ones
		s.Pull(pull("x", 1<<20))
		for round := 0; ; round++ {
			synctest.Wait()
			x.mu.Lock()
			var open []uint64 // of this life
			for _, o := range x.open {
				if x.got[o] {
					open = append(open, o)
				}
			}
			x.open = nil
			x.mu.Unlock()
			for _, o := range open { // so that everything left may become pending
				s.Ack(o, 0, 0, Done, 0, nil)
			}
			if i := s.Info(); i.Pending == 0 && i.Lag == 0 {
				break
			} else if round > 1000 {
				w.t.Fatalf("%s never ends: %+v", name, i)
			}
			time.Sleep(1100 * time.Millisecond)
		}
		x.mu.Lock()
		for o := uint64(1); o < end; o++ {
			if must := (name != "some" || even[o]) && !x.tried[o]; must && !x.got[o] {
				w.t.Errorf("%s: offset %d of %d was never acknowledged, and is not delivered again", name, o, end-1)
			}
			if name == "some" && !even[o] && x.got[o] {
				w.t.Errorf("%s: offset %d doesn't match", name, o)
			}
		}
		x.mu.Unlock()
	}
}
