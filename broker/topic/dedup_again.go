package topic

import (
	"math"
	"sync/atomic"

	"github.com/carillon-mq/carillon/broker/clock"
)

// readIDsAgain reads the message ids of the shards that are led here from their logs again if the time has stepped since: by the time
// before, some may have been too old to be read. It is the keeper's.
func (s *Service) readIDsAgain(shards []*ShardLeader, v *clock.Verdict) {
	if v.Steps == s.steps || !v.Elapsed {
		return
	}
	s.steps = v.Steps
	for _, shard := range shards {
		if s.ctx.Err() != nil {
			return
		}
		if err := shard.readIDsAgain(); err != nil {
			s.log.Warn("message ids could not be read again after the time stepped; a message that comes again with one may be kept twice",
				"topic", shard.shard.name, "error", err)
		}
	}
}

func (s *ShardLeader) readIDsAgain() error {
	v, open := s.shard.view.Load(), s.shard.opened.Load()
	if v == nil || open == nil || v.window <= 0 {
		return nil
	}
	read := &Shard{topic: s.topic, name: s.shard.name, logs: open}
	var counted atomic.Int64
	read.ids.init(&counted)
	if err := s.service.readIDs(read, v, math.MaxInt64); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.ids == nil {
		return nil
	}
	s.ids.mu.Lock()
	defer s.ids.mu.Unlock()
	s.ids.replaceLogged(&read.ids)
	return nil
}

// replaceLogged takes over the ids that another window read from the same log in place of those that this one read. Those that
// were judged here stay, with their ages. mu is held; nobody else knows the other one.
func (w *window) replaceLogged(from *window) {
	judged := make([]knownID, 0, w.n-w.logged)
	offsets := make([]uint64, 0, w.n-w.logged)
	again := make(map[idHash]bool, w.n-w.logged)
	first := uint64(math.MaxUint64)
	for i := w.logged; i < w.n; i++ {
		id := w.queue[(w.head+i)%len(w.queue)]
		again[id.hash] = true
		judged, offsets = append(judged, id), append(offsets, w.known[id.hash])
		first = min(first, w.known[id.hash])
	}
	w.undo(0)
	for i := range from.n {
		id := from.queue[(from.head+i)%len(from.queue)]
		if offset := from.known[id.hash]; offset < first && !again[id.hash] && !w.full() {
			w.add(id.hash, offset, id.at)
		}
	}
	w.logged = w.n
	for i, id := range judged {
		w.add(id.hash, offsets[i], id.at)
	}
	w.since, w.off = from.since, from.off
}
