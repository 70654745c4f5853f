package admin

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/lapse"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// claimAgain is how often the messages of a connection claim a subject that another one holds:
	// often enough that its attributes stay when that connection is gone.
	claimAgain = lapse.Grace / 2
	// maxNoted bounds each of two maps of a connection: when it claimed a subject, and at which
	// revision a subject was as a message declared it. Each takes some 40 KiB. Beyond the bound some
	// entry is dropped for a new one: its subject is claimed more often, or its declaration is read
	// again.
	maxNoted = 1000
	// maxDeclaredText is the size of what a message declares, as it is written: with blanks, escapes
	// and repetitions. It is read for each message that repeats nothing.
	maxDeclaredText = 4 * attribute.MaxBytes
	// maxClaiming bounds the claims of a connection that are under way: messages of the same client
	// that wait for their attributes come after them. They share transactions.
	maxClaiming = 32
	// awaitAttributes is how often a message that comes before they are read looks for them.
	awaitAttributes = 10 * time.Millisecond
)

// hashSeed is of hashes. Equal ones of claimed subjects only delay a claim.
var hashSeed = maphash.MakeSeed()

// Declarer returns the session.Declarer of a client of this broker.
func (s *Server) Declarer(client uint64) session.Declarer {
	return &declarer{server: s, of: s.attributes, client: client}
}

// declarer sets the attributes that messages of one connection declare.
//
//  1. What is as declared takes no write: this broker's copy says so. It may be milliseconds
//     behind, and the next message is compared again.
//  2. A message waits until its attributes are set, and until live queries of linked brokers know.
//  3. A message whose attributes are there, held by another connection, waits for nothing. Its
//     connection claims them meanwhile. So publishers that connect elsewhere publish while etcd is
//     away.
//  4. Attributes that are bound to none, such as a manifest's, stay so if messages of a connection
//     declare the same, or more: they would go with it.
//  5. Two connections that publish on one subject don't take it from each other all the time: each
//     claims it every claimAgain at most.
type declarer struct {
	server *Server
	of     *attributes
	client uint64

	claiming atomic.Int32 // claims under way

	known   map[uint64]attribute.Revision // of subjects that were as a message declared, by keyOf
	claimed map[uint64]time.Time          // when the connection last claimed a subject, by its hash
}

// keyOf returns a hash of what a message declares. Two equal ones would have to be at the same
// revision to be taken for each other, which not even many messages make likely.
func keyOf(subject, text []byte, bound bool) uint64 {
	var h maphash.Hash
	h.SetSeed(hashSeed)
	_, _ = h.Write(subject)
	end := byte(' ') // which no subject has
	if bound {
		end = '\t'
	}
	_ = h.WriteByte(end)
	_, _ = h.Write(text)
	return h.Sum64()
}

// note sets a value. If there are many, it forgets some other one.
func note[V any](of map[uint64]V, key uint64, value V) map[uint64]V {
	if of == nil {
		of = map[uint64]V{}
	}
	for other := range of {
		if len(of) < maxNoted {
			break
		}
		delete(of, other)
	}
	of[key] = value
	return of
}

// Declare implements session.Declarer.
func (d *declarer) Declare(subject, text []byte, bound bool) (set func() <-chan *session.Refusal, refusal *session.Refusal) {
	store := d.of.all.Store()
	key, at := keyOf(subject, text, bound), store.Revision(subject)
	if last, known := d.known[key]; known && last == at {
		return nil, nil
	}
	change := attribute.Change{Subject: string(subject), Holder: &attribute.Holder{}, KeepsUnbound: bound}
	if is := d.of.rights(d.client); is != nil {
		change.User = is.Name
	}
	if bound {
		change.Holder = &attribute.Holder{Broker: d.server.self, Process: d.of.process, Connection: d.client}
	}
	err := fmt.Errorf("%d bytes (there may be %d)", len(text), maxDeclaredText)
	if len(text) <= maxDeclaredText {
		if change.Set, err = attribute.SetFromJSON(text); err == nil {
			err = change.Check()
		}
	}
	if err != nil {
		return nil, refusalOf(refuse(BadRequest, "header Carillon-Attributes: %v", err))
	}
	if store.Stats().Ready {
		before := store.Get(change.Subject)
		after, err := change.Apply(before)
		switch {
		case err != nil || after.Text != before.Text: // etcd decides
		case after.Holder == before.Holder:
			if at.Number == before.Revision { // it has not changed meanwhile
				d.known = note(d.known, key, at)
			}
			return nil, nil
		default:
			if !d.claims(change.Subject) {
				return nil, nil
			}
			return func() <-chan *session.Refusal { d.claim(change); return nil }, nil
		}
	}
	return func() <-chan *session.Refusal {
		outcome := make(chan *session.Refusal, 1)
		d.submit(change, func(refused *Error) { outcome <- refusalOf(refused) })
		return outcome
	}, nil
}

// claims reports whether the connection is to claim a subject now, and notes that it does.
func (d *declarer) claims(subject string) bool {
	now, of := time.Now(), maphash.String(hashSeed, subject)
	if last, known := d.claimed[of]; known && now.Sub(last) < claimAgain || d.claiming.Load() >= maxClaiming {
		return false
	}
	d.claimed = note(d.claimed, of, now)
	return true
}

// claim binds the attributes of a subject to the connection, or to none, without anybody waiting.
func (d *declarer) claim(change attribute.Change) {
	// Without what is set: a later change may pass it.
	change.Set = nil
	d.claiming.Add(1)
	d.submit(change, func(*Error) { d.claiming.Add(-1) })
}

// submit makes a change in its turn, and calls done once with the error of it.
func (d *declarer) submit(change attribute.Change, done func(*Error)) {
	busy := refuse(Busy, "more changes of attributes are asked for than this broker's part of %d a second (publish again in a moment)", ChangeRate)
	if !d.of.gate.submit(d.server.originOf(d.client).by, 1, change.Memory(), func(ctx context.Context) {
		done(d.server.declare(ctx, change))
	}, func() { done(busy) }) {
		done(busy)
	}
}

// declare makes a change as soon as this broker has read the attributes.
func (s *Server) declare(ctx context.Context, change attribute.Change) *Error {
	for !s.attributes.all.Store().Stats().Ready {
		if !work.Sleep(ctx, awaitAttributes) {
			return refuse(NotReady, "this broker has not read the attributes of subjects yet (publish again in a second)")
		}
	}
	out, err := s.attributes.all.Change(ctx, []attribute.Change{change})
	if err == nil {
		err = out[0].Err
	}
	if err == nil {
		return nil
	}
	full, invalid := (*coordination.AttributesFullError)(nil), (*coordination.InvalidError)(nil)
	if errors.As(err, &full) || errors.As(err, &invalid) {
		return s.notWritten("change attributes", err)
	}
	// Without a line in the log for each message.
	return refuse(Unavailable, "the coordinators did not take the change of the attributes of subject %.100s, or not in time: %v (publish again)", change.Subject, err)
}

// refusalOf returns what a publisher is told, also in the form of a PubAck.
func refusalOf(e *Error) *session.Refusal {
	if e == nil {
		return nil
	}
	of := *jsapi.ErrClusterNotAvailable
	switch e.Code {
	case BadRequest:
		of = *jsapi.ErrBadRequest
	case Refused:
		of = *jsapi.ErrInsufficientResources
	}
	of.Description = jsapi.OneLine("the attributes of its subject were not set: " + e.Text)
	whole := encode(struct {
		Error jsapi.Error `json:"error"`
	}{of})
	return &session.Refusal{Code: of.Code, Text: of.Description, Answer: func(reply []byte) []byte {
		// Inside of a fast batch an answer without a type would be the answer to its end. No
		// ping ends it.
		part, fast := jsapi.ParseFast(reply, nil)
		if fast && !part.Invalid && (part.Op == publish.FastPing || part.Op == publish.FastMessage && part.Sequence > 1) {
			return jsapi.AppendFlowError(nil, part.Sequence, whole)
		}
		return whole
	}}
}
