//go:build e2e && linux

package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/broker/admin"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

const (
	// latestSubjects is the number of subjects of the compacted Topic that get messages repeatedly;
	// each onceEvery-th message is the only one of its subject. latestSize is the size of a
	// message, such that the Topic soon has enough bytes to be compacted.
	latestSubjects = 20
	onceEvery      = 10
	latestSize     = 4 << 10
	// compactedAfter is a time within which records of the compacted Topic become old enough, given
	// soakWindow, and are removed.
	compactedAfter = 4 * time.Minute
)

// latest is a Topic that keeps the newest message of each subject, and its publisher. The publisher
// repeats a message, with its id, until it is acknowledged, and then publishes the next one.
type latest struct {
	nc    *nats.Conn
	began time.Time
	stop  context.CancelFunc
	ended sync.WaitGroup

	mu    sync.Mutex
	sent  int            // the number of the last message
	acked map[string]int // the last acknowledged number, by subject
}

// startLatest creates the Topic.
func (w *world) startLatest() (*latest, error) {
	request := admin.CreateRequest{Compaction: coordination.LatestOnly}
	request.Stream = jsapi.StreamConfig{Subjects: []string{"latest.>"}, Replicas: replicas, DuplicateWindow: soakWindow}
	err := within(patience, "create topic latest", func() error {
		made, err := ask[admin.TopicInfo](w.cluster, admin.TopicCreateSubject+"latest", request)
		if err == nil { // replicas compact independently, so their logs differ
			w.ids[made.Topic.ID] = &kept{inMemory: true}
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	nc, err := checker.Connect(w.urls(), "chaos, latest", clientOptions...)
	if err != nil {
		return nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(w.t.Context())
	l := &latest{nc: nc, began: time.Now(), stop: stop, acked: map[string]int{}}
	l.ended.Go(func() { l.publish(ctx, js) })
	return l, nil
}

func (l *latest) publish(ctx context.Context, js jetstream.JetStream) {
	for n := 1; ctx.Err() == nil; n++ {
		l.mu.Lock()
		l.sent = n
		l.mu.Unlock()
		subject := fmt.Sprintf("latest.%d", n%latestSubjects)
		if n%onceEvery == 0 {
			subject = fmt.Sprintf("latest.once.%d", n)
		}
		data := fmt.Appendf(nil, "%d %s", n, strings.Repeat(".", latestSize))
		for ctx.Err() == nil {
			asked, cancel := context.WithTimeout(ctx, time.Second)
			_, err := js.Publish(asked, subject, data, jetstream.WithMsgID(fmt.Sprint(n)), jetstream.WithRetryAttempts(0))
			cancel()
			if err == nil {
				l.mu.Lock()
				l.acked[subject] = n
				l.mu.Unlock()
				break
			}
			pause(ctx, 50*time.Millisecond)
		}
		pause(ctx, 20*time.Millisecond)
	}
}

// end stops publishing.
func (l *latest) end() {
	l.stop()
	l.ended.Wait()
	l.nc.Close()
}

// judge stops publishing, and reads the Topic. It has the last acknowledged message of each
// subject, in the order of publishing. After some minutes, older messages are gone.
func (l *latest) judge(ctx context.Context, w *world) error {
	l.end()
	stream, err := w.js.Stream(ctx, "latest")
	if err != nil {
		return err
	}
	info, err := stream.Info(ctx)
	if err != nil {
		return err
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	last, records := map[string]int{}, 0
	for seq := uint64(0); seq < info.State.LastSeq; records++ {
		m, err := consumer.Next(jetstream.FetchMaxWait(answerTime))
		if err != nil {
			return fmt.Errorf("read latest behind %d of %d: %w", seq, info.State.LastSeq, err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		seq = meta.Sequence.Stream
		n := 0
		if _, err := fmt.Sscanf(string(m.Data()), "%d ", &n); err != nil {
			return fmt.Errorf("latest has %.20q at %d: %w", m.Data(), seq, err)
		}
		if before := last[m.Subject()]; n <= before {
			return fmt.Errorf("latest has %d behind %d of %s", n, before, m.Subject())
		}
		last[m.Subject()] = n
	}
	for subject, acked := range l.acked {
		if n := last[subject]; n < acked || n > l.sent {
			return fmt.Errorf("the last message of %s is %d, and %d was acknowledged last of %d", subject, n, acked, l.sent)
		}
	}
	lasted := time.Since(l.began)
	w.t.Logf("%d of %d messages of latest are there after %v", records, info.State.LastSeq, lasted.Round(time.Second))
	if lasted > compactedAfter && uint64(records) == info.State.LastSeq {
		return fmt.Errorf("all %d messages of latest are there after %v: it was not compacted", records, lasted)
	}
	return nil
}
