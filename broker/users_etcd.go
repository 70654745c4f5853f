package broker

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/login"
	"github.com/carillon-mq/carillon/broker/session"
)

const (
	// usersStale is how long etcd may be silent before the users may be stale: longer than a watch
	// takes to be replaced.
	usersStale = 5 * time.Second
	// usersLook is how often that is judged.
	usersLook = 500 * time.Millisecond
	// usersWait is how long a broker that starts waits for a whole set of users in etcd before it
	// serves clients by those that it saved last. etcd has answered when that begins, and has none
	// only while one is being written.
	usersWait = 3 * time.Second
	// usersApply is how much longer it waits for a set that it has seen. Compiling 10,000 users takes
	// a fraction of a second, and more on a machine where many brokers start.
	usersApply = 30 * time.Second
)

// etcdUsers are users that follow etcd. The last ones are kept on the volume, and a broker starts
// with them. Without any, nobody may connect.
type etcdUsers struct {
	login   *login.Login
	dir     coordination.UsersDir
	started time.Time
	heard   func() time.Time // from etcd; set before the broker runs

	next    chan struct{}                        // a token: present has changed
	present atomic.Pointer[coordination.UserSet] // in etcd
	arrived atomic.Bool                          // present is known
	seen    chan struct{}                        // closed when etcd's were applied first
	saving  chan struct{}                        // a token: saved is to be written
	saved   atomic.Pointer[coordination.UserSet] // for the volume
	counts  atomic.Pointer[userCounts]           // applied
	said    map[string]bool                      // mistakes in the log
	last    *coordination.UserSet                // observed; of the goroutine that follows etcd
	known   bool                                 // last is known
}

// userCounts are how many users there are, and how many are wrong and can't connect.
type userCounts struct{ right, wrong int }

func newEtcdUsers(data string, log *slog.Logger) (*etcdUsers, error) {
	e := &etcdUsers{
		dir: coordination.UsersDir(data), started: time.Now(), heard: func() time.Time { return time.Time{} },
		next: make(chan struct{}, 1), seen: make(chan struct{}), saving: make(chan struct{}, 1), said: map[string]bool{},
	}
	last, err := e.dir.Load()
	if err != nil {
		log.Error("The users that this broker saved last are unreadable; until it sees those in etcd, nobody may connect", "error", err)
	}
	table := e.compile(last, log)
	if last != nil {
		log.Info("Starting with the users that this broker saved last", "users", e.counts.Load().right, "generation", last.Generation)
	}
	e.login, err = login.New(table)
	return e, err
}

// compile returns the table of the right users of a set, and logs each mistake once.
func (e *etcdUsers) compile(s *coordination.UserSet, log *slog.Logger) *identity.Table {
	if s == nil {
		s = &coordination.UserSet{}
	}
	table, mistakes := s.Valid()
	for _, wrong := range s.Wrong {
		mistakes = append(mistakes, wrong)
	}
	before := e.said
	e.said = make(map[string]bool, len(mistakes))
	for _, err := range mistakes {
		why := err.Error()
		if !before[why] {
			log.Error("A mistake in the users in etcd; a wrong user may not connect", "error", why)
		}
		e.said[why] = true
	}
	e.counts.Store(&userCounts{right: table.Len(), wrong: len(s.Users) + len(s.Wrong) - table.Len()})
	return table
}

// observe takes the users of a State. It does not block. While a set is being written, the one
// before holds: that of the volume, if this process has seen no other.
func (e *etcdUsers) observe(s *coordination.State) {
	if s.UsersBegun() {
		return
	}
	if users := s.Users(); !e.known || users != e.last {
		e.known, e.last = true, users
		e.present.Store(users)
		e.arrived.Store(true)
		wake(e.next)
	}
}

func wake(token chan struct{}) {
	select {
	case token <- struct{}{}:
	default:
	}
}

// await waits until the users in etcd are applied, for a bounded time.
func (e *etcdUsers) await(ctx context.Context) {
	for _, wait := range []time.Duration{usersWait, usersApply} {
		late := time.NewTimer(wait)
		defer late.Stop()
		select {
		case <-e.seen:
			return
		case <-ctx.Done():
			return
		case <-late.C:
		}
		if !e.arrived.Load() {
			return
		}
	}
}

// follow applies changes until ctx ends, also the last one that was seen by then. The next process
// starts with it.
func (e *etcdUsers) follow(ctx context.Context, log *slog.Logger, hub *session.Hub) {
	var saver sync.WaitGroup
	defer saver.Wait()
	defer close(e.saving)
	saver.Go(func() { e.save(log) })
	look := time.NewTicker(usersLook)
	defer look.Stop()
	first, stale := true, false
	for {
		select {
		case <-ctx.Done():
			select {
			case <-e.next:
				e.apply(e.present.Load(), log)
			default:
			}
			return
		case <-look.C:
			stale = e.judge(stale, log)
		case <-e.next:
			e.apply(e.present.Load(), log)
			hub.Recheck()
			if first {
				close(e.seen)
			}
			first = false
		}
	}
}

func (e *etcdUsers) apply(s *coordination.UserSet, log *slog.Logger) {
	e.login.Set(e.compile(s, log))
	switch counts := e.counts.Load(); {
	case s == nil:
		log.Warn("etcd has no users yet: nobody may connect until the operator writes them")
	case counts.right == 0:
		log.Warn("There are no users: nobody may connect", "generation", s.Generation, "wrong", counts.wrong)
	default:
		log.Info("Applied the users in etcd", "users", counts.right, "wrong", counts.wrong, "generation", s.Generation)
	}
	e.saved.Store(s)
	wake(e.saving)
}

// save writes the last users to the volume until saving is closed, and those of the last token
// before it ends. A disk that stalls delays no change of users.
func (e *etcdUsers) save(log *slog.Logger) {
	for range e.saving {
		if err := e.dir.Save(e.saved.Load()); err != nil {
			log.Error("Could not save the users; after a restart without etcd those of before hold", "error", err)
		}
	}
}

// judge logs when the users become stale and when they are no longer.
func (e *etcdUsers) judge(before bool, log *slog.Logger) (stale bool) {
	silent := e.Stale()
	switch stale = silent > 0; {
	case stale && !before:
		log.Warn("etcd is silent: changes of users don't arrive, and the last ones hold", "for", silent.Round(time.Second))
	case !stale && before:
		log.Info("etcd answers: the users are the present ones again")
	}
	return stale
}

// Stale returns for how long etcd has been silent; 0: the users are the present ones.
func (e *etcdUsers) Stale() time.Duration {
	since := e.heard()
	if since.IsZero() {
		since = e.started
	}
	if silent := time.Since(since); silent > usersStale {
		return silent
	}
	return 0
}

// Counts returns how many users may connect, and how many are wrong.
func (e *etcdUsers) Counts() (right, wrong int) {
	counts := e.counts.Load()
	return counts.right, counts.wrong
}
