package coordination

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// FeatureViews is that brokers keep Views up to date. An earlier version ignores them: the shards
// that it leads would be missing in the results.
const FeatureViews Feature = "views"

// writeViews begins a write of a View, which done ends. A client makes one at a time: so the writes
// of one broker do not make each other start over, until one of them gives up.
func (c *Client) writeViews(ctx context.Context) (done func(), err error) {
	select {
	case c.viewWrites <- struct{}{}:
		return func() { <-c.viewWrites }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// viewsAsOf returns the names and Topics of all Views that this version understands, and the
// condition that none was written since. So of Views that are written at the same moment, each
// knows the others. There are few, and they are rarely written.
func (c *Client) viewsAsOf(ctx context.Context) (all []*View, count int, since clientv3.Cmp, err error) {
	revision, err := c.pages(ctx, c.allViews(), func(kv *mvccpb.KeyValue) {
		count++
		if v, err := c.decodeView(kv); err == nil { // one of a later version is checked by its writer
			// The rest is up to 64 MB of all Views.
			all = append(all, &View{Name: v.Name, Spec: &ViewSpec{Topic: v.Spec.Topic, Output: v.Spec.Output, Alerts: v.Spec.Alerts}})
		}
	})
	return all, count, clientv3.Compare(clientv3.ModRevision(c.allViews()), "<", revision+1).WithPrefix(), err
}

// ViewCycle returns the Topics through which what a View of that name and spec writes would come
// back to it, from the one that it reads back to that, or nil.
func (s *State) ViewCycle(name string, spec *ViewSpec) []string {
	return viewCycle(name, spec, slices.Collect(s.Views()))
}

// CreateView creates a View. It may be repeated as CreateTopic may. The Topic that it reads exists
// then; those that it writes into may come later. Callers judge that all brokers announce
// FeatureViews.
func (c *Client) CreateView(ctx context.Context, name string, spec ViewSpec, owner Owner) (*View, error) {
	what := "view " + name
	if why := firstUnknown(validName(name, maxViewName), spec.Misjudged(), owner.valid()); why != "" {
		return nil, &InvalidError{what, why}
	}
	v := &View{Name: name, Spec: &spec, Generation: 1, Owner: owner, Created: now()}
	value, err := v.encode()
	if err != nil {
		return nil, err
	}
	key := c.viewKey(name)
	v.bytes, v.usage = v.room(key, len(value)), v.uses()
	end, err := c.writeViews(ctx)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", what, err)
	}
	defer end()
	for range reviseAttempts {
		if found, err := c.get(ctx, key); err != nil {
			return nil, err
		} else if found != nil {
			return c.sameView(found, &spec, owner)
		}
		if _, err := c.servedTopic(ctx, spec.Topic); err != nil {
			return nil, err
		}
		others, count, asJudged, err := c.viewsAsOf(ctx)
		if err != nil {
			return nil, err
		}
		if why := firstUnknown(tooManyViews(count), circle(name, &spec, others)); why != "" {
			return nil, &InvalidError{what, why}
		}
		written, err := c.room.take(ctx, owner, need{what: what, bytes: v.bytes, user: owner.User, usage: v.usage})
		if err != nil {
			return nil, err
		}
		done, err := c.transact(ctx,
			[]clientv3.Cmp{asJudged, clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
			[]clientv3.Op{clientv3.OpPut(key, value)})
		written(writtenAt(done, err))
		if err != nil {
			return nil, fmt.Errorf("create %s: %w", what, err)
		}
		if done.Succeeded {
			v.Revision, v.Made = done.Header.GetRevision(), done.Header.GetRevision()
			return v, nil
		}
	}
	return nil, fmt.Errorf("create %s: other views were written %d times meanwhile (try again)", what, reviseAttempts)
}

func tooManyViews(count int) string {
	if count < MaxViews {
		return ""
	}
	return fmt.Sprintf("there are %d views, and no cluster has more than %d (delete some)", count, MaxViews)
}

func circle(name string, spec *ViewSpec, others []*View) string {
	if cycle := viewCycle(name, spec, others); cycle != nil {
		return fmt.Sprintf("its results would come back for ever, by the topics %s (name another topic for what it writes)", strings.Join(cycle, ", "))
	}
	return ""
}

// sameView returns the View of a key if its spec and owner are those. Otherwise the error is an
// *ExistsError.
func (c *Client) sameView(found *mvccpb.KeyValue, spec *ViewSpec, owner Owner) (*View, error) {
	existing, err := c.decodeView(found)
	if err != nil {
		return nil, err
	}
	if existing.Owner.is(owner) && equalSpecs(existing.Spec, spec) {
		return existing, nil
	}
	return nil, &ExistsError{"view " + existing.Name, existing.Owner}
}

// ViewUpdate is a change of the spec.
type ViewUpdate struct {
	By         Owner
	Generation int64 // expected generation; 0: any
	Revision   int64 // expected View.Revision, which no other View of that name has; 0: any
	Spec       ViewSpec
}

// UpdateView replaces the spec. An equal spec is not written.
func (c *Client) UpdateView(ctx context.Context, name string, update ViewUpdate) (*View, error) {
	return c.reviseView(ctx, name, update.By, &update.Spec, func(v *View) error {
		switch {
		case !v.Owner.mayChange(update.By):
			return &NotOwnerError{"view " + name, v.Owner}
		case update.Generation != 0 && v.Generation != update.Generation,
			update.Revision != 0 && v.Revision != update.Revision:
			return &StaleError{"view " + name}
		}
		return nil
	})
}

// AdoptView makes a manifest the owner of a View that an earlier manifest of the same namespace and
// name declared.
func (c *Client) AdoptView(ctx context.Context, name string, by Owner, spec ViewSpec) (*View, error) {
	if why := by.valid(); why != "" {
		return nil, &InvalidError{"view " + name, why}
	}
	return c.reviseView(ctx, name, Owner{}, &spec, func(v *View) error {
		if !v.Owner.sameManifest(by) {
			return &NotOwnerError{"view " + name, v.Owner}
		}
		v.Owner = by
		return nil
	})
}

// OrphanView records that the manifest is gone and the View remains.
func (c *Client) OrphanView(ctx context.Context, name string, by Owner) (*View, error) {
	return c.reviseView(ctx, name, Owner{}, nil, func(v *View) error {
		if by.Kind != ManifestOwner || !v.Owner.is(by) {
			return &NotOwnerError{"view " + name, v.Owner}
		}
		if v.Owner.Orphaned.IsZero() {
			v.Owner.Orphaned = now()
		}
		return nil
	})
}

// reviseView writes a View after change, with a spec, unless that is nil. It writes nothing if all
// is equal. If another write came first, it starts over. by is who needs room for what is added.
func (c *Client) reviseView(ctx context.Context, name string, by Owner, spec *ViewSpec, change func(*View) error) (*View, error) {
	what := "view " + name
	end, err := c.writeViews(ctx)
	if err != nil {
		return nil, fmt.Errorf("change %s: %w", what, err)
	}
	defer end()
	for range reviseAttempts {
		before, err := c.GetView(ctx, name)
		if err != nil {
			return nil, err
		}
		after := *before
		if err := change(&after); err != nil {
			return nil, err
		}
		key := c.viewKey(name)
		when := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", before.Revision)}
		if spec != nil && !equalSpecs(spec, before.Spec) {
			if why := spec.Misjudged(); why != "" {
				return nil, &InvalidError{what, why}
			}
			others, _, asJudged, err := c.viewsAsOf(ctx)
			if err != nil {
				return nil, err
			}
			if why := circle(name, spec, others); why != "" {
				return nil, &InvalidError{what, why}
			}
			when = append(when, asJudged)
			after.Spec = spec
			after.Generation++
		}
		if reflect.DeepEqual(&after, before) {
			return before, nil
		}
		value, err := after.encode()
		if err != nil {
			return nil, err
		}
		after.bytes = after.room(key, len(value))
		written, err := c.room.take(ctx, by, need{what: what, bytes: after.bytes - before.bytes})
		if err != nil {
			return nil, err
		}
		done, err := c.transact(ctx, when, []clientv3.Op{clientv3.OpPut(key, value)})
		written(writtenAt(done, err))
		if err != nil {
			return nil, fmt.Errorf("change %s: %w", what, err)
		}
		if done.Succeeded {
			after.Revision = done.Header.GetRevision()
			return &after, nil
		}
	}
	return nil, fmt.Errorf("change %s: others came first %d times (try again)", what, reviseAttempts)
}

// DeleteView deletes the View as of a revision (View.Revision), or whatever has that name if it is
// 0. One that was changed or made anew since is a *StaleError. What it has written stays.
func (c *Client) DeleteView(ctx context.Context, name string, revision int64, by Owner) error {
	what := "view " + name
	for range reviseAttempts {
		v, err := c.GetView(ctx, name)
		if err != nil {
			return err
		}
		switch {
		case !v.Owner.mayChange(by):
			return &NotOwnerError{what, v.Owner}
		case revision != 0 && v.Revision != revision:
			return &StaleError{what}
		}
		key := c.viewKey(name)
		done, err := c.transact(ctx,
			[]clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(key), "=", v.Revision)},
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

// GetView reads one View.
func (c *Client) GetView(ctx context.Context, name string) (*View, error) {
	if why := validName(name, maxViewName); why != "" {
		return nil, &InvalidError{"view " + name, why}
	}
	found, err := c.get(ctx, c.viewKey(name))
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, &NotFoundError{"view " + name}
	}
	return c.decodeView(found)
}
