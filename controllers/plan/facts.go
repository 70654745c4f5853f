package plan

import "time"

// Facts are the observed facts about one Broker, at one moment.
type Facts struct {
	Coordinators Set
	Brokers      Set
	Etcd         Etcd

	Shards Shards

	// WantBrokers is spec.replicas.
	WantBrokers int32
	// Taken names an object of another owner that has one of our names.
	Taken string
	// AuthTrouble is why the auth Secret can't be used; empty: it can, or spec.auth is absent.
	AuthTrouble string
	// TLSTrouble is why brokers could not start with what spec.tls names; empty: they can.
	TLSTrouble         Trouble
	ClientCertificates ClientCertificates
	Users              Users
	// UsersTrouble is why the users are not in etcd yet; empty: they are, or spec.auth.users is
	// absent.
	UsersTrouble string
	Roots        Roots
	Access       Access
	// Bootstrapped reports that the coordinators have the marker that their cluster has existed.
	Bootstrapped bool
	// Leftovers names objects of a deleted Broker of the same name that are not gone yet.
	Leftovers string
}

// Trouble is what the operator waits for, with the reason of the condition Ready. It is empty if
// the message is.
type Trouble struct {
	Reason  Reason
	Message string
}

// Roots is the change from one CA for links, etcd's clients and its members to a CA for each; the
// zero value: there is no change.
type Roots struct {
	Announced bool          // pods are to trust the new CAs, which sign nothing yet
	Signing   bool          // the new CAs sign, and the one of before is still trusted
	SignedFor time.Duration // since then, by the youngest certificate
}

// Users are those of a Broker with spec.auth.users; the zero value: not known.
type Users struct {
	Written bool   // by this process, or found to be in etcd
	Count   int    // of those
	Invalid string // what is wrong with Secrets; empty: nothing
}

// Set is a StatefulSet with its pods and volumes.
type Set struct {
	Name     string
	Exists   bool
	Replicas int32
	// Settled reports that the StatefulSet controller has seen the latest spec, so that Outdated is
	// right.
	Settled bool
	// Stale reports that the status of the StatefulSet is of a former one of that name, so that
	// Settled stays false. Its controller may never correct it.
	Stale   bool
	Age     time.Duration
	Pods    []Pod // existing ones, by ordinal
	Volumes []Volume
	// SmallTemplate reports that new volumes would be smaller than wanted.
	SmallTemplate bool
}

// Pod is one member of a Set.
type Pod struct {
	Name     string
	Ready    bool
	ReadyFor time.Duration // for how long it has been ready
	Started  bool          // the startup probe of its present container has succeeded
	Leaving  bool          // it is being deleted
	Surplus  bool          // its set has been scaled down below it
	// Serving reports that a coordinator answers and votes.
	Serving bool
	// Outdated reports that the pod differs from the present template; Why describes how.
	Outdated bool
	Why      string
	// Held reports that the replacement of an outdated pod waits for a request of the user.
	Held bool
	// Trouble is why the pod is not ready, if known.
	Trouble string
}

// Volume is a volume claim of a Set.
type Volume struct {
	Name string
	// Small reports that the claim is smaller than wanted.
	Small bool
	// Resizing reports that the claim was raised and the volume has not grown yet.
	Resizing bool
}

// Etcd is the state of the coordinators, by their answers.
type Etcd struct {
	Asked      bool
	Answered   bool // a quorum did, whether or not it let the operator read the keys
	Quorum     bool
	AllStarted bool // every wanted member has joined
	Owner      Ownership
	OtherOwner string
	NoSpace    []string
	Corrupt    []string
	Trouble    string // why no quorum answered
}

// Ownership is the owner of the keys in etcd.
type Ownership int

const (
	// OwnerUnknown: etcd did not answer.
	OwnerUnknown Ownership = iota
	// OwnerNobody: the keys can be claimed.
	OwnerNobody
	// OwnerOurs: the keys belong to this Broker.
	OwnerOurs
	// OwnerOther: the keys belong to another Broker.
	OwnerOther
)

// WithoutGrowth returns the facts without the wish for larger volumes.
func (f Facts) WithoutGrowth() Facts {
	for _, set := range []*Set{&f.Coordinators, &f.Brokers} {
		set.SmallTemplate = false
		set.Volumes = nil
	}
	return f
}

// WithoutRenewal returns the facts as if no status could be renewed: no pod of such a set is
// judged.
func (f Facts) WithoutRenewal() Facts {
	f.Coordinators.Stale, f.Brokers.Stale = false, false
	return f
}

// missing returns the number of wanted pods that don't exist.
func (s Set) missing() int32 {
	n := s.Replicas
	for _, p := range s.Pods {
		if !p.Surplus {
			n--
		}
	}
	return max(0, n)
}

// ReadyPods returns the number of ready pods.
func (s Set) ReadyPods() (n int32) {
	for _, p := range s.Pods {
		if p.Ready && !p.Leaving && !p.Surplus {
			n++
		}
	}
	return n
}

// Pending returns the number of pods whose replacement waits for a request of the user.
func (s Set) Pending() (n int32, why string) {
	for _, p := range s.Pods {
		if s.Settled && p.Outdated && p.Held && !p.Surplus {
			n++
			why = p.Why
		}
	}
	return n, why
}

// whole reports whether every wanted pod, except one, exists, is ready and is not being deleted.
func (s Set) whole(except string) bool {
	for _, p := range s.Pods {
		if p.Name != except && !p.Surplus && (!p.Ready || p.Leaving) {
			return false
		}
	}
	return s.missing() == 0
}

// underWay reports whether a pod is starting or stopping, which may end the present trouble.
func (s Set) underWay() bool {
	for _, p := range s.Pods {
		if !p.Surplus && (p.Leaving || !p.Started) {
			return true
		}
	}
	return s.missing() > 0
}

// quorumWithout reports whether the coordinators other than one are a quorum.
func (s Set) quorumWithout(name string) bool {
	serving := int32(0)
	for _, p := range s.Pods {
		if p.Serving && !p.Leaving && p.Name != name {
			serving++
		}
	}
	return serving >= s.Replicas/2+1
}
