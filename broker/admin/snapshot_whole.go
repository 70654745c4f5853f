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
	"github.com/carillon-mq/carillon/broker/publish"
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
	holdPrefix         = "$CARILLON.HOLD."
	holdRequestSubject = holdPrefix + "ASK"
	holdAnswerSubject  = holdPrefix + "ANSWER"
)

// Bounds of snapshots of whole Topics.
const (
	// topicSnapshotsAtOnce bounds the concurrent requests for whole Topics. Each waits some
	// milliseconds for the leaders.
	topicSnapshotsAtOnce = 64
	// topicSnapshotTimeout is a little less than programs wait for an answer, so that they learn
	// which shard failed.
	topicSnapshotTimeout = 1500 * time.Millisecond
)

// holdRequest is a request to a leader to hold some of its shards, or to release them.
type holdRequest struct {
	From   string `json:"from"`             // id of the requesting broker
	Number uint64 `json:"number,omitempty"` // of the request; 0: no answer expected
	Topic  string `json:"topic"`            // id
	// Attempt identifies one request of a client. A release with it spares what a later request
	// held.
	Attempt string          `json:"attempt"`
	User    string          `json:"user,omitempty"` // who asks
	Account string          `json:"account,omitempty"`
	Request SnapshotRequest `json:"request"`
	Parts   []shardHold     `json:"parts"`
}

// shardHold is the request and the answer for one shard.
type shardHold struct {
	Number int `json:"shard"`
	SnapshotShard
	Error *Error `json:"error,omitempty"`
}

// holdAnswer is a leader's answer.
type holdAnswer struct {
	Number uint64      `json:"number"`
	Parts  []shardHold `json:"parts"`
}

// submitTopicSnapshot starts a request for a whole Topic. The answer is sent when the leaders have
// answered.
func (s *Server) submitTopicSnapshot(name string, request *SnapshotRequest, reply []byte, by origin) *Error {
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
	busy := refuse(Busy, "more than %d snapshots are being taken or renewed through this broker, and %d wait (ask again in a moment)", topicSnapshotsAtOnce, tasksWaiting)
	if !s.topicSnapshots.submit(by, 0, func(ctx context.Context) {
		s.send(protocol.Message{Subject: reply, Data: encode(s.holdTopic(ctx, t, request))})
	}, func() { s.refuse(reply, busy) }) {
		return busy
	}
	return nil
}

// holdTopic makes the leaders hold or release all shards. If one fails, the answer is its error.
func (s *Server) holdTopic(ctx context.Context, t *topic.Topic, request *SnapshotRequest) SnapshotAnswer {
	q := holdRequest{From: s.self, Topic: t.ID(), Attempt: rand.Text(), User: request.user, Account: request.account, Request: *request}
	q.Request.Shards = nil
	leaders := map[string][]shardHold{} // by broker id; empty: no leader
	for n := range t.ShardCount() {
		p := shardHold{Number: n}
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
				s.releaseHolds(q, leaders)
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
func (s *Server) askLeaders(ctx context.Context, t *topic.Topic, q holdRequest, leaders map[string][]shardHold) []shardHold {
	parts := make([]shardHold, t.ShardCount())
	for n := range parts { // until its leader answers
		parts[n].Error = refuse(NotServed, "topic %s: its leader did not answer within %s, or is of a version before (ask again, or ask each shard)", t.Name(), topicSnapshotTimeout)
	}
	take := func(told []shardHold) {
		for _, p := range told {
			if p.Number >= 0 && p.Number < len(parts) {
				parts[p.Number] = p
			}
		}
	}
	s.holdRequests.Do(ctx, len(leaders), func(number uint64) (expected int) {
		q.Number = number
		for leader, its := range leaders {
			q.Parts = its
			switch {
			case leader == s.self: // after the requests to others are sent
				expected++
			case leader != "" && s.sendToBroker(leader, holdRequestSubject, q):
				expected++
			default:
				for _, p := range its {
					parts[p.Number].Error = notServed(t.Name(), t.WhyNotAt(p.Number))
				}
			}
		}
		if q.Parts = leaders[s.self]; q.Parts != nil {
			s.holdHere(&q, func(parts []shardHold) { s.holdRequests.Answer(number, holdAnswer{number, parts}) })
		}
		return expected
	}, func(h holdAnswer) { take(h.Parts) })
	return parts
}

// releaseHolds makes the leaders release what a failed request held, including leaders that have
// not answered: they handle the earlier request first.
func (s *Server) releaseHolds(q holdRequest, leaders map[string][]shardHold) {
	q.Request.Release = true
	for leader, its := range leaders {
		if q.Parts = its; leader == s.self {
			s.holdHere(&q, func([]shardHold) {})
		} else if leader != "" {
			s.sendToBroker(leader, holdRequestSubject, q)
		}
	}
}

func (s *Server) sendToBroker(broker, subject string, what any) bool {
	return s.forward(broker, &protocol.Message{Subject: []byte(subject), Data: encode(what)})
}

// takeHold handles requests and answers of other brokers.
func (s *Server) takeHold(m *protocol.Message) {
	switch string(m.Subject) {
	case holdRequestSubject:
		var q holdRequest
		if json.Unmarshal(m.Data, &q) != nil {
			return
		}
		s.holdHere(&q, func(parts []shardHold) {
			if q.Number != 0 {
				s.sendToBroker(q.From, holdAnswerSubject, holdAnswer{q.Number, parts})
			}
		})
	case holdAnswerSubject:
		var h holdAnswer
		if json.Unmarshal(m.Data, &h) == nil {
			s.holdRequests.Answer(h.Number, h)
		}
	}
}

// holdHere holds or releases shards that are led here, and calls tell with the result of each: at
// once, or after a confirmation that this broker leads them.
func (s *Server) holdHere(q *holdRequest, tell func([]shardHold)) {
	t, began := s.topics.ByID(q.Topic), time.Now()
	request, attempt := q.Request, q.Attempt
	request.user, request.account = q.User, q.Account
	parts := make([]shardHold, len(q.Parts))
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
				// The requester has given up, and released this.
				if refusal == nil && time.Since(began) > topicSnapshotTimeout {
					refusal = notServed(t.Name(), &publish.UnconfirmedError{Topic: t.Name(), Why: "its other replicas confirmed too late that this broker leads it"})
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
