package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestBrokersDoForUsersWhatTheyMayThemselves: what a stream publishes again or copies, and what a
// consumer delivers, needs the rights of the user who asked for it, at each broker and at any time.
func TestBrokersDoForUsersWhatTheyMayThemselves(t *testing.T) {
	t.Parallel()
	hash, errs, code := command(t, "s3cret\n", "user", "hash")
	if code != 0 {
		t.Fatal(errs)
	}
	file := filepath.Join(t.TempDir(), "users.json")
	write := func(eve ...string) {
		t.Helper()
		doc := identity.Document{Users: []identity.User{
			{Name: "ann", Passwords: []string{strings.TrimSpace(hash)}},
			{Name: "eve\r\n", Passwords: []string{strings.TrimSpace(hash)}, Permissions: &identity.Permissions{
				Publish: &identity.Subjects{Allow: slices.Concat([]string{
					"in.>", "$JS.ACK.>", "$JS.API.STREAM.>", "$JS.API.CONSUMER.CREATE.mine.>", "$JS.API.CONSUMER.DELETE.mine.>", "$JS.API.CONSUMER.INFO.mine.>",
				}, eve)},
				Subscribe: &identity.Subjects{Allow: []string{"_INBOX.>"}},
			}},
		}}
		text, err := json.Marshal(doc)
		testutil.Must(t, err)
		testutil.Must(t, os.WriteFile(file+".new", text, 0o600))
		testutil.Must(t, os.Rename(file+".new", file))
	}
	write("out.>")
	dev, urls := startDevBrokers(t, 2, "--data", t.TempDir(), "--users", file)
	defer dev.end()
	said := make(chan error, 100)
	as := func(user string, broker int) *nats.Conn {
		return connect(t, urls[broker], nats.UserInfo(user, "s3cret"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { said <- err }))
	}
	ann := as("ann", 0)
	eve := []*nats.Conn{as("eve\r\n", 0), as("eve\r\n", 1)} // one of the brokers doesn't lead the stream
	annStreams, err := ann.JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(t, err)
	_, err = annStreams.AddStream(&nats.StreamConfig{Name: "theirs", Subjects: []string{"theirs.>"}})
	testutil.Must(t, err)

	mine := nats.StreamConfig{Name: "mine", Subjects: []string{"in.>"}}
	republished, mirrored := mine, nats.StreamConfig{Name: "mirror", Mirror: &nats.StreamSource{Name: "theirs"}}
	republished.RePublish = &nats.RePublish{Source: "in.>", Destination: "secret.>"}
	for i, nc := range eve {
		js, err := nc.JetStream(nats.MaxWait(testutil.Patience))
		testutil.Must(t, err)
		for _, stream := range []*nats.StreamConfig{&republished, &mirrored} {
			if _, err := js.AddStream(stream); err == nil || !strings.Contains(err.Error(), "has no right to") {
				t.Errorf("eve at broker %d makes stream %s: %v", i, stream.Name, err)
			}
		}
		forged := nats.NewMsg("$JS.API.STREAM.CREATE.mine")
		forged.Header.Set("Carillon-User", "ann")
		forged.Data, err = json.Marshal(&republished)
		testutil.Must(t, err)
		if answer, err := nc.RequestMsg(forged, testutil.Patience); err != nil || !strings.Contains(string(answer.Data), "has no right to") {
			t.Errorf("eve calls herself ann at broker %d: %s %v", i, answer.Data, err)
		}
	}

	// A call that a stream republishes has no rights: it has no user.
	maker := nats.StreamConfig{Name: "maker", Subjects: []string{"make.*"}, RePublish: &nats.RePublish{Source: "make.*", Destination: "$JS.API.STREAM.CREATE.{{wildcard(1)}}"}}
	calls, err := eve[0].JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(t, err)
	_, err = calls.AddStream(&maker)
	testutil.Must(t, err)
	for _, stream := range []nats.StreamConfig{{Name: "evil", Subjects: []string{"evil"}, RePublish: &nats.RePublish{Source: "evil", Destination: "secret.x"}}, {Name: "good", Subjects: []string{"good"}}} {
		config, err := json.Marshal(&stream)
		testutil.Must(t, err)
		_, err = annStreams.Publish("make."+stream.Name, config)
		testutil.Must(t, err)
	}
	testutil.EventuallyTrue(t, "the second stream is made", func() bool { _, err := annStreams.StreamInfo("good"); return err == nil })
	if _, err := annStreams.StreamInfo("evil"); !errors.Is(err, nats.ErrStreamNotFound) {
		t.Errorf("the first one: %v", err)
	}

	republished.RePublish.Destination = "out.>"
	js, err := eve[1].JetStream(nats.MaxWait(testutil.Patience))
	testutil.Must(t, err)
	_, err = js.AddStream(&republished)
	testutil.Must(t, err)
	for i, nc := range eve {
		js, err := nc.JetStream(nats.MaxWait(testutil.Patience))
		testutil.Must(t, err)
		if _, err := js.AddConsumer("mine", &nats.ConsumerConfig{Name: "c", DeliverSubject: "alerts"}); err == nil || !strings.Contains(err.Error(), `no right to publish on "alerts"`) {
			t.Errorf("eve at broker %d makes a consumer that sends alerts: %v", i, err)
		}
		_, err = js.AddConsumer("mine", &nats.ConsumerConfig{Name: fmt.Sprint("inbox", i), DeliverSubject: nats.NewInbox()})
		testutil.Must(t, err)
		later := nats.NewMsg("in.schedule")
		later.Header.Set("Nats-Schedule", "@every 1h")
		later.Header.Set("Nats-Schedule-Target", "secret.x")
		testutil.Must(t, nc.PublishMsg(later))
		if err := <-said; !strings.Contains(err.Error(), `Permissions Violation for Publish to "secret.x"`) {
			t.Errorf("a schedule for secret.x: %v", err)
		}
	}
	_, err = js.AddConsumer("mine", &nats.ConsumerConfig{Name: "pushed", DeliverSubject: "out.pushed", AckPolicy: nats.AckExplicitPolicy})
	testutil.Must(t, err)

	again, err := ann.SubscribeSync("out.a")
	testutil.Must(t, err)
	pushed, err := ann.SubscribeSync("out.pushed")
	testutil.Must(t, err)
	testutil.Must(t, ann.Flush())
	sent := 0
	// reach publishes a message, and reports whether it was published again and pushed within a time.
	reach := func(within time.Duration) (republished, delivered bool) {
		sent++
		text := fmt.Sprint(sent)
		_, err := annStreams.Publish("in.a", []byte(text))
		testutil.Must(t, err)
		arrives := func(sub *nats.Subscription) bool {
			for end := time.Now().Add(within); ; {
				m, err := sub.NextMsg(time.Until(end))
				if err != nil || string(m.Data) == text {
					return err == nil
				}
			}
		}
		return arrives(again), arrives(pushed)
	}
	if a, b := reach(testutil.Patience); !a || !b {
		t.Fatalf("while eve has the rights: published again %v, pushed %v", a, b)
	}
	write()
	testutil.EventuallyTrue(t, "nothing is sent without the right", func() bool {
		a, b := reach(200 * time.Millisecond)
		return !a && !b
	})
	write("out.>")
	for { // what waited is pushed without another message
		m, err := pushed.NextMsg(testutil.Patience)
		testutil.Must(t, err)
		if string(m.Data) == fmt.Sprint(sent) {
			break
		}
	}
	testutil.EventuallyTrue(t, "all is published again", func() bool {
		a, _ := reach(500 * time.Millisecond)
		return a
	})
}
