//go:build e2e && linux

package durability

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/disk"
	"github.com/carillon-mq/carillon/test/durability/checker"
)

// brokerVolume makes a volume for the broker's data only; etcd's data is on another disk.
func brokerVolume(t *testing.T, name string, megabytes int64) (data string, v *volume) {
	t.Helper()
	data = filepath.Join(runDir, name)
	return data, newVolume(t, filepath.Join(data, "broker"), megabytes)
}

// noRoom reports whether a publish was refused because the disk is full.
func noRoom(err error) bool {
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && strings.Contains(api.Description, "no space left")
}

// refused waits until publishing is refused with a reason, and returns the reason.
func (s *server) refused(js jetstream.JetStream, h *checker.History) string {
	s.t.Helper()
	p := h.NewPublisher()
	reason := ""
	testutil.Eventually(s.t, "a publish that is refused with a reason", func() error {
		s.alive()
		ctx, cancel := context.WithTimeout(s.t.Context(), 2*time.Second)
		defer cancel()
		v := h.Intend(p)
		ack, err := js.Publish(ctx, h.Stream+".refused", checker.Encode(h.Stream, v), jetstream.WithRetryAttempts(0))
		if err == nil {
			h.Acked(v, ack.Sequence)
			return fmt.Errorf("acknowledged at %d", ack.Sequence)
		}
		if api, ok := errors.AsType[*jetstream.APIError](err); ok {
			reason = api.Description
			return nil
		}
		return err
	})
	s.t.Logf("refused: %s", reason)
	return reason
}

// talks checks that messages without a Topic are still delivered.
func (s *server) talks() {
	s.t.Helper()
	a, _ := s.connect(s.t)
	b, _ := s.connect(s.t)
	sub, err := a.SubscribeSync("plain.>")
	testutil.Must(s.t, err)
	answerer, err := b.Subscribe("question", func(m *nats.Msg) { _ = m.Respond(m.Data) })
	testutil.Must(s.t, err)
	defer answerer.Unsubscribe()
	testutil.Must(s.t, a.FlushTimeout(patience))
	testutil.Must(s.t, b.FlushTimeout(patience))
	for i := range 200 {
		testutil.Must(s.t, b.Publish(fmt.Sprintf("plain.%d", i), fmt.Append(nil, i)))
	}
	for i := range 200 {
		m, err := sub.NextMsg(patience)
		if err != nil || string(m.Data) != fmt.Sprint(i) {
			s.t.Fatalf("plain message %d: got %v, %v", i, m, err)
		}
	}
	if m, err := a.Request("question", []byte("?"), patience); err != nil || string(m.Data) != "?" {
		s.t.Fatalf("request: got %v, %v", m, err)
	}
}

func TestAFullDiskRefusesAndLosesNothing(t *testing.T) {
	data, v := brokerVolume(t, "full", 64)
	s := carillon(t, data)
	s.start()
	_, js := s.connect(t)
	h := checker.NewHistory("full")
	s.create(js, h, "one")
	work := checker.Workload{URL: s.url, Sync: 4, Async: 1, Consumers: []string{"one"}, Final: noRoom}
	load, err := h.Start(t.Context(), work)
	testutil.Must(t, err)
	s.progress(h, checker.Progress{}, 300, 30)

	free := v.fill("most", 3<<20)
	testutil.Eventually(t, "publishing refused for want of room", func() error {
		s.alive()
		if n := h.Progress().Refused; n < 50 {
			return fmt.Errorf("only %d: %s", n, h)
		}
		return nil
	})
	if reason := s.refused(js, h); !strings.Contains(reason, "full") || !strings.Contains(reason, "no space left") || !strings.Contains(reason, "free space") {
		t.Errorf("the reason %q does not name the Topic, the trouble and the way out", reason)
	}
	s.talks()
	load.Stop()
	freeRest := v.fill("rest", 0)
	testutil.Must(t, s.judge(js, h, "one").Err()) // kept messages can be read and acknowledged meanwhile
	s.kill()
	s.start() // it starts with a full disk
	testutil.Must(t, s.judge(js, h, "one").Err())
	s.refused(js, h)
	s.talks()

	load, err = h.Start(t.Context(), work)
	testutil.Must(t, err)
	before := h.Progress()
	freeRest()
	free()
	s.progress(h, before, 300, 30)
	load.Stop()
	testutil.Must(t, s.judge(js, h, "one").Err())
	s.kill()
	s.start()
	testutil.Must(t, s.judge(js, h, "one").Err())
}

func TestAFailingDiskRefusesAndLosesNothing(t *testing.T) {
	for _, how := range []disk.ShutdownMode{flushed, powerCut} {
		t.Run(map[disk.ShutdownMode]string{flushed: "what was written is there", powerCut: "what was not synced is gone"}[how], func(t *testing.T) {
			data, v := brokerVolume(t, fmt.Sprintf("failing%d", how), 256)
			s := carillon(t, data)
			s.start()
			nc, js := s.connect(t)
			h := checker.NewHistory("failing")
			s.create(js, h, "one")
			load, err := h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Async: 1, Consumers: []string{"one"}})
			testutil.Must(t, err)
			s.progress(h, checker.Progress{}, 500, 50)
			connected := nc.Stats().Reconnects
			h.Unplug(how == powerCut) // a sync in progress may report success
			v.shutdown(how)
			reason := s.refused(js, h)
			if !strings.Contains(reason, "input/output error") {
				t.Errorf("the reason %q does not name the trouble and the way out", reason)
			}
			s.talks()
			load.Stop()
			h.Unplug(false) // an answer after such a sync may arrive later than a refusal on another connection
			before := h.Progress()
			for range 5 {
				s.refused(js, h)
			}
			if now := h.Progress(); now.Acked != before.Acked {
				t.Errorf("%d messages were acknowledged on a disk that had failed", now.Acked-before.Acked)
			}
			if !nc.IsConnected() || nc.Stats().Reconnects != connected {
				t.Error("clients were cut off")
			}
			s.kill()
			v.again()
			s.start()
			testutil.Must(t, s.judge(js, h, "one").Err())
			load, err = h.Start(t.Context(), checker.Workload{URL: s.url, Sync: 4, Async: 1, Consumers: []string{"one"}})
			testutil.Must(t, err)
			s.progress(h, h.Progress(), 100, 10)
			load.Stop()
			testutil.Must(t, s.judge(js, h, "one").Err())
		})
	}
}
