package alerting

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/mirror"
)

// Service reads the alerts of all Views that ask for it, of one Broker after the other. It connects
// to no Broker without such Views.
type Service struct {
	Client  client.Client // with a cache
	Live    client.Reader
	Mirrors *mirror.Set
	Logger  *slog.Logger

	secret [sha256.Size]byte // of this process, for keyOf
	budget *Budget
	unread unread
	links  map[types.NamespacedName]*link // used by Start only
	late   time.Time                      // when the log said that Brokers wait; used by Start only
}

// link is a Broker with Views that ask for events.
type link struct {
	uid    types.UID
	mirror *mirror.Mirror // the latest one: each day there is another
	all    []wanted       // none: it gets no turns
	user   *identity.User

	reading bool // a turn is under way
	due     time.Time

	// While a turn is under way, these are its.
	*follower
	pause  time.Duration // until the next turn
	failed bool
	access access
	of     int64     // the generation of the Broker that access is of
	until  time.Time // when access is read again
}

// Prepare makes what keys are made of. It is called before anything else.
func (s *Service) Prepare() error {
	s.budget, s.links = NewBudget(), map[types.NamespacedName]*link{}
	_, err := rand.Read(s.secret[:])
	return err
}

// keyOf returns the key of the operator's user of one Broker. Each Broker has another one: a broker
// chooses what clients sign, so with one key who runs a Broker could have the operator sign what a
// Broker of others has asked for, and be its user there.
func (s *Service) keyOf(broker types.UID) (key nkeys.KeyPair, public string, err error) {
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write([]byte(broker))
	if key, err = nkeys.FromRawSeed(nkeys.PrefixByteUser, mac.Sum(nil)); err != nil {
		return nil, "", err
	}
	public, err = key.PublicKey()
	return key, public, err
}

// NeedLeaderElection returns true: one operator reads.
func (s *Service) NeedLeaderElection() bool { return true }

// User returns the user that reads the alerts of a Broker's Views; nil: there are none to read.
func (s *Service) User(ctx context.Context, m *mirror.Mirror) (*identity.User, error) {
	views := &v1alpha1.ViewList{}
	if err := s.Client.List(ctx, views, client.InNamespace(m.Broker.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing Views: %w", err)
	}
	all, _ := find(views.Items, m.State())
	_, public, err := s.keyOf(m.UID)
	return userOf(all, public), err
}

// Unread returns why the alerts of a View get no events; empty: they do, or need none. nil: that is
// not known.
func (s *Service) Unread(view *v1alpha1.View) *string {
	why := ""
	if asks(view) {
		known := false
		if why, known = s.unread.of(view.UID); !known {
			return nil
		}
	}
	return &why
}

// Start gives turns until ctx ends.
func (s *Service) Start(ctx context.Context) error {
	looks, turns := time.NewTicker(lookEvery), time.NewTimer(lookEvery)
	defer looks.Stop()
	defer turns.Stop()
	ended, reading := make(chan *link), 0
	for {
		turns.Reset(s.untilDue(time.Now()))
		select {
		case <-ctx.Done():
			for ; reading > 0; reading-- { // their connections are closed
				<-ended
			}
			return nil
		case <-looks.C:
			if err := s.look(ctx); err != nil && ctx.Err() == nil {
				s.Logger.Warn("Looking for Views with events of alerts failed", "error", err)
			}
		case <-turns.C:
			if l := s.due(time.Now()); l != nil && reading < turnsAtOnce {
				s.sayLate(l, time.Now())
				l.reading, reading = true, reading+1
				m, all := l.mirror, l.all
				go func() {
					s.turn(ctx, l, m, all)
					ended <- l
				}()
			}
		case l := <-ended:
			l.reading, reading = false, reading-1
			l.due = time.Now().Add(l.pause)
		}
	}
}

// sayLate logs that Brokers wait for their turns for long.
func (s *Service) sayLate(l *link, now time.Time) {
	if wait := now.Sub(l.due); wait > lateAfter && now.Sub(s.late) > lateAfter {
		s.late = now
		s.Logger.Warn("Brokers wait for their turns, so events of alerts are late", "broker", l.mirror.Broker, "waited", wait.Round(time.Second), "brokers", len(s.links))
	}
}

// due returns the Broker whose turn has been due for longest, or nil.
func (s *Service) due(now time.Time) (next *link) {
	for _, l := range s.links {
		if !l.reading && len(l.all) > 0 && !l.due.After(now) && (next == nil || l.due.Before(next.due)) {
			next = l
		}
	}
	return next
}

// untilDue returns the time until a turn may begin. What comes meanwhile is looked at after that.
func (s *Service) untilDue(now time.Time) time.Duration {
	until := lookEvery
	for _, l := range s.links {
		if !l.reading && len(l.all) > 0 {
			until = min(until, l.due.Sub(now))
		}
	}
	return max(until, turnPause)
}

// look takes what the manifests ask for.
func (s *Service) look(ctx context.Context) error {
	views, brokers := &v1alpha1.ViewList{}, &v1alpha1.BrokerList{}
	// Nothing of them is changed or kept, and copies of all would be made each few seconds.
	if err := errors.Join(s.Client.List(ctx, views, client.UnsafeDisableDeepCopy), s.Client.List(ctx, brokers, client.UnsafeDisableDeepCopy)); err != nil {
		return err
	}
	asking, asked := map[string][]v1alpha1.View{}, map[types.UID]bool{}
	for i := range views.Items {
		if v := views.Items[i]; asks(&v) {
			asking[v.Namespace] = append(asking[v.Namespace], v)
			asked[v.UID] = true
		}
	}
	s.unread.keep(asked)
	there := map[types.NamespacedName]bool{}
	for i := range brokers.Items {
		b := &brokers.Items[i]
		name := client.ObjectKeyFromObject(b)
		m, l := s.Mirrors.Of(name), s.links[name]
		if m == nil || m.UID != b.UID || m.State() == nil {
			// It is not known for the moment, as when its mirror is replaced.
			there[name] = l != nil && l.uid == b.UID && len(asking[name.Namespace]) > 0
			continue
		}
		all, without := find(asking[name.Namespace], m.State())
		for _, v := range without {
			s.tell(v, fmt.Sprintf("the operator reads %d shards of a Broker for events, each for each trigger, and other Views have these: have fewer triggers with events", maxSources))
		}
		if len(all) == 0 && (l == nil || l.uid != m.UID || len(asking[name.Namespace]) == 0) {
			continue
		}
		there[name] = true // places and bounds stay if the Broker does not know its Views for a while
		_, public, err := s.keyOf(m.UID)
		if err != nil {
			return err
		}
		if l == nil || l.uid != m.UID {
			l = &link{uid: m.UID, due: time.Now(), follower: &follower{budget: s.budget.part(), write: s.write, log: s.Logger, now: time.Now}}
			s.links[name] = l
		}
		l.mirror, l.all = m, all
		if user := userOf(all, public); !reflect.DeepEqual(user, l.user) {
			l.user = user
			s.Mirrors.Users.Add(name)
		}
	}
	for name := range s.links {
		if !there[name] {
			delete(s.links, name)
			s.Mirrors.Users.Add(name)
		}
	}
	return nil
}

// turn is the turn of one Broker.
func (s *Service) turn(ctx context.Context, l *link, m *mirror.Mirror, all []wanted) {
	began := time.Now()
	err := l.turn(ctx, all, func(ctx context.Context) (*connection, error) { return s.connect(ctx, l, m) })
	switch {
	case ctx.Err() != nil:
		return
	case err == nil && time.Since(began) < turnWithin:
		l.pause, l.failed = l.follower.pause(l.pause), false
	default:
		l.until = time.Time{}
		if err != nil && !l.failed {
			s.Logger.Warn("Reading the alerts of a Broker's Views failed", "broker", m.Broker, "error", cause(err))
		}
		l.pause = min(max(2*l.pause, turnEvery), lastRetry)
		if err != nil && !l.failed {
			l.pause = turnEvery // it may have been restEvery, and unreadAfter is to be noticed soon
		}
		l.failed = err != nil
	}
	for i := range all {
		if why, known := l.follower.unread(&all[i]); known {
			s.tell(all[i].manifest, why)
		}
	}
}

// tell has the status of a View say why its alerts get no events.
func (s *Service) tell(view *v1alpha1.View, why string) {
	if s.unread.set(view.UID, why, time.Now()) {
		s.Mirrors.Views.Add(client.ObjectKeyFromObject(view))
	}
}

func (s *Service) connect(ctx context.Context, l *link, m *mirror.Mirror) (*connection, error) {
	broker := &v1alpha1.Broker{}
	if err := s.Client.Get(ctx, m.Broker, broker); err != nil {
		return nil, err
	}
	if broker.UID != m.UID {
		return nil, errors.New("the Broker is another one of that name")
	}
	if now := time.Now(); l.of != broker.Generation || !now.Before(l.until) {
		key, _, err := s.keyOf(m.UID)
		if err != nil {
			return nil, err
		}
		if l.access, err = accessTo(ctx, s.Live, broker, key); err != nil {
			return nil, err
		}
		l.of, l.until = broker.Generation, now.Add(accessFor)
	}
	l.access.servers = servers(m.State())
	return l.access.connect(ctx)
}

// write writes an event about a View.
func (s *Service) write(ctx context.Context, view *v1alpha1.View, e Event) error {
	var random [8]byte
	_, _ = rand.Read(random[:])
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	return s.Client.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: view.Namespace, Name: view.Name + "." + hex.EncodeToString(random[:])},
		EventTime:  metav1.NowMicro(), ReportingController: build.FieldOwner, ReportingInstance: build.FieldOwner,
		Action: "Alert", Reason: e.Reason, Note: e.Note, Type: kind,
		Regarding: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "View", Namespace: view.Namespace, Name: view.Name, UID: view.UID},
	})
}
