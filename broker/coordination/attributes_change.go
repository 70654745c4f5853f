package coordination

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/work"
)

const (
	// unseenSubjects and unseenAttributes bound how many new subjects, and how many bytes, a broker
	// has written that its watch has not brought yet: a few times what it writes meanwhile. Seven
	// brokers together exceed the bounds of all attributes by 6,000 subjects and 12 MiB at most.
	unseenSubjects   = 1000
	unseenAttributes = 2 << 20
	// awaitWatch is how often a broker looks whether its watch has come that far.
	awaitWatch = 5 * time.Millisecond
	// attributeAttempts bounds how often a change may lose against others of its subject.
	attributeAttempts = 100
	// soonTimeout bounds the first transactions of a change. A member of etcd that doesn't lead
	// forwards them, and those that the leader had when it died are never answered, though the next
	// leader is elected meanwhile. So a change is made within a second of the election.
	soonTimeout = 750 * time.Millisecond
	// soonAttempts is how many transactions without an answer are bounded so: for longer than an
	// election takes. Later ones have requestTimeout, since an etcd that is slow for another reason
	// is not to be asked more often.
	soonAttempts = 5
)

// attributeRoom bounds all attributes, and those of this broker that its watch has not brought.
type attributeRoom struct {
	subjects       int
	bytes          int64
	unseenSubjects int
	unseenBytes    int64
}

// AttributesFullError reports that there is no room for more attributes.
type AttributesFullError struct {
	Subject  string
	Subjects int   // that have attributes
	Bytes    int64 // of all attributes
	Most     attributeRoom
}

func (e *AttributesFullError) Error() string {
	return fmt.Sprintf("subject %s: %d of %d subjects of the cluster have attributes, of %d of %d bytes together, and there is no room for more (delete those that are not needed, or bind them to connections)",
		e.Subject, e.Subjects, e.Most.subjects, e.Bytes, e.Most.bytes)
}

// Outcome is what became of a change.
type Outcome struct {
	// Entry is what the subject has; without a Text: no attributes, as of its Revision.
	Entry attribute.Entry
	// Written is true if the change wrote something, at the Entry's revision.
	Written bool
	// Err is an *InvalidError, an *attribute.MovedError or an *AttributesFullError, or one after
	// which nobody knows whether the change was made, or nil.
	Err error
}

// attributeWrite is a change under way.
type attributeWrite struct {
	change  *attribute.Change
	of      *attributeWrites
	outcome Outcome
	tried   int
	silent  int     // transactions that were not answered in time
	sent    *string // the value of a transaction that may have been carried out; empty: a deletion
	after   attribute.Entry
	value   *string // that is sent; empty: a deletion; nil: nothing
	refusal error   // of what is known, which etcd has to confirm
}

// attributeWrites are the changes of one call.
type attributeWrites struct {
	left    int
	done    chan struct{}
	dropped atomic.Bool // nobody waits for them
}

// finish notes what became of a change. It is called once, by the holder of the turn.
func (w *attributeWrite) finish(e attribute.Entry, err error) {
	w.outcome.Entry, w.outcome.Err = e, err
	if w.of.left--; w.of.left == 0 {
		close(w.of.done)
	}
}

// Change carries out changes, each by itself. The error is ctx's: then nobody knows what became of
// them.
func (a *Attributes) Change(ctx context.Context, changes []attribute.Change) ([]Outcome, error) {
	if len(changes) == 0 || len(changes) > attribute.MaxChanges {
		return nil, &InvalidError{"change attributes", fmt.Sprintf("%d changes at once (make 1 to %d)", len(changes), attribute.MaxChanges)}
	}
	if !a.store.Stats().Ready {
		return nil, errors.New("the attributes of subjects are not read yet (ask again in a moment)")
	}
	of := &attributeWrites{left: len(changes), done: make(chan struct{})}
	all := make([]*attributeWrite, len(changes))
	for i := range changes {
		if err := changes[i].Check(); err != nil {
			return nil, &InvalidError{"change attributes", err.Error()}
		}
		all[i] = &attributeWrite{change: &changes[i], of: of}
	}
	if err := a.queue.doAll(ctx, all, of.done, a.changeSome); err != nil {
		of.dropped.Store(true)
		return nil, fmt.Errorf("change attributes: %w", err)
	}
	out := make([]Outcome, len(all))
	for i, w := range all {
		out[i] = w.outcome
	}
	return out, nil
}

// changeSome carries out the first queued changes, of different subjects.
func (a *Attributes) changeSome(ctx context.Context) {
	subjects := map[string]bool{}
	these := a.queue.dequeue(func(w *attributeWrite) (want, stop bool) {
		if len(subjects) == attribute.MaxChanges {
			return false, true
		}
		if subjects[w.change.Subject] {
			return false, false // later ones of the subject wait, too
		}
		subjects[w.change.Subject] = true
		return true, false
	})
	these = slices.DeleteFunc(these, func(w *attributeWrite) bool { return w.of.dropped.Load() })
	if len(these) == 0 {
		return
	}
	if !a.awaitWatch(ctx) {
		a.queue.putBack(these)
		return
	}
	grown, silent := growth{}, 0
	ops := make([]clientv3.Op, len(these))
	for i, w := range these {
		ops[i] = a.prepare(w, &grown)
		silent = max(silent, w.silent)
	}
	timeout := a.soon
	if silent >= soonAttempts {
		timeout = requestTimeout
	}
	within, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	done, err := a.c.transact(within, nil, ops)
	if err != nil {
		a.unseen.fail(grown)
		for _, w := range these {
			w.sent = cmp.Or(w.value, w.sent)
			if within.Err() != nil {
				w.silent++
			}
		}
		a.queue.putBack(these)
		a.c.log.Debug("changes of attributes are sent again", "changes", len(these), "error", err)
		work.Sleep(ctx, minBackoff)
		return
	}
	at := done.Header.GetRevision()
	if slices.ContainsFunc(done.Responses, wrote) { // otherwise no watch brings this revision
		a.unseen.add(grown, at)
	}
	var again []*attributeWrite
	for i, w := range these {
		if !a.settle(w, done.Responses[i].GetResponseTxn(), at) {
			again = append(again, w)
		}
	}
	a.queue.putBack(again)
}

// prepare returns the operation of a change, made of what is known of its subject.
func (a *Attributes) prepare(w *attributeWrite, grown *growth) clientv3.Op {
	key := a.key(w.change.Subject)
	before := a.store.Get(w.change.Subject)
	w.value, w.refusal = nil, nil
	if was, err := encodeAttributes(&before); w.sent != nil && err == nil && was == *w.sent {
		w.after = before // an earlier attempt was carried out, and its answer was lost
	} else if w.after, w.refusal = w.change.Apply(before); w.refusal == nil {
		var value string
		if value, w.refusal = encodeAttributes(&w.after); value != "" {
			w.after.Bytes = len(w.change.Subject) + len(value)
		}
		if w.after.Text != before.Text || w.after.Holder != before.Holder {
			w.value = &value
		}
	}
	if w.refusal == nil {
		w.refusal = a.admit(w, &before, grown)
	}
	read := clientv3.OpGet(key)
	write := read // what is known may have passed, so etcd decides also what needs no write
	switch {
	case w.refusal != nil:
		w.value = nil
	case w.value == nil:
		w.after = before
	case *w.value == "":
		write = clientv3.OpDelete(key)
	default:
		write = clientv3.OpPut(key, *w.value)
	}
	return clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", before.Revision)}, []clientv3.Op{write}, []clientv3.Op{read})
}

// settle takes etcd's answer to a change. It reports false if the change is to be made again.
func (a *Attributes) settle(w *attributeWrite, done *etcdserverpb.TxnResponse, at int64) bool {
	subject := w.change.Subject
	op := done.GetResponses()[0]
	switch {
	case !done.GetSucceeded():
		if kvs := op.GetResponseRange().GetKvs(); len(kvs) > 0 {
			current, err := a.decode(kvs[0])
			if err != nil {
				w.finish(attribute.Entry{}, &InvalidError{"change attributes", err.Error()})
				return true
			}
			a.store.PutAhead(current)
		} else {
			a.store.DeleteAhead(subject, at, false)
		}
		if w.tried++; w.tried == attributeAttempts {
			w.finish(attribute.Entry{}, fmt.Errorf("subject %s was changed by others %d times meanwhile (try again)", subject, attributeAttempts))
			return true
		}
		return false
	case op.GetResponsePut() != nil:
		w.after.Revision, w.outcome.Written = at, true
		a.store.PutAhead(w.after)
		a.written.Add(1)
	case op.GetResponseDeleteRange() != nil:
		w.after = attribute.Entry{Subject: subject, Revision: at}
		a.store.DeleteAhead(subject, at, true)
		w.outcome.Written = true
		a.written.Add(1)
	case w.refusal != nil:
		if full := (*AttributesFullError)(nil); errors.As(w.refusal, &full) {
			a.refused.Add(1)
		} else if moved := (*attribute.MovedError)(nil); errors.As(w.refusal, &moved) {
			if w.sent != nil { // it may have been carried out, and then changed by another
				w.refusal = fmt.Errorf("the answer to the change was lost, and now %s", moved)
			}
		} else {
			w.refusal = &InvalidError{"change attributes", w.refusal.Error()}
		}
		w.after = attribute.Entry{}
	default: // etcd has it like that already
		w.after.Subject = subject
		if w.after.Text == "" {
			w.after.Revision = at
		}
	}
	w.finish(w.after, w.refusal)
	return true
}

// wrote reports whether a change of a transaction has written.
func wrote(op *etcdserverpb.ResponseOp) bool {
	each := op.GetResponseTxn().GetResponses()
	return len(each) > 0 && each[0].GetResponseRange() == nil
}

// growth is how many subjects and bytes a transaction adds.
type growth struct {
	subjects int
	bytes    int64
}

// admit refuses a change that needs room that there is not, and counts what it needs.
func (a *Attributes) admit(w *attributeWrite, before *attribute.Entry, grown *growth) error {
	more := growth{bytes: int64(w.after.Bytes - before.Bytes)}
	if before.Text == "" && w.after.Text != "" {
		more.subjects = 1
	}
	if more.subjects == 0 && more.bytes <= 0 {
		return nil
	}
	is := a.store.Stats()
	if is.Subjects+grown.subjects+more.subjects > a.most.subjects && more.subjects > 0 || is.Bytes+grown.bytes+more.bytes > a.most.bytes {
		return &AttributesFullError{w.change.Subject, is.Subjects, is.Bytes, a.most}
	}
	grown.subjects += more.subjects
	grown.bytes += max(more.bytes, 0)
	return nil
}

// unseenWrites are the transactions that the watch has not brought, the oldest first.
type unseenWrites struct {
	all []unseenWrite
	sum growth
	// unknown is what failed transactions may have written. It delays nothing: no watch brings what
	// was not written, and the next transaction is what clears it up.
	unknown growth
}

type unseenWrite struct {
	growth
	revision int64
}

// add notes a transaction that has written, at a revision, and so all those before it.
func (u *unseenWrites) add(g growth, revision int64) {
	g = growth{g.subjects + u.unknown.subjects, g.bytes + u.unknown.bytes}
	u.unknown = growth{}
	if g == (growth{}) {
		return
	}
	u.all = append(u.all, unseenWrite{g, revision})
	u.sum.subjects += g.subjects
	u.sum.bytes += g.bytes
}

// fail notes a transaction that failed, and may have been carried out.
func (u *unseenWrites) fail(g growth) {
	u.unknown.subjects += g.subjects
	u.unknown.bytes += g.bytes
}

// pass forgets what the watch has brought.
func (u *unseenWrites) pass(watched int64) {
	n := 0
	for n < len(u.all) && u.all[n].revision <= watched {
		u.sum.subjects -= u.all[n].subjects
		u.sum.bytes -= u.all[n].bytes
		n++
	}
	u.all = slices.Delete(u.all, 0, n)
}

// awaitWatch waits until this broker has written little enough that its watch has not brought. It
// returns false if ctx ends.
func (a *Attributes) awaitWatch(ctx context.Context) bool {
	for {
		if a.restored.Swap(false) { // revisions are given again
			a.unseen = unseenWrites{}
		}
		a.unseen.pass(a.store.Stats().Revision)
		if a.unseen.sum.subjects < a.most.unseenSubjects && a.unseen.sum.bytes < a.most.unseenBytes {
			return ctx.Err() == nil
		}
		if !work.Sleep(ctx, awaitWatch) {
			return false
		}
	}
}
