package coordination

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// CreateSubscription creates a Subscription of the Topic. It may be repeated as CreateTopic may.
func (c *Client) CreateSubscription(ctx context.Context, topic, name string, spec SubscriptionSpec, owner Owner) (*Subscription, error) {
	return c.createSubscription(ctx, topic, name, spec, owner, now(), 0, true)
}

// DeclareConsumer is CreateSubscription in place of a consumer that the state log of the Topic's
// only shard has, and that was created then: its leader goes on with its cursor. All brokers
// announce FeatureDeclaredConsumers.
func (c *Client) DeclareConsumer(ctx context.Context, topic, name string, spec SubscriptionSpec, owner Owner, created time.Time) (*Subscription, error) {
	return c.createSubscription(ctx, topic, name, spec, owner, created, 0, false)
}

// CreateSubscriptionSince is CreateSubscription for a caller that has judged the Topic's other
// Subscriptions as of a revision. It returns a *StaleError if one was written since; 0: any may be.
func (c *Client) CreateSubscriptionSince(ctx context.Context, topic, name string, spec SubscriptionSpec, owner Owner, since int64) (*Subscription, error) {
	return c.createSubscription(ctx, topic, name, spec, owner, now(), since, true)
}

// createSubscription creates a Subscription. anew is false if its user has it already, as a
// consumer that is not in etcd.
func (c *Client) createSubscription(ctx context.Context, topic, name string, spec SubscriptionSpec, owner Owner, created time.Time, since int64, anew bool) (*Subscription, error) {
	what := describe(topic, name)
	if why := firstUnknown(validName(name, maxSubscriptionName), spec.valid(), spec.validFor(topic), owner.valid()); why != "" {
		return nil, &InvalidError{what, why}
	}
	for range reviseAttempts {
		t, err := c.servedTopic(ctx, topic)
		if err != nil {
			return nil, err
		}
		if why := firstUnknown(t.mayReset(spec.Reset), t.conditionOf(&spec)); why != "" {
			return nil, &InvalidError{what, why}
		}
		s := &Subscription{Topic: t.ID, Name: name, Spec: &spec, Generation: 1, Owner: owner, Created: created}
		if spec.Reset != nil {
			_ = s.reset(what, spec.Reset.To) // the first one
		}
		value, err := s.encode()
		if err != nil {
			return nil, err
		}
		key := c.subscriptionKey(t.ID, name)
		when, err := c.deadLetterPath(ctx, what, topic, spec.DeadLetter)
		if err != nil {
			return nil, err
		}
		of := c.subscriptionsPrefix(t.ID)
		s.bytes, s.usage = s.room(key, len(value)), s.uses()
		more := need{what: what, bytes: s.bytes, user: owner.User}
		if anew {
			more.usage = s.usage
		}
		written, err := c.room.take(ctx, owner, more)
		if err != nil {
			if found := c.made(ctx, key); found != nil {
				return c.sameSubscription(what, found, &spec, owner)
			}
			return nil, err
		}
		done, err := c.transact(ctx,
			append(append(when, writtenBy(of, since)...),
				clientv3.Compare(clientv3.ModRevision(c.topicKey(topic)), "=", t.Revision),
				clientv3.Compare(clientv3.CreateRevision(key), "=", 0)),
			[]clientv3.Op{clientv3.OpPut(key, value)},
			clientv3.OpGet(key),
			clientv3.OpGet(of, clientv3.WithPrefix(), clientv3.WithMinModRev(since+1), clientv3.WithKeysOnly(), clientv3.WithLimit(1)))
		written(writtenAt(done, err))
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", what, err)
		}
		if done.Succeeded {
			s.Revision, s.Made = done.Header.GetRevision(), done.Header.GetRevision()
			return s, nil
		}
		found := readResult(done, 0)
		if found == nil && since > 0 && readResult(done, 1) != nil {
			return nil, &StaleError{"what reads topic " + topic}
		}
		if found == nil {
			continue // the Topic has changed, and may be about to be deleted, or a Topic for dead letters
		}
		return c.sameSubscription(what, found, &spec, owner)
	}
	return nil, fmt.Errorf("create %s: the topic changed %d times meanwhile (try again)", what, reviseAttempts)
}

// sameSubscription returns the Subscription of a key if its spec and owner are those. Otherwise the
// error is an *ExistsError.
func (c *Client) sameSubscription(what string, found *mvccpb.KeyValue, spec *SubscriptionSpec, owner Owner) (*Subscription, error) {
	existing, err := c.decodeSubscription(found)
	if err != nil {
		return nil, err
	}
	if existing.Owner.is(owner) && equalSpecs(existing.Spec, spec) {
		return existing, nil
	}
	return nil, &ExistsError{what, existing.Owner}
}

// writtenBy returns the condition that no Subscription of a prefix was written after a revision; 0:
// none.
func writtenBy(prefix string, since int64) []clientv3.Cmp {
	if since == 0 {
		return nil
	}
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(prefix), "<", since+1).WithPrefix()}
}

// validFor returns why a spec can't be that of a Subscription of the Topic, or "".
func (s *SubscriptionSpec) validFor(topic string) string {
	if s.DeadLetter == topic {
		return fmt.Sprintf("dead letters can't go into topic %s, which it reads, or they would be delivered for ever (name another topic, for example %s-dead)", topic, topic)
	}
	return ""
}

// mayReset returns why a Subscription of the Topic can't be reset so, or "". The rule is that of
// subscription.JudgeReset.
func (t *Topic) mayReset(r *Reset) string {
	if r == nil || r.To.From == FromEarliest || t.Spec.Stream.Retention != WorkQueue {
		return ""
	}
	return "its topic is a work queue, which keeps what nobody acknowledged: it can be reset to the earliest message only (purge the messages that are not to be delivered)"
}

// mayReset returns an error if a Subscription of a Topic can't be reset so.
func (c *Client) mayReset(ctx context.Context, topic, what string, r *Reset) error {
	if r == nil {
		return nil
	}
	t, err := c.GetTopic(ctx, topic)
	if err != nil {
		return err
	}
	if why := t.mayReset(r); why != "" {
		return &InvalidError{what, why}
	}
	return nil
}

func describe(topic, name string) string { return "subscription " + name + " of topic " + topic }

// servedTopic returns a Topic that is not being deleted.
func (c *Client) servedTopic(ctx context.Context, name string) (*Topic, error) {
	t, err := c.GetTopic(ctx, name)
	if err != nil {
		return nil, err
	}
	if t.Deleting {
		return nil, &NotFoundError{"topic " + name}
	}
	return t, nil
}

// SubscriptionUpdate is a change of the spec.
type SubscriptionUpdate struct {
	By         Owner
	Generation int64 // expected generation; 0: any
	Spec       SubscriptionSpec
	Since      int64 // no Subscription of the Topic was written after this revision; 0: any may be
}

// UpdateSubscription replaces the spec. An equal spec is not written.
func (c *Client) UpdateSubscription(ctx context.Context, topic, name string, update SubscriptionUpdate) (*Subscription, error) {
	what := describe(topic, name)
	if err := c.mayHave(ctx, topic, what, &update.Spec); err != nil {
		return nil, err
	}
	return c.reviseSubscriptionSince(ctx, topic, name, update.By, update.Since, func(s *Subscription) error {
		switch {
		case !s.Owner.mayChange(update.By):
			return &NotOwnerError{what, s.Owner}
		case update.Generation != 0 && s.Generation != update.Generation:
			return &StaleError{what}
		}
		if why := update.Spec.validFor(topic); why != "" {
			return &InvalidError{what, why}
		}
		return s.respecify(what, update.Spec)
	})
}

// ResetSubscription moves the cursor of a Subscription, once for each call.
func (c *Client) ResetSubscription(ctx context.Context, topic, name string, by Owner, to Start) (*Subscription, error) {
	what := describe(topic, name)
	reset := Reset{To: to}
	if why := reset.valid(); why != "" {
		return nil, &InvalidError{what, "reset " + why}
	}
	if err := c.mayReset(ctx, topic, what, &reset); err != nil {
		return nil, err
	}
	return c.reviseSubscription(ctx, topic, name, func(s *Subscription) error {
		if !s.Owner.mayChange(by) {
			return &NotOwnerError{what, s.Owner}
		}
		s.Generation++
		return s.reset(what, to)
	})
}

// AdoptSubscription makes a manifest the owner of a Subscription that an earlier manifest of the
// same namespace and name declared.
func (c *Client) AdoptSubscription(ctx context.Context, topic, name string, by Owner, spec SubscriptionSpec) (*Subscription, error) {
	what := describe(topic, name)
	if why := by.valid(); why != "" {
		return nil, &InvalidError{what, why}
	}
	if err := c.mayHave(ctx, topic, what, &spec); err != nil {
		return nil, err
	}
	return c.reviseSubscription(ctx, topic, name, func(s *Subscription) error {
		if !s.Owner.sameManifest(by) {
			return &NotOwnerError{what, s.Owner}
		}
		s.Owner = by
		return s.respecify(what, spec)
	})
}

// OrphanSubscription records that the manifest is gone and the Subscription remains.
func (c *Client) OrphanSubscription(ctx context.Context, topic, name string, by Owner) (*Subscription, error) {
	return c.reviseSubscription(ctx, topic, name, func(s *Subscription) error {
		if by.Kind != ManifestOwner || !s.Owner.is(by) {
			return &NotOwnerError{describe(topic, name), s.Owner}
		}
		if s.Owner.Orphaned.IsZero() {
			s.Owner.Orphaned = now()
		}
		return nil
	})
}

func (s *Subscription) respecify(what string, spec SubscriptionSpec) error {
	if why := spec.valid(); why != "" {
		return &InvalidError{what, why}
	}
	a, b := spec.Start, s.Spec.Start
	if a.From != b.From || a.Offset != b.Offset || !a.Time.Equal(b.Time) {
		return &ImmutableError{what, "where it starts"}
	}
	if equalSpecs(&spec, s.Spec) {
		return nil
	}
	if spec.Reset != nil && !equalSpecs(spec.Reset, s.Spec.Reset) {
		if err := s.reset(what, spec.Reset.To); err != nil {
			return err
		}
	}
	s.Spec = &spec
	s.Generation++
	return nil
}

// DeleteSubscription deletes the Subscription as of a revision (Subscription.Revision), or whatever
// has that name if it is 0. One that was changed or made anew since is a *StaleError. Leaders
// delete its cursor when they see that.
func (c *Client) DeleteSubscription(ctx context.Context, topic, name string, revision int64, by Owner) error {
	what := describe(topic, name)
	for range reviseAttempts {
		s, err := c.GetSubscription(ctx, topic, name)
		if err != nil {
			return err
		}
		switch {
		case !s.Owner.mayChange(by):
			return &NotOwnerError{what, s.Owner}
		case revision != 0 && s.Revision != revision:
			return &StaleError{what}
		}
		key := c.subscriptionKey(s.Topic, name)
		done, err := c.transact(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", s.Revision)},
			[]clientv3.Op{clientv3.OpDelete(key)})
		if err != nil {
			return fmt.Errorf("delete %s: %w", what, err)
		}
		if done.Succeeded {
			c.room.frees(done.Header.GetRevision())
			return nil
		}
	}
	return fmt.Errorf("delete %s: others came first %d times (try again)", what, reviseAttempts)
}

// reviseSubscription writes the result of change, unless it is equal. If another write came first,
// it starts over. Nobody needs room for it.
func (c *Client) reviseSubscription(ctx context.Context, topic, name string, change func(*Subscription) error) (*Subscription, error) {
	return c.reviseSubscriptionSince(ctx, topic, name, Owner{}, 0, change)
}

// reviseSubscriptionSince is reviseSubscription unless a Subscription of the Topic was written
// after a revision; 0: any may be. by is who needs room for what is added.
func (c *Client) reviseSubscriptionSince(ctx context.Context, topic, name string, by Owner, since int64, change func(*Subscription) error) (*Subscription, error) {
	for range reviseAttempts {
		before, err := c.GetSubscription(ctx, topic, name)
		if err != nil {
			return nil, err
		}
		after := *before
		if err := change(&after); err != nil {
			return nil, err
		}
		if reflect.DeepEqual(&after, before) {
			return before, nil
		}
		value, err := after.encode()
		if err != nil {
			return nil, err
		}
		key := c.subscriptionKey(after.Topic, name)
		var when []clientv3.Cmp
		if after.Spec.DeadLetter != before.Spec.DeadLetter {
			if when, err = c.deadLetterPath(ctx, describe(topic, name), topic, after.Spec.DeadLetter); err != nil {
				return nil, err
			}
		}
		after.bytes = after.room(key, len(value))
		written, err := c.room.take(ctx, by, need{what: describe(topic, name), bytes: after.bytes - before.bytes})
		if err != nil {
			return nil, err
		}
		done, err := c.transact(ctx,
			append(append(when, writtenBy(c.subscriptionsPrefix(after.Topic), since)...), clientv3.Compare(clientv3.ModRevision(key), "=", before.Revision)),
			[]clientv3.Op{clientv3.OpPut(key, value)})
		written(writtenAt(done, err))
		if err != nil {
			return nil, fmt.Errorf("change %s: %w", describe(topic, name), err)
		}
		if !done.Succeeded && since > 0 {
			return nil, &StaleError{"what reads topic " + topic}
		}
		if done.Succeeded {
			after.Revision = done.Header.GetRevision()
			return &after, nil
		}
	}
	return nil, fmt.Errorf("change %s: others came first %d times (try again)", describe(topic, name), reviseAttempts)
}

// GetSubscription reads one Subscription of a Topic that is not being deleted.
func (c *Client) GetSubscription(ctx context.Context, topic, name string) (*Subscription, error) {
	if why := validName(name, maxSubscriptionName); why != "" {
		return nil, &InvalidError{describe(topic, name), why}
	}
	t, err := c.servedTopic(ctx, topic)
	if err != nil {
		return nil, err
	}
	found, err := c.get(ctx, c.subscriptionKey(t.ID, name))
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, &NotFoundError{describe(topic, name)}
	}
	return c.decodeSubscription(found)
}
