//go:build e2e && linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/client"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

const (
	// anywhere is the broker of a client that connects to any one.
	anywhere = -1
	// roaming is the number of followers that connect to any broker.
	roaming = 2
	// switchesOf is the number of subjects of a changer, and switchPause its pause after a change:
	// some forty changes a second together.
	switchesOf  = 6
	switchPause = 100 * time.Millisecond
	// openPause is the time after which a follower tries again that no broker has answered.
	openPause = 300 * time.Millisecond
)

// leastTold is what each live query has to bring between two looks at it, while attributes change.
var leastTold = Counts{News: 5, Dels: 5, Messages: 20}

// switches are subjects that clients switch on and off by their attributes, and publish on, and
// other clients with live queries of those that are on. There is one of each at each broker, and
// more at any one. Brokers of a version without live queries serve none of them.
type switches struct {
	*cluster
	stop      context.CancelFunc
	work      sync.WaitGroup
	changers  []*changer
	followers []*follower
	still     sync.RWMutex // locked: nothing is changed or published

	mu      sync.Mutex
	serving [brokers]bool // the brokers of a version with live queries
	resumed float64       // openings that brought a difference
}

// startSwitches starts these clients. All brokers are of a version with live queries, or none.
func (c *cluster) startSwitches(ctx context.Context, serving bool) (*switches, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &switches{cluster: c, stop: cancel}
	for n := range founders {
		s.serving[n] = serving
	}
	places := append(from(0, founders), slices.Repeat([]int{anywhere}, roaming)...)
	for i, at := range places {
		if i <= founders {
			if err := s.startChanger(ctx, at); err != nil {
				s.end()
				return nil, err
			}
		}
		if err := s.startFollower(ctx, fmt.Sprintf("query %d, at %s", i, placeName(at)), at); err != nil {
			s.end()
			return nil, err
		}
	}
	return s, nil
}

func placeName(at int) string {
	if at == anywhere {
		return "any broker"
	}
	return nodeName(at)
}

func (s *switches) end() {
	s.stop()
	s.work.Wait()
	for _, c := range s.changers {
		c.nc.Close()
	}
	for _, f := range s.followers {
		f.nc.Close()
	}
}

// connectTo connects a client to a broker and no other one, or to any.
func (s *switches) connectTo(at int, name string, options ...nats.Option) (*nats.Conn, error) {
	options = append(options, clientOptions...)
	if at == anywhere {
		return checker.Connect(s.urls(), name, options...)
	}
	return checker.Connect(s.url(at), name, append(options, nats.IgnoreDiscoveredServers())...)
}

// serve notes that a broker is of a version with live queries from now on.
func (s *switches) serve(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serving[n] = true
}

// servers returns the brokers of a version with live queries.
func (s *switches) servers() (all []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, is := range s.serving {
		if is {
			all = append(all, n)
		}
	}
	return all
}

// due reports whether a client at a place is to be served.
func (s *switches) due(at int) bool {
	all := s.servers()
	return len(all) > 0 && (at == anywhere || slices.Contains(all, at))
}

// served returns nil if the broker of a client serves it. Otherwise a client that connects to any
// broker goes to another one, if there is one to go to.
func (s *switches) served(at int, nc *nats.Conn) error {
	servers := s.servers()
	for _, n := range servers {
		if nc.ConnectedAddr() == address(n)+":4222" {
			return nil
		}
	}
	if at == anywhere && len(servers) > 0 && nc.IsConnected() {
		return errors.Join(errors.New("its broker has no live queries"), nc.ForceReconnect())
	}
	return errors.New("it is connected to no broker with live queries")
}

// toggle is a subject that is switched on and off.
type toggle struct {
	subject     string
	made, acked uint64 // the last change that was requested, and the last one that was acknowledged
	revision    int64  // of the one that was acknowledged
	published   uint64
}

// changer is a client that changes attributes, and publishes on their subjects. Nobody else changes
// these.
type changer struct {
	of      *switches
	at      int
	nc      *nats.Conn
	all     []*toggle
	refused atomic.Int64 // by brokers of a version without attributes
	before  int64        // refusals at the last look
}

func (s *switches) startChanger(ctx context.Context, at int) error {
	c := &changer{of: s, at: at}
	for i := range switchesOf {
		c.all = append(c.all, &toggle{subject: fmt.Sprintf("switches.%d.%d", len(s.changers), i)})
	}
	var err error
	// Without a server nothing is buffered: it is sent at once or never.
	if c.nc, err = s.connectTo(at, "chaos, attributes", nats.ReconnectBufSize(-1)); err != nil {
		return err
	}
	s.changers = append(s.changers, c)
	s.work.Go(func() {
		for ctx.Err() == nil {
			s.still.RLock()
			c.step()
			s.still.RUnlock()
			pause(ctx, switchPause)
		}
	})
	return nil
}

func (c *changer) step() {
	if err := c.change(c.next()); err != nil {
		return // it is made again in the next step
	}
	for range 4 {
		c.publish(c.all[rand.IntN(len(c.all))])
	}
}

// next returns the subject whose last change was not acknowledged, or any.
func (c *changer) next() *toggle {
	for _, t := range c.all {
		if t.made > t.acked {
			return t
		}
	}
	return c.all[rand.IntN(len(c.all))]
}

// change switches a subject, or makes the last change again if that was not acknowledged. Each
// change names the revision that it follows, so a request that a broker serves late changes
// nothing.
func (c *changer) change(t *toggle) error {
	if t.made == t.acked {
		t.made++
	}
	request := admin.AttributesChange{Subject: t.subject, Set: attribute.Set{"change": attribute.Number(float64(t.made))}, IfRevision: &t.revision}
	switch {
	case isOn(t.made):
		request.Set["on"] = attribute.Bool(true)
	case t.made%4 == 0:
		request.Delete = []string{"on"}
	default:
		request.Set["on"] = attribute.Bool(false)
	}
	is, err := askBy[admin.SubjectAttributes](c.nc, admin.AttributesSetSubject, request)
	if refused, ok := errors.AsType[*admin.Error](err); ok {
		switch {
		case refused.Code == admin.BadRequest:
			c.refused.Add(1)
			return errors.Join(err, c.of.served(c.at, c.nc))
		case refused.Code == admin.Changed && is.Revision > t.revision:
			err = nil // it was made before, and the answer was lost
		}
	}
	if err != nil {
		return err
	}
	t.acked, t.revision = t.made, is.Revision
	return nil
}

// publish publishes on a subject, unless it is not known whether that is on.
func (c *changer) publish(t *toggle) {
	if t.made > t.acked {
		return
	}
	t.published++
	v := checker.Value{Publisher: int(t.acked), Counter: t.published}
	_ = c.nc.Publish(t.subject, checker.Encode(t.subject, v)) // messages come at most once
}

// finish makes changes again that were not acknowledged.
func (c *changer) finish() error {
	for t := c.next(); t.made > t.acked; t = c.next() {
		if err := c.change(t); err != nil {
			return err
		}
	}
	return nil
}

// gate is a dialer. While it is locked, a client that has lost its connection gets no other one.
type gate struct{ sync.Mutex }

func (g *gate) Dial(network, address string) (net.Conn, error) {
	g.Lock()
	defer g.Unlock()
	return net.DialTimeout(network, address, answerTime)
}

// follower is a client with a live query.
type follower struct {
	of   *switches
	name string
	at   int
	nc   *nats.Conn
	gate gate

	mu      sync.Mutex
	told    *Told
	opened  bool
	refused int // by brokers of a version without live queries
	wrong   []error
	found   int // as wrong, which has the first ones

	before        Counts // at the last look
	refusedBefore int
}

func (s *switches) startFollower(ctx context.Context, name string, at int) error {
	f := &follower{of: s, name: name, at: at, told: NewTold()}
	var err error
	if f.nc, err = s.connectTo(at, "chaos, "+name, nats.SetCustomDialer(&f.gate)); err != nil {
		return err
	}
	s.followers = append(s.followers, f)
	s.work.Go(func() { f.run(ctx) })
	return nil
}

// run opens the query as soon as a broker has live queries. It stays open then, whatever happens.
func (f *follower) run(ctx context.Context) {
	for ctx.Err() == nil {
		q, err := client.Query(ctx, f.nc, client.QueryOptions{Where: "attributes.on", Subjects: "switches.>"})
		switch {
		case err == nil:
			f.follow(ctx, q)
			return
		case ctx.Err() != nil:
		case errors.Is(err, client.ErrNotCarillon):
			f.mu.Lock()
			f.refused++
			f.mu.Unlock()
			_ = f.of.served(f.at, f.nc)
		default:
			f.find(fmt.Errorf("it was refused: %w", err))
			return
		}
		pause(ctx, openPause)
	}
}

func (f *follower) follow(ctx context.Context, q *client.LiveQuery) {
	defer q.Close()
	f.mu.Lock()
	f.opened = true
	f.mu.Unlock()
	for e, err := range q.Events(ctx) {
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			f.find(fmt.Errorf("it has ended: %w", err))
			return
		}
		f.mu.Lock()
		err = f.told.Take(&e)
		f.mu.Unlock()
		if err != nil {
			f.find(err)
		}
	}
}

func (f *follower) find(wrong error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.found++; f.found <= 5 {
		f.wrong = append(f.wrong, fmt.Errorf("%s: %w", f.name, wrong))
	}
}

// look calls do with what the follower was told so far. If faults were found before, it returns
// these instead, and an error if the query is not open.
func (f *follower) look(do func(t *Told) error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.wrong) > 0 {
		return errors.Join(f.wrong...)
	}
	err := errors.New("it is not open")
	if f.opened {
		err = do(f.told)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", f.name, err)
	}
	return nil
}

// goesOn looks at all clients, in a whole cluster. Brokers of a version with live queries have
// brought to each query enough since the last look, under load. Then nothing changes, and members
// are those that are on. While followers move from one broker to another, each subject is switched
// again and again, and each change is told. At last each follower gets what is published on its
// members, and nothing else. Brokers of a version without live queries refuse all clients.
func (s *switches) goesOn() error {
	for _, f := range s.followers {
		if err := within(patience, f.name+" goes on", f.goesOn); err != nil {
			return err
		}
	}
	for _, c := range s.changers {
		if s.due(c.at) {
			continue
		}
		err := within(patience, "changes of attributes are refused at "+placeName(c.at), func() error {
			if c.refused.Load() <= c.before {
				return errors.New("none was refused")
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	s.still.Lock()
	defer s.still.Unlock()
	if err := s.stands(); err != nil {
		return err
	}
	for _, f := range s.followers {
		f.mu.Lock()
		f.before, f.refusedBefore = f.told.Counts, f.refused
		f.mu.Unlock()
	}
	for _, c := range s.changers {
		c.before = c.refused.Load()
	}
	s.note("live queries: %s", s)
	return nil
}

// goesOn returns nil if the query has brought enough since the last look; or, where brokers have no
// live queries, if it was refused since.
func (f *follower) goesOn() error {
	if f.of.due(f.at) {
		if err := f.of.served(f.at, f.nc); err != nil {
			return err
		}
		return f.look(func(t *Told) error { return t.Since(f.before, leastTold) })
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case len(f.wrong) > 0:
		return errors.Join(f.wrong...)
	case f.opened:
		return errors.New("it was opened by a broker without live queries")
	case f.refused <= f.refusedBefore:
		return errors.New("it was not refused")
	}
	return nil
}

// stands looks at queries and attributes while nobody else changes these.
func (s *switches) stands() error {
	if len(s.servers()) == 0 {
		return nil
	}
	for _, c := range s.dueChangers() {
		if err := within(patience, "all changes are acknowledged at "+placeName(c.at), c.finish); err != nil {
			return err
		}
	}
	if err := s.agree(); err != nil {
		return err
	}
	was, err := s.resumptions()
	if err != nil {
		return err
	}
	for range founders {
		if err := s.switchWhileMoving(); err != nil {
			return err
		}
	}
	is, err := s.resumptions()
	if err != nil {
		return err
	}
	if is <= was {
		return fmt.Errorf("live queries were opened again by %d followers, %d times each, and none got a difference", roaming, founders)
	}
	s.mu.Lock()
	s.resumed += is - was
	s.mu.Unlock()
	return s.callRoll()
}

func (s *switches) dueChangers() (all []*changer) {
	for _, c := range s.changers {
		if s.due(c.at) {
			all = append(all, c)
		}
	}
	return all
}

func (s *switches) dueFollowers() (all []*follower) {
	for _, f := range s.followers {
		if s.due(f.at) {
			all = append(all, f)
		}
	}
	return all
}

// wanted returns the subjects that are on, in their order: the members of each query.
func (s *switches) wanted() (all []string) {
	for _, c := range s.changers {
		for _, t := range c.all {
			if isOn(t.acked) {
				all = append(all, t.subject)
			}
		}
	}
	slices.Sort(all)
	return all
}

// agree waits until all queries have the members that there are.
func (s *switches) agree() error {
	want := s.wanted()
	return within(patience, "live queries agree with the attributes", func() error {
		for _, f := range s.dueFollowers() {
			if err := f.look(func(t *Told) error { return CompareMembers(t.Members(), want) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// switchWhileMoving has followers go to another broker, if they may, and switches all subjects:
// half of them while these followers have no connection. Each follower is told each change, by a
// notice or by the difference.
func (s *switches) switchWhileMoving() error {
	opened := map[*follower]int{}
	comeBack := sync.OnceFunc(func() {
		for f := range opened {
			f.gate.Unlock()
		}
	})
	defer comeBack()
	for _, f := range s.dueFollowers() {
		if f.at != anywhere {
			continue
		}
		f.gate.Lock()
		opened[f] = 0
		err := f.look(func(t *Told) error {
			opened[f] = t.Reopened
			return nil
		})
		if err := errors.Join(err, f.nc.ForceReconnect()); err != nil {
			return err
		}
	}
	changers := s.dueChangers()
	for i, c := range changers {
		if i == len(changers)/2 {
			comeBack()
		}
		for _, t := range c.all {
			before := t.acked
			err := within(patience, "a change is acknowledged at "+placeName(c.at), func() error {
				if t.acked > before {
					return nil
				}
				return c.change(t)
			})
			if err != nil {
				return err
			}
		}
	}
	for f, before := range opened {
		err := within(patience, f.name+" goes on at another broker", func() error {
			if err := s.served(f.at, f.nc); err != nil {
				return err
			}
			return f.look(func(t *Told) error {
				if t.Reopened == before || !t.Ready {
					return fmt.Errorf("it was opened again %d times, %d before, and is ready: %v", t.Reopened, before, t.Ready)
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return s.agree()
}

// resumptions returns how many queries the brokers have opened with a difference.
func (s *switches) resumptions() (sum float64, err error) {
	for _, n := range s.servers() {
		err := s.metrics(n, func(metrics io.Reader) error {
			here, err := ReadMetric(metrics, "carillon_queries_resumed_total")
			sum += here
			return err
		})
		if err != nil {
			return 0, fmt.Errorf("%s: %w", nodeName(n), err)
		}
	}
	return sum, nil
}

// callRoll publishes on all subjects, first on those that are off, until each follower has got a
// message of each that is on.
func (s *switches) callRoll() error {
	before := map[string]uint64{}
	for _, c := range s.dueChangers() {
		for _, t := range c.all {
			before[t.subject] = t.published
		}
	}
	want := s.wanted()
	return testutil.Within(patience, openPause, "live queries bring what is published on their members", func() error {
		for _, c := range s.dueChangers() {
			for _, on := range []bool{false, true} {
				for _, t := range c.all {
					if isOn(t.acked) == on {
						c.publish(t)
					}
				}
			}
		}
		for _, f := range s.dueFollowers() {
			err := f.look(func(t *Told) error {
				for _, subject := range want {
					if t.Heard(subject) <= before[subject] {
						return fmt.Errorf("nothing came of %s", subject)
					}
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// judge looks at all clients once more, stops them, and returns all findings. followed says that
// all brokers had live queries from the beginning, so that each query was open all the time.
func (s *switches) judge(followed bool) (wrong []error) {
	err := s.goesOn()
	s.end()
	if err != nil {
		wrong = append(wrong, err)
	}
	for _, f := range s.followers {
		wrong = append(wrong, f.wrong...)
		switch {
		case !followed && f.at != anywhere && f.refused == 0:
			wrong = append(wrong, fmt.Errorf("%s was not refused by the version before", f.name))
		case followed && f.refused > 0:
			wrong = append(wrong, fmt.Errorf("%s was refused %d times", f.name, f.refused))
		case followed && f.told.Reopened == 0:
			wrong = append(wrong, fmt.Errorf("%s was open at one broker all the time, which was changed", f.name))
		}
	}
	return wrong
}

func (s *switches) String() string {
	acked, refused := uint64(0), int64(0)
	for _, c := range s.changers {
		refused += c.refused.Load()
		for _, t := range c.all {
			acked += t.acked
		}
	}
	s.mu.Lock()
	resumed := s.resumed
	s.mu.Unlock()
	told := fmt.Sprintf("%d changes of attributes acknowledged, %d refused; %.0f moves with a difference", acked, refused, resumed)
	for _, f := range s.followers {
		f.mu.Lock()
		told += fmt.Sprintf("; %s: %v, refused %d times", f.name, f.told.Counts, f.refused)
		f.mu.Unlock()
	}
	return told
}
