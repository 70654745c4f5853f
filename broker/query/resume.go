package query

import "errors"

// ErrTooOld is returned when changes since a revision are not known any more, or may cost too much
// to judge. The client needs all members instead.
var ErrTooOld = errors.New("the revision is too old to resume from (open the query anew, without it)")

// Resume opens a query like Add, for a client that had it open at this or another broker, and
// appends what turns the members that the client knew into the present ones. since is the Revision
// that it was told last. It may know some changes after that revision, too, so it may get a New of
// a member that it knows, or a Del of one that it doesn't.
//
// The rights of the user must not have changed meanwhile. If they have, the caller uses Add.
func (s *Set) Resume(id ID, owner Owner, q *Query, may func(subject string) bool, since uint64, to []Delta) ([]Delta, error) {
	if since < s.history.floor {
		return to, ErrTooOld
	}
	from := s.history.since(since)
	if s.history.cost(from, q) > s.limits.ResumeCosts {
		return to, ErrTooOld
	}
	if err := s.Add(id, owner, q, may); err != nil {
		return to, err
	}
	type verdicts struct{ yes, no bool }
	seen := map[string]verdicts{} // of subjects that changed: what they were at some time since
	var order []string
	for i := from; i < s.history.len; i++ {
		c := s.history.at(i)
		if c.revision <= since {
			continue
		}
		was, there := seen[c.subject]
		if !there {
			order = append(order, c.subject)
		}
		if c.before == nil {
			was.no = true
		} else if !was.yes || !was.no {
			s.look(c.subject, c.was())
			member := q.matches(&s.record)
			was.yes, was.no = was.yes || member, was.no || !member
		}
		seen[c.subject] = was
	}
	o := s.opens[id]
	for _, name := range order {
		n, there := s.known[name]
		switch {
		case there && o.group.members.has(n) && !o.denied.has(n):
			if seen[name].no {
				to = append(to, Delta{id, name, New})
			}
		case seen[name].yes && (may == nil || may(name)): // the client knew of no other
			to = append(to, Delta{id, name, Del})
		}
	}
	s.view = view{}
	return to, nil
}
