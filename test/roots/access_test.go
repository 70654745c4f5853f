package roots

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// access is what the operator gives the users of etcd.
var access = build.EtcdAccess(main)

// within returns a context that bounds requests to etcd.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), testutil.Patience)
	t.Cleanup(cancel)
	return ctx
}

func (c *cluster) endpoints() (endpoints []string) {
	for n := range c.coordinators {
		endpoints = append(endpoints, fmt.Sprintf("https://localhost:%d", c.clientPort(n)))
	}
	return endpoints
}

// leaf returns a certificate for etcd in a user's name.
func (c *cluster) leaf(user string) map[string][]byte {
	c.t.Helper()
	leaf, err := c.roots.Of(pki.Etcd).EnsureLeaf(pki.Leaf{Name: user, Life: time.Hour}, nil, time.Now(), rand.Reader)
	testutil.Must(c.t, err)
	return leaf
}

// as opens etcd as the operator does, in a user's name.
func (c *cluster) as(user string) observe.Etcd {
	c.t.Helper()
	leaf := c.leaf(user)
	etcd, err := observe.DialEtcd("default/main", c.endpoints(), leaf["ca.crt"], leaf["tls.crt"], leaf["tls.key"])
	testutil.Must(c.t, err)
	c.t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

// etcdctl opens etcd as a person does, in a user's name, with coordinator n alone or all of them.
func (c *cluster) etcdctl(user string, n ...int) *clientv3.Client {
	c.t.Helper()
	etcd, err := clientv3.New(c.etcdctlConfig(user, n...))
	testutil.Must(c.t, err)
	c.t.Cleanup(func() { _ = etcd.Close() })
	return etcd
}

func (c *cluster) etcdctlConfig(user string, n ...int) clientv3.Config {
	c.t.Helper()
	leaf := c.leaf(user)
	cert, err := tls.X509KeyPair(leaf["tls.crt"], leaf["tls.key"])
	testutil.Must(c.t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(leaf["ca.crt"])
	endpoints := c.endpoints()
	if len(n) > 0 {
		endpoints = endpoints[n[0] : n[0]+1]
	}
	return clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(),
		TLS: &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, MinVersion: tls.VersionTLS13},
	}
}

// state reads the users of etcd, as the operator does.
func (c *cluster) state() (state coordination.AccessState) {
	c.t.Helper()
	root := c.as(coordination.RootUser)
	testutil.Eventually(c.t, "the users of etcd are read", func() (err error) {
		state, err = root.Access(within(c.t), access)
		return err
	})
	return state
}

// grant makes the users of etcd.
func (c *cluster) grant() {
	c.t.Helper()
	root := c.as(coordination.RootUser)
	testutil.Eventually(c.t, "the users of etcd are made", func() error { return root.GrantAccess(within(c.t), access) })
	if state := c.state(); len(state.Lacks) > 0 {
		c.t.Fatalf("after they were made, the users of etcd lack %v", state.Lacks)
	}
}

// restrict has etcd ask for users.
func (c *cluster) restrict() {
	c.t.Helper()
	root := c.as(coordination.RootUser)
	testutil.Eventually(c.t, "etcd asks for users", func() error { return root.EnableAccess(within(c.t), access) })
	if !c.state().Enabled {
		c.t.Fatal("etcd does not ask for users")
	}
	c.level()
}

// level waits until each coordinator knows what the others do. Some refusals are its own.
func (c *cluster) level() {
	c.t.Helper()
	for n := range c.coordinators {
		etcd := c.etcdctl(coordination.RootUser, n)
		testutil.Eventually(c.t, fmt.Sprintf("coordinator %d reads what all know", n), func() error {
			_, err := etcd.Get(within(c.t), "any")
			return err
		})
	}
}

// revision returns the revision of etcd's users.
func (c *cluster) revision() (revision uint64) {
	c.t.Helper()
	root := c.etcdctl(coordination.RootUser)
	testutil.Eventually(c.t, "the revision of users is read", func() error {
		status, err := root.AuthStatus(within(c.t))
		if err == nil {
			revision = status.AuthRevision
		}
		return err
	})
	return revision
}

// registrations returns the broker's incarnations, by name, and the term of the controller.
func (c *cluster) registrations() (all map[string]int64) {
	c.t.Helper()
	etcd := c.as(build.FieldOwner)
	ctx, cancel := context.WithCancel(within(c.t))
	defer cancel()
	testutil.Must(c.t, etcd.WatchState(ctx, func(state *coordination.State, _ coordination.Changes) {
		if all != nil || len(state.Brokers) < len(c.brokers) || state.Controller.Term == 0 {
			return
		}
		all = map[string]int64{"controller": state.Controller.Term}
		for _, b := range state.Brokers {
			all[b.Name] = b.Incarnation
		}
		cancel()
	}))
	if all == nil {
		c.t.Fatal("not all brokers are registered")
	}
	return all
}

// ackWait is how long a publisher waits for an answer, which is lost with a connection.
const ackWait = 5 * time.Second

// load publishes to a stream with a replica on each broker until stop, which returns the numbers
// that were acknowledged.
func (c *cluster) load() (stop func() []string) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var acked []string
	var seen atomic.Int64
	var publisher sync.WaitGroup
	urls := fmt.Sprintf("nats://%s,nats://%s", c.brokers[0].address, c.brokers[1].address)
	conn, err := nats.Connect(urls, nats.Timeout(testutil.Patience), nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	testutil.Must(c.t, err)
	c.t.Cleanup(conn.Close)
	js, err := conn.JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(c.t, err)
	testutil.Eventually(c.t, "the stream is made", func() error {
		_, err := js.AddStream(&nats.StreamConfig{Name: "load", Subjects: []string{"load"}, Replicas: 2})
		return err
	})
	publisher.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			body := fmt.Sprint(n)
			if _, err := js.Publish("load", []byte(body), nats.AckWait(ackWait)); err == nil {
				acked = append(acked, body)
				seen.Add(1)
			}
		}
	})
	c.t.Cleanup(func() { cancel(); publisher.Wait() })
	c.acks = func(what string) {
		c.t.Helper()
		from := seen.Load()
		testutil.EventuallyTrue(c.t, "publishes are acknowledged "+what, func() bool { return seen.Load() > from+10 })
	}
	return func() []string { cancel(); publisher.Wait(); return acked }
}

// holds fails unless the stream has every acknowledged record.
func (c *cluster) holds(acked []string) {
	c.t.Helper()
	conn, err := nats.Connect("nats://"+c.brokers[0].address, nats.Timeout(testutil.Patience))
	testutil.Must(c.t, err)
	defer conn.Close()
	js, err := conn.JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(c.t, err)
	sub, err := js.SubscribeSync("load", nats.OrderedConsumer())
	testutil.Must(c.t, err)
	missing := map[string]bool{}
	for _, body := range acked {
		missing[body] = true
	}
	for len(missing) > 0 {
		msg, err := sub.NextMsg(testutil.Patience)
		if err != nil {
			c.t.Fatalf("of %d acknowledged records %d are missing: %v", len(acked), len(missing), err)
		}
		delete(missing, string(msg.Data))
	}
	c.t.Logf("%d records were acknowledged", len(acked))
}

// outlast waits until etcd has ended a lease like the brokers', which nobody renews. It does so
// as the user root.
func (c *cluster) outlast() {
	c.t.Helper()
	const key = "/carillon/default/main/dying"
	etcd := c.etcdctl(names[brokerEtcdTLS])
	testutil.Eventually(c.t, "a key is put on a lease", func() error {
		lease, err := etcd.Grant(within(c.t), int64(coordination.DefaultLeaseTTL/time.Second))
		if err != nil {
			return err
		}
		_, err = etcd.Put(within(c.t), key, "x", clientv3.WithLease(lease.ID))
		return err
	})
	testutil.Eventually(c.t, "a key goes with its lease", func() error {
		got, err := etcd.Get(within(c.t), key)
		if err == nil && len(got.Kvs) > 0 {
			err = errors.New("it is still there")
		}
		return err
	})
}

// TestUsersOfEtcdComeUnderLoad: they are made and asked for while brokers publish. Nobody registers
// again or is elected for it. After it brokers and coordinators restart, one of these without its
// volume, and a broker that dies is missed when its lease ends.
func TestUsersOfEtcdComeUnderLoad(t *testing.T) {
	c := newCluster(t, true)
	c.start(false)
	stop := c.load()
	c.acks("before")
	if state := c.state(); state.Enabled || len(state.Lacks) == 0 {
		t.Fatalf("a new etcd has users: %+v", state)
	}
	root := c.as(coordination.RootUser)
	if err := root.EnableAccess(within(t), access); err == nil || c.state().Enabled {
		t.Fatalf("etcd asks for users that it does not have (%v)", err)
	}
	c.grant()
	made := c.revision()
	c.grant()
	if again := c.revision(); again != made {
		t.Errorf("users that are as wanted were changed: their revision was %d and is %d", made, again)
	}
	c.acks("with users")
	// A busy machine may cost a lease at any time, so it is tried again.
	for try := 1; ; try++ {
		before := c.registrations()
		c.restrict()
		c.restrict()
		c.acks("by users")
		c.outlast()
		after := c.registrations()
		if fmt.Sprint(after) == fmt.Sprint(before) {
			break
		}
		if t.Logf("the registrations were %v and are %v", before, after); try == 5 {
			t.Fatal("a lease or the controller is lost whenever etcd begins to ask for users")
		}
		root := c.etcdctl(coordination.RootUser)
		testutil.Eventually(t, "etcd asks for users no more", func() error { _, err := root.AuthDisable(within(t)); return err })
	}
	c.whole()
	for n, p := range c.coordinators {
		for _, probe := range []string{"live", "ready", "startup"} {
			// A busy machine may cost etcd its leader at any time.
			testutil.Eventually(t, fmt.Sprintf("coordinator %d answers the probe %s", n, probe), func() error {
				answer, err := http.Get("http://" + p.address + "/healthz/" + probe)
				if err != nil {
					return err
				}
				answer.Body.Close()
				if answer.StatusCode != http.StatusOK {
					return errors.New(answer.Status)
				}
				return nil
			})
		}
	}
	for n := range c.coordinators {
		c.coordinator(n, false)
		c.whole()
	}
	c.acks("after each coordinator's restart")
	c.coordinators[1].stop()
	testutil.Must(t, os.RemoveAll(c.data[1]))
	c.coordinator(1, false)
	c.whole()
	c.acks("after a coordinator lost its volume")
	c.broker(0, false)
	c.linked()
	c.acks("after a broker's restart")
	acked := stop()
	c.holds(acked)
	if state := c.state(); !state.Enabled || len(state.Lacks) > 0 {
		t.Errorf("in the end etcd has %+v", state)
	}
	health := c.as(build.FieldOwner).Health(within(t))
	if health.Err != nil || len(health.Members) != 3 {
		t.Errorf("the operator sees %+v", health)
	}
	for _, e := range health.Endpoints {
		if e.Err != nil {
			t.Errorf("the operator sees %s: %v", e.Endpoint, e.Err)
		}
	}
}

// TestEachUserOfEtcdMayDoItsWork: and nothing else. Before etcd asks for users, all certificates
// may.
func TestEachUserOfEtcdMayDoItsWork(t *testing.T) {
	c := newCluster(t, true)
	for n := range c.coordinators {
		c.coordinator(n, false)
	}
	c.whole()
	ctx := within(t)
	const inside, outside, beside = "/carillon/default/main/a", "/carillon/default/other/a", "/carillon/default/main2/a"
	calls := []struct {
		what  string
		users []string // who may
		call  func(*clientv3.Client) error
	}{
		{"read its keys", []string{"broker", "operator", "coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Get(ctx, inside[:len(inside)-1], clientv3.WithPrefix())
			return err
		}},
		{"write its keys", []string{"broker", "operator", "coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(inside), ">", -1)).Then(clientv3.OpPut(inside, "x")).Else(clientv3.OpGet(inside)).Commit()
			return err
		}},
		{"delete its keys", []string{"broker", "operator", "coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Delete(ctx, inside, clientv3.WithPrefix())
			return err
		}},
		{"read another's keys", []string{"coordinator", "root"}, func(e *clientv3.Client) error { _, err := e.Get(ctx, outside); return err }},
		{"read all keys", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Get(ctx, "", clientv3.WithPrefix())
			return err
		}},
		{"write another's keys", []string{"coordinator", "root"}, func(e *clientv3.Client) error { _, err := e.Put(ctx, outside, "x"); return err }},
		{"write the keys of a longer name", []string{"coordinator", "root"}, func(e *clientv3.Client) error { _, err := e.Put(ctx, beside, "x"); return err }},
		{"write another's keys in a transaction of its own", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Txn(ctx).Then(clientv3.OpPut(inside, "x"), clientv3.OpPut(outside, "x")).Commit()
			return err
		}},
		{"delete another's keys", []string{"coordinator", "root"}, func(e *clientv3.Client) error { _, err := e.Delete(ctx, outside); return err }},
		{"add a member", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			// One that is there already. Members that have not been connected for 5 s add none at all.
			_, err := e.MemberAddAsLearner(ctx, []string{fmt.Sprintf("https://localhost:%d", c.peerPort(0))})
			if errors.Is(err, rpctypes.ErrPeerURLExist) || errors.Is(err, rpctypes.ErrUnhealthy) {
				err = nil
			}
			return err
		}},
		{"remove a member", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.MemberRemove(ctx, 1)
			if errors.Is(err, rpctypes.ErrMemberNotFound) {
				err = nil
			}
			return err
		}},
		{"add a user", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.UserAddWithOptions(ctx, "x", "", &clientv3.UserAddOptions{NoPassword: true})
			if err == nil || errors.Is(err, rpctypes.ErrUserAlreadyExist) {
				_, err = e.UserDelete(ctx, "x")
			}
			return err
		}},
		{"widen its role", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.RoleGrantPermission(ctx, "cluster", outside, "", clientv3.PermissionType(clientv3.PermReadWrite))
			if err == nil {
				_, err = e.RoleRevokePermission(ctx, "cluster", outside, "")
			}
			return err
		}},
		{"take a snapshot", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			answer, err := e.Snapshot(ctx)
			if err == nil {
				_, err = answer.Read(make([]byte, 1))
				answer.Close()
			}
			return err
		}},
		{"rewrite a database", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Defragment(ctx, e.Endpoints()[0])
			return err
		}},
		{"disarm an alarm", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: 1, Alarm: 1})
			return err
		}},
		{"compact the history", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.Compact(ctx, 1)
			if errors.Is(err, rpctypes.ErrCompacted) {
				err = nil
			}
			return err
		}},
		{"list alarms", []string{"broker", "operator", "coordinator", "root", "stranger"}, func(e *clientv3.Client) error { _, err := e.AlarmList(ctx); return err }},
		// The last one: each refusal before it shows that etcd asks for users.
		{"turn users off", []string{"coordinator", "root"}, func(e *clientv3.Client) error {
			_, err := e.AuthDisable(ctx)
			if err == nil {
				_, err = e.AuthEnable(ctx)
			}
			return err
		}},
	}
	users := map[string]string{
		"broker": names[brokerEtcdTLS], "operator": build.FieldOwner, "coordinator": names[coordinatorTLS],
		"root": coordination.RootUser, "stranger": "main2-broker",
	}
	clients := map[string]*clientv3.Client{}
	for who, user := range users {
		clients[who] = c.etcdctl(user)
	}
	// settled repeats a call until it is answered: a busy machine may elect another leader.
	settled := func(what string, call func() error) (err error) {
		testutil.Eventually(t, "an answer to whether one may "+what, func() error {
			if err = call(); errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, rpctypes.ErrUserNotFound) {
				return nil
			}
			return err
		})
		return err
	}
	c.grant()
	for _, call := range calls[:len(calls)-1] {
		for who := range users {
			if err := settled(call.what, func() error { return call.call(clients[who]) }); err != nil {
				t.Errorf("before etcd asks for users, %s can't %s: %v", who, call.what, err)
			}
		}
	}
	c.restrict()
	for _, call := range calls {
		for who := range users {
			err := settled(call.what, func() error { return call.call(clients[who]) })
			if may := slices.Contains(call.users, who); may != (err == nil) {
				t.Errorf("%s may %s: %v; and: %v", who, call.what, may, err)
			}
		}
	}
	c.level()
	// Only the leader promotes.
	for who, user := range users {
		err := settled("promote a member", func() error {
			for n, endpoint := range c.endpoints() {
				etcd := c.etcdctl(user, n)
				status, err := etcd.Status(ctx, endpoint)
				if err != nil {
					return err
				}
				if status.Leader != status.Header.MemberId {
					continue
				}
				if _, err = etcd.MemberPromote(ctx, 1); errors.Is(err, rpctypes.ErrMemberNotFound) {
					err = nil
				}
				return err
			}
			return errors.New("there is no leader")
		})
		if may := who == "coordinator" || who == "root"; may != (err == nil) {
			t.Errorf("%s may promote a member: %v; and: %v", who, may, err)
		}
	}

	stranger := c.as(users["stranger"])
	err := settled("read the owner", func() error { _, err := stranger.Owner(ctx); return err })
	refused, _ := errors.AsType[*coordination.RefusedError](err)
	if refused == nil || refused.User != users["stranger"] || !strings.Contains(err.Error(), `makes it user "main2-broker" of etcd`) {
		t.Errorf("a user that etcd does not know is told: %v", err)
	}
	if state := c.state(); len(state.Lacks) > 0 {
		t.Errorf("in the end the users of etcd lack %v", state.Lacks)
	}
}

// TestUsersOfEtcdAreMadeAsWantedAgain: whatever was changed by hand, even if the operator's own
// user may do nothing meanwhile, and brokers go on.
func TestUsersOfEtcdAreMadeAsWantedAgain(t *testing.T) {
	c := newCluster(t, true)
	c.start(false)
	c.grant()
	c.restrict()
	ctx, root := within(t), c.etcdctl(coordination.RootUser)
	for what, spoil := range map[string]func() error{
		"no user of the operator": func() error { _, err := root.UserDelete(ctx, build.FieldOwner); return err },
		"no user of the brokers":  func() error { _, err := root.UserDelete(ctx, names[brokerEtcdTLS]); return err },
		"brokers that may do everything": func() error {
			_, err := root.UserGrantRole(ctx, names[brokerEtcdTLS], "root")
			return err
		},
		"no role":                   func() error { _, err := root.RoleDelete(ctx, "cluster"); return err },
		"a coordinator's lost role": func() error { _, err := root.UserRevokeRole(ctx, names[coordinatorTLS], "root"); return err },
		"a wider role": func() error {
			_, err := root.RoleGrantPermission(ctx, "cluster", "/", "0", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
		"a role that only reads": func() error {
			_, err := root.RoleGrantPermission(ctx, "cluster", "/carillon/default/main/", "/carillon/default/main0", clientv3.PermissionType(clientv3.PermRead))
			return err
		},
	} {
		testutil.Eventually(t, "there is "+what, func() error {
			err := spoil()
			if errors.Is(err, rpctypes.ErrUserNotFound) || errors.Is(err, rpctypes.ErrRoleNotFound) || errors.Is(err, rpctypes.ErrRoleNotGranted) {
				err = nil // the answer to an attempt before was lost
			}
			return err
		})
		if state := c.state(); len(state.Lacks) == 0 || !state.Enabled {
			t.Errorf("%s: it is not noticed: %+v", what, state)
		}
		c.grant()
		operator := c.as(build.FieldOwner)
		testutil.Eventually(t, what+", and made as wanted again", func() error { _, err := operator.Owner(ctx); return err })
	}
	c.registrations()
	c.linked()
}

// TestChangesOfUsersFailNoRequest: a request that etcd accepts before a change of users, and
// carries out after it, fails without effect, and is repeated.
func TestChangesOfUsersFailNoRequest(t *testing.T) {
	c := newCluster(t, true)
	for n := range c.coordinators {
		c.coordinator(n, false)
	}
	c.whole()
	c.grant()
	c.restrict()
	const changes = 100 // without repetitions, several requests fail
	ctx, root := within(t), c.etcdctl(coordination.RootUser)
	changed := make(chan struct{})
	var answers atomic.Int64
	var requests sync.WaitGroup
	judge := func(what string, err error) {
		switch {
		case err != nil && strings.Contains(err.Error(), "revision of auth store is old"):
			t.Errorf("%s: %v", what, err)
		case err == nil: // other errors are of a busy machine
			answers.Add(1)
		}
	}
	for range 4 {
		etcd := c.as(names[brokerEtcdTLS])
		requests.Go(func() {
			for {
				select {
				case <-changed:
					return
				default:
				}
				judge("a transaction", etcd.ClaimOwner(ctx, "me"))
				_, err := etcd.Owner(ctx)
				judge("a read", err)
			}
		})
	}
	for made := 0; made < changes && ctx.Err() == nil; {
		if _, err := root.RoleAdd(ctx, "noise"); err == nil {
			made++
		}
		_, _ = root.RoleDelete(ctx, "noise")
	}
	close(changed)
	requests.Wait()
	if ctx.Err() != nil || answers.Load() == 0 {
		t.Errorf("%d requests were answered during %d changes: %v", answers.Load(), changes, ctx.Err())
	}
}
