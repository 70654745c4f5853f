package topic

import (
	"encoding/json"
	"errors"
	"hash/maphash"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/replica"
)

// window remembers the ids of a shard's messages for as long as a second one is a duplicate, by
// 128 bits of hash under secret seeds: two ids that are taken for one are not to be expected in
// the life of a cluster, and a table without pointers costs the garbage collector nothing.
//
// The leader of the shard fills it as messages are judged, a follower from the batches that it appends and truncates. So
// whichever broker is elected has it. To read it from the log at the election was the simpler way: with a million ids that
// takes more than a second, in which nobody can publish.
//
// A duplicate is acknowledged and not kept. If the window was over by then, a message is lost; if a message is kept twice within
// the window, it is kept twice. So an id is known only while its age is surely within the window:
//
//  1. Ages are measured on the clock's Mono, which doesn't jump, and not by records' times.
//  2. The age of an id that this process has not judged itself, but read from a batch, is what the record's time says. It
//     is not known if the time can't be compared with records' (clock.Verdict.Elapsed), or if the record is of the
//     future by more than clock.Slack and a quarter of the window allow.
//  3. An id is no younger than an id behind it in the log.
//  4. When the time steps, ids that were read from batches become older or younger by that.
type window struct {
	mu      sync.Mutex // guards all of it, and comes after the Shard's
	counted *atomic.Int64
	known   map[idHash]uint64 // offsets
	queue   []knownID         // a ring, oldest first
	head, n int
	since   int64 // the ids of all records in the log from this moment on are known
	off     int64 // of the clock's time from Mono, by which the ages of ids were computed
	logged  int   // how many of the oldest have an age by their record's time
}

type idHash [2]uint64

type knownID struct {
	hash idHash
	at   int64 // when it was kept, on the clock's Mono
}

var idSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashID(id []byte) idHash {
	return idHash{maphash.Bytes(idSeeds[0], id), maphash.Bytes(idSeeds[1], id)}
}

const (
	never  = math.MaxInt64 // since when nothing is known
	always = math.MinInt64 // since when all is
)

// init has the ids be counted, of a shard that isn't open.
func (w *window) init(in *atomic.Int64) { w.counted, w.since = in, never }

// find returns the offset of the message with that id. mu is held.
func (w *window) find(h idHash) (offset uint64, ok bool) {
	offset, ok = w.known[h]
	return offset, ok
}

// full says whether there is no room for another id. mu is held.
func (w *window) full() bool { return w.n >= maxIDs || w.counted.Load() >= maxIDsTogether }

// add remembers an id that is not known and was kept at a moment. mu is held.
func (w *window) add(h idHash, offset uint64, at int64) {
	if w.known == nil {
		w.known = map[idHash]uint64{}
	}
	if w.n == len(w.queue) {
		larger := make([]knownID, max(2*w.n, 16))
		for i := range w.n {
			larger[i] = w.queue[(w.head+i)%len(w.queue)]
		}
		w.queue, w.head = larger, 0
	}
	w.queue[(w.head+w.n)%len(w.queue)] = knownID{h, at}
	w.known[h] = offset
	w.n++
	w.counted.Add(1)
}

// undo forgets the newest ids until n are left. mu is held.
func (w *window) undo(n int) {
	for w.n > n {
		w.n--
		delete(w.known, w.queue[(w.head+w.n)%len(w.queue)].hash)
		w.counted.Add(-1)
	}
	w.logged = min(w.logged, w.n)
}

// follow takes over how far the clock's time is from Mono. mu is held.
func (w *window) follow(off int64) {
	step := off - w.off
	if step == 0 {
		return
	}
	w.off = off
	if -int64(clock.Bound) <= step && step <= int64(clock.Bound) {
		return // clocks that agree
	}
	for i := range w.logged {
		w.queue[(w.head+i)%len(w.queue)].at -= step
	}
	if w.since != never && w.since != always {
		w.since -= step // what was too old to be read isn't, if the time went back
	}
}

// expire forgets the ids of messages that were kept before a moment. mu is held.
func (w *window) expire(before int64) {
	for w.n > 0 && w.queue[w.head].at < before {
		w.drop()
	}
	w.since = max(w.since, before)
	if w.n == 0 && len(w.queue) > 1024 {
		w.known, w.queue, w.head = nil, nil, 0 // a map doesn't shrink
	}
}

// drop forgets the oldest id. mu is held.
func (w *window) drop() {
	oldest := &w.queue[w.head]
	delete(w.known, oldest.hash)
	w.since = max(w.since, oldest.at+1)
	w.head = (w.head + 1) % len(w.queue)
	w.n--
	w.logged = max(w.logged-1, 0)
	w.counted.Add(-1)
}

// forgetBefore lets go of all. What the log holds from a moment on is told again, by a time that is so far from Mono.
func (w *window) forgetBefore(since, off int64) {
	w.forget(never)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.since, w.off = since, off
}

// forget lets go of all, and notes since when all is known: always or never.
func (w *window) forget(since int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undo(0)
	w.known, w.queue, w.head = nil, nil, 0
	w.since = since
}

// count has the ids be counted elsewhere, and forgets the oldest if there is no room for all.
func (w *window) count(in *atomic.Int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.counted == in {
		return
	}
	w.counted.Add(-int64(w.n))
	w.counted = in
	in.Add(int64(w.n))
	for w.n > 0 && in.Load() > maxIDsTogether {
		w.drop()
	}
}

// truncate forgets the ids of records from end on, which the log doesn't hold any more.
func (w *window) truncate(end uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.n
	for n > 0 && w.known[w.queue[(w.head+n-1)%len(w.queue)].hash] >= end {
		n--
	}
	w.undo(n)
}

// expireNow is expire for who doesn't hold mu. It returns how many are left.
func (w *window) expireNow(before int64) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.expire(before)
	return w.n
}

// read says whether the log was read since it was opened.
func (w *window) read() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since != never
}

// complete says whether all ids are known of records from a moment on.
func (w *window) complete(since int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.since <= since
}

// note takes over the ids of a batch of the log from an offset on, for a window of so many nanoseconds. It says how
// many had to be forgotten for them.
func (w *window) note(codec publish.Codec, c *clock.Clock, b log.Batch, from uint64, span int64) (forgotten int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	mono := c.Mono()
	if span <= 0 {
		w.expire(mono + 1)
		return 0, nil
	}
	if !c.Verdict().Elapsed {
		w.since = mono + 1
		return 0, nil
	}
	w.follow(c.Off())
	w.expire(mono - span)
	slack := max(int64(clock.Bound), min(int64(clock.Slack), span/4))
	err = publish.EachID(codec, b, from, func(id []byte, offset uint64, time int64) {
		at := c.Written(time)
		if at < w.since || time-w.off-mono > slack {
			return
		}
		w.older(at)
		h := hashID(id)
		if _, ok := w.find(h); ok {
			return // published again when the window was shorter, or there was none
		}
		if w.full() {
			forgotten++
			if w.n == 0 {
				w.since = at + 1
				return
			}
			w.drop()
		}
		w.add(h, offset, at)
		w.logged = w.n
	})
	if err != nil {
		w.since = max(w.since, c.Written(b.LastTime())+1)
	}
	return forgotten, err
}

// older has no id be younger than one that was kept at a moment and stands behind it. mu is held.
func (w *window) older(at int64) {
	for i := w.n - 1; i >= 0; i-- {
		id := &w.queue[(w.head+i)%len(w.queue)]
		if id.at <= at {
			return
		}
		id.at = at
	}
}

// readIDs fills the window of a shard whose logs are open from the end of its log; from no more than so many bytes of it.
func (s *Service) readIDs(p *Shard, v *view, budget int64) error {
	w, data := &p.ids, p.logs.parts[replica.Data]
	if saysNoIDs(data) {
		w.forget(always)
		return nil
	}
	c := s.config.Clock
	now, mono := c.Read()
	if v.window > 0 && !c.Verdict().Elapsed {
		if !w.read() {
			w.forgetBefore(mono, c.Off()) // the ages of all that the log holds are not known
		}
		return nil
	}
	w.forgetBefore(mono-int64(v.window), c.Off())
	if v.window <= 0 {
		return nil
	}
	since := time.Unix(0, now).Add(-v.window)
	start, end, _ := data.Offsets()
	from, missed := end, false
	infos := data.SegmentInfos()
	for i := len(infos) - 1; i >= 0; i-- {
		info := &infos[i]
		if info.End > info.Base && info.Last.Before(since) {
			break
		}
		if from = info.Base; info.Bytes > budget {
			from, missed = info.End-uint64(float64(info.End-info.Base)*float64(budget)/float64(info.Bytes)), true
			break
		}
		budget -= info.Bytes
	}
	forgotten := 0
	for from = max(from, start); from < end; {
		_, err := records.ScanBatches(data, from, end, math.MaxInt64, func(b log.Batch, next uint64) (more bool, err error) {
			if missed {
				w.expireNow(c.Written(b.Time()) + 1)
				missed = false
			}
			n, err := w.note(s.config.Codec, c, b, next, int64(v.window))
			forgotten += n
			return true, err
		})
		damage, ok := errors.AsType[*log.CorruptError](err)
		if err != nil && (!ok || damage.Next <= from) {
			return err
		}
		if err == nil {
			break
		}
		switch {
		case v.lead && s.othersCanLead(v):
			return damage
		case v.follow:
			s.harmed(p, damageFound+damage.Error())
		}
		// Of ids that can't be read a second message is kept: better than refusing all.
		s.log.Warn("message ids can't be read; a message that comes again with one is kept twice", "topic", p.name, "error", damage)
		from = damage.Next
	}
	if forgotten > 0 {
		s.log.Warn("not all message ids of the deduplication window could be remembered", "topic", p.name, "forgotten", forgotten)
	}
	return nil
}

// saysNoIDs says whether a log needn't be read for ids.
func saysNoIDs(data *log.Log) bool {
	var said kept
	return !data.Recovery().Rebuilt && json.Unmarshal(data.Meta().Spec, &said) == nil && said.NoIDs
}

// knowIDs makes the window ready for who begins to lead. It is read only if what was kept of it isn't all.
func (s *ShardLeader) knowIDs(v *view) error {
	s.ids.count(&s.service.counts.ids)
	if v.window <= 0 {
		s.marked = !saysNoIDs(s.data)
		return nil
	}
	s.ids.mu.Lock()
	s.ids.follow(s.service.config.Clock.Off())
	s.ids.mu.Unlock()
	since := s.service.config.Clock.Mono() - int64(v.window)
	if !s.ids.complete(since) {
		if err := s.service.readIDs(s.shard, v, math.MaxInt64); err != nil {
			return err
		}
	}
	s.marked = s.ids.expireNow(since) > 0
	return nil
}
