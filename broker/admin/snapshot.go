package admin

import (
	"bytes"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/topic"
)

// SnapshotSubject is the prefix of requests for a snapshot of a Topic, or of one shard: the Topic
// follows, then the shard's number.
const SnapshotSubject = Prefix + "SNAPSHOT."

// Bounds of snapshots, each with the reason for its value.
const (
	// maxSnapshots bounds the shards that a broker holds for snapshots: each keeps its log from
	// shrinking.
	maxSnapshots = 1024
	// MaxLease bounds how long a snapshot is held without being renewed: the records that a dead
	// client keeps from being deleted.
	MaxLease   = 10 * time.Minute
	usualLease = 30 * time.Second
	leastLease = time.Second
	// maxSnapshotID is the length of the longest id.
	maxSnapshotID = 64
	// maxSnapshotRequest is more than a request with the ranges of the most shards takes.
	maxSnapshotRequest = 8 << 10
)

// SnapshotRequest requests to hold a shard, or all shards of a Topic, as they are; or to renew or
// release that.
type SnapshotRequest struct {
	ID    string `json:"id"`                 // chosen by the client, one for all shards
	Lease int    `json:"lease_ms,omitempty"` // 0: 30 s; this request and reads renew it
	// The earlier answer, for shards whose leader has changed: of one shard, or of all.
	SnapshotShard
	Shards  []SnapshotShard `json:"shards,omitempty"`
	Release bool            `json:"release,omitempty"`

	user    string // who asks; empty: there are no users
	account string // on whose account; empty: not known
}

// SnapshotShard is the held range of one shard: the records from Start up to, not including, High.
type SnapshotShard struct {
	Start uint64 `json:"start,omitempty"`
	High  uint64 `json:"high,omitempty"`
}

// SnapshotAnswer is the held range of one shard, or of all, in the order of their numbers.
type SnapshotAnswer struct {
	Error *Error `json:"error,omitempty"`
	SnapshotShard
	Shards []SnapshotShard `json:"shards,omitempty"`
	Lease  int             `json:"lease_ms,omitempty"`
}

// snapshots are the shards that this broker holds. An account may hold as many as there is room for
// others. So one account may hold half of maxSnapshots, and two a third each; there is always room
// for another one. What is held is never taken away for others, since its readers rely on it.
type snapshots struct {
	mu     sync.Mutex
	held   map[snapshotKey]*heldShard
	by     map[string]int                    // of held, by account
	limits func(user string) identity.Limits // nil: users have none
	closed bool
}

type snapshotKey struct {
	shard *topic.ShardLeader
	id    string
}

// heldShard is one shard of a snapshot.
type heldShard struct {
	pin     *records.Pin
	lease   time.Duration
	until   time.Time
	timer   *time.Timer
	user    string // who asked for it first
	account string // on whose account
	attempt string // the last request for the whole Topic that held it; empty: requested alone
}

// takeSnapshot answers at once, forwards the request to the shard's leader, or starts a request to
// all leaders.
func (s *Server) takeSnapshot(m *protocol.Message, by origin) []byte {
	rest := m.Subject[len(SnapshotSubject):]
	name, number, one := ofShard(rest)
	if !one && (len(rest) == 0 || bytes.IndexByte(rest, '.') >= 0) {
		return encodeError(refuse(BadRequest, "there is no request %.100q (use SNAPSHOT.<topic>, or SNAPSHOT.<topic>.<shard>, shards count from 0)", m.Subject[len(Prefix):]))
	}
	var shard *topic.ShardLeader
	if one {
		var refusal *Error
		if _, shard, refusal = s.shard(name, number, m, by); refusal != nil {
			return encodeError(refusal)
		} else if shard == nil {
			return nil
		}
	}
	header, payload := protocol.SplitData(m.Data, m.Header)
	request, refusal := snapshotRequest(payload)
	if refusal == nil {
		request.user, request.account = identity.SignedBy(header), identity.ForwardedAccount(header)
	}
	switch {
	case refusal != nil:
	case !one:
		if refusal = s.submitTopicSnapshot(string(rest), request, bytes.Clone(m.Reply), by); refusal == nil {
			return nil
		}
	case request.Shards != nil:
		refusal = refuse(BadRequest, "shards, of a single one (give its start and high)")
	case request.Release:
		s.snapshots.release(snapshotKey{shard, request.ID}, "")
		return encode(SnapshotAnswer{})
	default:
		return s.holdOne(shard, request, bytes.Clone(m.Reply))
	}
	return encodeError(refusal)
}

// holdOne answers a request for one shard. It returns nil if the answer comes later, after a
// confirmation that this broker leads.
func (s *Server) holdOne(shard *topic.ShardLeader, request *SnapshotRequest, reply []byte) []byte {
	answer := func() []byte {
		held, refusal := s.snapshots.hold(shard, request, request.SnapshotShard, "")
		if refusal != nil {
			return encodeError(refusal)
		}
		return encode(SnapshotAnswer{SnapshotShard: held, Lease: request.Lease})
	}
	now := confirm(shard, request.SnapshotShard, func(refusal *Error) {
		if refusal != nil {
			s.refuse(reply, refusal)
			return
		}
		s.send(protocol.Message{Subject: reply, Data: answer()})
	})
	if now {
		return answer()
	}
	return nil
}

// confirm returns true if the shard may be held at once; otherwise it calls done after a
// confirmation that this broker leads. Without it, records that a newer leader acknowledged before
// the request would be missing. Holding an earlier range again needs no confirmation.
func confirm(shard *topic.ShardLeader, was SnapshotShard, done func(refusal *Error)) (now bool) {
	if was.High != 0 {
		return true
	}
	return shard.Confirm(func(err error) {
		if err != nil {
			done(notServed(shard.Topic().Name(), err))
			return
		}
		done(nil)
	})
}

func snapshotRequest(payload []byte) (*SnapshotRequest, *Error) {
	var request SnapshotRequest
	if len(payload) > maxSnapshotRequest {
		return nil, refuse(BadRequest, "a request of %d bytes (use at most %d)", len(payload), maxSnapshotRequest)
	}
	if err := decode(bytes.TrimSpace(payload), &request); err != nil {
		return nil, refuse(BadRequest, `the request is not a snapshot's (write for example {"id":"a1b2","lease_ms":30000}): %v`, err)
	}
	return &request, request.check()
}

func (r *SnapshotRequest) check() *Error {
	lease := time.Duration(r.Lease) * time.Millisecond
	switch {
	case r.ID == "" || len(r.ID) > maxSnapshotID:
		return refuse(BadRequest, "an id of %d bytes (choose one of 1 to %d, at random)", len(r.ID), maxSnapshotID)
	case r.Lease != 0 && (lease < leastLease || lease > MaxLease):
		return refuse(BadRequest, "lease_ms of %d (use %d to %d)", r.Lease, leastLease/time.Millisecond, MaxLease/time.Millisecond)
	}
	for _, shard := range append([]SnapshotShard{r.SnapshotShard}, r.Shards...) {
		if shard.High == 0 && shard.Start != 0 || shard.High < shard.Start {
			return refuse(BadRequest, "records from %d to %d (give start and high as they were answered, or neither)", shard.Start, shard.High)
		}
	}
	if r.Lease == 0 {
		r.Lease = int(usualLease / time.Millisecond)
	}
	return nil
}

// hold pins the shard's current or earlier range, or renews its lease. attempt is empty if the
// shard was requested alone.
func (h *snapshots) hold(shard *topic.ShardLeader, request *SnapshotRequest, was SnapshotShard, attempt string) (SnapshotShard, *Error) {
	key, lease := snapshotKey{shard, request.ID}, time.Duration(request.Lease)*time.Millisecond
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[key]
	switch {
	case h.closed:
		return SnapshotShard{}, refuse(Busy, "this broker is stopping (ask again)")
	case held != nil:
		held.lease, held.attempt = lease, attempt
		held.until = time.Now().Add(lease)
		held.timer.Reset(lease)
	case h.by[request.account] >= maxSnapshots-len(h.held):
		return SnapshotShard{}, refuse(Busy, "this broker holds %d shards for snapshots, %d of them for this client, and has room for %d more, of which no client gets more than it leaves to others (release some)", len(h.held), h.by[request.account], maxSnapshots-len(h.held))
	default:
		if refusal := h.mayHold(request); refusal != nil {
			return SnapshotShard{}, refusal
		}
		pin, err := shard.Pin(was.Start, was.High)
		if err != nil {
			return SnapshotShard{}, unreadable(&read{topic: shard.Topic().Name()}, err)
		}
		held = &heldShard{pin: pin, lease: lease, until: time.Now().Add(lease), user: request.user, account: request.account, attempt: attempt}
		held.timer = time.AfterFunc(lease, func() { h.expire(key, held) })
		if h.held == nil {
			h.held, h.by = map[snapshotKey]*heldShard{}, map[string]int{}
		}
		h.held[key] = held
		h.by[held.account]++
	}
	return SnapshotShard{held.pin.Start, held.pin.High}, nil
}

// mayHold refuses a snapshot if its user holds the most that the limit permits on this broker. A
// further shard of a snapshot that is held already does not count. mu is held.
func (h *snapshots) mayHold(request *SnapshotRequest) *Error {
	if h.limits == nil || request.user == "" {
		return nil
	}
	most := h.limits(request.user).Snapshots
	if most <= 0 {
		return nil
	}
	ids := map[string]bool{}
	for key, held := range h.held {
		if held.user == request.user {
			ids[key.id] = true
		}
	}
	if ids[request.ID] || len(ids) < most {
		return nil
	}
	return refuse(Busy, "this broker holds %d snapshots of user %q, and may hold %d (release some, or raise limits.snapshots of the user)", len(ids), request.user, most)
}

// of returns the pin of a shard under an id, for a reader, and renews its lease.
func (h *snapshots) of(shard *topic.ShardLeader, id string) *records.Pin {
	h.mu.Lock()
	defer h.mu.Unlock()
	held := h.held[snapshotKey{shard, id}]
	if held == nil {
		return nil
	}
	held.until = time.Now().Add(held.lease)
	return held.pin
}

// expire releases a pin that was not renewed.
func (h *snapshots) expire(key snapshotKey, held *heldShard) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.held[key] != held {
		return
	}
	if left := time.Until(held.until); left > 0 { // it was renewed meanwhile
		held.timer.Reset(left)
		return
	}
	h.drop(key, held)
}

// drop releases a pin. mu is held.
func (h *snapshots) drop(key snapshotKey, held *heldShard) {
	delete(h.held, key)
	if h.by[held.account]--; h.by[held.account] == 0 {
		delete(h.by, held.account)
	}
	held.timer.Stop()
	held.pin.Release()
}

// release releases a pin; with an attempt, only if that attempt held it last.
func (h *snapshots) release(key snapshotKey, attempt string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if held := h.held[key]; held != nil && (attempt == "" || held.attempt == attempt) {
		h.drop(key, held)
	}
}

// close releases all pins.
func (h *snapshots) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for key, held := range h.held {
		h.drop(key, held)
	}
}
