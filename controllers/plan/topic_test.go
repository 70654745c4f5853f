package plan

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func manifestOwner(name, uid string) coordination.Owner {
	return coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "default", Name: name, UID: uid}
}

// single returns a served shard with one replica.
func single(broker string) ShardFacts {
	return ShardFacts{Leader: broker, LeaderID: "id-" + broker, Led: true, Want: 1, Min: 1, Replicas: []ReplicaFacts{{Broker: broker, ID: "id-" + broker, Member: true, Current: true}}}
}

// tripled returns a change to a shard with three replicas, on main-0, which leads, main-1 and
// main-2.
func tripled(change func(*ShardFacts)) func(*TopicFacts) {
	s := single("main-0")
	s.Want, s.Min = 3, 2
	for _, other := range []string{"main-1", "main-2"} {
		s.Replicas = append(s.Replicas, ReplicaFacts{Broker: other, ID: "id-" + other, Member: true, Current: true})
	}
	return func(f *TopicFacts) {
		f.Spec.Replicas, f.Found.Spec.Replicas = 3, 3
		change(&s)
		f.Shards = []ShardFacts{s}
	}
}

func servedTopic() TopicFacts {
	spec := coordination.TopicSpec{Subjects: []string{"orders.>"}, Shards: 1}
	self := manifestOwner("orders", "1")
	return TopicFacts{
		Self: self, Name: "orders", Spec: spec,
		Link:   Link{Broker: "main", Exists: true, Ready: true, Known: true, Joined: 3},
		Found:  &coordination.Topic{Name: "orders", ID: "id", Spec: spec, Owner: self},
		Shards: []ShardFacts{single("main-0")},
	}
}

// TestTopic is a table of facts and expected decisions.
func TestTopic(t *testing.T) {
	client := coordination.Owner{Kind: coordination.ClientOwner, Name: "shop"}
	older := func(f *TopicFacts) {
		f.Older = &Rival{Namespace: "default", Name: "first", Mine: "orders.>", Its: "orders.eu", Spec: coordination.TopicSpec{Subjects: []string{"orders.eu"}}}
	}
	for _, c := range []struct {
		what   string
		change func(*TopicFacts)
		want   string // "Kind Reason"
		says   string
	}{
		{"all well", func(*TopicFacts) {}, "None Served", "served by broker main-0"},
		{"no Broker", func(f *TopicFacts) { f.Link = Link{Broker: "main"} }, "Wait WaitingForBroker", "there is no Broker main"},
		{"a Broker that starts", func(f *TopicFacts) { f.Link = Link{Broker: "main", Exists: true, Why: "BrokersStarting"} }, "Wait WaitingForBroker", "not ready yet: BrokersStarting"},
		{"an etcd that does not answer", func(f *TopicFacts) { f.Link = Link{Broker: "main", Exists: true, Ready: true, Why: "refused"} }, "Wait CoordinationUnavailable", "refused"},
		{"a Broker that is not well, and known", func(f *TopicFacts) { f.Link.Ready = false }, "None Served", ""},
		{"nothing in etcd", func(f *TopicFacts) { f.Found, f.Shards = nil, nil }, "Create Placing", ""},
		{"what is being deleted", func(f *TopicFacts) { f.Found.Deleting = true; f.Found.Owner = client }, "Create Placing", ""},
		{"another spec", func(f *TopicFacts) { f.Spec.Retention.Messages = 5 }, "Update Placing", ""},
		{"a former manifest's", func(f *TopicFacts) { f.Found.Owner.UID = "0" }, "Adopt Adopted", "with its records"},
		{"a client's", func(f *TopicFacts) { f.Found.Owner = client }, "Stall Exists", "belongs to client shop"},
		{"another manifest's", func(f *TopicFacts) { f.Found.Owner.Name = "b" }, "Stall Exists", "the manifest default/b"},
		{"three replicas of what has one", func(f *TopicFacts) { f.Spec.Replicas = 3 }, "Update Placing", ""},
		{"two in sync of one", func(f *TopicFacts) { f.Spec.Replicas, f.Spec.MinInSync = 1, 2 }, "Stall Invalid", "minInSync: 1 or less; until then the Topic is served as it was"},
		{"replicated", tripled(func(*ShardFacts) {}), "None Served", "replicated on main-0 (leader), main-1, main-2"},
		{"one away", tripled(func(s *ShardFacts) { s.Replicas[1].Away = true }), "None UnderReplicated", "main-1 is away; replicated on main-0 (leader), main-2"},
		{"one with damaged segments", tripled(func(s *ShardFacts) {
			s.Replicas[2].Current, s.Replicas[2].Suspect, s.Replicas[2].Lacks = false, true, 2
		}), "None UnderReplicated", "main-2 fetches 2 damaged segments from the leader; replicated on main-0 (leader), main-1"},
		{"one that can't vouch", tripled(func(s *ShardFacts) { s.Replicas[2].Current, s.Replicas[2].Suspect = false, true }), "None UnderReplicated", "main-2 is not in sync yet, since its copy is damaged or lost power and is made equal to the leader's; replicated on main-0 (leader), main-1"},
		{"one behind", tripled(func(s *ShardFacts) { s.Replicas[2].Current = false }), "None UnderReplicated", "main-2 is not in sync yet; replicated on main-0 (leader), main-1"},
		{"one on its way out", tripled(func(s *ShardFacts) {
			s.Replicas[2].Member, s.Replicas[2].Current, s.Replicas[2].Removing = false, false, true
			s.Replicas = append(s.Replicas, ReplicaFacts{Broker: "main-3", ID: "id-main-3", Member: true, Current: true})
		}), "None Served", "main-0 (leader), main-1, main-3"},
		{"fewer brokers than replicas", tripled(func(s *ShardFacts) { s.Replicas = s.Replicas[:2] }), "None UnderReplicated", "there are brokers for 2 of 3 replicas; replicated"},
		{"too few in sync", tripled(func(s *ShardFacts) { s.Replicas[1].Away = true; s.Replicas[2].Current = false }), "Wait NotEnoughInSync",
			"1 of 3 replicas are in sync and minInSync is 2: main-1 is away, main-2 is not in sync yet; it goes on when more are"},
		{"nobody leads for a moment", tripled(func(s *ShardFacts) { s.Led = false; s.Replicas[0].Away = true }), "Wait NoLeader", "one of main-1, main-2 is about to"},
		{"who could lead is away", tripled(func(s *ShardFacts) {
			s.Led = false
			s.Replicas[0].Away, s.Replicas[1].Away, s.Replicas[2].Member, s.Replicas[2].Current = true, true, false, false
		}), "Wait NoLeader", "on main-0, main-1, which is away; it goes on when one of them is back; or write uncleanElection: Allowed"},
		{"who could lead may lack something", tripled(func(s *ShardFacts) {
			s.Led, s.Replicas[0].Suspect, s.Replicas[1].Away, s.Replicas[2].Suspect = false, true, true, true
		}), "Wait Suspect", "main-0, main-2 may lack acknowledged records after a power cut or a fault of the disk; it goes on when main-1 is back"},
		{"too many shards, no Broker yet", func(f *TopicFacts) { f.Spec.Shards, f.Found, f.Link = MaxShards+1, nil, Link{} }, "Stall ShardsUnsupported", "shards: 64 or fewer"},
		{"a broker without limits per subject", func(f *TopicFacts) { f.LimitBehind = "main-0" }, "Stall LimitUnsupported", "broker main-0 is of a version without limits per subject: finish the update of the brokers, or leave retention.messagesPerSubject out; until then the Topic is served as it was"},
		{"a broker that knows no schedules", func(f *TopicFacts) { f.Behind, f.Unknown = "main-0", "schedules" }, "Stall SettingUnsupported", "broker main-0 is of a version without schedules: finish the update of the brokers, or leave schedules out; until then the Topic is served as it was"},
		{"sources in a circle", func(f *TopicFacts) { f.CopyCycle = true }, "Stall SourceCycle", "its sources lead back to it"},
		{"a mirror that does not fit", func(f *TopicFacts) { f.Mismatch = "wide has 4 shards" }, "Stall Invalid", "wide has 4 shards"},
		{"no broker to place on", func(f *TopicFacts) { f.Shards, f.Link.Joined = nil, 0 }, "Wait WaitingForBroker", "has joined yet"},
		{"more in sync than there are brokers", func(f *TopicFacts) {
			f.Spec.Replicas, f.Found.Spec.Replicas, f.Shards, f.Link.Joined, f.Link.Wanted = 3, 3, nil, 1, 1
		}, "Stall NotEnoughBrokers", "2 replicas must be in sync, and Broker main asks for 1 broker: raise its spec.replicas"},
		{"more in sync than have joined", func(f *TopicFacts) {
			f.Spec.Replicas, f.Found.Spec.Replicas, f.Shards, f.Link.Joined, f.Link.Wanted = 3, 3, nil, 1, 3
		}, "Wait NotEnoughBrokers", "1 broker of Broker main have joined so far"},
		{"not placed yet", func(f *TopicFacts) { f.Shards = nil }, "Wait Placing", ""},
		{"its broker away", func(f *TopicFacts) { f.Shards[0].Replicas[0].Away, f.Shards[0].Led = true, false }, "Wait BrokerAway", "main-0 alone, which is away; they come back with it"},
		{"its broker back", func(f *TopicFacts) { f.Shards[0].Led = false }, "Wait Placing", "main-0, which has the records, is back"},
		{"an older one, nothing of ours", func(f *TopicFacts) { older(f); f.Found = nil }, "Stall SubjectsTaken", "orders.eu of Topic default/first, which is older"},
		{"an older one, and no records", func(f *TopicFacts) { older(f); f.Records = NoRecords }, "Release SubjectsTaken", ""},
		{"an older one, and records", func(f *TopicFacts) { older(f); f.Records = SomeRecords }, "None Served", ""},
		{"an older one, and nobody knows", func(f *TopicFacts) { older(f) }, "None Served", ""},
		{"an older one, and more asked for than is had", func(f *TopicFacts) {
			older(f)
			f.Found.Spec.Subjects = []string{"x"}
		}, "Stall SubjectsTaken", ""},
		{"refused for its subject", func(f *TopicFacts) {
			f.Found, f.Refused = nil, fmt.Errorf("put: %w", &coordination.OverlapError{Topic: "orders", Subject: "orders.>", Other: "all", Claimed: ">", Owner: client})
		}, "Stall SubjectsTaken", "> of topic all, which belongs to client shop"},
		{"refused for good", func(f *TopicFacts) {
			f.Found, f.Refused = nil, &coordination.InvalidError{What: "topic orders", Why: "they overlap"}
		}, "Stall Invalid", "they overlap"},
		{"adopted, and other shards", func(f *TopicFacts) {
			f.Refused = &coordination.ImmutableError{What: "topic orders", Field: "the number of shards"}
		}, "Stall Immutable", "number of shards"},
		{"an etcd that fails to write", func(f *TopicFacts) { f.Found, f.Refused = nil, errors.New("put topic orders: no leader") }, "Wait CoordinationUnavailable", "tried again: no leader"},
		{"a full disk", func(f *TopicFacts) {
			f.Troubled, f.Trouble = "main-1", "disk /data takes no appends since write x: no space left on device"
		}, "Stall DiskFull", "spec.storage.size"},
		{"a bad disk", func(f *TopicFacts) {
			f.Troubled, f.Trouble = "main-1", "disk /data takes no appends since input/output error"
		}, "Stall DiskFailed", "main-1: disk /data"},
		{"damaged records", func(f *TopicFacts) { f.Troubled, f.Trouble = "main-1", "0.log is damaged at byte 7: wrong CRC" }, "Stall RecordsDamaged", ""},
	} {
		f := servedTopic()
		c.change(&f)
		a := Topic(f)
		if got := string(a.Kind) + " " + string(a.Reason); got != c.want || !strings.Contains(a.Message, c.says) || a.Message == "" {
			t.Errorf("%s: %s: %s; want %s with %q", c.what, got, a.Message, c.want, c.says)
		}
	}
}

func TestSubscription(t *testing.T) {
	served := func() SubscriptionFacts {
		topic := servedTopic()
		spec := coordination.SubscriptionSpec{Start: coordination.Start{From: coordination.FromLatest}}
		self := manifestOwner("billing", "9")
		return SubscriptionFacts{
			Self: self, Name: "billing", Spec: spec, TopicRef: "orders", Link: topic.Link, Topic: topic.Found, Shards: topic.Shards,
			Found: &coordination.Subscription{Topic: "id", Name: "billing", Spec: &spec, Owner: self},
		}
	}
	for _, c := range []struct {
		what   string
		change func(*SubscriptionFacts)
		want   string
		says   string
	}{
		{"all well", func(*SubscriptionFacts) {}, "None Served", "main-0"},
		{"no Topic", func(f *SubscriptionFacts) { f.TopicGone = true }, "Wait TopicMissing", "there is no Topic orders"},
		{"no Broker", func(f *SubscriptionFacts) { f.Link = Link{Broker: "main"} }, "Wait WaitingForBroker", ""},
		{"a Topic that is not made", func(f *SubscriptionFacts) { f.Topic, f.TopicSays = nil, "SubjectsTaken" }, "Wait WaitingForTopic", "SubjectsTaken"},
		{"nothing in etcd", func(f *SubscriptionFacts) { f.Found = nil }, "Create Placing", ""},
		{"another spec", func(f *SubscriptionFacts) { f.Spec.Ack.MaxPending = 5 }, "Update Placing", ""},
		{"a former manifest's", func(f *SubscriptionFacts) { f.Found.Owner.UID = "0" }, "Adopt Adopted", "with its cursor"},
		{"a client's", func(f *SubscriptionFacts) { f.Found.Owner = coordination.Owner{Kind: coordination.ClientOwner} }, "Stall Exists", "belongs to a client"},
		{"another start", func(f *SubscriptionFacts) {
			f.Refused = &coordination.ImmutableError{What: "subscription billing", Field: "where it starts"}
		}, "Stall Immutable", "where it starts"},
		{"push", func(f *SubscriptionFacts) {
			f.Spec.Push = &coordination.Push{URL: "http://a"}
			f.Found.Spec.Push = f.Spec.Push
		}, "None Served", ""},
		{"push, and a broker that does not", func(f *SubscriptionFacts) { f.PushBehind = "main-1" }, "Stall PushUnsupported", "broker main-1 is of a version that does not push: finish the update of the brokers, or leave delivery out; until then the Subscription is served as it was before"},
		{"a client certificate, and a broker that gives none", func(f *SubscriptionFacts) { f.CertificateBehind = "main-1" }, "Stall PushUnsupported", "broker main-1 is of a version that gives no client certificates to endpoints: finish the update of the brokers, or leave delivery.push.tls.certificateSecretRef out"},
		{"dead letters", func(f *SubscriptionFacts) { f.Spec.DeadLetter, f.Found.Spec.DeadLetter = "dead", "dead" }, "None Served", ""},
		{"dead letters, and a broker that keeps none", func(f *SubscriptionFacts) { f.Spec.DeadLetter, f.DeadLetterBehind = "dead", "main-2" }, "Stall DeadLetterUnsupported", "broker main-2 is of a version"},
		{"a reset, and a broker that can't", func(f *SubscriptionFacts) { f.ResetBehind = "main-2" }, "Stall ResetUnsupported", "broker main-2 is of a version"},
		{"dead letters that come back", func(f *SubscriptionFacts) {
			f.Spec.DeadLetter, f.DeadLetterCycle = "dead", []string{"orders", "dead", "orders"}
		}, "Stall DeadLetterCycle", "by the Topics orders, dead, orders"},
		{"no Topic for dead letters", func(f *SubscriptionFacts) { f.Spec.DeadLetter, f.DeadLetterGone = "dead", "dead" }, "Wait TopicMissing", "there is no Topic dead in this namespace for dead letters"},
		{"its dead-letter Topic gone", func(f *SubscriptionFacts) { f.Found.Owner, f.DeadLetterGone = f.Self, "dead" }, "Wait TopicMissing", "served as it was before"},
		{"its dead-letter Topic not made", func(f *SubscriptionFacts) { f.Spec.DeadLetter, f.DeadLetterLater = "dead", "dead" }, "Wait WaitingForTopic", "Topic dead for dead letters is not there yet"},
		{"a condition, and a broker that judges none", func(f *SubscriptionFacts) { f.Spec.Where, f.WhereBehind = "true", "main-1" }, "Stall FilterUnsupported", "broker main-1 is of a version that filters by subject only: finish the update of the brokers, or leave filter.where out; until then the Subscription is served as it was before"},
		{"attributes, and a broker that stores none", func(f *SubscriptionFacts) { f.Spec.Where, f.WhereBehind = "attributes.a == 1", "main-1" }, "Stall FilterUnsupported", "broker main-1 is of a version that knows no attributes in a condition: finish the update of the brokers, or leave attributes in filter.where out; until then"},
		{"a bad condition", func(f *SubscriptionFacts) { f.Spec.Where = "json.a ==" }, "Stall Invalid", "condition (filter.where): filter \"json.a ==\": column 10"},
		{"its broker away", func(f *SubscriptionFacts) { f.Shards[0].Replicas[0].Away = true }, "Wait BrokerAway", "main-0"},
	} {
		f := served()
		c.change(&f)
		a := Subscription(f)
		if got := string(a.Kind) + " " + string(a.Reason); got != c.want || !strings.Contains(a.Message, c.says) || a.Message == "" {
			t.Errorf("%s: %s: %s; want %s with %q", c.what, got, a.Message, c.want, c.says)
		}
	}
}

// TestNothingIsDeletedUnlessItsManifestWasDeletedOnPurpose tries P7 with all combinations of facts.
func TestNothingIsDeletedUnlessItsManifestWasDeletedOnPurpose(t *testing.T) {
	for _, policy := range []coordination.DeletionPolicy{"", coordination.Retain, coordination.DeleteIfEmpty, coordination.Delete} {
		for _, records := range []Records{RecordsUnknown, NoRecords, SomeRecords} {
			for bits := range 16 {
				f := GoneFacts{What: "topic orders", Policy: policy, Records: records, ManifestGone: bits&1 > 0, Defined: bits&2 > 0, BrokerThere: bits&4 > 0, Orphaned: bits&8 > 0}
				want := Orphan
				switch {
				case f.Orphaned || !f.ManifestGone || !f.Defined || !f.BrokerThere:
					want = None
				case policy == coordination.Delete, policy == coordination.DeleteIfEmpty && records == NoRecords:
					want = Delete
				}
				if a := Gone(f); a.Kind != want {
					t.Errorf("%+v: %s, want %s", f, a.Kind, want)
				}
			}
		}
	}
}

// store is a model of etcd, as package coordination uses it.
type store struct {
	topics  map[string]*coordination.Topic
	records map[string]int // by id
	ids     int
	writes  int
}

func (s *store) overlap(name string, spec coordination.TopicSpec) error {
	for other, topic := range s.topics {
		if mine, its := spec.Overlaps(&topic.Spec); other != name && mine != "" {
			return &coordination.OverlapError{Topic: name, Subject: mine, Other: other, Claimed: its, Owner: topic.Owner}
		}
	}
	return nil
}

// declared is a manifest in the simulation.
type declared struct {
	TopicFacts
	age int
}

// pass does one reconciler's pass over a manifest, and returns the last action.
func (s *store) pass(t *rapid.T, m *declared, all []*declared) Action {
	f := m.TopicFacts
	f.Refused = nil
	for range 8 {
		f.Found, f.Shards, f.Older, f.Records = s.topics[f.Name], nil, nil, RecordsUnknown
		if f.Found != nil {
			f.Shards = []ShardFacts{single("main-0")}
			f.Records = NoRecords
			if s.records[f.Found.ID] > 0 {
				f.Records = SomeRecords
			}
		}
		for _, other := range all {
			if mine, its := f.Spec.Overlaps(&other.Spec); other != m && other.age < m.age && other.Servable() && mine != "" {
				f.Older = &Rival{Name: other.Name, Mine: mine, Its: its, Spec: other.Spec}
				break
			}
		}
		action := Topic(f)
		before := s.topics[f.Name]
		switch action.Kind {
		case Create:
			if before != nil {
				t.Fatalf("%s is made, and is there", f.Name)
			}
			if f.Refused = s.overlap(f.Name, f.Spec); f.Refused == nil {
				s.ids++
				s.topics[f.Name] = &coordination.Topic{Name: f.Name, ID: fmt.Sprint(s.ids), Spec: f.Spec, Owner: f.Self}
			}
		case Update, Adopt, Release:
			if !SameManifest(before.Owner, f.Self) {
				t.Fatalf("P6: %s of %s, which is %s's", action.Kind, f.Name, before.Owner)
			}
			after := *before
			after.Owner, after.Spec = f.Self, f.Spec
			if action.Kind == Release {
				if s.records[before.ID] > 0 {
					t.Fatalf("P8: %s has records, and gives its subjects up", f.Name)
				}
				after.Spec = ReleasedSpec(before)
			}
			if f.Refused = s.overlap(f.Name, after.Spec); f.Refused == nil {
				s.topics[f.Name] = &after
			}
		default:
			return action
		}
		if !f.Servable() {
			t.Fatalf("P6: %s is written, and can't be served", f.Name)
		}
		if f.Refused == nil {
			s.writes++
		}
	}
	t.Fatalf("P9: the pass over %s does not end", f.Name)
	return Action{}
}

func TestTopicsConvergeInWhateverOrderTheyCome(t *testing.T) {
	subjects := []string{"a.>", "a.b", "b.*", "b.c", "c"}
	rapid.Check(t, func(t *rapid.T) {
		s := &store{topics: map[string]*coordination.Topic{}, records: map[string]int{}}
		var all []*declared
		uid := 0
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"t1", "t2", "t3", "t4"}).Draw(t, "name")
			at := slices.IndexFunc(all, func(m *declared) bool { return m.Self.Name == name })
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1: // a manifest comes, or changes
				if at < 0 {
					uid++
					f := servedTopic()
					f.Self, f.Name = manifestOwner(name, fmt.Sprint(uid)), name
					all = append(all, &declared{f, uid})
					at = len(all) - 1
				}
				m := all[at]
				m.Spec = coordination.TopicSpec{Subjects: []string{rapid.SampledFrom(subjects).Draw(t, "subject")}, Shards: rapid.SampledFrom([]int{1, 1, 1, MaxShards + 1}).Draw(t, "shards")}
			case 2: // a manifest goes; what it declared stays
				if at >= 0 {
					all = slices.Delete(all, at, at+1)
					if topic := s.topics[name]; topic != nil && topic.Owner.Name == name {
						topic.Owner.Orphaned = topic.Owner.Orphaned.AddDate(1, 0, 0)
					}
				}
			case 3: // somebody publishes
				if topic := s.topics[name]; topic != nil && !strings.HasPrefix(topic.Spec.Subjects[0], "_") {
					s.records[topic.ID]++
				}
			case 4: // a client comes first
				spec := coordination.TopicSpec{Subjects: []string{rapid.SampledFrom(subjects).Draw(t, "subject")}, Shards: 1}
				if s.topics[name] == nil && s.overlap(name, spec) == nil {
					s.topics[name] = &coordination.Topic{Name: name, ID: "client" + name, Spec: spec, Owner: coordination.Owner{Kind: coordination.ClientOwner}}
				}
			}
			if len(all) > 0 {
				s.pass(t, all[rapid.IntRange(0, len(all)-1).Draw(t, "who")], all)
			}
		}
		// Without further changes, there is nothing to write after some passes.
		for round := 0; ; round++ {
			before := s.writes
			for _, m := range all {
				s.pass(t, m, all)
			}
			if s.writes == before {
				break
			}
			if round > 3*len(all) {
				t.Fatal("P9: it does not end")
			}
		}
		for _, m := range all {
			action := s.pass(t, m, all)
			if action.Kind == None || !m.Servable() || action.Reason == Exists {
				continue
			}
			if action.Reason != SubjectsTaken {
				t.Fatalf("P9: %s ends with %s %s", m.Name, action.Kind, action.Reason)
			}
			// Another one has the right to its subject: an older manifest, one with records, a
			// Topic of no manifest, or one whose own change was refused and that keeps its former
			// subjects.
			excused := slices.ContainsFunc(all, func(other *declared) bool {
				mine, _ := m.Spec.Overlaps(&other.Spec)
				return other.age < m.age && mine != "" && other.Servable()
			})
			for name, topic := range s.topics {
				mine, _ := m.Spec.Overlaps(&topic.Spec)
				excused = excused || name != m.Name && mine != "" && (s.records[topic.ID] > 0 || topic.Owner.Kind == coordination.ClientOwner || !topic.Owner.Orphaned.IsZero() ||
					slices.ContainsFunc(all, func(other *declared) bool {
						return other.Name == name && !sameJSON(other.Spec.Subjects, topic.Spec.Subjects) || other.Name == name && !other.Servable()
					}))
			}
			if !excused {
				t.Fatalf("P8: %s is refused (%s), and nobody has a better right", m.Name, action.Message)
			}
		}
	})
}
