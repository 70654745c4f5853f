//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/test/chaos"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

const (
	watchedTopic    = "watched"
	watchedConsumer = "watcher"
	// watchedRest is the pause of each of its publishers, so that the messages of all stories can
	// be read within seconds.
	watchedRest = 20 * time.Millisecond
	// readTime bounds reading the whole Topic, including the messages that its consumer has not
	// received.
	readTime = 3 * time.Minute
)

// watched is a Topic under load during the other stories, and the answers that its clients got.
type watched struct {
	history *checker.History
	load    *checker.Load
}

// watchBegins starts the load on the Topic. Faults of its brokers do not stop it.
func watchBegins(t *testing.T, e *environment) {
	o := &v1alpha1.Topic{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: watchedTopic},
		Spec: v1alpha1.TopicSpec{
			BrokerRef: v1alpha1.BrokerReference{Name: "main"}, DeletionPolicy: v1alpha1.TopicDeleted,
			// Publishers repeat a message until it is acknowledged, also while the Broker is away.
			Deduplication: &v1alpha1.DeduplicationSpec{Window: "1h"},
		},
	}
	if err := e.Create(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	upTo(copyTime).For(t, "all replicas are in sync", e.isWhole(watchedTopic))
	config := jetstream.ConsumerConfig{Durable: watchedConsumer, AckPolicy: jetstream.AckExplicitPolicy, AckWait: checker.AckWait}
	if _, err := e.stream(t, podName(0)).CreateConsumer(within(t), watchedTopic, config); err != nil {
		t.Fatal(err)
	}
	w := &watched{history: checker.NewHistory(watchedTopic)}
	w.begin(t, e)
	e.watched = w
}

// begin starts the load, which goes on after the present story.
func (w *watched) begin(t *testing.T, e *environment) {
	t.Helper()
	var urls []string
	for i := range brokers {
		urls = append(urls, address(podName(i)))
	}
	load, err := w.history.Start(context.WithoutCancel(t.Context()), checker.Workload{
		URL: strings.Join(urls, ","), Sync: 2, Again: 2, Async: 1, Consumers: []string{watchedConsumer}, Rest: watchedRest,
		Options: []nats.Option{nats.SetCustomDialer(e.dialer()), nats.Timeout(dialTimeout), nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2)},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.load = load
	upTo(readyTime).For(t, "it is used", w.more(100))
}

// inPeace runs a story without load on the watched Topic.
func inPeace(story func(*testing.T, *environment)) func(*testing.T, *environment) {
	return func(t *testing.T, e *environment) {
		e.watched.load.Stop()
		story(t, e)
		e.watched.begin(t, e)
	}
}

// more returns a check that so many more messages were acknowledged and delivered.
func (w *watched) more(n int) func(context.Context) error {
	before := w.history.Progress()
	return func(context.Context) error {
		if now := w.history.Progress(); now.Acked < before.Acked+n || now.Delivered < before.Delivered+n {
			return fmt.Errorf("before: %+v, now: %+v", before, now)
		}
		return nil
	}
}

// watchEnds judges the Topic and each of its replicas by the answers of all stories.
func watchEnds(t *testing.T, e *environment) {
	w := e.watched
	upTo(readyTime).For(t, "it is used still", w.more(100))
	w.load.Stop()
	upTo(copyTime).For(t, "all replicas are in sync", e.isWhole(watchedTopic))
	ctx, cancel := context.WithTimeout(t.Context(), readTime)
	defer cancel()
	js := e.stream(t, podName(1))
	if err := w.history.Drain(ctx, js, watchedConsumer); err != nil {
		t.Error(err)
	}
	entries, err := w.history.Read(ctx, js)
	if err != nil {
		t.Error(err)
	}
	verdict := w.history.Judge(entries)
	t.Logf("%s; %s", w.history, verdict)
	if err := verdict.Err(); err != nil {
		t.Error(err)
	}
	o, err := e.topic(t.Context(), watchedTopic)
	if err != nil {
		t.Fatal(err)
	}
	// A broker may change files that are no longer written meanwhile, for example compress them.
	upTo(copyTime).For(t, "the logs on all volumes can be read", func(ctx context.Context) error {
		return e.judgeVolumes(ctx, t, o.Status.ID, w.history, entries)
	})
	if err := e.Delete(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// judgeVolumes judges the logs of a Topic of one shard on the volumes of all brokers. It returns an
// error if they can't be read.
func (e *environment) judgeVolumes(ctx context.Context, t *testing.T, id string, h *checker.History, entries []checker.Entry) error {
	t.Helper()
	copies := map[string][]chaos.Copy{}
	for i := range brokers {
		volume, err := e.volumeOf(ctx, podName(i))
		if err != nil {
			return err
		}
		data := t.TempDir()
		logs, err := filepath.Glob(filepath.Join(volume, "shards", id+"-*"))
		if err != nil {
			return err
		}
		for _, log := range logs {
			if err := os.CopyFS(filepath.Join(data, "shards", filepath.Base(log)), os.DirFS(log)); err != nil {
				return err
			}
		}
		of, err := chaos.ReadLogs(podName(i), data)
		if err != nil {
			return err
		}
		for name, c := range of {
			copies[name] = append(copies[name], c)
		}
	}
	if len(copies) != 2 { // records and cursors
		return fmt.Errorf("%d logs stand on the volumes", len(copies))
	}
	for name, all := range copies {
		known := uint64(0)
		if isData := name == id+"-0"; isData && len(entries) > 0 {
			known = entries[len(entries)-1].Seq + 1
			for _, c := range all {
				if err := c.Judge(h); err != nil {
					t.Error(err)
				}
			}
		}
		if len(all) != brokers {
			t.Errorf("log %s stands on %d brokers", name, len(all))
		}
		for _, difference := range chaos.CompareCopies(all, known) {
			t.Errorf("log %s: %s", name, difference)
		}
		for _, c := range all {
			t.Logf("log %s on %s: %d records up to %d", name, c.Broker, len(c.Records), c.End)
		}
	}
	return nil
}

// volumeOf returns the directory of a broker's volume on this machine.
func (e *environment) volumeOf(ctx context.Context, pod string) (string, error) {
	claim := &corev1.PersistentVolumeClaim{}
	if err := e.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "data-" + pod}, claim); err != nil {
		return "", err
	}
	volume := &corev1.PersistentVolume{}
	if err := e.Get(ctx, client.ObjectKey{Name: claim.Spec.VolumeName}, volume); err != nil {
		return "", err
	}
	switch {
	case volume.Spec.HostPath != nil:
		return volume.Spec.HostPath.Path, nil
	case volume.Spec.Local != nil:
		return volume.Spec.Local.Path, nil
	}
	return "", errors.New("the volume of " + pod + " is not on this machine")
}
