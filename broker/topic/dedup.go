package topic

import (
	"encoding/json"
	"errors"
	"hash/maphash"

	"github.com/carillon-mq/carillon/broker/log"
)

// window remembers the ids of a shard's messages for as long as a second one is a duplicate, by
// 128 bits of hash under secret seeds: two ids that are taken for one are not to be expected in
// the life of a cluster, and a table without pointers costs the garbage collector nothing.
type window struct {
	service *Service
	known   map[idHash]uint64 // offsets
	queue   []knownID         // a ring, oldest first
	head, n int
}

type idHash [2]uint64

type knownID struct {
	hash idHash
	time int64
}

var idSeeds = [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}

func hashID(id []byte) idHash {
	return idHash{maphash.Bytes(idSeeds[0], id), maphash.Bytes(idSeeds[1], id)}
}

func (w *window) init(s *Service) { w.service = s }

// find returns the offset of the message with that id.
func (w *window) find(h idHash) (offset uint64, ok bool) {
	offset, ok = w.known[h]
	return offset, ok
}

// full says whether there is no room for another id.
func (w *window) full() bool { return w.n >= maxIDs || w.service.counts.ids.Load() >= maxIDsTogether }

// add remembers an id that is not known.
func (w *window) add(h idHash, offset uint64, time int64) {
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
	w.queue[(w.head+w.n)%len(w.queue)] = knownID{h, time}
	w.known[h] = offset
	w.n++
	w.service.counts.ids.Add(1)
}

// undo forgets the newest ids until n are left.
func (w *window) undo(n int) {
	for w.n > n {
		w.n--
		delete(w.known, w.queue[(w.head+w.n)%len(w.queue)].hash)
		w.service.counts.ids.Add(-1)
	}
}

// expire forgets the ids of messages older than a time.
func (w *window) expire(before int64) {
	for w.n > 0 && w.queue[w.head].time < before {
		w.drop()
	}
	if w.n == 0 && len(w.queue) > 1024 {
		w.known, w.queue, w.head = nil, nil, 0 // a map doesn't shrink
	}
}

// drop forgets the oldest id.
func (w *window) drop() {
	delete(w.known, w.queue[w.head].hash)
	w.head = (w.head + 1) % len(w.queue)
	w.n--
	w.service.counts.ids.Add(-1)
}

// clear forgets all.
func (w *window) clear() {
	w.undo(0)
	w.known, w.queue, w.head = nil, nil, 0
}

// rememberIDs fills the window from the end of the log.
func (s *Shard) rememberIDs(v *view) error {
	var said kept
	if !s.data.Recovery().Rebuilt && json.Unmarshal(s.data.Meta().Spec, &said) == nil && said.NoIDs {
		return nil
	}
	if s.marked = true; v.window <= 0 {
		return nil
	}
	since := s.service.config.Clock.Now().Add(-v.window)
	start, end, _ := s.data.Offsets()
	from := end
	infos := s.data.SegmentInfos()
	for i := len(infos) - 1; i >= 0; i-- {
		if infos[i].End > infos[i].Base && infos[i].Last.Before(since) {
			break
		}
		from = infos[i].Base
	}
	from = max(from, start)
	forgotten := 0
	remember := func(id []byte, offset uint64, time int64) {
		if time < since.UnixNano() {
			return
		}
		h := hashID(id)
		if _, ok := s.ids.find(h); ok {
			return // published again when the window was shorter, or there was none
		}
		if s.ids.full() {
			forgotten++
			if s.ids.n == 0 {
				return
			}
			s.ids.drop()
		}
		s.ids.add(h, offset, time)
	}
	err := s.eachID(from, end, remember)
	for damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > from; damage, ok = errors.AsType[*log.CorruptError](err) {
		// Of ids that can't be read a second message is kept: better than refusing all.
		s.service.log.Warn("message ids can't be read; a message that comes again with one is kept twice", "topic", s.stream.name, "error", damage)
		from = damage.Next
		err = s.eachID(from, end, remember)
	}
	if forgotten > 0 {
		s.service.log.Warn("not all message ids of the deduplication window could be remembered", "topic", s.stream.name, "forgotten", forgotten, "kept", s.ids.n)
	}
	s.marked = err != nil || s.ids.n+forgotten > 0
	return err
}
