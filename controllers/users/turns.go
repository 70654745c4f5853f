package users

import (
	"slices"

	"github.com/carillon-mq/carillon/broker/identity"
)

const (
	// turnsPerPass bounds the hashes and comparisons of one pass, to less than a second: whoever
	// loses a password during a pass loses it by the next one. A pass over another Broker comes in
	// between.
	turnsPerPass = 8
	// share is how many turns of a pass new users have while they wait, and users of whose verifiers
	// this process knows nothing have as many: a quarter each. So neither waits without end for
	// Secrets that change again and again.
	share turns = turnsPerPass / 4
)

// turns is how many more hashes a pass computes; each takes a tenth of a second of a core.
type turns int

func (t *turns) take() bool {
	if *t <= 0 {
		return false
	}
	*t--
	return true
}

// spend lets do take turns, but leaves those that are reserved.
func (t *turns) spend(reserved turns, do func(left *turns)) {
	part := max(*t-reserved, 0)
	*t -= part
	do(&part)
	*t += part
}

// stage is how far a pass goes.
type stage int

const (
	withdrawing stage = iota // computes nothing; removes verifiers whose passwords are known to be gone
	comparing                // compares verifiers of changed Secrets, to know that
	hashing                  // makes new verifiers
)

// group says why the passwords of a user wait for turns.
type group int

const (
	changed group = iota // the Secret is another one than the verifiers in etcd are of
	fresh                // there are no verifiers
	unknown              // of what the verifiers are is not known
	groups
)

// hash sets the verifiers of passwords, by turns as far as the stage goes. Those in etcd that were
// made from the Secret as it is are right. waiting are the users of whose passwords not all have
// verifiers. They keep those in etcd that may be of a password of theirs.
func hash(candidates []*candidate, before map[string]*identity.User, h *hashes, left *turns, until stage) (waiting map[*candidate]bool) {
	var queue [groups][]*verifiers
	found := map[string][]string{}
	for _, c := range candidates {
		var was []string
		if u := before[c.user.Name]; u != nil {
			was = u.Passwords
		}
		if h.hold(c, was) {
			c.user.Passwords, found[c.user.Name] = was, was
			continue
		}
		v, its := h.look(c, was), unknown
		if all, whole := v.list(); whole {
			c.user.Passwords, found[c.user.Name] = all, v.of
			continue
		}
		if _, noted := h.from[c.user.Name]; len(was) == 0 && !noted {
			its = fresh
		} else if h.changed(c) {
			its = changed
		}
		queue[its] = append(queue[its], v)
	}
	h.line.order(&queue)
	serve(&queue, h, left, until)

	waiting = map[*candidate]bool{}
	for _, its := range queue {
		for _, v := range its {
			all, whole := v.list()
			v.c.user.Passwords, found[v.c.user.Name] = all, v.of
			if !whole {
				waiting[v.c] = true
			}
		}
	}
	h.found = found
	used := map[string]bool{}
	for _, all := range found {
		for _, hash := range all {
			used[hash] = true
		}
	}
	for _, c := range candidates {
		for _, hash := range c.user.Passwords {
			used[hash] = true
		}
	}
	for _, u := range before { // a set that is not written yet may come back
		for _, hash := range u.Passwords {
			used[hash] = true
		}
	}
	h.keep(used)
	h.note(candidates, waiting)
	return waiting
}

// line is since when Secrets wait. One that changes again goes to its end, so that those which do
// so in each pass keep no other one of their group waiting.
type line struct {
	now   int              // counts the times that it was ordered
	since map[string]place // by user
}

type place struct {
	version string // of the Secret
	since   int
}

// order sorts each group by the time that its Secrets have waited, and then by their ages.
func (l *line) order(queue *[groups][]*verifiers) {
	l.now++
	since := map[string]place{}
	for _, its := range queue {
		for _, v := range its {
			is, waits := l.since[v.c.user.Name]
			if !waits || is.version != v.c.version {
				is = place{v.c.version, l.now}
			}
			since[v.c.user.Name] = is
		}
		slices.SortStableFunc(its, func(a, b *verifiers) int {
			return since[a.c.user.Name].since - since[b.c.user.Name].since
		})
	}
	l.since = since
}

// serve computes what the stage permits. Whether a former password is gone is found out first for
// all changed Secrets. Then their new passwords have turns, since their users can't connect, then
// new users, and at last the users of whose verifiers nothing is known.
func serve(queue *[groups][]*verifiers, h *hashes, left *turns, until stage) {
	reserved := func(of ...group) (sum turns) {
		for _, g := range of {
			sum += min(share, turns(len(queue[g])))
		}
		return sum
	}
	each := func(g group, do func(*verifiers, *turns)) func(*turns) {
		return func(left *turns) {
			for _, v := range queue[g] {
				do(v, left)
			}
		}
	}
	if until >= comparing {
		left.spend(reserved(fresh, unknown), each(changed, h.compare))
	}
	if until >= hashing {
		left.spend(reserved(fresh, unknown), each(changed, h.complete))
		left.spend(reserved(unknown), each(fresh, h.complete))
		left.spend(0, each(unknown, h.complete))
	}
}
