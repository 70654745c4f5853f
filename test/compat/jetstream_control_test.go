package compat

import (
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// controlStories change consumers that exist, and ask for more than messages.
var controlStories = []story{
	{"a paused consumer delivers when its pause ends", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for _, config := range []jetstream.ConsumerConfig{{Durable: "d"}, {Name: "e", InactiveThreshold: time.Minute}} {
			c := s.consumer(t, name, config)
			of := c.CachedInfo().Name
			until := time.Now().Add(time.Hour)
			paused, err := js.PauseConsumer(within(t), name, of, until)
			testutil.Must(t, err)
			// The brokers' common time may be behind this client's for as long as their votes travel.
			if !paused.Paused || !paused.PauseUntil.Equal(until) || paused.PauseRemaining < 50*time.Minute || paused.PauseRemaining > 61*time.Minute {
				t.Errorf("paused until %v: %+v", until, *paused)
			}
			fill(t, js, name+".x", 1)
			batch, err := c.Fetch(1, jetstream.FetchMaxWait(soon))
			equal(t, "messages during the pause", len(take(t, batch, err)), 0)
			is, err := c.Info(within(t))
			testutil.Must(t, err)
			if !is.Paused || is.PauseRemaining < 50*time.Minute || is.Config.PauseUntil == nil || !is.Config.PauseUntil.Equal(until) {
				t.Errorf("during the pause it is %+v", is)
			}
			// Changing something else does not end the pause.
			config.Description, config.AckPolicy = "changed", jetstream.AckExplicitPolicy
			if _, err := js.UpdateConsumer(within(t), name, config); err != nil {
				t.Errorf("an update of %s during its pause: %v", of, err)
			}
			is, err = c.Info(within(t))
			testutil.Must(t, err)
			if !is.Paused || is.Config.Description != "changed" {
				t.Errorf("after an update it is %+v", is)
			}
			resumed, err := js.ResumeConsumer(within(t), name, of)
			testutil.Must(t, err)
			equal(t, "paused", resumed.Paused, false)
			m, err := c.Next(jetstream.FetchMaxWait(patience))
			testutil.Must(t, err)
			testutil.Must(t, m.DoubleAck(within(t)))

			// A pause that is short ends by itself.
			until = time.Now().Add(soon)
			_, err = js.PauseConsumer(within(t), name, of, until)
			testutil.Must(t, err)
			fill(t, js, name+".x", 1)
			for range 1 {
				_, err = c.Next(jetstream.FetchMaxWait(patience))
				testutil.Must(t, err)
			}
			if early := time.Until(until); early > 100*time.Millisecond {
				t.Errorf("a message came %v before a pause of %v ended", early, soon)
			}
			testutil.Must(t, js.DeleteConsumer(within(t), name, of))
			stream, err := js.Stream(within(t), name)
			testutil.Must(t, err)
			testutil.Must(t, stream.Purge(within(t)))
		}
		_, err := js.PauseConsumer(within(t), name, "nobody", time.Now())
		if !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Errorf("pausing nobody: %v", err)
		}
	}},

	{"a consumer is created in a pause", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 1)
		until := time.Now().Add(3 * soon) // it is looked at before
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", PauseUntil: &until})
		equal(t, "paused", c.CachedInfo().Paused, true)
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		if early := time.Until(until); early > 50*time.Millisecond {
			t.Errorf("%s came %v before the end of the pause", m.Data(), early)
		}
	}},

	{"a consumer without a durable name is changed", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		config := jetstream.ConsumerConfig{Name: "e", FilterSubject: name + ".a", AckPolicy: jetstream.AckExplicitPolicy, InactiveThreshold: time.Minute}
		c := s.consumer(t, name, config)
		fill(t, js, name+".a", 1)
		fill(t, js, name+".b", 1)
		batch, err := c.Fetch(2, jetstream.FetchMaxWait(soon))
		equal(t, "messages", len(take(t, batch, err)), 1)
		config.FilterSubject, config.MaxDeliver, config.Metadata = name+".b", 3, map[string]string{"k": "v"}
		changed, err := js.UpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		is := changed.CachedInfo()
		equal(t, "filter", is.Config.FilterSubject, name+".b")
		equal(t, "max deliver", is.Config.MaxDeliver, 3)
		equal(t, "k", is.Config.Metadata["k"], "v")
		fill(t, js, name+".b", 1)
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		equal(t, "subject", m.Subject(), name+".b")
		config.DeliverPolicy = jetstream.DeliverNewPolicy
		_, err = js.UpdateConsumer(within(t), name, config)
		equal(t, "another start", number(err), jetstream.ErrorCode(10012))
	}},

	{"a consumer is reset", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 6)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d"})
		batch, err := c.Fetch(4)
		all := take(t, batch, err)
		testutil.Must(t, all[0].DoubleAck(within(t)))
		testutil.Must(t, all[1].DoubleAck(within(t)))
		is, at, code := s.reset(t, js, name, "d", "")
		if code != 0 || at != 3 || is.NumAckPending != 0 || is.Delivered.Stream != 2 || is.Delivered.Consumer != 0 || is.AckFloor.Stream != 2 || is.AckFloor.Consumer != 0 || is.NumPending != 4 {
			t.Errorf("reset to its ack floor, at %d: %+v, %d", at, is, code)
		}
		batch, err = c.Fetch(4)
		all = take(t, batch, err)
		equalTexts(t, "after a reset", texts(all), count(3, 6))
		about, err := all[0].Metadata()
		testutil.Must(t, err)
		equal(t, "delivered", about.NumDelivered, 1)
		equal(t, "sequence", about.Sequence.Consumer, 1)
		is, at, code = s.reset(t, js, name, "d", `{"seq":2}`)
		if code != 0 || at != 2 || is.NumPending != 5 {
			t.Errorf("reset to 2, at %d: %+v, %d", at, is, code)
		}
		batch, err = c.Fetch(5)
		equalTexts(t, "from 2 on", texts(take(t, batch, err)), count(2, 6))

		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "late", DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: 3})
		if _, at, code := s.reset(t, js, name, "late", `{"seq":4}`); at != 4 || code != 0 {
			t.Errorf("beyond its start: %d, %d", at, code)
		}
		_, _, code = s.reset(t, js, name, "late", `{"seq":2}`)
		equal(t, "below its start", code, 10204)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "new", DeliverPolicy: jetstream.DeliverNewPolicy})
		_, _, code = s.reset(t, js, name, "new", `{"seq":2}`)
		equal(t, "one for new messages", code, 10204)
	}},

	{"messages come in the intervals in which they were published", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		const pause = 300 * time.Millisecond
		var stored []time.Time
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		for range 4 {
			ack, err := js.Publish(within(t), name+".x", nil)
			testutil.Must(t, err)
			m, err := stream.GetMsg(within(t), ack.Sequence)
			testutil.Must(t, err)
			stored = append(stored, m.Time)
			if len(stored) < 4 {
				<-time.After(pause)
			}
		}
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", ReplayPolicy: jetstream.ReplayOriginalPolicy})
		equal(t, "policy", c.CachedInfo().Config.ReplayPolicy, jetstream.ReplayOriginalPolicy)
		asked := time.Now() // the first is delivered later, and may arrive much later
		messages, err := c.Messages()
		testutil.Must(t, err)
		defer messages.Stop()
		for i, at := range stored {
			_, err := messages.Next()
			testutil.Must(t, err)
			if after, want := time.Since(asked), at.Sub(stored[0]); after < want-100*time.Millisecond {
				t.Errorf("message %d came %v after it was asked for, and was published %v after the first", i+1, after, want)
			}
		}
		// It has caught up: what comes now is delivered at once, whenever it is published.
		<-time.After(pause)
		fill(t, js, name+".x", 1)
		_, err = messages.Next()
		testutil.Must(t, err)
	}},

	{"acks are sampled", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		metrics, err := js.Conn().SubscribeSync("$JS.EVENT.METRIC.CONSUMER.ACK." + name + ".>")
		testutil.Must(t, err)
		s.settled(t, js.Conn())
		fill(t, js, name+".x", 2)
		never := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "never", SampleFrequency: "0"})
		always := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "always", SampleFrequency: "100%"})
		for _, c := range []jetstream.Consumer{never, always} {
			batch, err := c.Fetch(2)
			for _, m := range take(t, batch, err) {
				<-time.After(20 * time.Millisecond)
				testutil.Must(t, m.DoubleAck(within(t)))
			}
		}
		for i := range 2 {
			m, err := metrics.NextMsg(patience)
			testutil.Must(t, err)
			var metric struct {
				Type       string `json:"type"`
				Consumer   string `json:"consumer"`
				Sequence   uint64 `json:"consumer_seq"`
				Offset     uint64 `json:"stream_seq"`
				Deliveries int    `json:"deliveries"`
				Delay      int64  `json:"ack_time"`
			}
			testutil.Must(t, json.Unmarshal(m.Data, &metric))
			equal(t, "subject", m.Subject, "$JS.EVENT.METRIC.CONSUMER.ACK."+name+".always")
			equal(t, "type", metric.Type, "io.nats.jetstream.metric.v1.consumer_ack")
			equal(t, "consumer", metric.Consumer, "always")
			equal(t, "consumer sequence", metric.Sequence, uint64(i+1))
			equal(t, "stream sequence", metric.Offset, uint64(i+1))
			equal(t, "deliveries", metric.Deliveries, 1)
			if took := time.Duration(metric.Delay); took < 15*time.Millisecond || took > patience {
				t.Errorf("an ack took %v", took)
			}
		}
		_, err = js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "wrong", SampleFrequency: "some"})
		equal(t, "no number", number(err), jetstream.ErrorCode(10095))
	}},

	{"an ack that nobody expects is answered by nobody", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 1)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckNonePolicy})
		m, err := c.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		if _, err := js.Conn().Request(m.Reply(), []byte("+ACK"), patience); !errors.Is(err, nats.ErrNoResponders) {
			t.Errorf("it was answered: %v", err)
		}
	}},

	{"limits of consumers hold for existing ones", func(t *testing.T, s *site) {
		var config jetstream.StreamConfig
		name := s.stream(t, func(c *jetstream.StreamConfig) { config = *c })
		config.Name, config.Subjects = name, []string{name + ".>"}
		js := s.client(t)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", MaxAckPending: 20})
		s.consumer(t, name, jetstream.ConsumerConfig{Name: "e", InactiveThreshold: time.Hour, MaxAckPending: 5})
		for _, limits := range []jetstream.StreamConsumerLimits{{MaxAckPending: 10}, {InactiveThreshold: time.Minute}} {
			config.ConsumerLimits = limits
			_, err := js.UpdateStream(within(t), config)
			equal(t, "limits below an existing consumer's", number(err), jetstream.ErrorCode(10069))
		}
		config.ConsumerLimits = jetstream.StreamConsumerLimits{MaxAckPending: 20, InactiveThreshold: time.Hour}
		_, err := js.UpdateStream(within(t), config)
		testutil.Must(t, err)
	}},

	{"a pull that does not wait ends when too much is pending", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		fill(t, js, name+".x", 5)
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", MaxAckPending: 2})
		inbox, err := js.Conn().SubscribeSync(nats.NewInbox())
		testutil.Must(t, err)
		s.settled(t, js.Conn())
		testutil.Must(t, js.Conn().PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+name+".d", inbox.Subject,
			[]byte(`{"batch":5,"no_wait":true,"expires":60000000000,"idle_heartbeat":300000000}`)))
		var statuses []string
		for len(statuses) == 0 || statuses[len(statuses)-1] != "404" {
			m, err := inbox.NextMsg(patience)
			testutil.Must(t, err)
			statuses = append(statuses, m.Header.Get("Status"))
		}
		// nats-server may send one heartbeat before.
		statuses = slices.DeleteFunc(statuses, func(status string) bool { return status == "100" })
		equalTexts(t, "what came", statuses, []string{"", "", "404"})
	}},
}

// settled waits until the brokers know what a connection has subscribed to.
func (s *site) settled(t *testing.T, nc *nats.Conn) {
	t.Helper()
	testutil.Must(t, nc.FlushTimeout(patience))
	for _, url := range s.urls {
		other, err := nats.Connect(url, nats.Timeout(patience))
		testutil.Must(t, err)
		probe, err := nc.SubscribeSync(nats.NewInbox())
		testutil.Must(t, err)
		testutil.Must(t, nc.FlushTimeout(patience))
		testutil.EventuallyTrue(t, "interest has reached all brokers", func() bool {
			testutil.Must(t, other.Publish(probe.Subject, nil))
			_, err := probe.NextMsg(5 * time.Millisecond)
			return err == nil
		})
		testutil.Must(t, probe.Unsubscribe())
		other.Close()
	}
}

// reset resets a consumer. code is that of the refusal, or 0.
func (s *site) reset(t *testing.T, js jetstream.JetStream, stream, consumer, payload string) (is jetstream.ConsumerInfo, at uint64, code int) {
	t.Helper()
	m, err := js.Conn().Request("$JS.API.CONSUMER.RESET."+stream+"."+consumer, []byte(payload), patience)
	testutil.Must(t, err)
	var answer struct {
		jetstream.ConsumerInfo
		Type  string `json:"type"`
		At    uint64 `json:"reset_seq"`
		Error struct {
			Code int `json:"err_code"`
		} `json:"error"`
	}
	testutil.Must(t, json.Unmarshal(m.Data, &answer))
	equal(t, "type", answer.Type, "io.nats.jetstream.api.v1.consumer_reset_response")
	return answer.ConsumerInfo, answer.At, answer.Error.Code
}
