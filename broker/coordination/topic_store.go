package coordination

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// reviseAttempts bounds how often a change of one key may lose against another write, which is
// rare.
const reviseAttempts = 16

// CreateTopic creates a Topic. It may be repeated: an existing Topic of the same owner with the
// same spec is returned. Otherwise the error is an *ExistsError or *OverlapError.
func (c *Client) CreateTopic(ctx context.Context, name string, spec TopicSpec, owner Owner) (*Topic, error) {
	what := "topic " + name
	if why := firstUnknown(validTopicName(name), spec.valid(), owner.valid()); why != "" {
		return nil, &InvalidError{what, why}
	}
	for range reviseAttempts {
		t := &Topic{Name: name, ID: newID(), Spec: spec, Generation: 1, Owner: owner, Created: now()}
		revision, found, err := c.putClaiming(ctx, t, owner)
		if err == nil {
			t.Revision, t.Made = revision, revision
			return t, nil
		}
		if _, full := errors.AsType[*FullError](err); full {
			if found = c.made(ctx, c.topicKey(name)); found == nil {
				return nil, err
			}
		} else if !errors.Is(err, errTopicMoved) {
			return nil, err
		}
		existing, err := c.decodeTopic(found)
		switch {
		case err != nil:
			return nil, err
		case existing.Deleting:
			if err := c.SweepTopic(ctx, existing); err != nil {
				return nil, err
			}
		case existing.Owner.is(owner) && equalSpecs(existing.Spec, spec):
			return existing, nil
		default:
			return nil, &ExistsError{what, existing.Owner}
		}
	}
	return nil, fmt.Errorf("create %s: others made and deleted it %d times meanwhile (try again)", what, reviseAttempts)
}

// equalSpecs compares the JSON of specs, so that nil and an empty list are equal.
func equalSpecs[S any](a, b S) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}

// now returns the time with the precision of the stored value.
func now() time.Time { return time.Now().UTC().Truncate(time.Microsecond) }

// TopicUpdate is a change of the spec.
type TopicUpdate struct {
	By         Owner
	ID         string // expected id; empty: any
	Generation int64  // expected generation; 0: any
	Spec       TopicSpec
}

// UpdateTopic replaces the spec. An equal spec is not written.
func (c *Client) UpdateTopic(ctx context.Context, name string, update TopicUpdate) (*Topic, error) {
	return c.reviseTopic(ctx, name, update.By, func(t *Topic) error {
		switch {
		case !t.Owner.mayChange(update.By):
			return &NotOwnerError{"topic " + name, t.Owner}
		case update.ID != "" && t.ID != update.ID, update.Generation != 0 && t.Generation != update.Generation:
			return &StaleError{"topic " + name}
		}
		return t.respecify(update.Spec)
	})
}

// AdoptTopic makes a manifest the owner of a Topic that an earlier manifest of the same namespace
// and name declared, and replaces its spec.
func (c *Client) AdoptTopic(ctx context.Context, name string, by Owner, spec TopicSpec) (*Topic, error) {
	if why := by.valid(); why != "" {
		return nil, &InvalidError{"topic " + name, why}
	}
	return c.reviseTopic(ctx, name, by, func(t *Topic) error {
		if !t.Owner.sameManifest(by) {
			return &NotOwnerError{"topic " + name, t.Owner}
		}
		t.Owner = by
		return t.respecify(spec)
	})
}

// OrphanTopic records that the manifest is gone and the Topic remains.
func (c *Client) OrphanTopic(ctx context.Context, name string, by Owner) (*Topic, error) {
	return c.reviseTopic(ctx, name, by, func(t *Topic) error {
		if by.Kind != ManifestOwner || !t.Owner.is(by) {
			return &NotOwnerError{"topic " + name, t.Owner}
		}
		if t.Owner.Orphaned.IsZero() {
			t.Owner.Orphaned = now()
		}
		return nil
	})
}

func (t *Topic) respecify(spec TopicSpec) error {
	what := "topic " + t.Name
	if why := spec.valid(); why != "" {
		return &InvalidError{what, why}
	}
	byDefault := func(p Partitioning) bool { return p == "" || p == BySubject }
	switch {
	case spec.Shards != t.Spec.Shards:
		return &ImmutableError{what, "the number of shards"}
	case spec.PartitionBy != t.Spec.PartitionBy && !(byDefault(spec.PartitionBy) && byDefault(t.Spec.PartitionBy)),
		!slices.Equal(spec.PartitionTokens, t.Spec.PartitionTokens):
		return &ImmutableError{what, "partitioning"}
	case spec.Stream.Retention != t.Spec.Stream.Retention && (spec.Stream.Retention == WorkQueue || t.Spec.Stream.Retention == WorkQueue):
		return &ImmutableError{what, "the retention to or from a work queue"}
	case spec.Stream.AllowCounter != t.Spec.Stream.AllowCounter:
		return &ImmutableError{what, "whether it has counters"}
	case spec.Stream.Mirror != nil && !equalSpecs(spec.Stream.Mirror, t.Spec.Stream.Mirror):
		return &ImmutableError{what, "what it mirrors"}
	case t.Spec.Stream.AllowMessageTTL && !spec.Stream.AllowMessageTTL:
		return &ImmutableError{what, "that its messages may have a TTL"}
	case t.Spec.Stream.AllowSchedules && !spec.Stream.AllowSchedules:
		return &ImmutableError{what, "that its messages may be scheduled"}
	case equalSpecs(spec, t.Spec):
		return nil
	}
	t.Spec = spec
	t.Generation++
	return nil
}

// reviseTopic writes the result of change, unless it is equal. If another write came first, it
// starts over. by is who needs room for what is added; without a kind nobody does.
func (c *Client) reviseTopic(ctx context.Context, name string, by Owner, change func(*Topic) error) (*Topic, error) {
	var found *mvccpb.KeyValue
	for attempt := range reviseAttempts {
		if attempt == 0 || found == nil {
			var err error
			if found, err = c.get(ctx, c.topicKey(name)); err != nil {
				return nil, err
			}
		}
		if found == nil {
			return nil, &NotFoundError{"topic " + name}
		}
		before, err := c.decodeTopic(found)
		if err != nil {
			return nil, err
		}
		if before.Deleting {
			return nil, &NotFoundError{"topic " + name}
		}
		after := *before
		if err := change(&after); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(&after, before) {
			return before, nil
		}
		var revision int64
		if slices.Equal(after.Spec.Subjects, before.Spec.Subjects) {
			revision, found, err = c.putTopic(ctx, &after, by)
		} else {
			revision, found, err = c.putClaiming(ctx, &after, by)
		}
		if err == nil {
			after.Revision = revision
			return &after, nil
		}
		if !errors.Is(err, errTopicMoved) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("change topic %s: others came first %d times (try again)", name, reviseAttempts)
}

// putTopic writes a Topic with unchanged subjects. Its errors are those of putClaiming.
func (c *Client) putTopic(ctx context.Context, t *Topic, by Owner) (revision int64, found *mvccpb.KeyValue, err error) {
	value, written, err := c.encodeWithRoom(ctx, t, by)
	if err != nil {
		return 0, nil, err
	}
	defer func() { written(revision) }()
	key := c.topicKey(t.Name)
	done, err := c.transact(ctx,
		[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", t.Revision)},
		[]clientv3.Op{clientv3.OpPut(key, value)},
		clientv3.OpGet(key))
	if err != nil {
		return 0, nil, fmt.Errorf("put topic %s: %w", t.Name, err)
	}
	if !done.Succeeded {
		return 0, readResult(done, 0), errTopicMoved
	}
	return done.Header.GetRevision(), nil, nil
}

// encodeWithRoom encodes a Topic and takes the room for what is added to it in etcd. written must
// be called with the revision of the write, as that of clientRoom.take.
func (c *Client) encodeWithRoom(ctx context.Context, t *Topic, by Owner) (value string, written func(revision int64), err error) {
	if value, err = t.encode(); err != nil {
		return "", nil, err
	}
	bytes, was := t.bytes, t.usage
	t.bytes, t.usage = t.room(c.topicKey(t.Name), len(value)), t.uses()
	written, err = c.room.take(ctx, by, need{what: "topic " + t.Name, bytes: t.bytes - bytes, user: t.Owner.User, usage: t.usage.minus(was)})
	return value, written, err
}

// GetTopic reads one Topic, which may be being deleted.
func (c *Client) GetTopic(ctx context.Context, name string) (*Topic, error) {
	if why := validTopicName(name); why != "" {
		return nil, &InvalidError{"topic " + name, why}
	}
	found, err := c.get(ctx, c.topicKey(name))
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, &NotFoundError{"topic " + name}
	}
	return c.decodeTopic(found)
}
