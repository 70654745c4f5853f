package compat

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

var pullStories = []story{
	{"fetching", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.FetchNoWait(5)
		equal(t, "of nothing", len(take(t, batch, err)), 0)
		began := time.Now()
		batch, err = c.Fetch(5, jetstream.FetchMaxWait(soon))
		equal(t, "of nothing, with time", len(take(t, batch, err)), 0)
		if took := time.Since(began); took < soon-50*time.Millisecond || took > patience/2 {
			t.Errorf("it took %v", took)
		}
		if _, err := c.Next(jetstream.FetchMaxWait(soon)); !errors.Is(err, nats.ErrTimeout) {
			t.Errorf("next of nothing: %v", err)
		}
		fill(t, js, name+".x", 10)
		batch, err = c.Fetch(4)
		equalTexts(t, "four", texts(take(t, batch, err)), count(1, 4))
		batch, err = c.FetchNoWait(3)
		equalTexts(t, "three", texts(take(t, batch, err)), count(5, 7))
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		equal(t, "one", string(m.Data()), "8")
		batch, err = c.Fetch(5, jetstream.FetchMaxWait(soon))
		equalTexts(t, "what is left", texts(take(t, batch, err)), count(9, 10))
		waiting, err := c.Fetch(2, jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		fill(t, js, name+".x", 2)
		equalTexts(t, "what came while it waited", texts(take(t, waiting, nil)), count(1, 2))
	}},

	{"fetching so many bytes", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for range 10 {
			_, err := js.Publish(within(t), name+".x", make([]byte, 1000))
			testutil.Must(t, err)
		}
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.FetchBytes(3500, jetstream.FetchMaxWait(soon))
		equal(t, "as many as fit", len(take(t, batch, err)), 3)
		batch, err = c.FetchBytes(100<<10, jetstream.FetchMaxWait(soon))
		equal(t, "what is left", len(take(t, batch, err)), 7)
	}},

	{"what a consumer allows who pulls", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", MaxRequestBatch: 5, MaxRequestExpires: time.Second})
		batch, err := c.Fetch(6, jetstream.FetchMaxWait(soon))
		testutil.Must(t, err)
		for range batch.Messages() {
			t.Error("there is a message")
		}
		if err := batch.Error(); err == nil {
			t.Error("more than it allows was asked for")
		}
		nobody, err := s.client(t).Conn().Request("$JS.API.CONSUMER.MSG.NEXT."+name+".nobody", nil, patience)
		if !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("a pull of a consumer that isn't there: %v, %v", nobody, err)
		}
	}},

	{"a pull whose sender has gone takes nothing", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		gone := s.client(t)
		inbox, err := gone.Conn().SubscribeSync(nats.NewInbox())
		testutil.Must(t, err)
		testutil.Must(t, gone.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+name+".d", inbox.Subject, []byte(`{"batch":100,"expires":60000000000}`)))
		standing(t, "it waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		gone.Conn().Close()
		for _, url := range s.urls {
			other, err := nats.Connect(url, nats.Timeout(patience))
			testutil.Must(t, err)
			testutil.EventuallyTrue(t, "its interest is gone", func() bool {
				_, err := other.Request(inbox.Subject, nil, 10*time.Millisecond)
				return errors.Is(err, nats.ErrNoResponders)
			})
			other.Close()
		}
		fill(t, s.client(t), name+".x", 5)
		batch, err := c.Fetch(5, jetstream.FetchMaxWait(patience))
		equalTexts(t, "who is there gets all", texts(take(t, batch, err)), count(1, 5))
	}},

	{"one message after the other", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const many = 1000
		js, filled := s.client(t), make(chan struct{})
		go func() {
			defer close(filled)
			fillQuietly(t, js, name+".x", many)
		}()
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		messages, err := c.Messages(jetstream.PullMaxMessages(64))
		testutil.Must(t, err)
		for i := range many {
			m, err := messages.Next()
			testutil.Must(t, err)
			if string(m.Data()) != fmt.Sprint(i+1) {
				t.Fatalf("message %d is %s", i+1, m.Data())
			}
			testutil.Must(t, m.Ack())
		}
		messages.Stop()
		wait(t, "all are acknowledged", filled)
		standing(t, "all are dealt with", c, func(is *jetstream.ConsumerInfo) bool { return is.AckFloor.Stream == many })
	}},

	{"consuming", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		const many = 2000
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		var next atomic.Int64
		done := make(chan struct{}, 1)
		consuming, err := c.Consume(func(m jetstream.Msg) {
			i := next.Add(1)
			if string(m.Data()) != fmt.Sprint(i) {
				t.Errorf("message %d is %s", i, m.Data())
			}
			if err := m.Ack(); err != nil {
				t.Error(err)
			}
			if i == many {
				done <- struct{}{}
			}
		}, jetstream.ConsumeErrHandler(func(_ jetstream.ConsumeContext, err error) { t.Error(err) }))
		testutil.Must(t, err)
		js := s.client(t)
		for i := range many {
			_, err := js.PublishAsync(name+".x", fmt.Appendf(nil, "%d", i+1))
			testutil.Must(t, err)
		}
		wait(t, "all are consumed", done)
		standing(t, "all are dealt with", c, func(is *jetstream.ConsumerInfo) bool { return is.AckFloor.Stream == many })
		consuming.Drain()
		wait(t, "it is drained", consuming.Closed())
	}},

	{"while consuming there are heartbeats", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		messages, err := c.Messages(jetstream.PullExpiry(4*time.Second), jetstream.PullHeartbeat(2*time.Second))
		testutil.Must(t, err)
		defer messages.Stop()
		js, late := s.client(t), make(chan struct{})
		time.AfterFunc(9*time.Second, func() { // after more than two pulls
			fillQuietly(t, js, name+".x", 1)
			close(late)
		})
		m, err := messages.Next()
		testutil.Must(t, err)
		equal(t, "what came at last", string(m.Data()), "1")
		wait(t, "it is acknowledged", late)
	}},

	{"who consumes is told that the consumer is gone", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		for _, durable := range []bool{true, false} {
			config := jetstream.ConsumerConfig{Name: "gone", InactiveThreshold: time.Minute}
			if durable {
				config.Durable = "gone"
			}
			c := s.consumer(t, name, config)
			messages, err := c.Messages()
			testutil.Must(t, err)
			js, deleted := s.client(t), make(chan struct{})
			go func() {
				defer close(deleted)
				for waiting := false; !waiting && t.Context().Err() == nil; {
					is, err := c.Info(t.Context())
					waiting = err != nil || is.NumWaiting > 0
				}
				if err := js.DeleteConsumer(t.Context(), name, "gone"); err != nil {
					t.Error(err)
				}
			}()
			if _, err := messages.Next(); !errors.Is(err, jetstream.ErrConsumerDeleted) {
				t.Errorf("durable %v: %v", durable, err)
			}
			messages.Stop()
			wait(t, "it is deleted", deleted)
		}
	}},

	{"an ordered consumer", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		const many = 1000
		for i := range many / 2 {
			_, err := js.PublishAsync(name+".x", fmt.Appendf(nil, "%d", i+1))
			testutil.Must(t, err)
		}
		wait(t, "the first half is kept", js.PublishAsyncComplete())
		c, err := s.client(t).OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{})
		testutil.Must(t, err)
		var next atomic.Int64
		half, done := make(chan struct{}, 1), make(chan struct{}, 1)
		consuming, err := c.Consume(func(m jetstream.Msg) {
			i := next.Add(1)
			if string(m.Data()) != fmt.Sprint(i) {
				t.Errorf("message %d is %s", i, m.Data())
			}
			switch i {
			case many / 2:
				half <- struct{}{}
			case many:
				done <- struct{}{}
			}
		})
		testutil.Must(t, err)
		wait(t, "the first half is consumed", half)
		info, err := c.Info(within(t))
		testutil.Must(t, err)
		testutil.Must(t, s.client(t).DeleteConsumer(within(t), name, info.Name)) // the ordered consumer recreates it
		for i := range many / 2 {
			_, err := js.PublishAsync(name+".x", fmt.Appendf(nil, "%d", many/2+i+1))
			testutil.Must(t, err)
		}
		wait(t, "the second half is consumed", done)
		consuming.Stop()

		from, err := s.client(t).OrderedConsumer(within(t), name, jetstream.OrderedConsumerConfig{
			DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: many - 2,
		})
		testutil.Must(t, err)
		batch, err := from.Fetch(3)
		equalTexts(t, "from a sequence on", texts(take(t, batch, err)), count(many-2, many))
	}},

	{"the former API", func(t *testing.T, s *site) {
		former, err := s.client(t).Conn().JetStream(nats.MaxWait(patience))
		testutil.Must(t, err)
		name := s.name("former")
		_, err = former.AddStream(&nats.StreamConfig{Name: name, Subjects: []string{name + ".>"}})
		testutil.Must(t, err)
		for i := range 5 {
			ack, err := former.Publish(name+".x", fmt.Appendf(nil, "%d", i+1))
			testutil.Must(t, err)
			equal(t, "sequence", ack.Sequence, uint64(i+1))
		}
		for _, durable := range []string{"d", ""} {
			sub, err := former.PullSubscribe(name+".>", durable)
			testutil.Must(t, err)
			all, err := sub.Fetch(5, nats.MaxWait(patience))
			testutil.Must(t, err)
			equal(t, "fetched", len(all), 5)
			for i, m := range all {
				equal(t, "message", string(m.Data), fmt.Sprint(i+1))
				testutil.Must(t, m.AckSync(nats.AckWait(patience)))
			}
			info, err := sub.ConsumerInfo()
			testutil.Must(t, err)
			equal(t, "acknowledged", info.AckFloor.Stream, 5)
			testutil.Must(t, sub.Unsubscribe())
		}
		m, err := former.GetMsg(name, 2)
		testutil.Must(t, err)
		equal(t, "read", string(m.Data), "2")
		testutil.Must(t, former.PurgeStream(name))
		testutil.Must(t, former.DeleteStream(name))
	}},
}

// fillQuietly publishes in the background of a story.
func fillQuietly(t *testing.T, js jetstream.JetStream, subject string, n int) {
	for i := range n {
		if _, err := js.Publish(t.Context(), subject, fmt.Appendf(nil, "%d", i+1)); err != nil {
			t.Errorf("publish %d on %s: %v", i+1, subject, err)
			return
		}
	}
}
