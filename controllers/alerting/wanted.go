package alerting

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/users"
)

// wanted is a View whose manifest asks for events, as it is in etcd.
type wanted struct {
	manifest *v1alpha1.View // names only: the rest may be large
	sources  []Source
}

// asks reports whether a manifest asks for events.
func asks(v *v1alpha1.View) bool {
	return v.DeletionTimestamp == nil && slices.ContainsFunc(v.Spec.Triggers, func(t v1alpha1.TriggerSpec) bool { return t.Events })
}

// find returns the Views of a Broker that ask for events, sorted by name. Beyond the bound of what
// is read, later ones are left out, and returned as without.
func find(views []v1alpha1.View, state *coordination.State) (all []wanted, without []*v1alpha1.View) {
	read := 0
	sorted := slices.SortedFunc(slices.Values(views), func(a, b v1alpha1.View) int { return cmp.Compare(a.Name, b.Name) })
	for i := range sorted {
		v := &sorted[i]
		found := state.View(v.Name)
		if !asks(v) || found == nil || found.Owner.Kind != coordination.ManifestOwner || found.Owner.UID != string(v.UID) {
			continue
		}
		w := wanted{manifest: &v1alpha1.View{ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: v.UID}}}
		for j := range v.Spec.Triggers {
			t := &v.Spec.Triggers[j]
			topic := state.Topic(found.Spec.Alerts[t.Name])
			if !t.Events || topic == nil {
				continue
			}
			for _, shard := range state.Shards(topic.ID) {
				w.sources = append(w.sources, Source{Trigger: t.Name, Topic: topic.Name, Shard: shard.Number, ID: topic.ID})
			}
		}
		if len(w.sources) == 0 {
			continue
		}
		if read+len(w.sources) > maxSources {
			without = append(without, w.manifest)
			continue
		}
		read += len(w.sources)
		all = append(all, w)
	}
	return all, without
}

// inboxes is where the operator is answered. No other client may read there without a right to.
const inboxes = "_INBOX_carillon_alerts"

// userOf returns the user that may read the alerts of these Views, and nothing else; nil: none is
// needed.
func userOf(all []wanted, nkey string) *identity.User {
	if len(all) == 0 {
		return nil
	}
	var read []string
	see := []string{inboxes + ".>"}
	for i := range all {
		for _, s := range all[i].sources {
			read = append(read, "$CARILLON.API.RECORDS."+s.Topic+".*")
			// A broker returns what the user may subscribe to.
			see = append(see, s.Topic+"."+all[i].manifest.Name+".>")
		}
	}
	slices.Sort(read)
	slices.Sort(see)
	return &identity.User{
		Name: users.OperatorName, NKeys: []string{nkey}, Roles: []identity.Role{identity.Subscriber},
		Permissions: &identity.Permissions{
			Publish: &identity.Subjects{Allow: slices.Compact(read)}, Subscribe: &identity.Subjects{Allow: slices.Compact(see)},
		},
	}
}

// prefix is the subject of the alerts of a View, without the key.
func (s *Source) prefix(view string) string { return s.Topic + "." + view + "." + s.Trigger }

func (s *Source) subjects(view string) []string {
	return []string{s.prefix(view), s.prefix(view) + ".>"}
}
