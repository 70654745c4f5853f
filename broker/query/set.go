package query

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/filter"
)

// ID names an open query. The caller chooses it.
type ID uint64

// Owner is who opened queries, as far as bounds are divided: a connection, or a user.
type Owner uint64

// Kind is what a Delta says.
type Kind uint8

// Kinds.
const (
	New   Kind = iota + 1 // the subject is a member now
	Del                   // it is none any more
	Ended                 // the query was removed, because members took too much memory
)

// Delta is a change of a query's members.
type Delta struct {
	Query   ID
	Subject string // empty if it ended
	Kind    Kind
}

// Set has the open queries of a broker, the attributes that they are about, and which subjects are
// members of which queries. Its results are a function of the calls so far. It is for one goroutine
// at a time.
type Set struct {
	limits Limits
	opens  map[ID]*open
	owners map[Owner]*owned
	groups map[string]*group // by Query.key
	costs  uint64            // of all groups
	index  index
	memory int // bytes, about, without the history

	numbered []*group // by number; nil: it is free
	free     []uint32 // free numbers of groups

	known       map[string]uint32 // numbers of subjects
	subjects    []subject         // by number
	freeSubject []uint32          // free numbers of subjects

	history  history
	complete uint64 // all changes up to this revision were applied

	judged     *Judged  // ahead, for the query that is opened next
	changes    uint64   // of subjects
	round      uint64   // of Apply
	candidates []*group // of Apply; kept for its memory
	changed    []string // of Apply; kept for its memory
	view       view     // of what is judged
	record     filter.Record
	stats      Stats
}

// subject is a subject with attributes.
type subject struct {
	name       string
	attributes attribute.Set // nil: the number is free
	change     uint64        // the number of its last one
	groups     idSet         // whose members it is
}

// group is all open queries with the same condition: it is judged once.
type group struct {
	query   *Query
	number  uint32
	opens   []*open
	members idSet // whatever the rights
	round   uint64
}

// open is an open query.
type open struct {
	id     ID
	owner  Owner
	group  *group
	may    func(subject string) bool // nil: all
	denied idSet                     // of the group's members, those that its user may not see
	bytes  int                       // what the owner was charged
}

// owned is what one owner has.
type owned struct {
	queries int
	costs   uint64
	bytes   int
}

// Stats are counters of a Set.
type Stats struct {
	Queries, Distinct, Subjects int
	Members                     int    // of all queries together
	Memory                      int    // bytes, about, with the history
	Costs                       uint64 // of distinct queries
	Judged, Turned              uint64 // verdicts about changes, and those that were another than before
}

// NewSet returns a Set without queries and without subjects.
func NewSet(limits Limits) *Set {
	s := &Set{
		limits: limits, opens: map[ID]*open{}, owners: map[Owner]*owned{}, groups: map[string]*group{}, index: newIndex(),
		known: map[string]uint32{},
	}
	s.history = newHistory(&s.limits)
	s.record.Attributes = &s.view
	return s
}

// Stats returns the counters.
func (s *Set) Stats() Stats {
	c := s.stats
	c.Queries, c.Distinct, c.Subjects = len(s.opens), len(s.groups), len(s.known)
	c.Memory, c.Costs = s.memory+s.history.bytes, s.costs
	for _, o := range s.opens {
		c.Members += o.size()
	}
	return c
}

// Revision returns the revision up to which all changes were applied. With it a client resumes.
func (s *Set) Revision() uint64 { return s.complete }

// Passed notes that all changes up to a revision were applied.
func (s *Set) Passed(revision uint64) { s.complete = max(s.complete, revision) }

// Loaded notes that the subjects are those of a revision, and that changes before it may be
// missing: at the start, and after a gap in the watch. Queries can't resume from before it.
func (s *Set) Loaded(revision uint64) {
	s.complete = revision
	s.history.clear(revision)
}

// Forget notes that what was told up to a revision may not have happened: queries can't resume from
// before it or from it.
func (s *Set) Forget(revision uint64) { s.history.floor = max(s.history.floor, revision+1) }

// Add opens a query; Members has its members then. may says whether its user may subscribe to a
// subject, and nil allows all. Refresh follows when the rights have changed. The error says which
// bound the query is beyond; it is a *ShareError if another owner could open the query.
func (s *Set) Add(id ID, owner Owner, q *Query, may func(subject string) bool) error {
	if s.opens[id] != nil {
		return fmt.Errorf("query %d is open already (close it first)", id)
	}
	if len(s.opens) >= s.limits.Queries {
		return fmt.Errorf("this broker has %d open queries, and may have no more (connect to another broker, or close queries)", len(s.opens))
	}
	o := s.owners[owner]
	if o == nil {
		o = &owned{}
	}
	if o.queries >= s.limits.Owned {
		return fmt.Errorf("%d queries are open here, and there may be no more (close some, or join several by ||)", o.queries)
	}
	if o.costs+q.cost > s.limits.OwnedCosts {
		return fmt.Errorf("the open queries here may cost %d units at a change, and this one %d more; the bound is %d (close some, or use fewer patterns and passes over lists)", o.costs, q.cost, s.limits.OwnedCosts)
	}
	others := o.queries > 0 // an owner's first query needs room alone
	if others {
		if err := (Share{"open queries", uint64(s.limits.Owned), uint64(s.limits.Queries)}).Check(uint64(len(s.opens)), uint64(o.queries)+1); err != nil {
			return err
		}
	}
	g := s.groups[q.key]
	if g == nil {
		if others {
			if err := (Share{"units of cost at a change", s.limits.OwnedCosts, s.limits.Costs}).Check(s.costs, o.costs+q.cost); err != nil {
				return err
			}
		}
		if s.costs+q.cost > s.limits.Costs {
			return fmt.Errorf("the open queries of this broker may cost %d units at a change, and this one %d more; the bound is %d (connect to another broker, or close queries)", s.costs, q.cost, s.limits.Costs)
		}
		g = s.newGroup(q)
	}
	opened := &open{id: id, owner: owner, group: g, may: may}
	for n := range g.members.all() {
		if may != nil && !may(s.subjects[n].name) {
			opened.denied.add(n)
		}
	}
	opened.bytes = q.bytes() + openBytes + 2*g.members.bytes() + opened.denied.bytes()
	g.opens = append(g.opens, opened)
	s.opens[id], s.owners[owner] = opened, o
	o.queries, o.costs, o.bytes = o.queries+1, o.costs+q.cost, o.bytes+opened.bytes
	s.memory += openBytes + opened.denied.bytes()
	if owns := o.bytes; owns > s.limits.OwnedMemory || s.memory > s.limits.Memory {
		all := s.memory
		s.Remove(id)
		return fmt.Errorf("with this query those open here take %d KiB of memory, and all queries of this broker %d; the bounds are %d and %d (close some, or use conditions that match fewer subjects)",
			owns>>10, all>>10, s.limits.OwnedMemory>>10, s.limits.Memory>>10)
	}
	if others {
		const kib = 1 << 10
		share := Share{"KiB of memory", uint64(s.limits.OwnedMemory / kib), uint64(s.limits.Memory / kib)}
		if err := share.Check(uint64(s.memory/kib), uint64(o.bytes/kib)); err != nil {
			s.Remove(id)
			return err
		}
	}
	return nil
}

// newGroup returns the group of a query that nobody has opened, with its members.
func (s *Set) newGroup(q *Query) *group {
	g := &group{query: q, number: uint32(len(s.numbered))}
	if last := len(s.free) - 1; last >= 0 {
		g.number, s.free = s.free[last], s.free[:last]
	} else {
		s.numbered = append(s.numbered, nil)
	}
	s.numbered[g.number], s.groups[q.key] = g, g
	s.costs += q.cost
	s.memory += q.bytes()
	s.index.add(g)
	for n := range s.subjects {
		if at := &s.subjects[n]; at.attributes != nil {
			if s.matches(q, n) {
				s.join(g, uint32(n))
			}
		}
	}
	return g
}

// look prepares the record of a subject that is judged next.
func (s *Set) look(name string, attributes attribute.Set) {
	s.record.Subject = append(s.record.Subject[:0], name...)
	s.view = view{set: attributes}
}

// join makes a subject a member of a group.
func (s *Set) join(g *group, n uint32) {
	groups := &s.subjects[n].groups
	s.memory -= g.members.bytes() + groups.bytes()
	g.members.add(n)
	groups.add(g.number)
	s.memory += g.members.bytes() + groups.bytes()
}

// Remove closes a query, if it is open.
func (s *Set) Remove(id ID) {
	o := s.opens[id]
	if o == nil {
		return
	}
	delete(s.opens, id)
	s.memory -= openBytes + o.denied.bytes()
	owner := s.owners[o.owner]
	owner.queries, owner.costs, owner.bytes = owner.queries-1, owner.costs-o.group.query.cost, owner.bytes-o.bytes
	if owner.queries == 0 {
		delete(s.owners, o.owner)
	}
	g := o.group
	at := slices.Index(g.opens, o)
	if g.opens = slices.Delete(g.opens, at, at+1); len(g.opens) > 0 {
		return
	}
	s.index.remove(g)
	s.memory -= g.query.bytes() + g.members.bytes()
	s.costs -= g.query.cost
	for n := range g.members.all() {
		groups := &s.subjects[n].groups
		s.memory -= groups.bytes()
		groups.remove(g.number)
		s.memory += groups.bytes()
	}
	delete(s.groups, g.query.key)
	s.numbered[g.number] = nil
	s.free = append(s.free, g.number)
}

// Apply takes new attributes of a subject, nil: it has none any more. It appends the changes of
// members to a list, in order of the queries. The Set of attributes must not be changed afterwards.
// The caller applies the changes of one subject in order of their revisions.
func (s *Set) Apply(name string, attributes attribute.Set, revision uint64, to []Delta) []Delta {
	n, there := s.known[name]
	var before attribute.Set
	if there {
		before = s.subjects[n].attributes
	}
	if !there && attributes == nil {
		return to
	}
	names := s.changed[:0]
	for name, v := range attributes {
		if w, had := before[name]; !had || !v.Equal(w) {
			names = append(names, name)
		}
	}
	for name := range before {
		if _, has := attributes[name]; !has {
			names = append(names, name)
		}
	}
	s.changed = names
	if there && attributes != nil && len(names) == 0 {
		return to
	}
	from := len(to)
	s.history.add(changed{revision: revision, subject: name, before: s.history.keep(before)})
	if attributes == nil {
		to = s.leave(n, to)
	} else {
		if names = append(names, anyName); !there {
			names = append(names, subjectName)
			n = s.number(name)
		}
		slices.Sort(names)
		s.changed = names
		s.changes++
		s.subjects[n].attributes, s.subjects[n].change = attributes, s.changes
		to = s.turn(n, before, to)
	}
	clear(s.changed)
	slices.SortFunc(to[from:], func(a, b Delta) int { return cmp.Compare(a.Query, b.Query) })
	return s.shed(to)
}

// number returns the number of a subject that is new.
func (s *Set) number(name string) (n uint32) {
	if last := len(s.freeSubject) - 1; last >= 0 {
		n, s.freeSubject = s.freeSubject[last], s.freeSubject[:last]
	} else {
		n = uint32(len(s.subjects))
		s.subjects = append(s.subjects, subject{})
	}
	s.subjects[n].name = name
	s.known[name] = n
	s.memory += subjectBytes + len(name)
	return n
}

// leave takes a subject out of all groups, and forgets it.
func (s *Set) leave(n uint32, to []Delta) []Delta {
	at := &s.subjects[n]
	for number := range at.groups.all() {
		g := s.numbered[number]
		s.memory -= g.members.bytes()
		g.members.remove(n)
		s.memory += g.members.bytes()
		to = s.announce(g, n, false, to)
	}
	s.memory -= subjectBytes + len(at.name) + at.groups.bytes()
	delete(s.known, at.name)
	*at = subject{}
	s.freeSubject = append(s.freeSubject, n)
	return to
}

// turn judges a subject by the groups that depend on what has changed.
func (s *Set) turn(n uint32, before attribute.Set, to []Delta) []Delta {
	at := &s.subjects[n]
	groups := s.index.rest.appendChanged(s.candidates[:0], s.changed)
	groups = s.index.appendOf(groups, at.name, at.attributes, s.changed)
	if before != nil {
		groups = s.index.appendOf(groups, at.name, before, s.changed)
	}
	s.round++
	s.look(at.name, at.attributes)
	for _, g := range groups {
		if g.round == s.round {
			continue
		}
		g.round = s.round
		s.stats.Judged++
		was, now := g.members.has(n), g.query.matches(&s.record)
		if was == now {
			continue
		}
		s.stats.Turned++
		if now {
			s.join(g, n)
		} else {
			s.memory -= g.members.bytes() + at.groups.bytes()
			g.members.remove(n)
			at.groups.remove(g.number)
			s.memory += g.members.bytes() + at.groups.bytes()
		}
		to = s.announce(g, n, now, to)
	}
	s.view = view{}
	clear(groups)
	s.candidates = groups
	return to
}

// announce appends what the queries of a group say of a subject that came or went.
func (s *Set) announce(g *group, n uint32, came bool, to []Delta) []Delta {
	name := s.subjects[n].name
	for _, o := range g.opens {
		switch {
		case came && o.may != nil && !o.may(name):
			s.deny(o, n)
		case came:
			to = append(to, Delta{o.id, name, New})
		case !s.allow(o, n):
			to = append(to, Delta{o.id, name, Del})
		}
	}
	return to
}

// deny hides a member of the group from a query.
func (s *Set) deny(o *open, n uint32) {
	s.memory -= o.denied.bytes()
	o.denied.add(n)
	s.memory += o.denied.bytes()
}

// allow ends that, and reports whether it was so.
func (s *Set) allow(o *open, n uint32) (was bool) {
	s.memory -= o.denied.bytes()
	was = o.denied.remove(n)
	s.memory += o.denied.bytes()
	return was
}

// Refresh judges the rights of a query's user again, and appends what changed by that.
func (s *Set) Refresh(id ID, to []Delta) []Delta {
	o := s.opens[id]
	if o == nil || o.may == nil {
		return to
	}
	for n := range o.group.members.all() {
		name := s.subjects[n].name
		switch may, denied := o.may(name), o.denied.has(n); {
		case may && denied:
			s.allow(o, n)
			to = append(to, Delta{id, name, New})
		case !may && !denied:
			s.deny(o, n)
			to = append(to, Delta{id, name, Del})
		}
	}
	return s.shed(to)
}

// Members returns the members of a query that its user may see, in order of their numbers. The Set
// must not be changed meanwhile.
func (s *Set) Members(id ID) iter.Seq[string] {
	return func(yield func(string) bool) {
		o := s.opens[id]
		if o == nil {
			return
		}
		for n := range o.group.members.all() {
			if (o.denied.len() == 0 || !o.denied.has(n)) && !yield(s.subjects[n].name) {
				return
			}
		}
	}
}

// Size returns how many members a query has that its user may see.
func (s *Set) Size(id ID) int {
	if o := s.opens[id]; o != nil {
		return o.size()
	}
	return 0
}

func (o *open) size() int { return o.group.members.len() - o.denied.len() }

// Queries returns the open queries that have the subject as a member, and whose users may see it.
// The Set must not be changed meanwhile.
func (s *Set) Queries(name string) iter.Seq[ID] {
	return func(yield func(ID) bool) {
		n, there := s.known[name]
		if !there {
			return
		}
		for number := range s.subjects[n].groups.all() {
			for _, o := range s.numbered[number].opens {
				if !o.denied.has(n) && !yield(o.id) {
					return
				}
			}
		}
	}
}
