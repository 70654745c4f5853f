package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// good returns the facts of a converged Broker: n coordinators and m brokers, all ready.
func good(n, m int32) Facts {
	set := func(name string, n int32) Set {
		s := Set{Name: name, Exists: true, Replicas: n, Settled: true, Age: time.Hour}
		for i := range n {
			s.Pods = append(s.Pods, Pod{Name: fmt.Sprintf("%s-%d", name, i), Ready: true, Started: true, Serving: true})
		}
		return s
	}
	return Facts{
		Coordinators: set("main-coordinator", n), Brokers: set("main", m), WantBrokers: m, Bootstrapped: true,
		Etcd:   Etcd{Asked: true, Quorum: true, AllStarted: true, Owner: OwnerOurs},
		Shards: Shards{Known: true, Controller: "main-1"},
	}
}

func outdated(p *Pod) { p.Outdated, p.Why = true, "image one becomes two" }

// leaves changes the facts to two wanted brokers of three. l describes the third.
func leaves(f *Facts, l LeavingPod) {
	l.Pod = "main-2"
	if l.Brokers == nil {
		l.Brokers = []string{"id-2"}
	}
	f.WantBrokers, f.Shards.LeavingPods = 2, []LeavingPod{l}
}

// signing changes the facts to new CAs whose certificates have just reached all pods.
func signing(f *Facts) {
	f.Roots = Roots{Signing: true, SignedFor: rootsSpread}
	for _, set := range []*Set{&f.Coordinators, &f.Brokers} {
		for i := range set.Pods {
			set.Pods[i].ReadyFor = rootsSpread
		}
	}
}

// asked changes the facts to an etcd with all users, which does not ask for them.
func asked(f *Facts) { f.Access = Access{Known: true, Understood: true} }

// TestNext is a table of facts and expected decisions.
func TestNext(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Facts)
		want   string // "Kind Target Reason"
		says   string
	}{
		{"all well", func(*Facts) {}, "None  AllReady", "all 3 brokers are ready"},
		{"nothing is there yet", func(f *Facts) { *f = Facts{WantBrokers: 3} }, "Wait  CoordinatorsStarting", ""},
		{"a first quorum", func(f *Facts) { f.Bootstrapped = false; f.Etcd.Owner = OwnerNobody }, "MarkBootstrapped  CoordinationBootstrapped", ""},
		{"a quorum without the last member", func(f *Facts) { f.Bootstrapped, f.Etcd.AllStarted, f.Coordinators.Age = false, false, time.Minute }, "Wait  CoordinatorsStarting", "every coordinator"},
		{"a last member that does not come", func(f *Facts) { f.Bootstrapped, f.Etcd.AllStarted = false, false }, "MarkBootstrapped  CoordinationBootstrapped", ""},
		{"keys that are nobody's", func(f *Facts) { f.Etcd.Owner = OwnerNobody }, "ClaimOwner  ClaimingKeys", ""},
		{"keys that are another's", func(f *Facts) { f.Etcd.Owner, f.Etcd.OtherOwner = OwnerOther, "a/b/c" }, "Stall  AlreadyOwned", "a/b/c"},
		{"a name that is taken", func(f *Facts) { f.Taken = "Service main" }, "Stall  NameTaken", "rename or delete it"},
		{"a status of a former StatefulSet", func(f *Facts) {
			f.Brokers.Settled, f.Brokers.Stale = false, true
			outdated(&f.Coordinators.Pods[0])
		}, "RenewStatus main RenewingStatefulSetStatus", "written anew"},
		{"leftovers", func(f *Facts) { f.Leftovers = "Secret main-ca" }, "Wait  LeftoversOfFormerBroker", "Secret main-ca"},
		{"fewer brokers", func(f *Facts) { leaves(f, LeavingPod{Shards: 12}) }, "Drain id-2 DrainingBroker", "spec.replicas asks for 2 brokers"},
		{"fewer brokers than a Topic asks for", func(f *Facts) {
			leaves(f, LeavingPod{Shards: 12})
			f.Shards.Demanding = []string{"orders"}
		}, "Stall  ScaleDownBlocked", "Topic orders asks for more replicas than that: nothing was changed; set spec.replicas to 3"},
		{"a drained broker that holds shards", func(f *Facts) { leaves(f, LeavingPod{Shards: 12, Drained: []string{"id-2"}}) }, "Wait  DrainingBroker", "draining main-2: 12 shards to move"},
		{"a drained broker, and another that is away", func(f *Facts) {
			leaves(f, LeavingPod{Shards: 1, Drained: []string{"id-2"}})
			f.Brokers.Pods[0].Ready, f.Brokers.Pods[0].Trouble = false, "is starting"
		}, "Wait  DrainingBroker", "draining main-2: 1 shard to move (2 of 3 brokers are ready (main-0: is starting))"},
		{"a drained broker that holds nothing since a moment", func(f *Facts) { leaves(f, LeavingPod{Drained: []string{"id-2"}}) }, "Wait  ScalingDown", "about to go"},
		{"a drained broker that holds nothing", func(f *Facts) { leaves(f, LeavingPod{Drained: []string{"id-2"}, Settled: true}) }, "Shrink main-2 ScalingDown", ""},
		{"a broker before it that is not gone yet", func(f *Facts) {
			leaves(f, LeavingPod{Drained: []string{"id-2"}, Settled: true})
			f.Brokers.Pods = append(f.Brokers.Pods, Pod{Name: "main-3", Surplus: true, Leaving: true})
		}, "Wait  ScalingDown", ""},
		{"a broker that is away with what nobody else has", func(f *Facts) {
			leaves(f, LeavingPod{Drained: []string{"id-2"}, Away: true, Shards: 3, Alone: 2, Example: "orders"})
			f.Brokers.Pods[2].Ready = false
		}, "Wait  DrainingBroker", "main-2 is away, and 2 shards (such as one of topic orders) can't be had from anyone else"},
		{"a broker that is away and could be any", func(f *Facts) { leaves(f, LeavingPod{Away: true, Unknown: true, Brokers: []string{}}) }, "Wait  DrainingBroker", "main-2 is away, and what it holds is not known"},
		{"one that never came up goes at once", func(f *Facts) {
			leaves(f, LeavingPod{Away: true, Brokers: []string{}, Settled: true})
			f.Brokers.Pods[2].Ready, f.Brokers.Pods[2].Started = false, false
		}, "Shrink main-2 ScalingDown", ""},
		{"brokers that are wanted again", func(f *Facts) { f.Shards.DrainsToEnd = []DrainTarget{{ID: "id-2", Pod: "main-2"}} }, "EndDrain id-2 DrainEnded", "main-2 is drained no longer"},
		{"fewer brokers, and what they hold is not known", func(f *Facts) { f.WantBrokers, f.Shards = 2, Shards{} }, "Wait  DrainingBroker", "not known yet"},
		{"the broker that places shards goes last", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			outdated(&f.Brokers.Pods[1])
		}, "ReplacePod main-0 RollingPod", ""},
		{"the broker that places shards goes as well", func(f *Facts) { outdated(&f.Brokers.Pods[1]) }, "ReplacePod main-1 RollingPod", ""},
		{"replicas that catch up", func(f *Facts) {
			outdated(&f.Brokers.Pods[2])
			f.Shards.CatchingUp = map[string]int{"main-0": 3}
		}, "Wait  ReplicasCatchingUp", "waiting for 3 replicas to be in sync on main-0; then pod main-2 is replaced"},
		{"replicas that catch up on the very pod", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			outdated(&f.Brokers.Pods[2])
			f.Shards.CatchingUp = map[string]int{"main-0": 3}
		}, "ReplacePod main-0 RollingPod", ""},
		{"replicas that never catch up", func(f *Facts) {
			outdated(&f.Brokers.Pods[2])
			f.Shards.CatchingUp = map[string]int{"main-0": 3}
			for i := range f.Brokers.Pods {
				f.Brokers.Pods[i].ReadyFor = catchUpPatience
			}
		}, "ReplacePod main-2 RollingPod", ""},
		{"a broker that has not joined", func(f *Facts) {
			outdated(&f.Brokers.Pods[2])
			f.Shards.PodsWithoutBroker = []string{"main-1"}
		}, "Wait  ReplicasCatchingUp", "main-1 has not joined"},
		{"what is in sync is not known", func(f *Facts) { outdated(&f.Brokers.Pods[2]); f.Shards = Shards{} }, "Wait  ReplicasCatchingUp", "not known yet"},
		{"one that is not ready waits for no replica", func(f *Facts) {
			outdated(&f.Brokers.Pods[2])
			f.Brokers.Pods[2].Ready = false
			f.Shards.CatchingUp = map[string]int{"main-0": 3}
		}, "ReplacePod main-2 RepairingPod", ""},
		{"CAs that all pods trust", func(f *Facts) { f.Roots.Announced = true }, "ChangeRoots  SeparatingTrustRoots", "from now on each of them signs"},
		{"CAs that a pod does not trust yet", func(f *Facts) {
			f.Roots.Announced = true
			outdated(&f.Brokers.Pods[2])
		}, "ReplacePod main-2 RollingPod", ""},
		{"CAs that a pod does not trust until a restart is asked for", func(f *Facts) {
			f.Roots.Announced = true
			outdated(&f.Brokers.Pods[2])
			f.Brokers.Pods[2].Held = true
		}, "None  AllReady", ""},
		{"CAs that an absent pod may not trust", func(f *Facts) {
			f.Roots.Announced = true
			f.Coordinators.Pods[0].Ready = false
		}, "Wait  CoordinatorsStarting", ""},
		{"CAs that have signed for long", func(f *Facts) {
			signing(f)
		}, "ChangeRoots  SeparatingTrustRoots", "is not trusted any more"},
		{"CAs that have just signed", func(f *Facts) {
			signing(f)
			f.Roots.SignedFor -= time.Second
		}, "None  AllReady", ""},
		{"CAs that signed while a pod was cut off", func(f *Facts) {
			signing(f)
			f.Coordinators.Pods[1].ReadyFor -= time.Second
		}, "None  AllReady", ""},
		{"an etcd without users", func(f *Facts) { f.Access = Access{Known: true, Understood: true, Lacks: "role cluster"} }, "GrantAccess  GrantingEtcdAccess", "role cluster"},
		{"an etcd that lost a user that the operator needs", func(f *Facts) {
			f.Access = Access{Known: true, Enabled: true, Lacks: "user carillon-operator"}
			f.Etcd = Etcd{Asked: true, Answered: true, Trouble: "permission denied"}
		}, "GrantAccess  GrantingEtcdAccess", "user carillon-operator"},
		{"an etcd without users, and keys that are another's", func(f *Facts) {
			f.Access = Access{Known: true, Lacks: "role cluster"}
			f.Etcd.Owner = OwnerOther
		}, "Stall  AlreadyOwned", ""},
		{"an etcd without users, and a pod that never came up", func(f *Facts) {
			f.Access = Access{Known: true, Lacks: "role cluster"}
			outdated(&f.Brokers.Pods[2])
			f.Brokers.Pods[2].Ready, f.Brokers.Pods[2].Started = false, false
		}, "ReplacePod main-2 RepairingPod", ""},
		{"an etcd that has users and does not ask for them", func(f *Facts) { asked(f) }, "EnableAccess  RestrictingEtcd", "from now on"},
		{"an etcd that asks for users", func(f *Facts) { asked(f); f.Access.Enabled = true }, "None  AllReady", ""},
		{"an etcd whose users are not known", func(f *Facts) { asked(f); f.Access.Known = false }, "None  AllReady", ""},
		{"users that pods of an earlier version don't know", func(f *Facts) { asked(f); f.Access.Understood = false }, "None  AllReady", ""},
		{"users before the last pod of the present template", func(f *Facts) {
			asked(f)
			outdated(&f.Coordinators.Pods[2])
		}, "ReplacePod main-coordinator-2 RollingPod", ""},
		{"users, and a pod that waits for a restart", func(f *Facts) {
			asked(f)
			outdated(&f.Coordinators.Pods[2])
			f.Coordinators.Pods[2].Held = true
		}, "None  AllReady", ""},
		{"users, and a broker that is not ready", func(f *Facts) { asked(f); f.Brokers.Pods[0].Ready = false }, "Wait  BrokersStarting", ""},
		{"users, and a coordinator that is not ready", func(f *Facts) { asked(f); f.Coordinators.Pods[0].Ready = false }, "Wait  CoordinatorsStarting", ""},
		{"users, and a member that has not joined", func(f *Facts) { asked(f); f.Etcd.AllStarted = false }, "None  AllReady", ""},
		{"users while CAs change", func(f *Facts) { asked(f); f.Roots.Signing = true }, "None  AllReady", ""},
		{"no auth Secret", func(f *Facts) { f.AuthTrouble = "Secret login does not exist" }, "Wait  AuthSecretUnusable", "login"},
		{"no Secret for TLS", func(f *Facts) { f.TLSTrouble = Trouble{TLSSecretUnusable, "Secret main-tls does not exist"} }, "Wait  TLSSecretUnusable", "main-tls"},
		{"no Secret for TLS, and pods of an old template", func(f *Facts) {
			f.TLSTrouble = Trouble{CertificatePending, "Secret main-tls is not there"}
			outdated(&f.Brokers.Pods[2])
		}, "Wait  CertificatePending", "main-tls is not there; then pod main-2 is replaced: image one becomes two"},
		{"no Secret for TLS, and a pod that never came up", func(f *Facts) {
			f.TLSTrouble = Trouble{TLSSecretUnusable, "Secret main-tls does not exist"}
			outdated(&f.Brokers.Pods[2])
			f.Brokers.Pods[2].Ready, f.Brokers.Pods[2].Started = false, false
		}, "ReplacePod main-2 RepairingPod", ""},
		{"no Secret for TLS, and coordinators of an old template", func(f *Facts) {
			f.TLSTrouble = Trouble{TLSSecretUnusable, "Secret main-tls does not exist"}
			outdated(&f.Coordinators.Pods[2])
		}, "ReplacePod main-coordinator-2 RollingPod", ""},
		{"no auth Secret, and pods of an old template", func(f *Facts) {
			f.AuthTrouble = "Secret login does not exist"
			outdated(&f.Brokers.Pods[2])
		}, "Wait  AuthSecretUnusable", "login"},
		{"a broker that is away", func(f *Facts) {
			f.Brokers.Pods[1].Ready, f.Brokers.Pods[1].Trouble = false, "can't be scheduled: no room"
		}, "Wait  BrokersStarting", "2 of 3 brokers are ready (main-1: can't be scheduled: no room)"},
		{"a broker that is not there", func(f *Facts) { f.Brokers.Pods = f.Brokers.Pods[:2] }, "Wait  BrokersStarting", "2 of 3 brokers"},
		{"a new image", func(f *Facts) {
			for i := range f.Brokers.Pods {
				outdated(&f.Brokers.Pods[i])
				outdated(&f.Coordinators.Pods[i])
			}
		}, "ReplacePod main-coordinator-2 RollingPod", "image one becomes two"},
		{"brokers come after coordinators", func(f *Facts) { outdated(&f.Brokers.Pods[0]); outdated(&f.Brokers.Pods[2]) }, "ReplacePod main-2 RollingPod", ""},
		{"a roll waits for the last one", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			f.Brokers.Pods[2].Ready = false
		}, "Wait  BrokersStarting", "then pod main-0 is replaced"},
		{"one that never came up waits for nobody", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			f.Brokers.Pods[0].Ready, f.Brokers.Pods[0].Started = false, false
			f.Brokers.Pods[1].Ready = false
			f.Brokers.Pods[2].Leaving = true
			f.Etcd.Quorum = false
		}, "ReplacePod main-0 RepairingPod", ""},
		{"an unready coordinator may only be between elections", func(f *Facts) {
			outdated(&f.Coordinators.Pods[0])
			f.Coordinators.Pods[0].Ready = false
			f.Coordinators.Pods[1].Leaving, f.Coordinators.Pods[1].Ready = true, false
			f.Etcd.Quorum = false
		}, "Wait  CoordinationUnavailable", ""},
		{"all run and none is ready", func(f *Facts) {
			for i := range f.Coordinators.Pods {
				outdated(&f.Coordinators.Pods[i])
				f.Coordinators.Pods[i].Ready, f.Coordinators.Pods[i].Serving = false, false
			}
			f.Etcd.Quorum = false
		}, "ReplacePod main-coordinator-0 RepairingPod", ""},
		{"a coordinator whose leaving would lose the quorum", func(f *Facts) {
			outdated(&f.Coordinators.Pods[0])
			f.Coordinators.Pods[1].Serving = false
		}, "Wait  CoordinatorsStarting", "a quorum without it"},
		{"the only coordinator is rolled all the same", func(f *Facts) { *f = good(1, 1); outdated(&f.Coordinators.Pods[0]) }, "ReplacePod main-coordinator-0 RollingPod", ""},
		{"no quorum, nothing is rolled", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			f.Etcd = Etcd{Asked: true, Trouble: "list coordinators: timeout"}
		}, "Wait  CoordinationUnavailable", "timeout"},
		{"out of room in etcd", func(f *Facts) { f.Etcd.NoSpace = []string{"main-coordinator-1"} }, "Wait  CoordinationOutOfSpace", "main-coordinator-1"},
		{"data that differ", func(f *Facts) { f.Etcd.Corrupt = []string{"main-coordinator-1"} }, "Wait  CoordinationCorrupt", "main-coordinator-1"},
		{"brokers wait for a coordinator that is away", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			f.Coordinators.Pods = f.Coordinators.Pods[:2]
		}, "Wait  CoordinatorsStarting", "2 of 3 coordinators are ready; then pod main-0 is replaced"},
		{"held pods", func(f *Facts) { outdated(&f.Brokers.Pods[0]); f.Brokers.Pods[0].Held = true }, "None  AllReady", ""},
		{"a held pod that never came up", func(f *Facts) {
			outdated(&f.Brokers.Pods[0])
			f.Brokers.Pods[0].Held, f.Brokers.Pods[0].Ready, f.Brokers.Pods[0].Started = true, false, false
		}, "ReplacePod main-0 RepairingPod", ""},
		{"small volumes", func(f *Facts) {
			f.Brokers.Volumes = []Volume{{Name: "data-main-0"}, {Name: "data-main-1", Small: true}}
			f.Brokers.SmallTemplate = true
		}, "GrowVolume data-main-1 GrowingVolume", ""},
		{"a small template", func(f *Facts) { f.Brokers.SmallTemplate = true }, "RecreateSet main RecreatingStatefulSet", ""},
		{"a volume on its way", func(f *Facts) { f.Brokers.Volumes = []Volume{{Name: "data-main-0", Resizing: true}} }, "Wait  GrowingVolume", "data-main-0"},
	} {
		f := good(3, 3)
		c.change(&f)
		a := Next(f)
		if got := fmt.Sprintf("%s %s %s", a.Kind, a.Target, a.Reason); got != c.want || !strings.Contains(a.Message, c.says) || a.Message == "" {
			t.Errorf("%s: %s (%s), want %s with %q", c.what, got, a.Message, c.want, c.says)
		}
	}
}

// TestUnrestricted is a table of facts and why etcd does not ask for users.
func TestUnrestricted(t *testing.T) {
	for _, c := range []struct {
		what   string
		change func(*Facts)
		want   string // empty: nothing is said
	}{
		{"it does", func(f *Facts) { f.Access.Enabled = true }, ""},
		{"not known", func(f *Facts) { f.Access.Known = false }, ""},
		{"about to", func(*Facts) {}, "once nothing else is under way"},
		{"a Secret is missing for long", func(f *Facts) { f.AuthTrouble = "Secret login does not exist" }, "once nothing else is under way"},
		{"a broker is drained for hours", func(f *Facts) { leaves(f, LeavingPod{Shards: 12, Drained: []string{"id-2"}}) }, "once nothing else is under way"},
		{"no users", func(f *Facts) { f.Access.Lacks = "role cluster" }, "no users"},
		{"an earlier version", func(f *Facts) { f.Access.Understood = false }, "earlier version"},
		{"a pod that waits for a restart", func(f *Facts) { outdated(&f.Brokers.Pods[0]) }, "present template"},
		{"a learner", func(f *Facts) { f.Etcd.AllStarted = false }, "joined"},
		{"CAs that change", func(f *Facts) { f.Roots.Signing = true }, "CA for each"},
	} {
		f := good(3, 3)
		asked(&f)
		c.change(&f)
		if got := Unrestricted(f); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.what, got, c.want)
		}
	}
}

// model is a Kubernetes that replaces pods and an etcd that counts its members. New pods are made
// from template; pods made from spoilt never start.
type model struct {
	sets     [2]*modelSet
	template int
	spoilt   map[int]bool
	marked   bool
	claimed  bool
	secret   bool // it is missing, and brokers need it
	granted  bool // etcd has users
	enabled  bool // and asks for them
}

type modelSet struct {
	name string
	pods []modelPod
}

type modelPod struct {
	there, started, ready bool
	template              int
	byUs                  bool // deleted by the plan while it was ready, and not ready again yet
}

func (m *model) facts() Facts {
	f := Facts{WantBrokers: int32(len(m.sets[1].pods)), Bootstrapped: m.marked, Shards: Shards{Known: true}}
	for i, into := range []*Set{&f.Coordinators, &f.Brokers} {
		s := m.sets[i]
		*into = Set{Name: s.name, Exists: true, Replicas: int32(len(s.pods)), Settled: true, Age: time.Hour}
		for n, p := range s.pods {
			if p.there {
				into.Pods = append(into.Pods, Pod{
					Name: fmt.Sprintf("%s-%d", s.name, n), Ready: p.ready, Started: p.started, Serving: p.started,
					Outdated: p.template != m.template, Why: "changed",
				})
			}
		}
	}
	if m.secret {
		f.TLSTrouble = Trouble{TLSSecretUnusable, "it does not exist"}
	}
	serving := 0
	for _, p := range m.sets[0].pods {
		if p.started {
			serving++
		}
	}
	if f.Etcd.Quorum = serving > len(m.sets[0].pods)/2; f.Etcd.Quorum {
		f.Etcd.AllStarted = serving == len(m.sets[0].pods)
		f.Etcd.Owner = OwnerNobody
		if m.claimed {
			f.Etcd.Owner = OwnerOurs
		}
		f.Access = Access{Known: true, Understood: true, Enabled: m.enabled}
		if !m.granted {
			f.Access.Lacks = "users"
			f.Etcd.Quorum = !m.enabled // the operator may not read the keys
		}
	}
	return f
}

func (m *model) find(name string) (set, other *modelSet, pod *modelPod) {
	for i, s := range m.sets {
		for n := range s.pods {
			if fmt.Sprintf("%s-%d", s.name, n) == name {
				return s, m.sets[1-i], &s.pods[n]
			}
		}
	}
	return nil, nil, nil
}

// do judges an action and carries it out.
func (m *model) do(t *rapid.T, f Facts, a Action) {
	switch a.Kind {
	case MarkBootstrapped:
		m.marked = true
	case ClaimOwner:
		m.claimed = true
	case ReplacePod:
		set, _, pod := m.find(a.Target)
		if pod == nil || !pod.there || pod.template == m.template {
			t.Fatalf("%s is replaced for nothing", a.Target)
		}
		if pod.ready {
			for n := range set.pods {
				if p := &set.pods[n]; p != pod && !p.ready {
					t.Fatalf("P1: %s is ready and replaced while %s-%d is not ready", a.Target, set.name, n)
				}
			}
			serving := 0
			for _, p := range m.sets[0].pods {
				if p.started {
					serving++
				}
			}
			if set == m.sets[0] && len(set.pods) > 1 && serving-1 <= len(set.pods)/2 {
				t.Fatalf("P2: without %s there is no quorum", a.Target)
			}
			if set == m.sets[1] && m.secret {
				t.Fatalf("P10: %s is replaced, and its next pod would not start", a.Target)
			}
			if set == m.sets[1] {
				for n, p := range m.sets[0].pods {
					if p.template != m.template {
						t.Fatalf("P4: %s is rolled before coordinator %d", a.Target, n)
					}
				}
			}
			pod.byUs = true
		}
		byUs := 0
		for _, p := range set.pods {
			if p.byUs {
				byUs++
			}
		}
		if byUs > 1 {
			t.Fatalf("P1: %d pods of %s are down because of us", byUs, set.name)
		}
		*pod = modelPod{byUs: pod.byUs}
	case GrantAccess:
		if m.granted {
			t.Fatalf("users are made for nothing")
		}
		m.granted = true
	case EnableAccess:
		if !m.granted || m.enabled {
			t.Fatalf("P11: etcd asks for users (it did: %v), and has them: %v", m.enabled, m.granted)
		}
		for _, set := range m.sets {
			for n, p := range set.pods {
				if !p.ready || p.template != m.template {
					t.Fatalf("P11: etcd asks for users, and %s-%d is %+v", set.name, n, p)
				}
			}
		}
		m.enabled = true
	case Stall, GrowVolume, RecreateSet:
		t.Fatalf("nothing in this world asks for %+v", a)
	}
	// P3: no gate delays the replacement of a pod that never started.
	for _, set := range []Set{f.Coordinators, f.Brokers} {
		for _, p := range set.Pods {
			if p.Outdated && !p.Started && a.Kind == Wait {
				t.Fatalf("P3: %s never came up, and the plan is to wait: %s", p.Name, a.Message)
			}
		}
	}
}

// live advances one pod: it is created, starts, becomes ready.
func (m *model) live(p *modelPod) {
	switch {
	case !p.there:
		p.there, p.template = true, m.template
	case m.spoilt[p.template]:
	case !p.started:
		p.started = true
	default:
		p.ready, p.byUs = true, false
	}
}

// TestPlanKeepsItsPromises: the invariants hold in any order of changes, crashes and recoveries.
// Without further changes the actions end with None.
func TestPlanKeepsItsPromises(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{spoilt: map[int]bool{}, sets: [2]*modelSet{
			{name: "main-coordinator", pods: make([]modelPod, rapid.SampledFrom([]int{1, 3, 5}).Draw(t, "coordinators"))},
			{name: "main", pods: make([]modelPod, rapid.IntRange(1, 5).Draw(t, "brokers"))},
		}}
		anyPod := func(t *rapid.T) *modelPod {
			set := m.sets[rapid.IntRange(0, 1).Draw(t, "set")]
			return &set.pods[rapid.IntRange(0, len(set.pods)-1).Draw(t, "pod")]
		}
		pass := func(t *rapid.T) Action {
			f := m.facts()
			a := Next(f)
			m.do(t, f, a)
			return a
		}
		steps := map[string]func(*rapid.T){
			"plan": func(t *rapid.T) { pass(t) },
			"live": func(t *rapid.T) { m.live(anyPod(t)) },
			"livelier": func(t *rapid.T) {
				for range 6 {
					m.live(anyPod(t))
				}
			},
			"crash": func(t *rapid.T) {
				if p := anyPod(t); p.there {
					p.started, p.ready = false, false
				}
			},
			"falter": func(t *rapid.T) { anyPod(t).ready = false },
			"evict":  func(t *rapid.T) { *anyPod(t) = modelPod{} },
			"change": func(t *rapid.T) { m.template++ },
			"secret": func(t *rapid.T) { m.secret = !m.secret },
			"restore": func(t *rapid.T) { // etcd from a backup
				m.enabled = rapid.Bool().Draw(t, "enabled")
				m.granted = m.enabled || rapid.Bool().Draw(t, "granted")
			},
			"forget": func(t *rapid.T) { m.granted = false },
			"spoil": func(t *rapid.T) {
				m.template++
				m.spoilt[m.template] = true
			},
		}
		names := []string{"plan", "plan", "plan", "live", "livelier", "livelier", "crash", "falter", "evict", "change", "spoil", "secret", "restore", "forget"}
		for range rapid.IntRange(0, 80).Draw(t, "steps") {
			steps[rapid.SampledFrom(names).Draw(t, "step")](t)
		}

		// From here on the template is good, and pods become ready.
		m.template++
		m.secret = false
		for _, set := range m.sets {
			for n := range set.pods {
				set.pods[n].byUs = false
			}
		}
		for range 200 {
			if a := pass(t); a.Kind == None {
				for _, set := range m.sets {
					for n, p := range set.pods {
						if !p.ready || p.template != m.template {
							t.Fatalf("P5: None, and %s-%d is %+v", set.name, n, p)
						}
					}
				}
				if !m.granted || !m.enabled {
					t.Fatalf("P5: None, and etcd asks for users: %v, has them: %v", m.enabled, m.granted)
				}
				if again := Next(m.facts()); again.Kind != None {
					t.Fatalf("P5: None, and then %+v", again)
				}
				return
			}
			for _, set := range m.sets {
				for n := range set.pods {
					m.live(&set.pods[n])
				}
			}
		}
		t.Fatalf("P5: it does not end; the last plan is %+v", Next(m.facts()))
	})
}
