package coordination

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// Attributes follows and changes the attributes of subjects. There are many attributes, and they
// change often. So they have a client of etcd of their own, with its connection and its watch: a
// flood of changes delays no renewal of a lease, and no State.
//
//  1. The attributes of a subject are one key. Its revision is the key's.
//  2. A change compares the revision that it was made of. If that has passed, the change is made
//     again, of what the key has. So changes of one subject by several brokers all hold.
//  3. Changes share transactions, and each fails alone. This broker has one transaction under way
//     at a time, and changes of one subject are carried out in the order in which they came.
//  4. A change is answered when etcd has. The store has it then, before the watch brings it.
//  5. A change whose transaction failed is sent again. If it had been carried out, the key has what
//     it would write, which is its success.
//  6. Changes that need more room are refused beyond attribute.MaxSubjects and attribute.MaxTotal.
//     Brokers that admit at the same moment exceed these by unseenSubjects and unseenAttributes for
//     each of them but one, since a broker that has written as much beyond what its watch has
//     brought waits for its watch.
//  7. After a restore of etcd from a backup, attributes are those of the backup. Each broker
//     notices by itself, and reads all of them; those that differ are changes. What was
//     acknowledged since the backup is lost, as it is of Topics.
//
// Rejected: a lease for each publisher's connection. A thousand that end with their broker are a
// thousand transactions at once. Rejected: a key with the sums, as for clientRoom.
type Attributes struct {
	c     *Client
	store *attribute.Store
	queue *txnQueue[attributeWrite]
	most  attributeRoom // tests have less
	soon  time.Duration // soonTimeout; tests of other things have more

	unseen   unseenWrites // of the holder of the queue's turn
	restored atomic.Bool  // since the last transaction
	refused  atomic.Uint64
	written  atomic.Uint64
}

// OpenAttributes returns Attributes that keep the store up. It does not wait for etcd.
func OpenAttributes(cfg Config, store *attribute.Store) (*Attributes, error) {
	cfg.Seen, cfg.Limits, cfg.Readers = nil, nil, nil // the other client's
	c, err := Open(cfg)
	if err != nil {
		return nil, fmt.Errorf("open the attributes of subjects: %w", err)
	}
	return &Attributes{
		c: c, store: store, queue: newGather[attributeWrite](),
		most: attributeRoom{attribute.MaxSubjects, attribute.MaxTotal, unseenSubjects, unseenAttributes},
		soon: soonTimeout,
	}, nil
}

// Close closes the connection. Changes and Follow have ended before.
func (a *Attributes) Close() error { return a.c.Close() }

// Store returns the store that a keeps up.
func (a *Attributes) Store() *attribute.Store { return a.store }

// AttributeStats are counters of this process.
type AttributeStats struct {
	Written uint64 // changes
	Refused uint64 // changes, since subjects or bytes are at their bound
}

// Stats returns the counters.
func (a *Attributes) Stats() AttributeStats {
	return AttributeStats{a.written.Load(), a.refused.Load()}
}

func (a *Attributes) prefix() string            { return a.c.prefix + "attributes/subjects/" }
func (a *Attributes) key(subject string) string { return a.prefix() + subject }
func (a *Attributes) subject(key []byte) string { return strings.TrimPrefix(string(key), a.prefix()) }

// attributesValue is the JSON of a subject's attributes.
type attributesValue struct {
	V          int               `json:"v"`
	Attributes json.RawMessage   `json:"attributes"`
	Holder     *attribute.Holder `json:"holder,omitempty"`
	User       string            `json:"user,omitempty"`
}

const attributesValueVersion = 1

// encodeAttributes returns the value of an entry, or "" of one without attributes. Equal entries
// have equal values.
func encodeAttributes(e *attribute.Entry) (string, error) {
	if e.Text == "" {
		return "", nil
	}
	rest := struct {
		Holder *attribute.Holder `json:"holder,omitempty"`
		User   string            `json:"user,omitempty"`
	}{User: e.User}
	if e.Holder != (attribute.Holder{}) {
		rest.Holder = &e.Holder
	}
	tail, err := json.Marshal(rest)
	if err != nil {
		return "", fmt.Errorf("encode the attributes of subject %s: %w", e.Subject, err)
	}
	// Not all by Marshal, which would escape what the text of a Set does not.
	value := fmt.Sprintf(`{"v":%d,"attributes":%s`, attributesValueVersion, e.Text)
	if len(tail) > len("{}") {
		return value + "," + string(tail[1:]), nil
	}
	return value + "}", nil
}

// decode returns the entry of a key.
func (a *Attributes) decode(kv *mvccpb.KeyValue) (attribute.Entry, error) {
	subject := a.subject(kv.GetKey())
	var value attributesValue
	if err := decodeValue("the attributes of subject "+subject, kv.GetValue(), attributesValueVersion, &value, &value.V); err != nil {
		return attribute.Entry{}, err
	}
	set, err := attribute.SetFromJSON(value.Attributes)
	if err != nil {
		return attribute.Entry{}, fmt.Errorf("decode the attributes of subject %s: %w", subject, err)
	}
	e := attribute.Entry{
		Subject: subject, Revision: kv.GetModRevision(), Text: string(set.AppendJSON(nil)), User: value.User,
		Bytes: len(subject) + len(kv.GetValue()),
	}
	if value.Holder != nil {
		e.Holder = *value.Holder
	}
	return e, nil
}

// distrust is called when etcd was restored from a backup.
func (a *Attributes) distrust() {
	a.store.Distrust()
	a.restored.Store(true)
}

// Follow keeps the store up until ctx ends.
func (a *Attributes) Follow(ctx context.Context) {
	listing := false
	m := mirror{
		c: a.c, prefix: a.prefix(), history: a.c.history, restored: a.distrust,
		generation: func() int64 { return 0 }, // that of the State's client decides
		put: func(kv *mvccpb.KeyValue) {
			e, err := a.decode(kv)
			if err != nil {
				a.c.log.Warn("a value is unreadable; what is known of it stands", "key", string(kv.GetKey()), "error", err)
				return
			}
			a.store.Put(e)
		},
		remove: func(key []byte, revision int64) { a.store.Delete(a.subject(key), revision) },
		keys: func() []string {
			listing = true
			keys := a.store.Subjects()
			for i, subject := range keys {
				keys[i] = a.key(subject)
			}
			return keys
		},
		complete: func(revision int64) error {
			a.store.Of(a.c.history.name())
			if listing {
				listing = false
				a.store.Listed(revision)
			} else if !a.store.Watched(revision) {
				a.distrust()
				return errors.New("etcd lacks a change that it had acknowledged; reading all attributes")
			}
			return nil
		},
	}
	m.run(ctx)
}
