package plan

import "time"

// rootsSpread is how long the certificates of new CAs are in use before the former CA goes. A
// kubelet brings changed files into pods within two minutes. Pods whose kubelet is cut off from the
// API server are not ready, but the kubelet restores the former time of readiness when it is back:
// then the former CA may go up to two minutes before that kubelet has brought the new certificates.
const rootsSpread = 10 * time.Minute

// separate changes from one CA to a CA for each kind of connections. All pods run the present
// template when a step is taken, since they trust the new CAs for sure only if they were started
// with them.
func separate(f Facts) (Action, bool) {
	if !f.Etcd.Quorum || !f.Coordinators.current() || !f.Brokers.current() {
		return Action{}, false
	}
	switch {
	case f.Roots.Announced:
		return Action{Kind: ChangeRoots, Reason: SeparatingRoots, Message: "all pods trust the CAs of links, of etcd's clients and of its members: from now on each of them signs its certificates"}, true
	case f.Roots.Signing && min(f.Roots.SignedFor, f.Coordinators.readyFor(), f.Brokers.readyFor()) >= rootsSpread:
		return Action{Kind: ChangeRoots, Reason: SeparatingRoots, Message: "all pods have certificates of the CAs of links, of etcd's clients and of its members: the former CA of all of them is not trusted any more"}, true
	}
	return Action{}, false
}

// current reports whether every wanted pod runs the present template and is ready.
func (s Set) current() bool {
	for _, p := range s.Pods {
		if p.Outdated || p.Surplus {
			return false
		}
	}
	return s.Exists && s.Settled && s.whole("")
}

// readyFor returns for how long all pods have been ready.
func (s Set) readyFor() time.Duration {
	least := time.Duration(1<<63 - 1)
	for _, p := range s.Pods {
		least = min(least, p.ReadyFor)
	}
	return least
}
