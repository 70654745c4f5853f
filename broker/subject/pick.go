package subject

import (
	"math/rand/v2"
	"slices"
)

// Pick chooses the member of a group that gets the next message. It prefers a local member, since
// delivery on the same broker costs least; otherwise it chooses a peer, weighted by its number of
// members. take may refuse a local member that has reached its maximum; then Pick tries the next
// one.
func (g *MatchedGroup[S, P]) Pick(take func(S) bool) (local S, peer P, found Choice) {
	if g.more != nil {
		return g.pickAcross(take)
	}
	return pick(g.first.local, g.first.remote, g.first.weight, take)
}

// Choice is the kind of receiver that Pick found.
type Choice int

const (
	Nobody Choice = iota
	Local
	Remote
)

func pick[S Subscriber, P comparable](local []S, remote []share[P], weight int, take func(S) bool) (s S, p P, found Choice) {
	if n := len(local); n > 0 {
		start := 0
		if n > 1 {
			start = rand.IntN(n)
		}
		for i := range n {
			if m := local[(start+i)%n]; take(m) {
				return m, p, Local
			}
		}
	}
	if weight > 0 {
		at := rand.IntN(weight)
		for _, share := range remote {
			if at -= share.weight; at < 0 {
				return s, share.peer, Remote
			}
		}
	}
	return s, p, Nobody
}

// pickAcross picks from a group whose members used several patterns that match the subject.
func (g *MatchedGroup[S, P]) pickAcross(take func(S) bool) (S, P, Choice) {
	local := slices.Clone(g.first.local)
	remote := slices.Clone(g.first.remote)
	weight := g.first.weight
	for _, other := range g.more {
		local = append(local, other.local...)
		remote = append(remote, other.remote...)
		weight += other.weight
	}
	return pick(local, remote, weight, take)
}
