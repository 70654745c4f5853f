package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/peer"
)

// shell types commands at one server.
type shell struct {
	*testing.T
	server string
}

// does types a command and fails unless it ends well; it returns what was printed.
func (s shell) does(line string, more ...string) string {
	s.Helper()
	out, errs, code := s.types("", line, more...)
	if code != 0 {
		s.Fatalf("carillon %s %q: exit code %d\n%s%s", line, more, code, out, errs)
	}
	return out
}

// fails types a command, and wants that exit code and those words on standard error.
func (s shell) fails(code int, words, line string, more ...string) {
	s.Helper()
	if out, errs, got := s.types("", line, more...); got != code || !strings.Contains(errs, words) {
		s.Errorf("carillon %s %q: exit code %d, want %d and %q:\n%s%s", line, more, got, code, words, out, errs)
	}
}

// asking are the commands that wait for answers.
var asking = []string{"attributes", "brokers", "pub", "query", "subs", "subscription", "topic", "view"}

// patient is how long they wait: a busy machine takes longer than the seconds that a person waits.
const patient = "1m"

func (s shell) types(stdin, line string, more ...string) (out, errs string, code int) {
	s.Helper()
	args := append(strings.Fields(line), more...)
	if slices.Contains(asking, args[0]) && !slices.Contains(args, "--timeout") {
		args = append(args, "--timeout", patient)
	}
	return command(s.T, stdin, append(args, "--server", s.server)...)
}

// prints is does, for what must be printed word by word.
func (s shell) prints(want, line string, more ...string) {
	s.Helper()
	if got := s.does(line, more...); got != want {
		s.Errorf("carillon %s %q printed\n%s\nwant\n%s", line, more, got, want)
	}
}

// offers wants what a shell is told that can be typed next. A busy machine may not answer within
// the second that a person waits.
func (s shell) offers(want, line string) {
	s.Helper()
	testutil.Eventually(s.T, "what can be typed next is offered", func() error {
		if got, _, _ := command(s.T, "", append(strings.Fields(line), "--server="+s.server, "")...); got != want {
			return fmt.Errorf("carillon %s offers %q, want %q", line, got, want)
		}
		return nil
	})
}

// read has a command's JSON.
func read[T any](s shell, line string, more ...string) (value T) {
	s.Helper()
	out := s.does(line, append(more, "--output", "json")...)
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		s.Fatalf("carillon %s: %v in %s", line, err, out)
	}
	return value
}

func TestTopicsFromTheCommandLine(t *testing.T) {
	t.Parallel()
	dev := startDev(t, "--data", t.TempDir())
	defer dev.stop()
	s := shell{t, dev.url}
	useTopics(s)
	useSubscriptions(s)
	useOwners(s)
	useReplicas(s)
	useTail(s)
}

// TestTopicsOfAnotherServer: the commands work with another NATS server, as far as JetStream
// supports them.
func TestTopicsOfAnotherServer(t *testing.T) {
	path := os.Getenv("CARILLON_NATS_SERVER")
	if path == "" {
		t.Log("CARILLON_NATS_SERVER names no nats-server to try this with")
		return
	}
	s := shell{t, peer.Start(t, path, "-js", "-sd", t.TempDir()).URL()}
	useTopics(s)
	useSubscriptions(s)
	useTail(s)
	out, errs, _ := s.types("", "topic list")
	if !strings.Contains(errs, "no Carillon broker") || !strings.Contains(out, "Synced") {
		t.Errorf("it says %q, and prints %s", errs, out)
	}
}

// useTopics makes Topics, publishes to them, reads and deletes them.
func useTopics(s shell) {
	s.prints("topic orders keeps orders, orders.>\n", "topic create orders --max-age 7d --max-bytes 10Gi --max-messages 1000 --description", "All orders")
	s.prints("topic orders keeps orders, orders.>\n", "topic create orders --max-age 7d --max-bytes 10Gi --max-messages 1000 --description", "All orders")
	s.prints("topic metrics keeps cpu.*, mem\n", "topic create metrics --subjects cpu.*,mem --durability replicated --max-message-size 1Ki --dedup-window 10s")
	s.prints("topic scratch keeps scratch, scratch.>\n", "topic add scratch --durability memory")
	s.fails(exitFailure, "there is one already", "topic create orders")
	s.fails(exitFailure, "overlap", "topic create more --subjects orders.eu")

	s.prints("topic orders keeps it as #1\n", "pub orders.eu one --ack --header Kind:a --header Nats-Msg-Id:1")
	s.prints("topic orders had it already, as #1\n", "pub orders.eu one --ack --header Nats-Msg-Id:1")
	s.prints("topic orders keeps 1000 × 3 bytes within #2 to #1001\n", "pub orders.us two --ack --count 1000")
	s.prints("", "pub orders.us two --ack --quiet")
	s.fails(exitFailure, "no Topic has this subject", "pub nobody one --ack")
	s.fails(exitFailure, "3 of 3 are not acknowledged", "pub nobody one --ack --count 3")
	s.fails(exitFailure, "maximum", "pub mem --ack", strings.Repeat("x", 2000))

	type place struct {
		Topic, Subject string
		Sequence       int
		Header         map[string][]string
		Data           []byte
	}
	// There are to be 1000, so of 1,002 messages the oldest two are gone.
	got := read[place](s, "topic tail orders --from 2 --count 1")
	if got.Topic != "orders" || got.Sequence != 3 || string(got.Data) != "two" || got.Subject != "orders.us" {
		s.Errorf("the oldest message is %+v", got)
	}
	s.prints("two\ntwo\n", "topic tail orders --last 2 --no-follow --raw")
	s.prints(strings.Repeat("two\n", 1000), "topic tail orders --from earliest --no-follow --output raw")
	s.prints("", "topic tail scratch --no-follow")
	s.prints("", "topic tail orders --filter orders.eu --no-follow")
	if got := s.does("topic tail orders -n 1 --count 1"); !strings.HasPrefix(got, "#1002  20") || !strings.HasSuffix(got, "Z  orders.us\ntwo\n") {
		s.Errorf("the newest message looks like this: %s", got)
	}

	list := read[struct{ Topics []topicView }](s, "topic list").Topics
	if len(list) != 3 || list[0].Name != "metrics" || list[1].Name != "orders" || list[2].Name != "scratch" || list[1].Numbers == nil || list[1].Numbers.Messages != 1000 || list[1].Numbers.Last != 1002 {
		s.Errorf("the list is %+v", list)
	}
	if spec := list[0].Spec; spec.Durability != coordination.Replicated || spec.MaxMessage != 1024 || spec.Deduplication != 10*time.Second || spec.Retention != (coordination.Retention{}) {
		s.Errorf("metrics is %+v", spec)
	}
	if spec := list[1].Spec; spec.Durability != coordination.Synced || spec.Retention != (coordination.Retention{Age: 168 * time.Hour, Bytes: 10 << 30, Messages: 1000}) || spec.Stream.Description != "All orders" {
		s.Errorf("orders is %+v", spec)
	}
	if list[2].Spec.Durability != coordination.Memory {
		s.Errorf("scratch is %+v", list[2].Spec)
	}
	if got := s.does("topic show orders"); !strings.Contains(got, "at most 7d, 10 GiB, 1000 messages") || !strings.Contains(got, "#1002, ") {
		s.Errorf("orders is shown as\n%s", got)
	}

	_, errs, code := s.types("n\n", "topic delete scratch")
	if code != exitFailure || !strings.Contains(errs, "Delete topic scratch with 0 messages") || !strings.Contains(errs, "nothing was deleted") {
		s.Errorf("it was refused with %d, %q", code, errs)
	}
	if out, errs, code := s.types("y\n", "topic delete scratch"); code != 0 || out != "topic scratch is deleted\n" {
		s.Errorf("it was not deleted: %d, %q %q", code, out, errs)
	}
	s.fails(exitFailure, `there is no topic "scratch"`, "topic delete scratch metrics --yes")
	s.fails(exitFailure, `there is no topic "metrics"`, "topic show metrics")
	s.fails(exitFailure, `there is no topic "scratch"`, "topic tail scratch")
}

// useTail follows a Topic until Ctrl-C, and until it is deleted.
func useTail(s shell) {
	s.does("topic create followed")
	s.does("pub followed.a one --ack")
	for _, end := range []struct {
		how  string
		does func(*exec.Cmd)
		code int
		errs string
	}{
		{"Ctrl-C", func(cmd *exec.Cmd) { _ = cmd.Process.Signal(os.Interrupt) }, 0, ""},
		{"deletion", func(*exec.Cmd) { s.does("topic delete followed --yes") }, exitFailure, `there is no topic "followed"`},
	} {
		cmd := exec.Command(os.Args[0], "topic", "tail", "followed", "--last", "1", "--raw", "--timeout", patient, "--server", s.server)
		var errs bytes.Buffer
		cmd.Env, cmd.Stderr = append(os.Environ(), asCarillon+"=1"), &errs
		out, err := cmd.StdoutPipe()
		if err != nil {
			s.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			s.Fatal(err)
		}
		giveUp := time.AfterFunc(testutil.Patience, func() { _ = cmd.Process.Kill() })
		lines := bufio.NewReader(out)
		if line, err := lines.ReadString('\n'); line != "one\n" {
			s.Errorf("what was there is printed as %q, %v", line, err)
		}
		s.does("pub followed.a two --ack")
		if line, err := lines.ReadString('\n'); line != "two\n" {
			s.Errorf("what follows is printed as %q, %v", line, err)
		}
		s.does("pub followed.a one --ack --quiet") // the next one begins with that
		_, _ = lines.ReadString('\n')
		s.prints("", "topic tail followed --last 0 --no-follow --raw")
		end.does(cmd)
		err = cmd.Wait()
		giveUp.Stop()
		if code := cmd.ProcessState.ExitCode(); code != end.code || !strings.Contains(errs.String(), end.errs) {
			s.Errorf("after %s: exit code %d, %v, %q; want %d and %q", end.how, code, err, errs.String(), end.code, end.errs)
		}
	}
}

// useSubscriptions goes on where useTopics ends.
func useSubscriptions(s shell) {
	s.does("topic create billing")
	for i := range 5 {
		s.does("pub billing.eu --ack", fmt.Sprint(i))
	}
	s.does("pub billing.us other --ack")
	s.prints("subscription eu of topic billing begins with the oldest message\n", "subs create billing eu --filter billing.eu --start earliest --max-deliver 5 --backoff 1m,2m --max-pending 3")
	s.prints("subscription eu of topic billing begins with the oldest message\n", "subs create billing eu --filter billing.eu --start earliest --max-deliver 5 --backoff 1m,2m --max-pending 3")
	s.prints("subscription news of topic billing begins with messages after it was made\n", "subscription create billing news")
	s.prints("subscription last of topic billing begins with #6\n", "subscription create billing last --start 6")
	s.fails(exitFailure, `there is no topic "nothing"`, "subscription create nothing eu")
	s.fails(exitFailure, "has one already, with other settings", "subscription create billing eu --start latest")

	// To look takes nothing away; to acknowledge does.
	for range 2 {
		s.prints("0\n1\n2\n3\n4\n", "subscription tail billing eu --no-follow --raw")
	}
	s.prints("0\n1\n", "subscription tail billing eu --ack --count 2 --raw")
	s.prints("2\n3\n4\n", "subscription tail billing eu --no-follow --raw")
	s.prints("2\n3\n4\n", "subscription tail billing eu --ack --no-follow --raw")
	s.prints("", "subscription tail billing eu --no-follow --raw")
	s.prints("", "subscription tail billing eu --ack --no-follow --raw")

	list := read[struct{ Subscriptions []subscriptionView }](s, "subscription list billing").Subscriptions
	if len(list) != 3 || list[0].Name != "eu" || list[1].Name != "last" || list[2].Name != "news" {
		s.Fatalf("the list is %+v", list)
	}
	if n := list[0].Numbers; n == nil || n.Lag != 0 || n.Pending != 0 || n.AckFloor < 5 {
		s.Errorf("of eu the numbers are %+v", n)
	}
	if n := list[1].Numbers; n == nil || n.Lag != 1 {
		s.Errorf("of last the numbers are %+v", n)
	}
	if ack := list[0].Spec.Ack; ack.MaxDeliver != 5 || ack.MaxPending != 3 || len(ack.Backoff) != 2 || ack.Backoff[1] != 2*time.Minute {
		s.Errorf("eu acknowledges %+v", ack)
	}
	if all := read[struct{ Subscriptions []subscriptionView }](s, "subs ls").Subscriptions; len(all) != 3 {
		s.Errorf("of all topics there are %d", len(all))
	}
	if got := s.does("subscription show billing eu"); !strings.Contains(got, "Backoff              1m, 2m") || !strings.Contains(got, "billing.eu") {
		s.Errorf("eu is shown as\n%s", got)
	}
	if got := read[struct{ Subscriptions []subscriptionView }](s, "topic show billing").Subscriptions; len(got) != 3 {
		s.Errorf("with the topic, %d subscriptions are shown", len(got))
	}

	// Shells ask like this what can be typed next.
	for line, want := range map[string]string{
		"__complete topic show": "billing\norders\n:4\n", "__complete subscription show billing": "eu\nlast\nnews\n:4\n",
		"__complete topic delete billing": "billing\norders\n:4\n", "__complete subscription list billing": ":4\n",
	} {
		s.offers(want, line)
	}

	s.prints("subscription news of topic billing is deleted\n", "subscription delete billing news --yes")
	s.prints(`{"deleted":"subscription last of topic billing"}`+"\n", "subs rm billing last --yes --output json")
	s.fails(exitFailure, `topic billing has no subscription "last"`, "subs rm billing last --yes")
	s.fails(exitFailure, `topic billing has no subscription "last"`, "subs tail billing last")
	s.fails(exitFailure, `there is no topic "none"`, "subs show none eu")
}

// useOwners sees what only a Carillon broker knows.
func useOwners(s shell) {
	v := read[topicView](s, "topic show orders")
	if v.Owner == nil || v.Owner.Kind != coordination.ClientOwner || v.Served == nil || !*v.Served || v.ID == "" || v.Generation != 1 || len(v.Shards) != 1 || v.Shards[0].Leader.Name != "dev" {
		s.Errorf("orders is %+v", v)
	}
	if shard := v.Shards[0]; shard.InSync != 1 || shard.Want != 1 || shard.MinInSync != 1 || len(shard.Replicas) != 1 || !shard.Replicas[0].InSync {
		s.Errorf("its replicas are %+v", shard)
	}
	if one := read[subscriptionView](s, "subscription show billing eu"); one.Owner == nil || one.Served == nil || !*one.Served {
		s.Errorf("eu is %+v", one)
	}
}

// useReplicas asks for what JetStream has no word for.
func useReplicas(s shell) {
	s.does("topic create sure --replicas 1 --min-in-sync 1 --unclean-election")
	s.does("topic create sure --replicas 1 --min-in-sync 1 --unclean-election")
	s.does("pub sure one --ack")
	if spec := read[topicView](s, "topic show sure").Spec; spec.Replicas != 1 || spec.MinInSync != 1 || !spec.UncleanElection {
		s.Errorf("sure is %+v", spec)
	}
	if got := s.does("topic show sure"); !strings.Contains(got, "1 of 1, at least 1: dev") || !strings.Contains(got, "acknowledged messages are lost") {
		s.Errorf("it is shown as\n%s", got)
	}
	s.fails(exitFailure, "there is one already", "topic create sure")
	s.fails(exitFailure, "3 replicas are asked for", "topic create wide --replicas 3")
	s.fails(exitFailure, "2 replicas are asked for", "topic create wide --min-in-sync 2")
	s.does("topic delete sure --yes")
}

// declared is a State as manifests would have made it.
type declared struct{ state *coordination.State }

func (d declared) State() *coordination.State { return d.state }
func (d declared) ByID(string) *topic.Topic   { return nil }

// serveState serves our API over a State, and nothing else, as a broker does while the leaders of
// all Topics are away.
func serveState(t *testing.T, state *coordination.State) shell {
	t.Helper()
	hub, s := serveNothing(t)
	hub.Offer(admin.New("a", declared{state}, hub, slog.New(slog.DiscardHandler))).Set(admin.Subjects)
	return s
}

// serveNothing is a server that keeps no messages and has no API.
func serveNothing(t *testing.T) (*session.Hub, shell) {
	t.Helper()
	profile, err := limits.ForProfile("small")
	if err != nil {
		t.Fatal(err)
	}
	hub := session.NewHub(session.Config{ServerID: "S", ServerName: "s", Version: "2.10.0", Profile: profile})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- hub.Serve(listener) }()
	t.Cleanup(func() {
		listener.Close()
		<-served
		hub.Close()
	})
	return hub, shell{t, "nats://" + listener.Addr().String()}
}

// TestTopicsOfManifestsAreListedAndNotDeleted: a Topic of a manifest can't be deleted, an orphaned
// one is shown as such, and long lists are complete.
func TestTopicsOfManifestsAreListedAndNotDeleted(t *testing.T) {
	t.Parallel()
	owner := coordination.Owner{Kind: coordination.ManifestOwner, Namespace: "shop", Name: "orders", UID: "u"}
	orphan := owner
	orphan.Name, orphan.Orphaned = "old", time.Now().Add(-time.Hour)
	broker := coordination.Broker{ID: "b0", Incarnation: 3, Name: "main-0"}
	var topics []*coordination.Topic
	var shards []*coordination.Shard
	add := func(name string, owner coordination.Owner, leader string) {
		topics = append(topics, &coordination.Topic{Name: name, ID: "id-" + name, Generation: 1, Created: time.Now(), Owner: owner,
			Spec: coordination.TopicSpec{Subjects: []string{name}, Shards: 1}})
		shards = append(shards, &coordination.Shard{Topic: "id-" + name, Epoch: 1, Leader: leader, Replicas: []string{leader}, InSync: []coordination.Replica{{Broker: leader, Incarnation: 3}}})
	}
	add("orders", owner, "b0")
	add("old", orphan, "b0")
	add("lost", owner, "b1")
	subscription := &coordination.Subscription{Topic: "id-orders", Name: "eu", Spec: new(coordination.SubscriptionSpec{}), Generation: 1, Created: time.Now(), Owner: owner}
	for i := range 600 {
		add(fmt.Sprintf("t%03d", i), coordination.Owner{Kind: coordination.ClientOwner}, "b0")
	}
	s := serveState(t, coordination.NewState(9, []coordination.Broker{broker}, topics, shards, []*coordination.Subscription{subscription}))

	out := s.does("topic list --timeout 20s")
	if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != 604 || !strings.HasPrefix(lines[603], "t599 ") {
		t.Errorf("%d lines are listed", len(lines))
	}
	if !strings.Contains(out, "not served: BrokerAway") || !strings.Contains(out, "served, orphaned") || !strings.Contains(out, "shop/orders") {
		t.Errorf("the list is %.1000s", out)
	}
	if got := read[struct{ Topics []topicView }](s, "topic ls --orphaned").Topics; len(got) != 1 || got[0].Name != "old" || time.Since(*got[0].Owner.Orphaned) < time.Minute {
		t.Errorf("orphaned are %+v", got)
	}
	if got := read[struct{ Subscriptions []subscriptionView }](s, "subscription list").Subscriptions; len(got) != 1 || got[0].Owner.Name != "orders" || got[0].Numbers != nil {
		t.Errorf("the subscriptions are %+v", got)
	}
	if got := s.does("topic show lost"); !strings.Contains(got, "b1 (away)") || !strings.Contains(got, "bring that broker back") {
		t.Errorf("it is shown as %s", got)
	}
	// Nobody is asked to confirm what would be refused.
	s.fails(exitFailure, "kubectl delete --namespace shop topics.carillon.dev orders", "topic delete orders --yes")
	s.fails(exitFailure, "belongs to the manifest shop/orders", "subscription delete orders eu")
	s.fails(exitFailure, `there is no topic "nothing"`, "topic delete nothing --yes")
	s.fails(exitFailure, `topic orders has no subscription "us"`, "subscription show orders us")
	s.fails(exitFailure, "not ready to change anything", "topic create more")
}

func TestInvalidTopicCommandsAreRefused(t *testing.T) {
	t.Parallel()
	s := shell{t, "nats://127.0.0.1:1"}
	for line, want := range map[string]string{
		"topic list x":                                 "no arguments",
		"topic show":                                   "the name of a topic",
		"topic show a b":                               "the name of a topic",
		"topic show a.b":                               "is not a name",
		"topic show a --output xml":                    "choose table or json",
		"topic show a --timeout 0s":                    "write for example 5s",
		"topic create a --durability strong":           "synced, replicated or memory",
		"topic create a --max-bytes many":              "a number of bytes",
		"topic create a --max-age 1y":                  "90s, 12h or 7d",
		"topic create a --max-messages -1":             "can't be negative",
		"topic create a --max-messages-per-subject -1": "--max-messages-per-subject can't be negative",
		"topic create a --replicas 6":                  "choose 1 to 5",
		"topic create a --replicas -1":                 "choose 1 to 5",
		"topic create a --min-in-sync -1":              "0 for a majority",
		"topic create a --replicas 1 --min-in-sync 2":  "choose 1 to the number of replicas",
		"brokers lst":                                  "did you mean list",
		"brokers list x":                               "no arguments",
		"brokers drain":                                "the name or id of a broker",
		"brokers undrain a b":                          "the name or id of a broker",
		"brokers --output xml":                         "choose table or json",
		"brokers drain a --output table":               "choose text or json",
		"topic tail a --from yesterday":                "earliest, a sequence",
		"topic tail a --from 1 --last 2":               "choose one",
		"topic tail a --raw --output json":             "choose one",
		"topic tail a --count -1":                      "can't be negative",
		"topic tail a --last -1":                       "can't be negative",
		"topic delete":                                 "names of topics",
		"subscription create a":                        "the names of a topic and a subscription",
		"subscription create a b --start later":        "earliest, a sequence",
		"subscription create a b --backoff 1,2":        "90s, 12h or 7d",
		"subscription create a b --max-deliver -1":     "can't be negative",
		"subscription tail a b --output table":         "text or json or raw",
		"pub a b --ack --reply c":                      "choose one",
		"pub a b --timeout 0s":                         "write for example 5s",
	} {
		s.fails(exitUsage, want, line)
	}
	s.fails(exitFailure, "is the server running", "topic list")
	s.fails(exitFailure, "is the server running", "brokers")
	s.fails(exitFailure, "is the server running", "brokers drain a")
	s.fails(exitFailure, "is the server running", "subscription tail a b")
	if _, errs, code := command(t, "", "topic", "lst"); code != exitUsage || !strings.Contains(errs, "did you mean list") {
		t.Errorf("carillon topic lst: %d %s", code, errs)
	}
	if out, _, code := command(t, "", "topic"); code != 0 || !strings.Contains(out, "tail") {
		t.Errorf("carillon topic: %d %s", code, out)
	}
}
