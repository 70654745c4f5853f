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

// priorityStories are about consumers with priority groups.
var priorityStories = []story{
	{"requests with the lowest priority come first", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", PriorityPolicy: jetstream.PriorityPolicyPrioritized, PriorityGroups: []string{"A"}})
		info := c.CachedInfo()
		equal(t, "policy", info.Config.PriorityPolicy, jetstream.PriorityPolicyPrioritized)
		equalTexts(t, "groups", info.Config.PriorityGroups, []string{"A"})
		b := s.puller(t, name, `{"batch":2,"group":"A","priority":2}`)
		standing(t, "b waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		a1 := s.puller(t, name, `{"batch":2,"group":"A","priority":1}`)
		standing(t, "a1 waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 2 })
		a2 := s.puller(t, name, `{"batch":2,"group":"A","priority":1}`)
		standing(t, "a2 waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 3 })
		plain := s.puller(t, name, `2`)
		standing(t, "all wait", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 4 })
		fill(t, s.client(t), name+".x", 8)
		equalTexts(t, "a1", a1.got(t, 2), []string{"1", "3"})
		equalTexts(t, "a2", a2.got(t, 2), []string{"2", "4"})
		equalTexts(t, "b", b.got(t, 2), []string{"5", "6"})
		equalTexts(t, "a request without priority", plain.got(t, 2), []string{"7", "8"})
	}},

	{"a request overflows when enough waits or is pending", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", PriorityPolicy: jetstream.PriorityPolicyOverflow, PriorityGroups: []string{"A"}})
		over := s.puller(t, name, `{"batch":9,"group":"A","min_pending":3}`)
		standing(t, "it waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		fill(t, js, name+".x", 2)
		any := s.puller(t, name, `{"batch":1,"group":"A"}`)
		equalTexts(t, "a request without minimum", any.got(t, 1), []string{"1"})
		fill(t, js, name+".x", 2)
		equalTexts(t, "when three wait", over.got(t, 1), []string{"2"})
		busy := s.puller(t, name, `{"batch":9,"group":"A","min_ack_pending":3}`)
		standing(t, "both wait", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 2 && is.NumPending == 2 })
		any = s.puller(t, name, `{"batch":1,"group":"A"}`)
		equalTexts(t, "a request without minimum", any.got(t, 1), []string{"1"})
		equalTexts(t, "when three are pending", busy.got(t, 1), []string{"2"})

		batch, err := c.Fetch(1, jetstream.FetchPriorityGroup("A"), jetstream.FetchMinPending(5), jetstream.FetchMaxWait(soon))
		equal(t, "messages for a fetch with a minimum", len(take(t, batch, err)), 0)
	}},

	{"one client is pinned until it is unpinned", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		events, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.*." + name + ".d")
		testutil.Must(t, err)
		s.settled(t, js.Conn())
		c := s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A", "B"}})
		event(t, events, "$JS.EVENT.ADVISORY.CONSUMER.CREATED."+name+".d")
		equal(t, "time of a silent client", c.CachedInfo().Config.PinnedTTL, 2*time.Minute)
		groups := c.CachedInfo().PriorityGroups
		if len(groups) != 1 || groups[0].Group != "A" || groups[0].PinnedClientID != "" {
			t.Errorf("at first its groups are %+v", groups)
		}
		a := s.puller(t, name, `{"batch":1,"group":"A"}`)
		standing(t, "it waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		b := s.puller(t, name, `{"batch":1,"group":"A"}`)
		standing(t, "both wait", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 2 })
		fill(t, js, name+".x", 2)
		first := a.next(t)
		pin := first.Header.Get("Nats-Pin-Id")
		equal(t, "length of the pin", len(pin), 22)
		is := event(t, events, "$JS.EVENT.ADVISORY.CONSUMER.PINNED."+name+".d")
		equal(t, "type", is["type"], "io.nats.jetstream.advisory.v1.consumer_group_pinned")
		equal(t, "pin", is["pinned_id"], any(pin))
		equal(t, "group", is["group"], any("A"))
		standing(t, "it is pinned", c, func(is *jetstream.ConsumerInfo) bool {
			return len(is.PriorityGroups) == 1 && is.PriorityGroups[0].PinnedClientID == pin && time.Since(is.PriorityGroups[0].PinnedTS) < time.Minute
		})
		equal(t, "another pin", s.puller(t, name, `{"batch":1,"group":"A","id":"another"}`).next(t).Header.Get("Status"), "423")
		a.pull(t, `{"batch":1,"group":"A","id":"`+pin+`"}`)
		equal(t, "the pinned client's next", string(a.next(t).Data), "2")

		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		testutil.Must(t, stream.UnpinConsumer(within(t), "d", "A"))
		is = event(t, events, "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED."+name+".d")
		equal(t, "type", is["type"], "io.nats.jetstream.advisory.v1.consumer_group_unpinned")
		equal(t, "reason", is["reason"], any("admin"))
		fill(t, js, name+".x", 1)
		m := b.next(t)
		equal(t, "who waited gets", string(m.Data), "1")
		if now := m.Header.Get("Nats-Pin-Id"); now == pin || now == "" {
			t.Errorf("the pins are %q and %q", pin, now)
		}
	}},

	{"a silent client is unpinned", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		events, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.CONSUMER.UNPINNED." + name + ".d")
		testutil.Must(t, err)
		s.settled(t, js.Conn())
		s.consumer(t, name, jetstream.ConsumerConfig{
			Durable: "d", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A", "B"}, PinnedTTL: soon,
		})
		fill(t, js, name+".x", 1)
		a := s.puller(t, name, `{"batch":1,"group":"A"}`)
		pin := a.next(t).Header.Get("Nats-Pin-Id")
		equal(t, "reason", event(t, events, "$JS.EVENT.ADVISORY.CONSUMER.UNPINNED."+name+".d")["reason"], any("timeout"))
		a.pull(t, `{"batch":1,"group":"A","id":"`+pin+`"}`)
		b := s.puller(t, name, `{"batch":1,"group":"B"}`)
		fill(t, js, name+".x", 1)
		equal(t, "a former pin", a.next(t).Header.Get("Status"), "423")
		m := b.next(t)
		equal(t, "another client gets", string(m.Data), "1")
		if now := m.Header.Get("Nats-Pin-Id"); now == pin || now == "" {
			t.Errorf("the pins are %q and %q", pin, now)
		}
	}},

	{"clients that consume are pinned in turn", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		c := s.consumer(t, name, jetstream.ConsumerConfig{
			Durable: "d", PriorityPolicy: jetstream.PriorityPolicyPinned, PriorityGroups: []string{"A"}, PinnedTTL: 5 * time.Second,
		})
		got := make(chan string, 100)
		consume := func(as string) jetstream.ConsumeContext {
			c, err := s.client(t).Consumer(within(t), name, "d")
			testutil.Must(t, err)
			consuming, err := c.Consume(func(m jetstream.Msg) {
				got <- as
				testutil.Must(t, m.Ack())
			}, jetstream.PullPriorityGroup("A"), jetstream.PullExpiry(time.Second))
			testutil.Must(t, err)
			return consuming
		}
		one := consume("one")
		standing(t, "one waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		two := consume("two")
		defer two.Stop()
		standing(t, "two waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 2 })
		fill(t, js, name+".x", 20)
		for range 20 {
			equal(t, "who gets all", <-got, "one")
		}
		one.Stop()
		<-one.Closed()
		fill(t, js, name+".x", 5) // they wait until the pin is over
		for range 5 {
			select {
			case who := <-got:
				equal(t, "who goes on", who, "two")
			case <-time.After(patience):
				t.Fatal("nobody goes on")
			}
		}
	}},

	{"priority settings and requests that are wrong", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		pinned, overflow := jetstream.PriorityPolicyPinned, jetstream.PriorityPolicyOverflow
		for _, test := range []struct {
			config jetstream.ConsumerConfig
			code   jetstream.ErrorCode
		}{
			{jetstream.ConsumerConfig{PriorityPolicy: overflow}, 10159},
			{jetstream.ConsumerConfig{PriorityPolicy: overflow, PriorityGroups: []string{""}}, 10161},
			{jetstream.ConsumerConfig{PriorityPolicy: overflow, PriorityGroups: []string{"a b"}}, 10162},
			{jetstream.ConsumerConfig{PriorityGroups: []string{"A"}}, 10196},
			{jetstream.ConsumerConfig{PinnedTTL: time.Second}, 10197},
		} {
			test.config.Durable = "wrong"
			_, err := js.CreateConsumer(within(t), name, test.config)
			equal(t, "the refusal", number(err), test.code)
		}
		_, err := js.CreatePushConsumer(within(t), name, jetstream.ConsumerConfig{
			Durable: "wrong", DeliverSubject: nats.NewInbox(), PriorityPolicy: pinned, PriorityGroups: []string{"A"},
		})
		equal(t, "a push consumer", number(err), jetstream.ErrorCode(10178))
		s.consumer(t, name, jetstream.ConsumerConfig{Durable: "d", PriorityPolicy: overflow, PriorityGroups: []string{"A"}})
		for payload, want := range map[string]string{
			`{"batch":1}`:                           "Bad Request - Priority Group missing",
			`{"batch":1,"group":"B"}`:               "Bad Request - Invalid Priority Group",
			`{"batch":1,"group":"A","id":"x"}`:      "Bad Request - Not a Pinned Client Priority consumer",
			`{"batch":1,"group":"A","priority":10}`: "Bad Request - Priority must be between 0 and 9",
		} {
			equal(t, payload, s.puller(t, name, payload).next(t).Header.Get("Description"), want)
		}
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		for group, want := range map[string]jetstream.ErrorCode{"B": 10160, "a b": 10162, "": 10025} {
			err := stream.UnpinConsumer(within(t), "d", group)
			equal(t, "unpinning "+group, number(err), want)
		}
		if err := stream.UnpinConsumer(within(t), "nobody", "A"); !errors.Is(err, jetstream.ErrConsumerNotFound) {
			t.Errorf("unpinning nobody: %v", err)
		}
	}},

	{"a consumer gets another policy", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		config := jetstream.ConsumerConfig{Durable: "d", AckPolicy: jetstream.AckExplicitPolicy}
		c := s.consumer(t, name, config)
		config.PriorityPolicy, config.PriorityGroups = jetstream.PriorityPolicyOverflow, []string{"A"}
		_, err := js.UpdateConsumer(within(t), name, config)
		testutil.Must(t, err)
		p := s.puller(t, name, `{"batch":1,"group":"A","min_pending":2}`)
		standing(t, "it waits", c, func(is *jetstream.ConsumerInfo) bool { return is.NumWaiting == 1 })
		fill(t, js, name+".x", 1)
		fill(t, js, name+".y", 1)
		equalTexts(t, "what overflows", p.got(t, 1), []string{"1"})
		is, err := c.Info(within(t))
		testutil.Must(t, err)
		var required struct {
			Level string `json:"_nats.req.level"`
		}
		metadata, err := json.Marshal(is.Config.Metadata)
		testutil.Must(t, err)
		testutil.Must(t, json.Unmarshal(metadata, &required))
		equal(t, "required level", required.Level, "1")
	}},
}

// puller pulls from the consumer d of a stream, with requests as they are.
type puller struct {
	nc     *nats.Conn
	stream string
	inbox  *nats.Subscription
}

// puller returns one that has sent a request.
func (s *site) puller(t *testing.T, stream, payload string) *puller {
	t.Helper()
	p := &puller{nc: s.client(t).Conn(), stream: stream}
	var err error
	p.inbox, err = p.nc.SubscribeSync(nats.NewInbox())
	testutil.Must(t, err)
	s.settled(t, p.nc)
	p.pull(t, payload)
	return p
}

func (p *puller) pull(t *testing.T, payload string) {
	t.Helper()
	testutil.Must(t, p.nc.PublishRequest("$JS.API.CONSUMER.MSG.NEXT."+p.stream+".d", p.inbox.Subject, []byte(payload)))
	testutil.Must(t, p.nc.FlushTimeout(patience))
}

func (p *puller) next(t *testing.T) *nats.Msg {
	t.Helper()
	m, err := p.inbox.NextMsg(patience)
	testutil.Must(t, err)
	return m
}

// got returns the payloads of the next n messages.
func (p *puller) got(t *testing.T, n int) (all []string) {
	t.Helper()
	for range n {
		all = append(all, string(p.next(t).Data))
	}
	return slices.Clip(all)
}
