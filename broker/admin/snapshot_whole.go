package admin

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/topic"
)

// Snapshots of whole Topics:
//
//  1. A snapshot of a whole Topic is the same id held of each shard by its leader.
//  2. The broker that got the request asks all leaders at once, and keeps no state.
//  3. If one leader fails, the others release what this request held first. What the request only
//     renewed is kept, since it may be renewed again in time.
//  4. Each shard is held at a moment between the request and its answer. So everything acknowledged
//     before the request is included, and nothing published after the answer.
//
// Holding all shards at the same moment would stop all acks until the slowest leader has answered.

// Subjects of requests between brokers. They are accepted from links only: a client that publishes
// there is ignored.
const (
	holdPrefix = "$CARILLON.HOLD."
	askHold    = holdPrefix + "ASK"
	tellHold   = holdPrefix + "ANSWER"
)

// Bounds of snapshots of whole Topics.
const (
	// wholesAtOnce bounds the concurrent requests for whole Topics. Each waits some milliseconds
	// for the leaders.
	wholesAtOnce = 64
	// wholeTimeout is a little less than programs wait for an answer, so that they learn which
	// shard failed.
	wholeTimeout = 1500 * time.Millisecond
)

// hold is a request to a leader to hold some of its shards, or to release them.
type hold struct {
	From   string `json:"from"`             // id of the requesting broker
	Number uint64 `json:"number,omitempty"` // of the request; 0: no answer expected
	Topic  string `json:"topic"`            // id
	// Attempt identifies one request of a client. A release with it spares what a later request
	// held.
	Attempt string          `json:"attempt"`
	Request SnapshotRequest `json:"request"`
	Parts   []part          `json:"parts"`
}

// part is the request and the answer for one shard.
type part struct {
	Number int `json:"shard"`
	SnapshotShard
	Error *Error `json:"error,omitempty"`
}

// held is a leader's answer.
type held struct {
	Number uint64 `json:"number"`
	Parts  []part `json:"parts"`
}

// submitWhole starts a request for a whole Topic. The answer is sent when the leaders have
// answered.
func (s *Server) submitWhole(name string, request *SnapshotRequest, reply []byte) *Error {
	state := s.topics.State()
	if state == nil {
		return notReady()
	}
	desired := state.Topic(name)
	if desired == nil {
		return noTopic(name)
	}
	t := s.topics.ByID(desired.ID)
	switch {
	case t == nil:
		return notReady()
	case request.High != 0:
		return refuse(BadRequest, "start and high, of a whole topic (give them for each shard, in shards)")
	case request.Shards != nil && (len(request.Shards) != t.ShardCount() || slices.Contains(request.Shards, SnapshotShard{})):
		return refuse(BadRequest, "%d shards with a high watermark, of %d that topic %s has (give all of them as they were answered, or none)", len(request.Shards), t.ShardCount(), name)
	}
	if !s.wholes.submit(func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: encode(s.holdWhole(ctx, t, request))})
	}) {
		return refuse(Busy, "more than %d snapshots are being taken or renewed through this broker (ask again in a moment)", wholesAtOnce)
	}
	return nil
}

// holdWhole makes the leaders hold or release all shards. If one fails, the answer is its error.
func (s *Server) holdWhole(ctx context.Context, t *topic.Topic, request *SnapshotRequest) SnapshotAnswer {
	q := hold{From: s.self, Topic: t.ID(), Attempt: rand.Text(), Request: *request}
	q.Request.Shards = nil
	leaders := map[string][]part{} // by broker id; empty: no leader
	for n := range t.ShardCount() {
		p := part{Number: n}
		if request.Shards != nil {
			p.SnapshotShard = request.Shards[n]
		}
		leader := t.LeaderOf(n)
		leaders[leader] = append(leaders[leader], p)
	}
	parts := s.askLeaders(ctx, t, q, leaders)
	for n := range parts {
		if why := parts[n].Error; why != nil {
			if !request.Release && request.Shards == nil {
				s.undo(q, leaders)
			}
			named := *why
			named.Text, named.Shard = fmt.Sprintf("shard %d: %s", n, why.Text), &n
			return SnapshotAnswer{Error: &named}
		}
	}
	if request.Release {
		return SnapshotAnswer{}
	}
	answer := SnapshotAnswer{Lease: request.Lease}
	for _, p := range parts {
		answer.Shards = append(answer.Shards, p.SnapshotShard)
	}
	return answer
}

// askLeaders asks each leader about its shards and returns the results by shard number.
func (s *Server) askLeaders(ctx context.Context, t *topic.Topic, q hold, leaders map[string][]part) []part {
	parts := make([]part, t.ShardCount())
	for n := range parts { // until its leader answers
		parts[n].Error = refuse(NotServed, "topic %s: its leader did not answer within %s, or is of a version before (ask again, or ask each shard)", t.Name(), wholeTimeout)
	}
	take := func(told []part) {
		for _, p := range told {
			if p.Number >= 0 && p.Number < len(parts) {
				parts[p.Number] = p
			}
		}
	}
	s.asks.Do(ctx, len(leaders), func(number uint64) (expected int) {
		q.Number = number
		for leader, its := range leaders {
			q.Parts = its
			switch {
			case leader == s.self: // after the requests to others are sent
				expected++
			case leader != "" && s.tellBroker(leader, askHold, q):
				expected++
			default:
				for _, p := range its {
					parts[p.Number].Error = notServed(t.Name(), t.WhyNotAt(p.Number))
				}
			}
		}
		if q.Parts = leaders[s.self]; q.Parts != nil {
			s.holdHere(&q, func(parts []part) { s.asks.Answer(number, held{number, parts}) })
		}
		return expected
	}, func(h held) { take(h.Parts) })
	return parts
}

// undo makes the leaders release what a failed request held, including leaders that have not
// answered: they handle the earlier request first.
func (s *Server) undo(q hold, leaders map[string][]part) {
	q.Request.Release = true
	for leader, its := range leaders {
		if q.Parts = its; leader == s.self {
			s.holdHere(&q, func([]part) {})
		} else if leader != "" {
			s.tellBroker(leader, askHold, q)
		}
	}
}

func (s *Server) tellBroker(broker, subject string, what any) bool {
	return s.hub.Forward(broker, &protocol.Message{Subject: []byte(subject), Data: encode(what)})
}

// takeHold handles requests and answers of other brokers.
func (s *Server) takeHold(m *protocol.Message) {
	switch string(m.Subject) {
	case askHold:
		var q hold
		if json.Unmarshal(m.Data, &q) != nil {
			return
		}
		s.holdHere(&q, func(parts []part) {
			if q.Number != 0 {
				s.tellBroker(q.From, tellHold, held{q.Number, parts})
			}
		})
	case tellHold:
		var h held
		if json.Unmarshal(m.Data, &h) == nil {
			s.asks.Answer(h.Number, h)
		}
	}
}

// holdHere holds or releases shards that are led here, and calls tell with the result of each: at
// once, or after a confirmation that this broker leads them.
func (s *Server) holdHere(q *hold, tell func([]part)) {
	t, began := s.topics.ByID(q.Topic), time.Now()
	request, attempt := q.Request, q.Attempt
	parts := make([]part, len(q.Parts))
	var left atomic.Int32
	left.Store(int32(len(q.Parts)) + 1)
	done := func() {
		if left.Add(-1) == 0 {
			tell(parts)
		}
	}
	for i, p := range q.Parts {
		is := &parts[i]
		is.Number = p.Number
		var shard *topic.ShardLeader
		if t != nil {
			shard = t.ShardAt(p.Number)
		}
		switch {
		case t == nil:
			is.Error = notReady()
		case shard == nil:
			is.Error = notServed(t.Name(), t.WhyNotAt(p.Number))
		case request.Release && q.Number == 0:
			s.snapshots.release(snapshotKey{shard, request.ID}, attempt)
		case request.Release:
			s.snapshots.release(snapshotKey{shard, request.ID}, "")
		default:
			hold := func(refusal *Error) {
				if refusal == nil && time.Since(began) > wholeTimeout { // the requester has given up and released this
					refusal = notServed(t.Name(), &topic.UnconfirmedError{Topic: t.Name(), Why: "its other replicas confirmed too late that this broker leads it"})
				}
				if is.Error = refusal; refusal == nil {
					is.SnapshotShard, is.Error = s.snapshots.hold(shard, &request, p.SnapshotShard, attempt)
				}
				done()
			}
			if confirm(shard, p.SnapshotShard, hold) {
				hold(nil)
			}
			continue
		}
		done()
	}
	done()
}
