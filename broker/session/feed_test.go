package session_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// openFeed opens a Feed for the first client of a hub, which is subscribed to inbox.
func openFeed(t testing.TB, h *session.Hub, changed func()) *session.Feed {
	t.Helper()
	f, err := h.OpenFeed(1, "inbox.1", changed)
	testutil.Must(t, err)
	t.Cleanup(f.Close)
	return f
}

func changeFeed(t testing.TB, f *session.Feed, remove []string, notice string, add ...string) {
	t.Helper()
	_, err := f.Change(remove, []byte(notice), 0, add)
	testutil.Must(t, err)
}

func fed(as, subject, header, payload string) []string {
	lines := "NATS/1.0\r\nCarillon-Subject: " + subject + "\r\n" + header + "\r\n"
	first := fmt.Sprintf("HMSG %s 7 %d %d", as, len(lines), len(lines)+len(payload))
	return append([]string{first}, strings.Split(lines+payload, "\r\n")...)
}

// TestAFeedDeliversItsMembers: a client gets what is published on the members of a Feed under one
// subject. Notices come before the first message of who joins, and behind the last one of who
// leaves.
func TestAFeedDeliversItsMembers(t *testing.T) {
	h, address := newTestHub(t, nil)
	sub, pub := dial(t, address, ""), dial(t, address, "")
	sub.send("SUB inbox.* 7\r\n")
	sub.sync()
	f := openFeed(t, h, func() { t.Error("nothing has changed") })
	changeFeed(t, f, nil, "a and b", "a", "b", "a")
	pub.send("PUB a 1\r\n1\r\nPUB c 1\r\n2\r\nHPUB b 18 19\r\nNATS/1.0\r\nK: V\r\n\r\n3\r\n")
	pub.sync()
	sub.expect("MSG inbox.1 7 7", "a and b")
	sub.expect(fed("inbox.1", "a", "", "1")...)
	sub.expect(fed("inbox.1", "b", "K: V\r\n", "3")...)
	changeFeed(t, f, []string{"a", "x"}, "c for a", "c")
	pub.send("PUB a 1\r\n4\r\nPUB c 1\r\n5\r\n")
	pub.sync()
	sub.expect("MSG inbox.1 7 7", "c for a")
	sub.expect(fed("inbox.1", "c", "", "5")...)
	forged := "NATS/1.0\r\nCarillon-Query: End\r\nK: V\r\nCarillon-Subject: a\r\n\r\n"
	pub.send("HPUB c %d %d\r\n%s8\r\n", len(forged), len(forged)+1, forged)
	pub.sync()
	sub.expect(fed("inbox.1", "c", "K: V\r\n", "8")...)
	f.Close()
	pub.send("PUB b 1\r\n6\r\nPUB inbox.1 1\r\n7\r\n")
	pub.sync()
	sub.expect("MSG inbox.1 7 1", "7")
	if s := h.Stats(); s.Subscriptions != 1 {
		t.Errorf("%d subscriptions are left", s.Subscriptions)
	}
	if _, err := f.Change(nil, []byte("late"), 0, nil); !errors.Is(err, session.ErrFeedEnded) {
		t.Errorf("a closed feed changes: %v", err)
	}
}

// TestAFeedChangesWithItsNotices: while others publish, members join and leave. Each message comes
// between the notice that adds its subject and the one that removes it. With no echo the broker
// counts the members' messages one by one.
func TestAFeedChangesWithItsNotices(t *testing.T) {
	for _, options := range []string{"", `,"echo":false`} {
		h, address := newTestHub(t, nil)
		sub := dial(t, address, options)
		sub.send("SUB inbox.* 7\r\n")
		sub.sync()
		f := openFeed(t, h, func() { t.Error("nothing has changed") })
		all := strings.Fields("a b c d e f g h")
		changeFeed(t, f, nil, "", all...)
		var publishing, changing sync.WaitGroup
		var over atomic.Bool
		for range 2 {
			publishing.Go(func() {
				for i := range 20_000 { // which the receiver's bound has room for
					behind := h.Send([]session.Message{{Subject: []byte(all[i%len(all)])}, {Subject: []byte(all[i/9%len(all)])}})
					behind.Wait()
				}
			})
		}
		changing.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(len(options))))
			for i := 0; i < 20_000 && !over.Load(); i++ {
				n := r.IntN(len(all))
				left, joined := all[n], all[(n+1+r.IntN(len(all)-1))%len(all)]
				if _, err := f.Change([]string{left}, []byte(left+" "+joined), 0, []string{joined}); err != nil {
					t.Error(err)
				}
			}
		})
		go func() {
			publishing.Wait()
			over.Store(true)
			changing.Wait()
			_, _ = f.Change(nil, []byte("over"), 0, nil)
		}()
		members, messages := map[string]bool{}, 0
		for _, of := range all {
			members[of] = true
		}
		for notice := ""; notice != "over"; {
			line := sub.line()
			if strings.HasPrefix(line, "MSG ") {
				notice = sub.line()
				left, joined, _ := strings.Cut(notice, " ")
				members[left], members[joined] = false, true
				continue
			}
			_ = sub.line()
			of := strings.TrimPrefix(sub.line(), "Carillon-Subject: ")
			_, _ = sub.line(), sub.line()
			if messages++; !members[of] {
				t.Fatalf("after %d messages one on %q came, which is no member", messages, of)
			}
		}
		if messages == 0 {
			t.Error("nothing came")
		}
		f.Close()
	}
}

// TestAFeedEndsWithItsSubscription: by UNSUB, and by the end of the connection. Nothing of it stays
// in the index, or is delivered.
func TestAFeedEndsWithItsSubscription(t *testing.T) {
	for how, end := range map[string]func(*wire){
		"unsub": func(w *wire) { w.send("UNSUB 7\r\n"); w.sync() },
		"close": func(w *wire) { w.conn.Close() },
	} {
		t.Run(how, func(t *testing.T) {
			h, address := newTestHub(t, nil)
			sub, pub := dial(t, address, ""), dial(t, address, "")
			sub.send("SUB inbox.1 7\r\n")
			sub.sync()
			var changes atomic.Int64
			f := openFeed(t, h, func() { changes.Add(1) })
			changeFeed(t, f, nil, "", "a", "b")
			end(sub)
			testutil.EventuallyTrue(t, "it has ended", f.Ended)
			if n := changes.Load(); n != 1 {
				t.Errorf("told %d times", n)
			}
			pub.send("PUB a 1\r\n1\r\n")
			pub.sync()
			if how == "unsub" {
				sub.sync()
			}
			f.Close()
			if s := h.Stats(); s.Subscriptions != 0 || s.InterestBytes != 0 {
				t.Errorf("%d subscriptions of %d bytes are left", s.Subscriptions, s.InterestBytes)
			}
		})
	}
}

// TestAFeedEndsWhenItsSubscriptionGetsAMaximum: a client that has had its last message sends no
// second UNSUB, so nothing else would end the Feed.
func TestAFeedEndsWhenItsSubscriptionGetsAMaximum(t *testing.T) {
	h, address := newTestHub(t, nil)
	sub, pub := dial(t, address, ""), dial(t, address, "")
	sub.send("SUB inbox.1 7\r\n")
	sub.sync()
	var changes atomic.Int64
	f := openFeed(t, h, func() { changes.Add(1) })
	changeFeed(t, f, nil, "", "a")
	sub.send("UNSUB 7 1\r\n")
	sub.sync()
	if n := changes.Load(); n != 1 || !f.Ended() {
		t.Errorf("told %d times; ended: %v", n, f.Ended())
	}
	f.Close()
	pub.send("PUB a 1\r\n1\r\nPUB inbox.1 1\r\n2\r\n")
	pub.sync()
	sub.expect("MSG inbox.1 7 1", "2")
	if s := h.Stats(); s.Subscriptions != 0 || s.InterestBytes != 0 {
		t.Errorf("%d subscriptions of %d bytes are left", s.Subscriptions, s.InterestBytes)
	}
}

// TestNothingOfAFeedIsLeft: while others publish and Feeds change, their clients unsubscribe and
// subscribe again, set a maximum, or are gone, and users lose and get rights. All is counted down.
func TestNothingOfAFeedIsLeft(t *testing.T) {
	open := identity.User{Name: "ann"}
	closed := identity.User{Name: "ann", Permissions: may(nil, allow("inbox.>", "b", "d"))}
	h := newUsersHub(t, open)
	all := strings.Fields("a b c d")
	var over atomic.Bool
	var others sync.WaitGroup
	others.Go(func() {
		for i := 0; !over.Load(); i++ {
			behind := h.Send([]session.Message{{Subject: []byte(all[i%len(all)]), Reply: []byte("r")}})
			behind.Wait()
		}
	})
	others.Go(func() {
		for i := 0; !over.Load(); i++ {
			h.change([]identity.User{open, closed}[i%2])
		}
	})
	for n := range uint64(60) {
		client := h.dial("ann")
		client.send("SUB inbox.1 7\r\n")
		client.sync()
		var feeds sync.WaitGroup
		for k := range 2 {
			f, err := h.OpenFeed(n+1, "inbox.1", func() {})
			testutil.Must(t, err)
			feeds.Go(func() {
				for i := k; !f.Ended(); i++ {
					_, err := f.Change(all[i%4:i%4+1], []byte("x"), 0, all[(i+1)%4:(i+1)%4+1])
					if err != nil && !errors.Is(err, session.ErrFeedEnded) {
						t.Error(err)
					}
				}
				f.Close()
			})
		}
		go func() { _, _ = io.Copy(io.Discard, client.conn) }()
		switch n % 3 {
		case 0:
			client.send("UNSUB 7\r\nSUB inbox.1 7\r\n")
		case 1:
			client.send("UNSUB 7 1000000000\r\n")
		}
		if n%3 == 2 {
			client.conn.Close()
		}
		feeds.Wait()
		client.conn.Close()
	}
	over.Store(true)
	others.Wait()
	testutil.EventuallyTrue(t, "nothing is left", func() bool { s := h.Stats(); return s.Subscriptions == 0 && s.InterestBytes == 0 })
}

// TestAFeedNeedsAReceiver: no Feed delivers to a client that is not subscribed on that connection,
// or can't be told the subject.
func TestAFeedNeedsAReceiver(t *testing.T) {
	h, address := newTestHub(t, nil)
	c, bare := dial(t, address, ""), dial(t, address, `,"headers":false,"no_responders":false`)
	c.send("SUB inbox.1 workers 1\r\nSUB inbox.> 2\r\nUNSUB 2 9\r\n")
	c.sync()
	bare.send("SUB inbox.1 1\r\n")
	bare.sync()
	for client, want := range map[uint64]error{1: session.ErrNoReceiver, 2: session.ErrNoHeaders, 3: session.ErrFeedEnded} {
		if _, err := h.OpenFeed(client, "inbox.1", func() {}); !errors.Is(err, want) {
			t.Errorf("client %d: %v, want %v", client, err, want)
		}
	}
}

// TestAFeedHasTheRightsOfItsUser: who loses the right to a member gets nothing of it, from the
// moment on at which the change of users has returned, and the owner of the Feed is told.
func TestAFeedHasTheRightsOfItsUser(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann"}, identity.User{Name: "bob"})
	ann, bob := h.dial("ann"), h.dial("bob")
	ann.send("SUB inbox.1 7\r\n")
	ann.sync()
	var changes atomic.Int64
	f := openFeed(t, h.Hub, func() { changes.Add(1) })
	changeFeed(t, f, nil, "", "a", "b")
	h.change(identity.User{Name: "ann", Permissions: may(nil, allow("inbox.>", "b"))}, identity.User{Name: "bob"})
	if n := changes.Load(); n != 1 {
		t.Errorf("told %d times", n)
	}
	if f.May("a") || !f.May("b") {
		t.Error("the rights are not the present ones")
	}
	changeFeed(t, f, nil, "", "a", "c")
	bob.send("PUB a 1\r\n1\r\nPUB c 1\r\n2\r\nPUB b 1\r\n3\r\n")
	bob.sync()
	ann.expect(fed("inbox.1", "b", "", "3")...)
}

// TestAFeedIsBounded: members count as subscriptions of their client do.
func TestAFeedIsBounded(t *testing.T) {
	h, address := newTestHub(t, func(c *session.Config) { c.Profile.Interest = 100_000 })
	sub := dial(t, address, "")
	sub.send("SUB inbox.1 7\r\n")
	sub.sync()
	f := openFeed(t, h, func() {})
	var err error
	n := 0
	for ; err == nil && n < 1000; n++ {
		_, err = f.Change(nil, nil, 0, []string{fmt.Sprint("a.", n)})
	}
	if !errors.Is(err, session.ErrFeedTooLarge) || n < 50 {
		t.Errorf("after %d members: %v", n, err)
	}
	f.Close()
	sub.send("SUB a 8\r\n")
	sub.sync()
}

// TestAFeedIsBoundedForItsUser: by the memory that the subscriptions of one connection may take.
func TestAFeedIsBoundedForItsUser(t *testing.T) {
	h := newUsersHub(t, identity.User{Name: "ann", Limits: identity.Limits{SubscriptionBytes: 10_000}})
	ann := h.dial("ann")
	ann.send("SUB inbox.1 7\r\n")
	ann.sync()
	f := openFeed(t, h.Hub, func() {})
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		_, err = f.Change(nil, nil, 0, []string{fmt.Sprint("a.", n)})
	}
	if !errors.Is(err, session.ErrFeedTooLarge) || n < 5 {
		t.Errorf("after %d members: %v", n, err)
	}
}

// TestAFeedLeavesOutWhatItsClientPublishes: as the client has asked for.
func TestAFeedLeavesOutWhatItsClientPublishes(t *testing.T) {
	h, address := newTestHub(t, nil)
	quiet, pub := dial(t, address, `,"echo":false`), dial(t, address, "")
	quiet.send("SUB inbox.1 7\r\n")
	quiet.sync()
	f := openFeed(t, h, func() {})
	changeFeed(t, f, nil, "", "a")
	quiet.send("PUB a 1\r\n1\r\n")
	quiet.sync()
	pub.send("PUB a reply 1\r\n2\r\n")
	pub.sync()
	lines := fed("inbox.1", "a", "", "2")
	lines[0] = strings.Replace(lines[0], " 7 ", " 7 reply ", 1)
	quiet.expect(lines...)
}

// BenchmarkFeeds publishes to one subject that is a member of some Feeds of one client.
func BenchmarkFeeds(b *testing.B) {
	for _, n := range []int{1, 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			h, address := newTestHub(b, nil)
			sub := dial(b, address, "")
			sub.send("SUB inbox.1 7\r\n")
			sub.sync()
			for range n {
				changeFeed(b, openFeed(b, h, func() {}), nil, "", "a")
			}
			go func() {
				buf := make([]byte, 1<<20)
				for {
					if _, err := sub.in.Read(buf); err != nil {
						return
					}
				}
			}()
			payload := make([]byte, 128)
			message := []session.Message{{Subject: []byte("a"), Data: payload}}
			b.ReportAllocs()
			for b.Loop() {
				behind := h.Send(message)
				behind.Wait()
			}
			if h.Connections() == 0 {
				b.Fatal("the receiver was too slow")
			}
		})
	}
}
