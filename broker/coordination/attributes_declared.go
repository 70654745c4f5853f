package coordination

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/subject"
)

const (
	// MaxDeclared is how many subjects a manifest may declare attributes of. A transaction of etcd
	// has 128 operations: as many subjects that are declared, as many that were, and what is noted.
	MaxDeclared = 50
	// declareAttempts bounds how often a transaction may lose against changes by others.
	declareAttempts = 16
)

// Declared are the attributes that a manifest declares, by subject.
type Declared map[string]attribute.Set

// ParseDeclared returns what a manifest declares: the values by subject and name, as JSON. kept are
// the subjects that its Topic keeps.
func ParseDeclared(kept []string, texts map[string]map[string]json.RawMessage) (Declared, error) {
	all := Declared{}
	for _, of := range slices.Sorted(maps.Keys(texts)) {
		if err := attribute.CheckSubject(of); err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(kept, func(pattern string) bool { return subject.Matches([]byte(pattern), []byte(of)) }) {
			return nil, fmt.Errorf("subject %.100s is none of this Topic (declare its attributes in the manifest of the Topic that keeps it)", of)
		}
		all[of] = attribute.Set{}
		for name, text := range texts[of] {
			value, err := attribute.FromJSON(text)
			if err != nil {
				return nil, fmt.Errorf("subject %.100s: attribute %.100q: %w", of, name, err)
			}
			all[of][name] = value
		}
		if err := all[of].Check(); err != nil {
			return nil, fmt.Errorf("subject %.100s: %w", of, err)
		}
	}
	return all, nil
}

func (c *Client) declaredKey(topic string) string { return c.prefix + "attributes/manifests/" + topic }

// declaredValue is the JSON of what the manifest of a Topic has declared: names by subject.
type declaredValue struct {
	V        int                 `json:"v"`
	Subjects map[string][]string `json:"subjects"`
}

const declaredValueVersion = 1

// DeclareAttributes sets the attributes that the manifest of a Topic declares, and binds them to no
// connection. It deletes those that the manifest has declared before and does not any more. Others
// stay as they are. All of it, with what is declared, is one transaction, so whatever dies, nobody
// loses sight of what a manifest has set. Nothing is written if everything is like that already.
//
// The error is an *InvalidError, or etcd's. What needs no more room is refused in no case.
func (c *Client) DeclareAttributes(ctx context.Context, topic string, want Declared) error {
	if len(want) > MaxDeclared {
		return &InvalidError{"declare attributes", fmt.Sprintf("%d subjects (a manifest may declare attributes of %d)", len(want), MaxDeclared)}
	}
	for range declareAttempts {
		if done, err := c.declareOnce(ctx, topic, want); done || err != nil {
			return err
		}
	}
	return fmt.Errorf("the attributes that topic %s declares were changed by others %d times meanwhile (try again)", topic, declareAttempts)
}

// declareOnce is one attempt. done is false if others have written meanwhile.
func (c *Client) declareOnce(ctx context.Context, topic string, want Declared) (done bool, err error) {
	a, noted := &Attributes{c: c}, c.declaredKey(topic)
	got, err := c.transact(ctx, nil, []clientv3.Op{clientv3.OpGet(noted)})
	if err != nil {
		return false, fmt.Errorf("read what topic %s has declared: %w", topic, err)
	}
	before, revision := declaredValue{V: declaredValueVersion}, int64(0)
	if kvs := got.Responses[0].GetResponseRange().GetKvs(); len(kvs) > 0 {
		revision = kvs[0].GetModRevision()
		if err := decodeValue("what topic "+topic+" has declared", kvs[0].GetValue(), declaredValueVersion, &before, &before.V); err != nil {
			return false, err
		}
	}
	after := declaredValue{declaredValueVersion, map[string][]string{}}
	all := maps.Clone(before.Subjects)
	if all == nil {
		all = map[string][]string{}
	}
	for subject, set := range want {
		after.Subjects[subject] = slices.Sorted(maps.Keys(set))
		all[subject] = before.Subjects[subject]
	}
	subjects := slices.Sorted(maps.Keys(all))
	if len(subjects) == 0 {
		return true, nil
	}
	is, err := a.entries(ctx, subjects)
	if err != nil {
		return false, err
	}
	conditions := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(noted), "=", revision)}
	var ops []clientv3.Op
	grown, bytes := 0, 0
	for _, subject := range subjects {
		change := attribute.Change{Subject: subject, Set: want[subject]}
		for _, name := range all[subject] {
			if _, stays := change.Set[name]; !stays {
				change.Delete = append(change.Delete, name)
			}
		}
		if change.Set != nil {
			change.Holder = &attribute.Holder{}
		}
		was := is[subject]
		conditions = append(conditions, clientv3.Compare(clientv3.ModRevision(a.key(subject)), "=", was.Revision))
		op, after, err := a.declared(&change, was)
		if err != nil {
			return false, &InvalidError{"declare attributes", err.Error()}
		}
		if after == nil {
			continue
		}
		ops = append(ops, op)
		bytes += len(after.Text) - len(was.Text)
		if was.Text == "" {
			grown++
		}
	}
	if !maps.EqualFunc(before.Subjects, after.Subjects, slices.Equal) {
		note, err := c.noteDeclared(noted, &after)
		if err != nil {
			return false, err
		}
		ops = append(ops, note)
	}
	if len(ops) == 0 {
		return true, nil
	}
	if grown > 0 {
		if err := a.roomFor(ctx, subjects[0], grown); err != nil {
			return false, err
		}
	}
	if bytes > 0 {
		if err := c.refuseFull(ctx, subjects[0]); err != nil {
			return false, err
		}
	}
	made, err := c.transact(ctx, conditions, ops)
	if err != nil {
		return false, fmt.Errorf("set the attributes that topic %s declares: %w", topic, err)
	}
	return made.Succeeded, nil
}

func (c *Client) noteDeclared(key string, after *declaredValue) (clientv3.Op, error) {
	if len(after.Subjects) == 0 {
		return clientv3.OpDelete(key), nil
	}
	value, err := json.Marshal(after)
	if err != nil {
		return clientv3.Op{}, fmt.Errorf("encode what is declared: %w", err)
	}
	return clientv3.OpPut(key, string(value)), nil
}

// entries reads the attributes of subjects. The zero Entry: there are none.
func (a *Attributes) entries(ctx context.Context, subjects []string) (map[string]attribute.Entry, error) {
	gets := make([]clientv3.Op, len(subjects))
	for i, subject := range subjects {
		gets[i] = clientv3.OpGet(a.key(subject))
	}
	got, err := a.c.transact(ctx, nil, gets)
	if err != nil {
		return nil, fmt.Errorf("read the attributes of %d subjects: %w", len(subjects), err)
	}
	is := map[string]attribute.Entry{}
	for _, response := range got.Responses {
		for _, kv := range response.GetResponseRange().GetKvs() {
			e, err := a.decode(kv)
			if err != nil {
				return nil, &InvalidError{"declare attributes", err.Error()}
			}
			is[e.Subject] = e
		}
	}
	return is, nil
}

// declared returns the operation of a change of what a subject has, and what it makes of that; nil:
// there is nothing to write.
func (a *Attributes) declared(change *attribute.Change, was attribute.Entry) (op clientv3.Op, made *attribute.Entry, err error) {
	if err := change.Check(); err != nil {
		return op, nil, err
	}
	after, err := change.Apply(was)
	if err != nil {
		return op, nil, err
	}
	if after.Text == was.Text && after.Holder == was.Holder {
		return op, nil, nil
	}
	value, err := encodeAttributes(&after)
	if err != nil {
		return op, nil, err
	}
	if value == "" {
		return clientv3.OpDelete(a.key(change.Subject)), &after, nil
	}
	return clientv3.OpPut(a.key(change.Subject), value), &after, nil
}

// roomFor returns an error if there is no room for the attributes of more subjects. Its text is the
// same as long as that lasts: it stands in a status, whose changes are writes.
func (a *Attributes) roomFor(ctx context.Context, subject string, more int) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	got, err := a.c.etcd.Get(ctx, a.prefix(), clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		return fmt.Errorf("count the subjects with attributes: %w", err)
	}
	if int(got.Count)+more > attribute.MaxSubjects {
		return &InvalidError{"declare attributes", fmt.Sprintf("subject %s: %d more subjects would be beyond the %d of the cluster that may have attributes (delete those that are not needed, or bind them to connections)", subject, more, attribute.MaxSubjects)}
	}
	return nil
}
