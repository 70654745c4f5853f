package admin

import (
	"bytes"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/topic"
)

// SnapshotSubject is where a shard's part of a snapshot is asked for; the Topic and the shard's number are appended.
const SnapshotSubject = Prefix + "SNAPSHOT."

// Bounds of snapshots, each with the reason for its value.
const (
	// maxSnapshots is how many shards' parts of snapshots a broker holds: each keeps its log from shrinking.
	maxSnapshots = 1024
	// MaxLease is how long one is held without being renewed: what a client that died keeps from being removed.
	MaxLease   = 10 * time.Minute
	usualLease = 30 * time.Second
	leastLease = time.Second
	// maxSnapshotID is the longest id.
	maxSnapshotID = 64
)

// SnapshotRequest asks to hold a shard as it is, or to go on holding it, or to let go.
type SnapshotRequest struct {
	ID    string `json:"id"`                 // whoever asks chooses it, and has one for all shards
	Lease int    `json:"lease_ms,omitempty"` // 0: 30 s. It is renewed by this request, and by reading
	// Start and High are what was answered before, for a shard of which another broker has become the leader.
	Start   uint64 `json:"start,omitempty"`
	High    uint64 `json:"high,omitempty"`
	Release bool   `json:"release,omitempty"`
}

// SnapshotAnswer is what is held of one shard: the records from Start up to, not including, High.
type SnapshotAnswer struct {
	Error *Error `json:"error,omitempty"`
	Start uint64 `json:"start,omitempty"`
	High  uint64 `json:"high,omitempty"`
	Lease int    `json:"lease_ms,omitempty"`
}

// snapshots are the parts that this broker holds.
type snapshots struct {
	mu     sync.Mutex
	held   map[snapshotKey]*heldShard
	closed bool
}

type snapshotKey struct {
	shard *topic.Shard
	id    string
}

// heldShard is one shard's part of a snapshot.
type heldShard struct {
	pin   *topic.Pin
	lease time.Duration
	until time.Time
	timer *time.Timer
}

// takeSnapshot answers at once, or hands the request to the shard's leader.
func (s *Server) takeSnapshot(m *protocol.Message, forwarded bool) []byte {
	answer, handed := s.snapshot(m, forwarded)
	if handed {
		return nil
	}
	return encode(answer)
}

func (s *Server) snapshot(m *protocol.Message, forwarded bool) (answer SnapshotAnswer, handed bool) {
	name, number, ok := ofShard(m.Subject[len(SnapshotSubject):])
	if !ok {
		answer.Error = refuse(BadRequest, "there is no request %.100q (use SNAPSHOT.<topic>.<shard>, shards count from 0)", m.Subject[len(Prefix):])
		return answer, false
	}
	_, shard, refusal := s.shard(name, number, m, forwarded)
	if refusal != nil || shard == nil {
		answer.Error = refusal
		return answer, refusal == nil
	}
	var request SnapshotRequest
	payload := m.Data[m.Header:]
	if len(payload) > maxRequest {
		answer.Error = refuse(BadRequest, "a request of %d bytes (use at most %d)", len(payload), maxRequest)
		return answer, false
	}
	if err := decode(bytes.TrimSpace(payload), &request); err != nil {
		answer.Error = refuse(BadRequest, `the request is not a snapshot's (write for example {"id":"a1b2","lease_ms":30000}): %v`, err)
		return answer, false
	}
	if answer.Error = request.check(); answer.Error != nil {
		return answer, false
	}
	if request.Release {
		s.snapshots.release(snapshotKey{shard, request.ID})
		return answer, false
	}
	return s.snapshots.hold(shard, &request), false
}

func (r *SnapshotRequest) check() *Error {
	lease := time.Duration(r.Lease) * time.Millisecond
	switch {
	case r.ID == "" || len(r.ID) > maxSnapshotID:
		return refuse(BadRequest, "an id of %d bytes (choose one of 1 to %d, at random)", len(r.ID), maxSnapshotID)
	case r.Lease != 0 && (lease < leastLease || lease > MaxLease):
		return refuse(BadRequest, "lease_ms of %d (use %d to %d)", r.Lease, leastLease/time.Millisecond, MaxLease/time.Millisecond)
	case r.High == 0 && r.Start != 0 || r.High < r.Start:
		return refuse(BadRequest, "records from %d to %d (give start and high as they were answered, or neither)", r.Start, r.High)
	}
	if r.Lease == 0 {
		r.Lease = int(usualLease / time.Millisecond)
	}
	return nil
}

// hold pins the shard, or renews the lease of what is pinned.
func (h *snapshots) hold(shard *topic.Shard, request *SnapshotRequest) SnapshotAnswer {
	key, lease := snapshotKey{shard, request.ID}, time.Duration(request.Lease)*time.Millisecond
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[key]
	switch {
	case h.closed:
		return SnapshotAnswer{Error: refuse(Busy, "this broker is stopping (ask again)")}
	case held != nil:
		held.lease = lease
		held.until = time.Now().Add(lease)
		held.timer.Reset(lease)
	case len(h.held) >= maxSnapshots:
		return SnapshotAnswer{Error: refuse(Busy, "this broker holds %d snapshots, which is all that it may (release some)", maxSnapshots)}
	default:
		pin, err := shard.Pin(request.Start, request.High)
		if err != nil {
			return SnapshotAnswer{Error: unreadable(&read{topic: shard.Topic().Name()}, err)}
		}
		held = &heldShard{pin: pin, lease: lease, until: time.Now().Add(lease)}
		held.timer = time.AfterFunc(lease, func() { h.expire(key, held) })
		if h.held == nil {
			h.held = map[snapshotKey]*heldShard{}
		}
		h.held[key] = held
	}
	return SnapshotAnswer{Start: held.pin.Start, High: held.pin.High, Lease: request.Lease}
}

// of is what is held of a shard under an id, for somebody who reads it, and renews its lease.
func (h *snapshots) of(shard *topic.Shard, id string) *topic.Pin {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[snapshotKey{shard, id}]
	if held == nil {
		return nil
	}
	held.until = time.Now().Add(held.lease)
	return held.pin
}

// expire lets go of what was not renewed.
func (h *snapshots) expire(key snapshotKey, held *heldShard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[key] != held {
		return
	}
	if left := time.Until(held.until); left > 0 { // it was read meanwhile
		held.timer.Reset(left)
		return
	}
	delete(h.held, key)
	held.pin.Release()
}

func (h *snapshots) release(key snapshotKey) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[key]; held != nil {
		delete(h.held, key)
		held.timer.Stop()
		held.pin.Release()
	}
}

// close lets go of everything.
func (h *snapshots) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for key, held := range h.held {
		delete(h.held, key)
		held.timer.Stop()
		held.pin.Release()
	}
}
