package coordination

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// follower builds States from the keys of a mirror.
type follower struct {
	c       *Client
	changed func(*State, Changes)
	known   bool // a State was built

	topics     table[*Topic]
	byTopic    table[*topicKeys]
	fresh      map[string]bool // ids whose keys no State refers to; changed in place
	shards     int
	ofClients  int64            // bytes of the definitions of clients
	ofUsers    map[string]usage // what the users of clients have made
	usersOf    map[string]bool  // the users for whom that has changed since the last State
	views      map[string]*View
	brokers    map[string]Broker
	controller Controller
	unreadable map[string]int64 // key -> revision
	drains     map[string]DrainMode
	reports    map[string]report // by the key behind reports/
	reported   map[string]int64  // revisions of the reports
	users      userKeys
	wholeUsers *UserSet // the last whole one
	usersNew   bool     // a key of the users has changed
	generation int64
	raised     int64 // revision of the generation's key
	settling   int64 // the generation that settles; 0: none
	// distrust is set after a restore, until everything was read again: an equal revision is no
	// equal value then.
	distrust bool

	last    State // unchanged parts are reused from it
	changes Changes
}

func newFollower(c *Client, changed func(*State, Changes)) *follower {
	return &follower{
		c: c, views: map[string]*View{}, brokers: map[string]Broker{}, unreadable: map[string]int64{}, fresh: map[string]bool{},
		drains: map[string]DrainMode{}, reports: map[string]report{}, reported: map[string]int64{}, users: userKeys{users: map[string]userKey{}}, ofUsers: map[string]usage{}, usersOf: map[string]bool{}, changed: changed,
	}
}

func (f *follower) put(kv *mvccpb.KeyValue) {
	key := string(kv.GetKey())
	kind, rest, _ := strings.Cut(strings.TrimPrefix(key, f.c.prefix), "/")
	var err error
	switch kind {
	case "topics":
		err = f.putTopic(kv, rest)
	case "shards":
		err = f.putShard(kv)
	case "subscriptions":
		err = f.putSubscription(kv)
	case "views":
		err = f.putView(kv, rest)
	case "brokers":
		var broker Broker
		if broker, err = decodeBroker(rest, kv.GetCreateRevision(), kv.GetValue()); err == nil && f.brokers[rest] != broker {
			f.brokers[rest], f.changes.Brokers = broker, true
		}
	case "generation":
		var generation int64
		if generation, err = decodeGeneration(kv); err == nil && (f.generation != generation || f.raised != kv.GetModRevision()) {
			f.generation, f.raised, f.changes.Brokers, f.changes.Controller = generation, kv.GetModRevision(), true, true
		}
	case "settling":
		var settling int64
		if settling, err = decodeGeneration(kv); err == nil && f.settling != settling {
			f.settling, f.changes.Brokers = settling, true
		}
	case "controller":
		var controller Controller
		if controller, err = decodeController(kv); err == nil && f.controller != controller {
			f.controller, f.changes.Controller = controller, true
		}
	case "drains":
		var mode DrainMode
		if mode, err = decodeDrain(kv); err == nil && f.drains[rest] != mode {
			f.drains[rest], f.changes.Drains = mode, true
		}
	case "reports":
		if f.reported[rest] == kv.GetModRevision() && !f.distrust {
			return
		}
		var said report
		if said, err = decodeReport(kv); err == nil {
			f.reports[rest], f.reported[rest], f.changes.Reports = said, kv.GetModRevision(), true
		}
	case "users":
		err = f.putUser(kv, rest)
	default:
		return // not for brokers, or of a later version
	}
	before, was := f.unreadable[key]
	switch {
	case err == nil && was:
		delete(f.unreadable, key)
		f.changes.Unreadable = true
	case err != nil && before != kv.GetModRevision():
		f.unreadable[key] = kv.GetModRevision()
		f.changes.Unreadable = true
		f.c.log.Warn("a value is unreadable; what is known of it stands", "key", key, "error", err)
	}
}

// of returns the keys of a Topic's id, for a change.
func (f *follower) of(id string) *topicKeys {
	b, ok := f.byTopic.get(id)
	if ok && f.fresh[id] {
		return b
	}
	mine := &topicKeys{}
	if ok {
		*mine = *b
		mine.shards, mine.subscriptions = slices.Clone(b.shards), slices.Clone(b.subscriptions)
	}
	f.byTopic.set(id, mine)
	f.fresh[id] = true
	return mine
}

// dropEmpty deletes the entry of an id without keys.
func (f *follower) dropEmpty(id string) {
	if b, ok := f.byTopic.get(id); ok && b.topic == nil && len(b.shards) == 0 && len(b.subscriptions) == 0 {
		f.byTopic.remove(id)
		delete(f.fresh, id)
	}
}

func (f *follower) putTopic(kv *mvccpb.KeyValue, name string) error {
	before, _ := f.topics.get(name)
	if before != nil && before.Revision == kv.GetModRevision() && !f.distrust {
		return nil
	}
	after, err := f.c.decodeTopic(kv)
	if err != nil {
		return err
	}
	if before != nil && before.ID != after.ID {
		f.removeTopic(name)
		before = nil
	}
	if before != nil {
		f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	}
	f.count(after.Owner, after.bytes, after.usage)
	f.topics.set(name, after)
	f.of(after.ID).topic = after
	f.changes.Topics = append(f.changes.Topics, Change[Topic]{before, after})
	return nil
}

// count counts what clients have declared.
func (f *follower) count(by Owner, bytes int64, more usage) {
	f.ofClients += by.ofClients(bytes)
	if by.User == "" {
		return
	}
	f.usersOf[by.User] = true
	if has := f.ofUsers[by.User].plus(more); has != (usage{}) {
		f.ofUsers[by.User] = has
	} else {
		delete(f.ofUsers, by.User)
	}
}

func (f *follower) putShard(kv *mvccpb.KeyValue) error {
	if topic, number, ok := strings.Cut(strings.TrimPrefix(string(kv.GetKey()), f.c.allShards()), "/"); ok {
		if before := f.shard(topic, number); before != nil && before.Revision == kv.GetModRevision() && !f.distrust {
			return nil
		}
	}
	after, err := f.c.decodeShard(kv)
	if err != nil {
		return err
	}
	b := f.of(after.Topic)
	i, found := findShard(b.shards, after.Number)
	var before *Shard
	if found {
		before, b.shards[i] = b.shards[i], after
	} else {
		b.shards = slices.Insert(b.shards, i, after)
		f.shards++
	}
	f.changes.Shards = append(f.changes.Shards, Change[Shard]{before, after})
	return nil
}

func (f *follower) shard(topic, number string) *Shard {
	b, ok := f.byTopic.get(topic)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(number)
	if err != nil || strconv.Itoa(n) != number { // not a shard's key
		return nil
	}
	if i, ok := findShard(b.shards, n); ok {
		return b.shards[i]
	}
	return nil
}

func (f *follower) putSubscription(kv *mvccpb.KeyValue) error {
	topic, name, _ := strings.Cut(strings.TrimPrefix(string(kv.GetKey()), f.c.allSubscriptions()), "/")
	var before *Subscription
	if b, ok := f.byTopic.get(topic); ok {
		if i, ok := findSubscription(b.subscriptions, name); ok {
			before = b.subscriptions[i]
		}
	}
	if before != nil && before.Revision == kv.GetModRevision() && !f.distrust {
		return nil
	}
	after, err := f.c.decodeSubscription(kv)
	if err != nil {
		return err
	}
	if before != nil && before.Made != after.Made {
		f.removeSubscription(topic, name)
		before = nil
	}
	if before != nil {
		f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	}
	f.count(after.Owner, after.bytes, after.usage)
	b := f.of(topic)
	i, found := findSubscription(b.subscriptions, name)
	if found {
		b.subscriptions[i] = after
	} else {
		b.subscriptions = slices.Insert(b.subscriptions, i, after)
	}
	f.changes.Subscriptions = append(f.changes.Subscriptions, Change[Subscription]{before, after})
	return nil
}

func (f *follower) remove(raw []byte) {
	key := string(raw)
	if _, was := f.unreadable[key]; was {
		delete(f.unreadable, key)
		f.changes.Unreadable = true
	}
	kind, rest, _ := strings.Cut(strings.TrimPrefix(key, f.c.prefix), "/")
	topic, last, _ := strings.Cut(rest, "/")
	switch kind {
	case "topics":
		f.removeTopic(rest)
	case "shards":
		f.removeShard(topic, last)
	case "subscriptions":
		f.removeSubscription(topic, last)
	case "views":
		f.removeView(rest)
	case "brokers":
		if _, ok := f.brokers[rest]; ok {
			delete(f.brokers, rest)
			f.changes.Brokers = true
		}
	case "drains":
		if _, ok := f.drains[rest]; ok {
			delete(f.drains, rest)
			f.changes.Drains = true
		}
	case "reports":
		if _, ok := f.reports[rest]; ok {
			delete(f.reports, rest)
			delete(f.reported, rest)
			f.changes.Reports = true
		}
	case "users":
		f.removeUser(key, rest)
	case "generation":
		if f.generation != 0 {
			f.generation, f.raised, f.changes.Brokers, f.changes.Controller = 0, 0, true, true
		}
	case "settling":
		if f.settling != 0 {
			f.settling, f.changes.Brokers = 0, true
		}
	case "controller":
		if f.controller.Term != 0 {
			f.controller, f.changes.Controller = Controller{}, true
		}
	}
}

func (f *follower) removeTopic(name string) {
	before, ok := f.topics.get(name)
	if !ok {
		return
	}
	f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	f.topics.remove(name)
	f.of(before.ID).topic = nil
	f.dropEmpty(before.ID)
	f.changes.Topics = append(f.changes.Topics, Change[Topic]{before, nil})
}

func (f *follower) removeShard(topic, number string) {
	before := f.shard(topic, number)
	if before == nil {
		return
	}
	b := f.of(topic)
	i, _ := findShard(b.shards, before.Number)
	b.shards = slices.Delete(b.shards, i, i+1)
	f.shards--
	f.dropEmpty(topic)
	f.changes.Shards = append(f.changes.Shards, Change[Shard]{before, nil})
}

func (f *follower) removeSubscription(topic, name string) {
	known, ok := f.byTopic.get(topic)
	if !ok {
		return
	}
	i, ok := findSubscription(known.subscriptions, name)
	if !ok {
		return
	}
	b := f.of(topic)
	before := b.subscriptions[i]
	f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	b.subscriptions = slices.Delete(b.subscriptions, i, i+1)
	f.dropEmpty(topic)
	f.changes.Subscriptions = append(f.changes.Subscriptions, Change[Subscription]{before, nil})
}

func (f *follower) putView(kv *mvccpb.KeyValue, name string) error {
	before := f.views[name]
	if before != nil && before.Revision == kv.GetModRevision() && !f.distrust {
		return nil
	}
	after, err := f.c.decodeView(kv)
	if err != nil {
		return err
	}
	if before != nil && before.Made != after.Made {
		f.removeView(name)
		before = nil
	}
	if before != nil {
		f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	}
	f.count(after.Owner, after.bytes, after.usage)
	f.views[name] = after
	f.changes.Views = append(f.changes.Views, Change[View]{before, after})
	return nil
}

func (f *follower) removeView(name string) {
	before := f.views[name]
	if before == nil {
		return
	}
	f.count(before.Owner, -before.bytes, usage{}.minus(before.usage))
	delete(f.views, name)
	f.changes.Views = append(f.changes.Views, Change[View]{before, nil})
}

// putUser puts the key of a user, or, without rest, the settings of all.
func (f *follower) putUser(kv *mvccpb.KeyValue, rest string) error {
	key := string(kv.GetKey())
	before := f.users.users[key].revision
	if rest == "" {
		before = f.users.revision
	}
	if before == kv.GetModRevision() && !f.distrust {
		return nil
	}
	f.usersNew = true
	if rest == "" {
		return f.users.putSettings(kv)
	}
	f.users.users[key] = f.c.decodeUser(kv)
	return nil
}

func (f *follower) removeUser(key, rest string) {
	f.usersNew = true
	if rest == "" {
		f.users.settings, f.users.revision = nil, 0
	} else {
		delete(f.users.users, key)
	}
}

// settleUsers makes the next UserSet if the keys are a whole one. Otherwise the set before stays.
func (f *follower) settleUsers() {
	switch {
	case !f.usersNew:
		return
	case f.users.whole():
		f.changes.Users, f.wholeUsers = true, f.users.set()
	case f.users.settings == nil && f.wholeUsers != nil:
		f.changes.Users, f.wholeUsers = true, nil
	}
	f.usersNew = false
}

func (f *follower) keys() []string {
	keys := slices.Collect(maps.Keys(f.unreadable))
	keys = slices.AppendSeq(keys, maps.Keys(f.users.users))
	if f.users.settings != nil {
		keys = append(keys, f.c.usersKey())
	}
	for name := range f.topics.all() {
		keys = append(keys, f.c.topicKey(name))
	}
	for id, b := range f.byTopic.all() {
		for _, s := range b.shards {
			keys = append(keys, f.c.shardKey(id, s.Number))
		}
		for _, s := range b.subscriptions {
			keys = append(keys, f.c.subscriptionKey(id, s.Name))
		}
	}
	for name := range f.views {
		keys = append(keys, f.c.viewKey(name))
	}
	for id := range f.brokers {
		keys = append(keys, f.c.brokerKey(id))
	}
	for name := range f.drains {
		keys = append(keys, f.c.drainKey(name))
	}
	for id := range f.reports {
		keys = append(keys, f.c.reportKey(id))
	}
	if f.generation != 0 {
		keys = append(keys, f.c.generationKey())
	}
	if f.settling != 0 {
		keys = append(keys, f.c.settlingKey())
	}
	if f.controller.Term != 0 {
		keys = append(keys, f.c.controllerKey())
	}
	return keys
}

// figures returns what clients have declared, for clientRoom.
func (f *follower) figures(revision int64) figures {
	return figures{revision: revision, bytes: f.ofClients, users: f.ofUsers, changed: f.usersOf, first: !f.known, restored: f.distrust}
}

func (f *follower) settled(revision int64) {
	f.settleUsers()
	f.c.room.note(f.figures(revision))
	clear(f.usersOf)
	if f.known && !f.changes.any() {
		return
	}
	next := f.last
	f.distrust = false
	next.Revision, next.Generation, next.Raised, next.Controller, next.shards = revision, f.generation, f.raised, f.controller, f.shards
	if f.controller.Generation() != f.generation { // it can't write any more
		next.Controller = Controller{}
	}
	next.users = f.wholeUsers
	next.usersBegun = f.wholeUsers == nil && f.users.settings != nil
	next.topics, next.byTopic = f.topics.share(), f.byTopic.share()
	clear(f.fresh)
	if len(f.changes.Views) > 0 {
		next.views = newViews(maps.Values(f.views))
	}
	if f.changes.Brokers || !f.known {
		next.Brokers = slices.SortedFunc(maps.Values(f.brokers), func(a, b Broker) int { return strings.Compare(a.ID, b.ID) })
		former := func(b Broker) bool { return GenerationOf(b.Incarnation) != f.generation }
		next.Former = slices.DeleteFunc(slices.Clone(next.Brokers), func(b Broker) bool { return !former(b) })
		next.Brokers = slices.DeleteFunc(next.Brokers, former)
		next.Settling = f.settling == f.generation && f.generation > 0
	}
	if f.changes.Unreadable {
		next.unreadable = maps.Clone(f.unreadable)
	}
	if f.changes.Drains {
		next.drains = maps.Clone(f.drains)
	}
	if f.changes.Reports {
		next.reports = map[string][]report{}
		for _, key := range slices.Sorted(maps.Keys(f.reports)) {
			id, _, _ := strings.Cut(key, "/")
			next.reports[id] = append(next.reports[id], f.reports[key])
		}
	}
	changes := f.changes
	f.known, f.last, f.changes = true, next, Changes{}
	f.changed(&next, changes)
}
