package topic

import (
	"bytes"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// lobby is where messages wait for a log that is just being opened: who makes a Topic publishes to it
// at once, perhaps by a broker that knows of its leader before that one does.
type lobby struct {
	mu       sync.Mutex
	messages []protocol.Message // copies
	bytes    int
	since    time.Time
}

// mayWait says whether messages for a shard that is not open are to wait for it. Those that came over a
// link were sent by a broker that takes this one for the leader.
func (t *Topic) mayWait(v *view, forwarded bool) bool {
	s := t.service
	return !v.gone && v.unsupported == "" && !s.closing.Load() && t.trouble.Load() == nil &&
		(v.lead || forwarded && (v.leader == "" || v.leader == s.config.Self))
}

// wait has messages wait. If it says no, the shard is open by now, or will not be soon, or there is no room.
func (t *Topic) wait(messages []protocol.Message, forwarded bool) bool {
	l, s := &t.lobby, t.service
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for i := range messages {
		size += len(messages[i].Subject) + len(messages[i].Reply) + len(messages[i].Data)
	}
	if t.shard.Load() != nil || !t.mayWait(t.view.Load(), forwarded) || l.bytes+size > lobbyBytes || len(l.messages)+len(messages) > batchRecords {
		return false
	}
	if s.counts.lobbies.Add(int64(size)) > lobbyBytesTogether {
		s.counts.lobbies.Add(-int64(size))
		return false
	}
	for i := range messages {
		m := messages[i]
		m.Subject, m.Reply, m.Data = bytes.Clone(m.Subject), bytes.Clone(m.Reply), bytes.Clone(m.Data)
		l.messages = append(l.messages, m)
	}
	if l.bytes == 0 {
		l.since = time.Now()
		s.openMu.Lock()
		s.lobbies[t] = struct{}{}
		s.openMu.Unlock()
	}
	l.bytes += size
	return true
}

// clear returns who waits, and forgets them. mu is held.
func (l *lobby) clear(t *Topic) []protocol.Message {
	messages := l.messages
	t.service.counts.lobbies.Add(-int64(l.bytes))
	l.messages, l.bytes = nil, 0
	t.service.openMu.Lock()
	delete(t.service.lobbies, t)
	t.service.openMu.Unlock()
	return messages
}

// welcome lets messages in: first those that waited, since they came first.
func (t *Topic) welcome(shard *Shard, v *view) {
	t.lobby.mu.Lock()
	defer t.lobby.mu.Unlock()
	if messages := t.lobby.clear(t); len(messages) > 0 {
		in := intakes.Get().(*intake)
		for len(messages) > 0 {
			messages = shard.put(in, v, messages)
		}
		in.finish(t.service)
	}
	t.shard.Store(shard)
}

// turnAway refuses those who wait since before a time.
func (t *Topic) turnAway(before time.Time) {
	t.lobby.mu.Lock()
	defer t.lobby.mu.Unlock()
	if len(t.lobby.messages) == 0 || t.lobby.since.After(before) {
		return
	}
	in := intakes.Get().(*intake)
	in.refuseAll(t, t.view.Load(), t.lobby.clear(t), t.refusal())
	in.finish(t.service)
}

// turnAway refuses those who wait since before a time, for whatever Topic.
func (s *Service) turnAway(before time.Time) {
	var waiting []*Topic
	s.openMu.Lock()
	for t := range s.lobbies {
		waiting = append(waiting, t)
	}
	s.openMu.Unlock()
	for _, t := range waiting {
		t.turnAway(before)
	}
}
