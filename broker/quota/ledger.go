package quota

import (
	"fmt"
	"slices"
	"time"
)

// Ledger is what the other brokers have reported, and what this one has. The zero value is that of
// a single broker. It is not safe for concurrent use.
type Ledger struct {
	others map[string]*other
	users  map[string]*claims // users in reports of others
	heard  int                // others that are heard
	full   int                // of these, those whose report leaves out users
	needed time.Time          // until then others need to hear of this one
	named  map[string]bool    // users in this broker's report; nil: all
	room   []float64          // of Target
}

// other is another broker: a registered one, or a guest, that is not and counts while it is heard.
// It serves clients still: it leaves, or can't reach etcd.
type other struct {
	guest  bool
	until  time.Time // it is heard until then
	heard  bool
	full   bool
	users  []*claims
	serial uint64 // of its last report
}

// claims are what others demand for one user.
type claims struct {
	user string
	by   []claim
}

type claim struct {
	of     *other
	serial uint64
	Demand
}

// Brokers returns how many brokers divide the limits.
func (l *Ledger) Brokers() int { return len(l.others) + 1 }

// Heard returns how many other brokers are heard and how many are not, while they are to report. At
// rest it returns zeros.
func (l *Ledger) Heard(now time.Time) (heard, unheard int) {
	if !now.Before(l.needed) {
		return 0, 0
	}
	return l.heard, len(l.others) - l.heard
}

// SetOthers sets the other registered brokers. Those that are gone are guests while they are heard.
func (l *Ledger) SetOthers(ids []string) {
	before := l.others
	l.others = make(map[string]*other, len(ids))
	for _, id := range ids {
		o := before[id]
		if o == nil {
			o = &other{}
		}
		o.guest = false
		l.others[id] = o
		delete(before, id)
	}
	for id, o := range before {
		if o.heard {
			o.guest = true
			l.others[id] = o
		}
	}
	l.count()
}

// at returns the broker of a report. A new one is a guest; nil: there are too many.
func (l *Ledger) at(id string) *other {
	if o := l.others[id]; o != nil {
		return o
	}
	guests := 0
	for _, o := range l.others {
		if o.guest {
			guests++
		}
	}
	if guests >= MaxGuests {
		return nil
	}
	if l.others == nil {
		l.others = make(map[string]*other)
	}
	o := &other{guest: true}
	l.others[id] = o
	return o
}

// silence forgets the report of a broker, and a guest.
func (l *Ledger) silence(id string, o *other) {
	o.serial++
	l.retract(o, o.users)
	o.users, o.heard, o.full = nil, false, false
	if o.guest {
		delete(l.others, id)
	}
}

// retract removes the claims of former reports of a broker.
func (l *Ledger) retract(o *other, users []*claims) {
	for _, c := range users {
		c.by = slices.DeleteFunc(c.by, func(b claim) bool { return b.of == o && b.serial != o.serial })
		if len(c.by) == 0 {
			delete(l.users, c.user)
		}
	}
}

func (l *Ledger) count() {
	l.heard, l.full = 0, 0
	for _, o := range l.others {
		if o.heard {
			l.heard++
		}
		if o.full {
			l.full++
		}
	}
}

// Hear takes the report of another broker, in place of its former one, and returns the users whose
// targets it may lower. Reports of guests beyond MaxGuests are ignored.
func (l *Ledger) Hear(from string, report []byte, now time.Time) (lower []string, err error) {
	o := l.at(from)
	if o == nil {
		return nil, nil
	}
	before := o.users
	o.users = nil
	o.serial++
	full, err := decode(report, func(user []byte, d Demand) {
		c := l.users[string(user)]
		if c == nil {
			if l.users == nil {
				l.users = make(map[string]*claims)
			}
			c = &claims{user: string(user)}
			l.users[c.user] = c
		}
		o.users = append(o.users, c)
		i := slices.IndexFunc(c.by, func(b claim) bool { return b.of == o })
		if i < 0 {
			i = len(c.by)
			c.by = append(c.by, claim{of: o})
		}
		was := c.by[i].Demand
		c.by[i].Demand, c.by[i].serial = d, o.serial
		if !o.heard || d.Messages > was.Messages || d.Bytes > was.Bytes {
			lower = append(lower, c.user)
		}
	})
	if err != nil {
		l.retract(o, before)
		l.silence(from, o)
		l.count()
		return nil, fmt.Errorf("a report of users: %w", err)
	}
	l.retract(o, before)
	o.until, o.heard, o.full = now.Add(heardFor), true, full
	if len(o.users) > 0 {
		l.needed = o.until
	}
	l.count()
	return lower, nil
}

// Report begins an interval. own are the users of this broker with their demands, all or those with
// one. It returns what the other brokers are to be sent; nil: nothing.
func (l *Ledger) Report(own []Use, now time.Time) []byte {
	for id, o := range l.others {
		if o.heard && !now.Before(o.until) {
			l.silence(id, o)
		}
	}
	l.count()
	l.named = nil
	if len(l.others) == 0 {
		return nil
	}
	floor := Whole * l.floor()
	own = slices.DeleteFunc(own, func(u Use) bool { return float64(max(u.Messages, u.Bytes)) <= floor })
	if len(own) > 0 {
		l.needed = now.Add(heardFor)
	}
	if !now.Before(l.needed) {
		return nil
	}
	report, named := encode(own)
	if named < len(own) {
		l.named = make(map[string]bool, named)
		for _, u := range own[:named] {
			l.named[u.User] = true
		}
	}
	return report
}

func (l *Ledger) floor() float64 { return 1 / float64(floorPart*l.Brokers()) }

// Target returns this broker's share of a user with that demand here, by the last reports.
func (l *Ledger) Target(user string, own Demand) Share {
	if l.named != nil && !l.named[user] && float64(max(own.Messages, own.Bytes)) > Whole*l.floor() {
		equal := 1 / float64(l.Brokers())
		return Share{equal, equal} // as the others count it
	}
	var by []claim
	switch c := l.users[user]; {
	case c != nil:
		by = c.by
	case own == Demand{}: // as of most users, at rest
		equal := 1 / float64(l.Brokers())
		return Share{equal, equal}
	}
	return Share{
		Messages: l.portion(by, own, func(d Demand) uint16 { return d.Messages }),
		Bytes:    l.portion(by, own, func(d Demand) uint16 { return d.Bytes }),
	}
}

// portion returns this broker's part of one limit. Brokers that are not heard, or that left out the
// user, have equal portions, and the others divide the rest.
func (l *Ledger) portion(by []claim, own Demand, of func(Demand) uint16) float64 {
	dividing := 1 + l.heard - l.full
	l.room = append(l.room[:0], part(of(own)))
	for _, b := range by {
		if b.of.full {
			dividing++
		}
		l.room = append(l.room, part(of(b.Demand)))
	}
	idle := dividing - len(l.room)
	return Divide(float64(dividing)/float64(l.Brokers()), l.floor(), idle, l.room).Portion(part(of(own)))
}

func part(demand uint16) float64 { return float64(demand) / Whole }
