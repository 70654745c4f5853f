package plan

import "time"

// Facts are what there is, for one Broker, at one moment.
type Facts struct {
	Coordinators Set
	Brokers      Set
	Etcd         Etcd

	Shards Shards

	// WantBrokers is spec.replicas.
	WantBrokers int32
	// Taken names an object that carries a name of ours and is not ours.
	Taken string
	// AuthTrouble says why the auth Secret can't be used; empty: it can, or none is asked for.
	AuthTrouble string
	// Bootstrapped says that coordinators know that their cluster has existed.
	Bootstrapped bool
	// Leftovers says that objects of a deleted Broker of the same name are still going away.
	Leftovers string
}

// Set is a StatefulSet with its pods and volumes.
type Set struct {
	Name     string
	Exists   bool
	Replicas int32
	// Settled says that the StatefulSet controller has seen the latest spec, so that Outdated can
	// be trusted.
	Settled bool
	Age     time.Duration
	Pods    []Pod // those that exist, by ordinal
	Volumes []Volume
	// SmallTemplate says that new volumes would be smaller than what is asked for.
	SmallTemplate bool
}

// Pod is one member of a Set.
type Pod struct {
	Name     string
	Ready    bool
	ReadyFor time.Duration // for how long it has been ready
	Started  bool          // its startup probe has succeeded since its container runs
	Leaving  bool          // it is being deleted
	Surplus  bool          // its set has fewer pods now, and it is on its way out
	// Serving says, of a coordinator, that it answers and votes.
	Serving bool
	// Outdated says that it was made from another template than the next one will be; Why says in
	// words what differs.
	Outdated bool
	Why      string
	// Held says that a replacement for that waits until the user asks for it.
	Held bool
	// Trouble says why it is not ready, if that is known.
	Trouble string
}

// Volume is a volume claim of a Set.
type Volume struct {
	Name string
	// Small says that it asks for less than it should.
	Small bool
	// Resizing says that it has asked, and does not have it yet.
	Resizing bool
}

// Etcd is what the coordinators say.
type Etcd struct {
	Asked      bool
	Quorum     bool
	AllStarted bool // every member that there should be has joined
	Owner      Ownership
	OtherOwner string
	NoSpace    []string
	Corrupt    []string
	Trouble    string // why no quorum answered
}

// Ownership says to whom the keys in etcd belong.
type Ownership int

const (
	// OwnerUnknown: etcd did not say.
	OwnerUnknown Ownership = iota
	// OwnerNobody: they are to be claimed.
	OwnerNobody
	// OwnerOurs: they are this Broker's.
	OwnerOurs
	// OwnerOther: they are another Broker's.
	OwnerOther
)

// WithoutGrowth are the same facts for whom volumes are as large as they will be.
func (f Facts) WithoutGrowth() Facts {
	for _, set := range []*Set{&f.Coordinators, &f.Brokers} {
		set.SmallTemplate = false
		set.Volumes = nil
	}
	return f
}

// missing is the number of pods that there should be and are not.
func (s Set) missing() int32 {
	n := s.Replicas
	for _, p := range s.Pods {
		if !p.Surplus {
			n--
		}
	}
	return max(0, n)
}

// ReadyPods is the number of pods that are ready.
func (s Set) ReadyPods() (n int32) {
	for _, p := range s.Pods {
		if p.Ready && !p.Leaving && !p.Surplus {
			n++
		}
	}
	return n
}

// Pending is the number of pods whose replacement waits until the user asks for it.
func (s Set) Pending() (n int32, why string) {
	for _, p := range s.Pods {
		if s.Settled && p.Outdated && p.Held && !p.Surplus {
			n++
			why = p.Why
		}
	}
	return n, why
}

// whole says that every pod is there, ready and staying, except one.
func (s Set) whole(except string) bool {
	for _, p := range s.Pods {
		if p.Name != except && !p.Surplus && (!p.Ready || p.Leaving) {
			return false
		}
	}
	return s.missing() == 0
}

// underWay says that a pod is on its way up or down, which may cure what looks bad now.
func (s Set) underWay() bool {
	for _, p := range s.Pods {
		if !p.Surplus && (p.Leaving || !p.Started) {
			return true
		}
	}
	return s.missing() > 0
}

// quorumWithout says that the coordinators other than one are a quorum.
func (s Set) quorumWithout(name string) bool {
	serving := int32(0)
	for _, p := range s.Pods {
		if p.Serving && !p.Leaving && p.Name != name {
			serving++
		}
	}
	return serving >= s.Replicas/2+1
}
