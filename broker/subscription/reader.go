package subscription

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
)

// reader is what the state log has of a Subscription that nobody declared, beside its cursor. Such
// a Subscription, a reader, is deleted when it was unused for some time. Nothing of it is in etcd,
// since clients create one each time they begin to read.
type reader struct {
	V        int                           `json:"v"`
	Spec     coordination.SubscriptionSpec `json:"spec"`
	Created  time.Time                     `json:"created"`
	Inactive time.Duration                 `json:"inactive,omitempty"` // 0: for ever
}

const readerVersion = 1

// reading returns the reader item of a Subscription. mu is held.
func (s *Subscription) reading() *reader {
	return &reader{V: readerVersion, Spec: *s.spec, Created: s.created, Inactive: time.Duration(s.inactive)}
}

// appendReader encodes the reader of that handle.
func appendReader(dst []byte, handle uint64, r *reader) []byte {
	data, err := json.Marshal(r)
	if err != nil { // cannot fail: the fields are plain
		return dst
	}
	dst = binary.AppendUvarint(dst, handle)
	dst = binary.AppendUvarint(dst, uint64(len(data)))
	return append(dst, data...)
}

// nextReader decodes the next reader.
func (r *decoder) nextReader() (handle uint64, item *reader, err error) {
	handle = r.uint()
	data := r.bytes(r.uint())
	if r.bad {
		return 0, nil, errMalformed
	}
	item = new(reader)
	if err := json.Unmarshal(data, item); err != nil {
		return 0, nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	if item.V != readerVersion {
		return 0, nil, fmt.Errorf("a reader of version %d; this program knows %d", item.V, readerVersion)
	}
	return handle, item, nil
}

// Create creates a reader in the shard's state log. It is deleted when it was unused for the
// duration inactive, unless that is 0. Create returns when the reader's start is durable. It
// returns at once if the spec asks for memory storage, when a crash within lazyFor ends the reader,
// and if the search for the start takes long, when a crash ends the reader before its end.
func (s *Service) Create(ctx context.Context, key, name string, spec coordination.SubscriptionSpec, inactive time.Duration) (*Subscription, error) {
	k, err := s.openStore(ctx, key, name)
	if err != nil {
		return nil, err
	}
	made, err := k.create(name, &spec, inactive)
	if err != nil {
		return nil, err
	}
	made.mu.Lock()
	wait := made.search.done && !made.volatile()
	made.mu.Unlock()
	if !wait {
		return made, nil
	}
	if is, err := s.Wait(ctx, key, name); err != nil || is != made {
		k.removeReader(made)
		if err == nil {
			err = &ExistsError{Topic: k.shard.topicID, Name: name}
		}
		return nil, err
	}
	return made, nil
}

// openStore returns the store of a shard once its state log was read.
func (s *Service) openStore(ctx context.Context, key, name string) (*cursorStore, error) {
	for {
		s.changedMu.Lock()
		changed := s.changed
		s.changedMu.Unlock()
		k := s.store(key)
		if k == nil {
			return nil, &NotServedError{Topic: key, Name: name, Reason: NoShard, Why: "its topic is not led by this broker"}
		}
		k.mu.Lock()
		opened, failed := k.opened, k.failed
		k.mu.Unlock()
		switch {
		case opened:
			return k, nil
		case failed != nil:
			return nil, k.notServed(name, Troubled, "the cursors of its topic can't be read: "+failed.Error(), failed)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, k.notServed(name, Opening, "the cursors of its topic are being read", nil)
		}
	}
}

// Remove deletes a reader. Its deletion is durable within lazyFor.
func (s *Service) Remove(key, name string) {
	k := s.store(key)
	if k == nil {
		return
	}
	k.mu.Lock()
	e := k.subs[name]
	k.mu.Unlock()
	if e != nil && e.sub != nil && e.sub.ephemeral.Load() {
		k.removeReader(e.sub)
	}
}

// newReader returns a reader that is not served yet.
func (k *cursorStore) newReader(id identity, r *reader) *Subscription {
	s := newSubscription(k, id, &r.Spec, 1)
	s.created, s.inactive, s.maker = r.Created, int64(r.Inactive), r.Spec.Consumer.Maker
	s.ephemeral.Store(true)
	s.readerSize = len(appendReader(nil, 0, r))
	return s
}

// create adds a reader and begins to search its start.
func (k *cursorStore) create(name string, spec *coordination.SubscriptionSpec, inactive time.Duration) (*Subscription, error) {
	now := k.service.config.Clock.Time()
	why := unsupported(spec)
	if why == "" && k.isQueue() {
		why = cmp.Or(k.queueConflict(name, spec, anyServed), spec.Unjudgeable(coordination.WorkQueue, 1))
	}
	if why != "" {
		return nil, k.notServed(name, Unsupported, why, nil)
	}
	s := k.newReader(identity{name: name}, &reader{V: readerVersion, Spec: *spec, Created: now, Inactive: inactive})
	if err := k.add(s); err != nil {
		return nil, err
	}
	w := spareWorkers.Get().(*worker)
	defer spareWorkers.Put(w)
	start, end := k.shard.Offsets()
	s.mu.Lock()
	for read := 0; !s.search.done && read < createBytes; read += stepBytes {
		if more, err := s.seek(w, start, end, stepBytes); !more || err != nil {
			break
		}
	}
	failed := s.search.failed
	s.mu.Unlock()
	if failed != "" {
		k.removeReader(s)
		return nil, k.notServed(name, Unsupported, failed, nil)
	}
	k.service.tasks.wake(s)
	return s, nil
}

// add adds a new reader under its name, if the bounds permit it.
func (k *cursorStore) add(s *Subscription) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed != 0:
		return k.notServed(s.id.name, NoShard, "it is not served here any more ("+k.closed.String()+")", nil)
	case k.subs[s.id.name] != nil:
		return &ExistsError{Topic: k.shard.topicID, Name: s.id.name}
	case len(k.subs) >= mostReaders:
		return k.notServed(s.id.name, Unsupported, fmt.Sprintf("the topic has %d readers, as many as may be; end some, or share them", len(k.subs)), nil)
	case k.readerSize+s.readerSize > readerBytes:
		return k.tooMuch(s.id.name)
	}
	if err := k.service.makers.enter(s, k.service.config.MayRead); err != nil {
		return err
	}
	k.handles++
	s.handle = k.handles
	k.readerSize += s.readerSize
	k.subs[s.id.name] = &entry{sub: s}
	return nil
}

// tooMuch returns the refusal of a reader whose settings are too large. mu is held.
func (k *cursorStore) tooMuch(name string) error {
	return k.notServed(name, Unsupported, fmt.Sprintf("the settings of the topic's readers take %d bytes, and may take %d; end some, or give them less metadata", k.readerSize, readerBytes), nil)
}

// restoreReaders serves the readers of the state log again. When each was used last is not known,
// and its client may not have noticed yet that its requests ended with the former leader. stepping
// is held.
func (k *cursorStore) restoreReaders() {
	for name, r := range k.recovered {
		if r.reader == nil || r.id.made != 0 || r.cursor.lost || unsupported(&r.reader.Spec) != "" {
			continue
		}
		s := k.newReader(r.id, r.reader)
		s.keepUntil = k.service.now() + int64(restoredFor)
		k.restoreCursor(s, &r)
		_ = k.service.makers.enter(s, nil) // it exists, whatever its maker may have
		k.mu.Lock()
		k.readerSize += s.readerSize
		k.subs[name] = &entry{sub: s, served: true}
		k.mu.Unlock()
		k.service.tasks.wake(s)
	}
}

// makeDurable makes a reader the Subscription that was declared in its place, with the time at
// which the reader was created. It goes on where it stood: with its cursor, its deliveries and
// whoever waits. stepping is held.
//
// Until the state log has the new identity, which is with the next write, it has the reader: then
// another leader adopts that, since the Subscription is declared. A reader with memory storage may
// not be in the log at all. So it is served again once it is.
func (k *cursorStore) makeDurable(e *entry, d *coordination.Subscription) {
	s := e.sub
	s.mu.Lock()
	defer s.mu.Unlock()
	s.id.made, s.begin = d.Incarnation(), d.Begin()
	k.mu.Lock()
	volatile := s.volatile()
	k.service.makers.leave(s)
	s.ephemeral.Store(false) // under k.mu: removeReader must not see a reader, and delete this
	e.of, e.made = d.Made, d.Incarnation()
	e.served = e.served && !volatile
	k.readerSize -= s.readerSize
	s.readerSize = 0
	if s.search.done && !volatile && !k.dirty && k.closed == 0 {
		k.addSnapshot(s)
	}
	k.mu.Unlock()
	if s.search.done && volatile {
		k.writeStart(s)
	}
}

// declaringFor is how long a reader that is about to be declared is not deleted as unused: longer
// than a write to etcd may take.
const declaringFor = 30 * time.Second

// Keep has a reader not deleted as unused until it could be declared in its place. It reports false
// if the reader is gone.
func (s *Subscription) Keep() bool {
	k := s.store
	k.mu.Lock()
	defer k.mu.Unlock()
	if e := k.subs[s.id.name]; e == nil || e.sub != s || k.closed != 0 {
		return false
	}
	s.declaring = k.service.now() + int64(declaringFor)
	return true
}

// retireReader deletes an unused reader. It reports false if it is in use after all, since it is
// being declared, or was.
func (k *cursorStore) retireReader(s *Subscription) bool {
	k.mu.Lock()
	retired := k.service.now() >= s.declaring && k.forgetReader(s)
	k.mu.Unlock()
	if retired {
		k.endReader(s)
	}
	return retired
}

// isReader reports whether the name is that of a reader.
func (k *cursorStore) isReader(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.subs[name]
	return e != nil && e.sub != nil && e.sub.ephemeral.Load()
}

// removeReader ends a reader and deletes it. It reports false if it was made durable meanwhile.
func (k *cursorStore) removeReader(s *Subscription) bool {
	k.mu.Lock()
	forgotten := k.forgetReader(s)
	k.mu.Unlock()
	if forgotten {
		k.endReader(s)
	}
	return forgotten
}

// forgetReader deletes a reader, which endReader then ends. It reports false if it is none any
// more. mu is held.
func (k *cursorStore) forgetReader(s *Subscription) bool {
	if !s.ephemeral.Load() {
		return false
	}
	if e := k.subs[s.id.name]; e != nil && e.sub == s {
		delete(k.subs, s.id.name)
		k.readerSize -= s.readerSize
		k.forget(s.handle)
	}
	return true
}

// endReader ends a reader that was deleted.
func (k *cursorStore) endReader(s *Subscription) {
	s.close(Deleted)
	s.gone()
	if k.isQueue() {
		k.topicChanged() // it may have excluded others
	}
}
