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
func (p *Shard) mayWait(v *view, forwarded bool) bool {
	s := p.topic.service
	return !v.gone && v.unsupported == "" && !s.closing.Load() && p.trouble.Load() == nil &&
		(v.lead || forwarded && (v.leader == "" || v.leader == s.config.Self))
}

// wait has messages wait. If it says no, the shard is open by now, or will not be soon, or there is no room.
func (p *Shard) wait(messages []protocol.Message, forwarded bool) bool {
	l, s := &p.lobby, p.topic.service
	l.mu.Lock()
	defer l.mu.Unlock()
	size := 0
	for i := range messages {
		size += len(messages[i].Subject) + len(messages[i].Reply) + len(messages[i].Data)
	}
	if p.leading.Load() != nil || !p.mayWait(p.view.Load(), forwarded) || l.bytes+size > lobbyBytes || len(l.messages)+len(messages) > batchRecords {
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
		s.lobbies[p] = struct{}{}
		s.openMu.Unlock()
	}
	l.bytes += size
	return true
}

// clear returns who waits, and forgets them. mu is held.
func (l *lobby) clear(p *Shard) []protocol.Message {
	messages, s := l.messages, p.topic.service
	s.counts.lobbies.Add(-int64(l.bytes))
	l.messages, l.bytes = nil, 0
	s.openMu.Lock()
	delete(s.lobbies, p)
	s.openMu.Unlock()
	return messages
}

// welcome lets messages in: first those that waited, since they came first.
func (p *Shard) welcome(shard *ShardLeader, v *view) {
	p.lobby.mu.Lock()
	defer p.lobby.mu.Unlock()
	if messages := p.lobby.clear(p); len(messages) > 0 {
		in := intakes.Get().(*intake)
		for len(messages) > 0 {
			messages = shard.put(in, v, messages)
		}
		in.finish(p.topic.service)
	}
	p.leading.Store(shard)
}

// turnAway refuses those who wait since before a time.
func (p *Shard) turnAway(before time.Time) {
	p.lobby.mu.Lock()
	defer p.lobby.mu.Unlock()
	if len(p.lobby.messages) == 0 || p.lobby.since.After(before) {
		return
	}
	in := intakes.Get().(*intake)
	in.refuseAll(p, p.view.Load(), p.lobby.clear(p), p.refusal())
	in.finish(p.topic.service)
}

// turnAway refuses those who wait since before a time, for whatever shard.
func (s *Service) turnAway(before time.Time) {
	var waiting []*Shard
	s.openMu.Lock()
	for p := range s.lobbies {
		waiting = append(waiting, p)
	}
	s.openMu.Unlock()
	for _, p := range waiting {
		p.turnAway(before)
	}
}
