package simulation

import (
	"strings"
	"testing"
)

// Each invariant is there for a reason: without it some world of a few breaks a promise, and the judge says which. The faults
// are those that the invariant is against, so that few worlds are enough; inside says that clients alone would notice too
// seldom.
func TestEveryInvariantIsMissed(t *testing.T) {
	const enough = 400
	for _, c := range []struct {
		name string
		Mutation
		faults string
		inside bool
	}{
		{"R1: a follower goes on under an older epoch", Mutation{FollowOn: true}, "late watches, cut from etcd one way, cut off from etcd, drain leadership, pause", false},
		{"R1: a leader leads on in its next life", Mutation{LeadAgain: true}, "cut power, kill one, slow disk", false},
		{"R1: a replica is taken away under the same epoch", Mutation{KeepEpoch: true}, "drain, late watches", true},
		{"R2: an ack needs nobody but the leader", Mutation{Counts: countLeader}, "kill one, cut in two", false},
		{"R2: an ack needs some of the set", Mutation{Counts: countMajority}, "kill one, slow disk, slow way", false},
		{"R2: what is appended counts as synced", Mutation{AckEarly: true}, "cut power, cut power of all, slow disk", false},
		{"R3: who joins doesn't count before the answer is there", Mutation{Counts: countOld}, "kill one, pause, etcd mumbles, slow way, slow disk", true},
		{"R3: who leaves doesn't count from the question on", Mutation{Counts: countNew}, "cut off from etcd, late watches, pause", false},
		{"R3: a lost answer means that nothing was done", Mutation{Counts: countForgetful}, "kill one, cut from etcd one way, slow way, slow disk", true},
		{"R3: a set of one is enough", Mutation{Minimum: 1}, "cut in two, pause", true},
		{"R1: what is written needn't be made from what there is", Mutation{WriteBlindly: true}, "late watches, kill one, drain leadership", true},
		{"R4: anyone can be elected", Mutation{ElectAnyone: true}, "kill", false},
		{"R4: who lost what wasn't synced is trusted", Mutation{TrustReturned: true}, "cut power, kill one", false},
		{"R5: followers truncate to the watermark", Mutation{TruncateToHigh: true}, "kill one, drain leadership, pause", false},
		{"R5: followers don't truncate", Mutation{Meet: meetNever}, "kill, cut in two, cut power", false},
		{"R5: the leader names one epoch, shared or not", Mutation{Meet: meetOnce}, "kill, cut in two, cut power", true},
		{"R6: what isn't safe is read", Mutation{ReadEarly: true}, "cut in two, pause", false},
		{"R6: a new leader lets read at once", Mutation{ReadAtOnce: true}, "kill one, pause", false},
		{"R9: who lost what was safe doesn't say so", Mutation{HideDamage: true}, "damage, kill one", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= enough; seed++ {
				if r := Run(seed, Options{Mutation: c.Mutation, Faults: strings.Split(c.faults, ", "), Harsh: true, Outside: !c.inside}); r.Violation != nil {
					t.Logf("world %d: %v", seed, r.Violation)
					return
				}
			}
			t.Errorf("nobody noticed in %d worlds", enough)
		})
	}
	// The same watermark by the right rule breaks nothing, so it is the rules that are found and not the counting.
	t.Run("the right rule", func(t *testing.T) {
		t.Parallel()
		for seed := uint64(1); seed <= 20; seed++ {
			if r := Run(seed, Options{Mutation: Mutation{Counts: countBoth}, Harsh: true}); r.Violation != nil {
				t.Errorf("seed %d: %v", seed, r.Violation)
			}
		}
	})
}
