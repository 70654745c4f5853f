package users

import (
	"context"
	"errors"
	"maps"
	"reflect"

	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/observe"
)

// memory is what is remembered of a Broker. One pass at a time uses it.
type memory struct {
	uid     types.UID
	hashes  *hashes
	begun   *identity.Document // what a former process wrote in part; nil: nothing, or it is over
	written *identity.Document // the last one that was written, which the mirror may not show yet
	from    map[string]string  // origins that are in etcd
}

// recall reads what a former process knew. set are the users in etcd; nil: there is no whole set.
// Then that process may have ended while it wrote one, and the brokers hold a set with most of its
// verifiers: without these, all users would get others, and their clients would be cut off.
func (m *memory) recall(ctx context.Context, from observe.Keys, set *coordination.UserSet) (err error) {
	if m.from, err = from.VerifiersFrom(ctx); err != nil {
		return err
	}
	m.hashes.from = m.from
	if set != nil {
		return nil
	}
	part, err := from.ReadUsers(ctx)
	if part != nil {
		m.begun = &part.Document
	}
	return err
}

// before returns the users with verifiers that may hold still.
func (m *memory) before(set *coordination.UserSet) map[string]*identity.User {
	users := map[string]*identity.User{}
	add := func(list []identity.User) {
		for i := range list {
			users[list[i].Name] = &list[i]
		}
	}
	if m.begun != nil {
		add(m.begun.Users)
	}
	if set != nil {
		add(set.Users)
	}
	if m.written != nil { // it is later, unless etcd was restored; its verifiers are right anyway
		add(m.written.Users)
	}
	return users
}

// outcome is what a pass did.
type outcome struct {
	written bool
	count   int    // of users that were written
	pending bool   // users wait for their turn
	invalid string // as of Decision
}

// pass decides which users there are, and writes them. What it takes from users that brokers have
// is written before other users have their turns, so that it does not wait for their hashes.
func (m *memory) pass(ctx context.Context, to observe.Keys, set *coordination.UserSet, all *gathered, own *identity.User) (done outcome, err error) {
	left := turns(turnsPerPass)
	for until := withdrawing; ; until++ {
		d := all.decide(m.before(set), m.hashes, &left, until)
		count := len(d.Document.Users)
		d.withOwn(own)
		done.invalid = d.invalid()
		if d.Keep {
			return done, nil // hashes that are not written would be made again
		}
		done.pending = d.Pending > 0
		last := !done.pending || until == hashing
		if !last && !m.takes(set, &d.Document) {
			continue
		}
		written, err := m.save(ctx, to, set, &d.Document)
		if written {
			done.written, done.count = true, count
		}
		if invalid := (*coordination.InvalidError)(nil); errors.As(err, &invalid) {
			done.invalid, done.pending = invalid.Error(), false // all of them together are wrong
			return done, nil
		}
		if err != nil || last {
			return done, err
		}
	}
}

// takes reports whether a document changes what brokers have of a user, or of all, so that it may
// take something away. A document that only adds users does not.
func (m *memory) takes(set *coordination.UserSet, doc *identity.Document) bool {
	last := m.written
	switch {
	case last != nil:
	case set != nil:
		last = &set.Document
	case m.begun != nil:
		last = m.begun
	default:
		return false
	}
	if !reflect.DeepEqual(last.Default, doc.Default) || last.Anonymous != doc.Anonymous {
		return true
	}
	now := make(map[string]*identity.User, len(doc.Users))
	for i := range doc.Users {
		now[doc.Users[i].Name] = &doc.Users[i]
	}
	for i := range last.Users {
		u := now[last.Users[i].Name]
		if u == nil || !reflect.DeepEqual(*u, last.Users[i]) {
			return true
		}
	}
	return false
}

// save writes the users of a pass, and then of which Secrets their verifiers are, also while others
// wait: the process after this one compares only what this one has not. written reports whether the
// users are.
func (m *memory) save(ctx context.Context, to observe.Keys, set *coordination.UserSet, doc *identity.Document) (written bool, err error) {
	if err := m.write(ctx, to, set, doc); err != nil {
		return false, err
	}
	return true, m.writeOrigins(ctx, to)
}

// write writes the users unless this process has written them last, and etcd shows them as set. The
// mirror may show the set before that one still.
func (m *memory) write(ctx context.Context, to observe.Keys, set *coordination.UserSet, doc *identity.Document) error {
	if m.written != nil && set != nil && len(set.Wrong) == 0 && reflect.DeepEqual(set.Document, *doc) && reflect.DeepEqual(*m.written, *doc) {
		return nil
	}
	m.written = nil // whether it was written in part is not known, until that succeeds
	if _, err := to.PutUsers(ctx, doc); err != nil {
		return err
	}
	m.begun, m.written = nil, doc
	return nil
}

// writeOrigins writes of which Secrets the verifiers are, unless etcd has that.
func (m *memory) writeOrigins(ctx context.Context, to observe.Keys) error {
	if maps.Equal(m.from, m.hashes.from) {
		return nil
	}
	if err := to.PutVerifiersFrom(ctx, m.from, m.hashes.from); err != nil {
		return err
	}
	m.from = m.hashes.from
	return nil
}
