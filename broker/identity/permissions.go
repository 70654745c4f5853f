package identity

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker/subject"
)

// Permissions are what a user may do on which subjects, as nats-server has them.
type Permissions struct {
	Publish   *Subjects `json:"publish,omitempty"`   // nil: every subject
	Subscribe *Subjects `json:"subscribe,omitempty"` // nil: every subject
	// AllowResponses lets the user publish to the reply subjects of messages that it got. Then nil
	// in Publish means no subject.
	AllowResponses *Responses `json:"allowResponses,omitempty"`
}

// Subjects are lists of patterns. An entry of Subscribe may be "pattern queue", for members of that
// queue group, which may be a pattern too.
type Subjects struct {
	Allow []string `json:"allow,omitzero"` // nil: all that is not denied
	Deny  []string `json:"deny,omitempty"`
}

// Responses bounds what may be published to a reply subject.
type Responses struct {
	Max     int    `json:"max,omitempty"`     // messages; 0: 1, below 0: any number
	Expires string `json:"expires,omitempty"` // a duration after the message; empty: 2m, below 0: any time
}

// Bounds of what one user is described by. They bound the memory and the time of a check.
const (
	maxPatterns     = 1000
	maxPatternBytes = 1024
)

// The defaults of Responses, those of nats-server.
const (
	defaultResponses       = 1
	defaultResponsesExpire = 2 * time.Minute
)

// rights are compiled Permissions. A nil *rights allows everything.
type rights struct {
	publish, subscribe rule
	// responses is how many messages may be published to the reply subject of a received message,
	// and within which time. Below 0: without a bound. 0: none.
	responses       int
	responsesExpire time.Duration
}

// noRights returns rights that allow nothing.
func noRights() *rights {
	none := rule{deny: newPatterns([]string{">"})}
	return &rights{publish: none, subscribe: none}
}

// rule is one compiled Subjects.
type rule struct {
	allow       *patterns // nil: all
	deny        *patterns
	allowQueues []queued
	denyQueues  []queued
}

// queued is a pattern that counts for members of queue groups.
type queued struct{ pattern, queue *patterns }

// compile returns the rights, or an error that names the mistake and its place.
func (p *Permissions) compile() (*rights, error) {
	if p == nil {
		return nil, nil
	}
	r, publish := &rights{}, p.Publish
	var err error
	if a := p.AllowResponses; a != nil {
		if r.responses, r.responsesExpire, err = a.compile(); err != nil {
			return nil, err
		}
		if publish == nil {
			publish = &Subjects{Allow: []string{}}
		}
	}
	if r.publish, err = publish.compile(false); err != nil {
		return nil, fmt.Errorf("permissions.publish.%w", err)
	}
	if r.subscribe, err = p.Subscribe.compile(true); err != nil {
		return nil, fmt.Errorf("permissions.subscribe.%w", err)
	}
	return r, nil
}

func (a *Responses) compile() (most int, within time.Duration, err error) {
	most, within = a.Max, defaultResponsesExpire
	if most == 0 {
		most = defaultResponses
	}
	if a.Expires != "" {
		if within, err = time.ParseDuration(a.Expires); err != nil || within == 0 {
			return 0, 0, fmt.Errorf("permissions.allowResponses.expires: %q is no duration such as 30s; give one, or -1s for any time", a.Expires)
		}
	}
	return most, within, nil
}

func (s *Subjects) compile(queues bool) (r rule, err error) {
	if s == nil {
		return r, nil
	}
	if r.deny, r.denyQueues, err = compileList(s.Deny, queues); err != nil {
		return r, fmt.Errorf("deny: %w", err)
	}
	if s.Allow == nil {
		return r, nil
	}
	if r.allow, r.allowQueues, err = compileList(s.Allow, queues); err != nil {
		return r, fmt.Errorf("allow: %w", err)
	}
	return r, nil
}

func compileList(list []string, queues bool) (*patterns, []queued, error) {
	if len(list) > maxPatterns {
		return nil, nil, fmt.Errorf("%d patterns; give at most %d", len(list), maxPatterns)
	}
	var plain []string
	var grouped []queued
	for _, entry := range list {
		pattern, queue, hasQueue := strings.Cut(entry, " ")
		switch {
		case len(entry) > maxPatternBytes:
			return nil, nil, fmt.Errorf("a pattern of %d bytes; give at most %d", len(entry), maxPatternBytes)
		case !subject.ValidPattern([]byte(pattern)):
			return nil, nil, fmt.Errorf("%q is not a subject or a pattern such as orders.*.new", pattern)
		case !hasQueue:
			plain = append(plain, pattern)
		case !queues:
			return nil, nil, fmt.Errorf("%q names a queue group, which only subscriptions have", entry)
		case !subject.ValidPattern([]byte(queue)):
			return nil, nil, fmt.Errorf("%q: the queue group %q is not a name or a pattern", entry, queue)
		default:
			grouped = append(grouped, queued{newPatterns([]string{pattern}), newPatterns([]string{queue})})
		}
	}
	return newPatterns(plain), grouped, nil
}

// mayPublish reports whether a message may be published on the subject.
func (r *rights) mayPublish(to []byte) bool {
	return r == nil || (r.publish.allow == nil || r.publish.allow.matches(to)) && !r.publish.deny.matches(to)
}

// mayPublishAll reports whether messages may be published on all subjects of the pattern.
func (r *rights) mayPublishAll(pattern string) bool {
	return r == nil || (r.publish.allow == nil || r.publish.allow.covers([]byte(pattern))) && !r.publish.deny.overlaps(pattern)
}

// maySubscribe reports whether the user may subscribe to the pattern, in the queue group or, if it
// is empty, in none.
func (r *rights) maySubscribe(pattern, queue []byte) bool {
	if r == nil {
		return true
	}
	s := &r.subscribe
	listed, named := s.allowedQueue(pattern, queue)
	if !listed {
		named = s.allow == nil || s.allow.covers(pattern)
	}
	return named && !s.deny.covers(pattern) && !s.deniedQueue(func(of *patterns) bool { return of.covers(pattern) }, queue)
}

// maySee reports whether the user may subscribe to the subject of a message, in no queue group.
func (r *rights) maySee(on []byte) bool {
	return r == nil || (r.subscribe.allow == nil || r.subscribe.allow.matches(on)) && !r.subscribe.deny.matches(on)
}

// maySeeAll reports whether maySee is true for all subjects that the pattern matches.
func (r *rights) maySeeAll(pattern string) bool {
	return r == nil || (r.subscribe.allow == nil || r.subscribe.allow.covers([]byte(pattern))) && !r.subscribe.deny.overlaps(pattern)
}

// maySeeSome reports whether maySee may be true for a subject that the pattern matches: neither is
// the pattern denied, nor each allowed pattern that overlaps it.
func (r *rights) maySeeSome(pattern string) bool {
	if r == nil {
		return true
	}
	allow, deny := r.subscribe.allow, r.subscribe.deny
	if deny.covers([]byte(pattern)) {
		return false
	}
	return allow == nil || slices.ContainsFunc(allow.all, func(p string) bool {
		return subject.Overlap(p, pattern) && !deny.covers([]byte(p))
	})
}

// allowedQueue reports whether entries for members of queue groups allow the pattern, so that only
// their groups may have it, and whether this is one of those.
func (s *rule) allowedQueue(pattern, queue []byte) (listed, named bool) {
	if len(queue) == 0 {
		return false, false
	}
	for _, q := range s.allowQueues {
		if q.pattern.covers(pattern) {
			listed, named = true, named || q.queue.covers(queue)
		}
	}
	return listed, named
}

// deniedQueue reports whether an entry denies the queue group the patterns for which of is true.
func (s *rule) deniedQueue(of func(*patterns) bool, queue []byte) bool {
	if len(queue) == 0 {
		return false
	}
	for i := range s.denyQueues {
		if q := &s.denyQueues[i]; of(q.pattern) && q.queue.covers(queue) {
			return true
		}
	}
	return false
}

// filters reports whether messages of an allowed subscription need mayReceive.
func (r *rights) filters(pattern string, queue []byte) bool {
	return r != nil && (r.subscribe.deny.overlaps(pattern) ||
		r.subscribe.deniedQueue(func(of *patterns) bool { return of.overlaps(pattern) }, queue))
}

// mayReceive reports whether a message on the subject may be delivered to a subscription of the
// user, in the queue group or, if it is empty, in none.
func (r *rights) mayReceive(on []byte, queue string) bool {
	return r == nil || !r.subscribe.deny.matches(on) && !r.subscribe.deniedQueue(func(of *patterns) bool { return of.matches(on) }, []byte(queue))
}
