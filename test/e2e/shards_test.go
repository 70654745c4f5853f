//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// shardsLoseALeader kills a broker that leads shards of a Topic with many subjects. Then the
// Topic's Subscription delivers all acknowledged messages, each subject in order.
func shardsLoseALeader(t *testing.T, e *environment) {
	const name, shards, subjects = "readings", 4, 8
	sample := []string{"-n", namespace, "-f", "config/samples/topic-shards.yaml"}
	mustRun(t, "kubectl", append([]string{"apply"}, sample...)...)
	upTo(copyTime).For(t, "all replicas of all shards are in sync", e.isWhole(name))
	table := mustRun(t, "kubectl", "-n", namespace, "get", "topics.carillon.dev", name)
	t.Log("\n" + table)
	if !regexp.MustCompile(`readings +True +Served +4 +main-\S+,main-\S+ +3/3 `).MatchString(table) {
		t.Error("kubectl doesn't show four shards, who of several leads them, and that all are in sync")
	}
	victim := e.leaderOf(t, name)
	other := another(victim)
	var all []*durable
	for i := range subjects {
		all = append(all, e.startDurable(t, other, fmt.Sprintf("%s.%d.wind", name, i)))
	}
	allUnder(t, 50, all...)
	before := e.deletePod(t, victim, client.GracePeriodSeconds(0))
	upTo(failoverTime).For(t, "others lead its shards", func(ctx context.Context) error {
		o, err := e.topic(ctx, name)
		if err == nil && strings.Contains(o.Status.LedBy, victim) {
			err = errors.New("led by " + o.Status.LedBy)
		}
		return err
	})
	allUnder(t, 50, all...)
	upTo(replaceTime).For(t, victim+" is back", e.replaced(victim, before))
	upTo(copyTime).For(t, "all replicas of all shards are in sync again", e.isWhole(name))
	streams := map[string]bool{}
	for _, d := range all {
		d.wentOn(t)
		d.halt()
		streams[d.stream] = true
	}
	if len(streams) != shards {
		t.Errorf("%d subjects went to the shards %v", subjects, streams)
	}
	e.readInOrder(t, victim, name, "averages", all)
	upTo(replaceTime).For(t, "the Broker is Ready", e.brokerIsReady)
	mustRun(t, "kubectl", append([]string{"delete"}, sample...)...)
}

// readInOrder reads all acknowledged messages through a Subscription, each subject in order.
// Meanwhile leadership moves back to the broker that was killed, which ends pulls and may repeat
// deliveries.
func (e *environment) readInOrder(t *testing.T, pod, topic, subscription string, all []*durable) {
	t.Helper()
	missing, last := map[string]bool{}, map[string]int{}
	for _, d := range all {
		for _, value := range d.acked {
			missing[d.subject+" "+value] = true
		}
		last[d.subject] = -1
	}
	acked, read, again := len(missing), 0, 0
	seen := map[string]bool{}
	consumer, err := e.stream(t, pod).Consumer(within(t), topic, subscription)
	if err != nil {
		t.Fatal(err)
	}
	for progress := time.Now(); len(missing) > 0; {
		got, err := consumer.Fetch(min(500, len(missing)), jetstream.FetchMaxWait(answerTime))
		if err != nil {
			t.Fatal(err)
		}
		was := read
		for m := range got.Messages() {
			value := string(m.Data())
			n, err := strconv.Atoi(value[strings.LastIndex(value, "-")+1:])
			name := m.Subject() + " " + value
			switch before, known := last[m.Subject()]; {
			case seen[name]:
				again++
			case err != nil || !known || n <= before:
				t.Errorf("%s of %s came behind number %d", value, m.Subject(), before)
			default:
				last[m.Subject()] = n
			}
			seen[name] = true
			delete(missing, name)
			if err := m.Ack(); err != nil {
				t.Fatal(err)
			}
			read++
		}
		if read > was {
			progress = time.Now()
		} else if err := got.Error(); time.Since(progress) > readyTime {
			t.Fatalf("%d of %d acknowledged messages are missing: %v", len(missing), acked, err)
		}
	}
	t.Logf("%d messages were acknowledged and %d read, %d of them again", acked, read, again)
}
