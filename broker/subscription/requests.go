package subscription

import (
	"math"
	"strings"
)

// request is a waiting pull request. Times are nanoseconds of Service.now.
type request struct {
	to        []byte
	left      int  // messages
	bytes     int  // bytes left, if bounded
	bounded   bool // by MaxBytes
	got       int
	noWait    bool
	expires   int64 // 0: never
	heartbeat int64 // 0: none
	beat      int64 // when the next heartbeat is due
	checked   int64 // when the destination last had a subscriber
	peek      bool
	relay     bool // its bytes may be exceeded by the last record

	minPending, minAckPending int64 // as of Pull
	priority                  int
	group, pin                string

	standing bool          // of a push
	quota    *PullQuota    // that counts it; nil: none
	names    int           // bytes of names, as the quota counts them: a pin comes later
	done     func(Outcome) // nil: the DeliverySink gets the End
	why      End           // the End for done
}

// impatient reports whether it ends when nothing more is available.
func (r *request) impatient(blocked bool) bool {
	return r.noWait && (r.expires == 0 || r.relay || r.got > 0 && !blocked)
}

// leave has its user's quota count it no more.
func (r *request) leave() {
	r.quota.Leave(r.names)
	r.quota = nil
}

// outcome returns the Outcome for done.
func (r *request) outcome() Outcome {
	o := Outcome{Why: r.why, Messages: r.left}
	if r.bounded {
		o.Bytes = r.bytes
	}
	return o
}

// ended is a request whose done is called once no lock is held.
type ended struct {
	done    func(Outcome)
	outcome Outcome
}

// requests is the queue of waiting requests. They are served in turn, one message each.
type requests struct {
	list  []*request // ring buffer
	head  int
	n     int
	free  []*request
	ended []ended // ended requests with a done
	due   int64   // no request expires and no heartbeat is due before
}

func (q *requests) at(i int) *request { return q.list[(q.head+i)%len(q.list)] }

func (q *requests) add(p *Pull, quota *PullQuota, done func(Outcome), now int64) {
	if q.n == 0 {
		q.due = math.MaxInt64
	}
	if q.n == len(q.list) {
		list := make([]*request, max(2*q.n, 4))
		for i := range q.n {
			list[i] = q.at(i)
		}
		q.list, q.head = list, 0
	}
	var r *request
	if last := len(q.free) - 1; last >= 0 {
		r, q.free = q.free[last], q.free[:last]
	} else {
		r = &request{}
	}
	*r = request{
		to: append(r.to[:0], p.To...), left: max(p.Batch, 1), bytes: p.MaxBytes, bounded: p.MaxBytes > 0,
		noWait: p.NoWait, heartbeat: int64(max(p.Heartbeat, 0)), peek: p.Peek, relay: p.Relay, quota: quota, names: p.names(), done: done,
		minPending: p.MinPending, minAckPending: p.MinAckPending, priority: p.Priority,
		// Cloned, so that nothing of p escapes to the heap.
		group: strings.Clone(p.Group), pin: strings.Clone(p.Pin),
	}
	if p.Expires > 0 {
		r.expires = now + int64(p.Expires)
		q.due = min(q.due, r.expires)
	}
	if r.heartbeat > 0 {
		r.beat = now + r.heartbeat
		q.due = min(q.due, r.beat)
	}
	q.list[(q.head+q.n)%len(q.list)] = r
	q.n++
}

// rotate moves the first request to the end.
func (q *requests) rotate() {
	if q.n > 1 {
		r := q.pop()
		q.list[(q.head+q.n)%len(q.list)] = r
		q.n++
	}
}

// promote moves the first request that may be served to the front, and keeps the order of the
// others. It reports false if none may.
func (q *requests) promote(may func(*request) bool) bool {
	for i := range q.n {
		r := q.at(i)
		if !may(r) {
			continue
		}
		for ; i > 0; i-- {
			q.list[(q.head+i)%len(q.list)] = q.at(i - 1)
		}
		q.list[q.head] = r
		return true
	}
	return false
}

func (q *requests) pop() *request {
	r := q.list[q.head]
	q.list[q.head] = nil
	q.head = (q.head + 1) % len(q.list)
	q.n--
	return r
}

// remove removes the first request.
func (q *requests) remove() {
	r := q.pop()
	r.leave()
	if r.done != nil {
		q.ended = append(q.ended, ended{r.done, r.outcome()})
		r.done = nil
	}
	if len(q.free) < 4 {
		q.free = append(q.free, r)
	}
}

// sweep removes the requests for which keep returns false, and computes due.
func (q *requests) sweep(keep func(*request) bool) {
	q.due = math.MaxInt64
	for range q.n {
		r := q.at(0)
		if !keep(r) {
			q.remove()
			continue
		}
		if r.expires > 0 {
			q.due = min(q.due, r.expires)
		}
		if r.heartbeat > 0 {
			q.due = min(q.due, r.beat)
		}
		q.rotate()
	}
}

// takeEnded returns and clears the ended requests.
func (q *requests) takeEnded() []ended {
	over := q.ended
	q.ended = nil
	return over
}

// asked returns the number of messages that all requests wait for.
func (q *requests) asked() int {
	n := 0
	for i := range q.n {
		n = min(n+q.at(i).left, math.MaxInt32)
	}
	return n
}
