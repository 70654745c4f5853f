package compat

import (
	"fmt"
	"slices"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

var removalStories = []story{
	{"a message is deleted for everybody", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowDirect = true })
		fill(t, js, name+".x", 6)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		before, err := stream.CreateConsumer(within(t), jetstream.ConsumerConfig{Durable: "before", AckPolicy: jetstream.AckExplicitPolicy})
		testutil.Must(t, err)
		batch, err := before.Fetch(2)
		equalTexts(t, "delivered before", texts(take(t, batch, err)), count(1, 2))
		erase := func(what, seq string, want any) {
			t.Helper()
			answer := ask(t, other, "$JS.API.STREAM.MSG.DELETE."+name, fmt.Sprintf(`{"seq":%s}`, seq))
			equal(t, what, at(answer, "error", "err_code"), want)
			equal(t, what+": success", at(answer, "success") == any(true), want == nil)
		}
		erase("one in the middle", "4", nil)
		erase("the same again", "4", 10043.0)
		erase("the last one", "6", nil)
		_, err = stream.GetMsg(within(t), 4)
		equal(t, "reading it", number(err), jetstream.ErrorCode(10037))
		last, err := stream.GetLastMsgForSubject(within(t), name+".x")
		testutil.Must(t, err)
		equal(t, "the last of its subject", last.Sequence, uint64(5))
		is, err := stream.Info(within(t), jetstream.WithDeletedDetails(true))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(4))
		equal(t, "deleted", is.State.NumDeleted, 2)
		equal(t, "last", is.State.LastSeq, uint64(6))
		if !slices.Equal(is.State.Deleted, []uint64{4, 6}) {
			t.Errorf("deleted are %v", is.State.Deleted)
		}
		batch, err = before.Fetch(2)
		equalTexts(t, "delivered after", texts(take(t, batch, err)), []string{"3", "5"})
		late, err := stream.CreateConsumer(within(t), jetstream.ConsumerConfig{FilterSubject: name + ".*", AckPolicy: jetstream.AckExplicitPolicy})
		testutil.Must(t, err)
		pending, err := late.Info(within(t))
		testutil.Must(t, err)
		equal(t, "pending", pending.NumPending, uint64(4))

		erase("the first one", "1", nil)
		is, err = stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "first", is.State.FirstSeq, uint64(2))
		ack, err := js.Publish(within(t), name+".x", []byte("7"), jetstream.WithExpectLastSequencePerSubject(5))
		testutil.Must(t, err)
		equal(t, "the sequence of the next one", ack.Sequence, uint64(7))

		fixed := s.stream(t, func(c *jetstream.StreamConfig) { c.DenyDelete = true })
		fill(t, js, fixed+".x", 1)
		answer := ask(t, js, "$JS.API.STREAM.MSG.DELETE."+fixed, `{"seq":1}`)
		equal(t, "where it is denied", at(answer, "error", "err_code"), any(10057.0))
	}},

	{"the messages of some subjects are purged", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		for range 3 {
			for _, subject := range []string{".a", ".b", ".c.1"} {
				_, err := js.Publish(within(t), name+subject, nil)
				testutil.Must(t, err)
			}
		}
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		holds := func(what string, messages uint64, a, b, c uint64) {
			t.Helper()
			is, err := stream.Info(within(t), jetstream.WithSubjectFilter(">"))
			testutil.Must(t, err)
			equal(t, what+": messages", is.State.Msgs, messages)
			equal(t, what+": of a", is.State.Subjects[name+".a"], a)
			equal(t, what+": of b", is.State.Subjects[name+".b"], b)
			equal(t, what+": of c", is.State.Subjects[name+".c.1"], c)
		}
		holds("before", 9, 3, 3, 3)
		answer := ask(t, js, "$JS.API.STREAM.PURGE."+name, fmt.Sprintf(`{"filter":"%s.a","keep":1}`, name))
		equal(t, "purged", at(answer, "purged"), any(2.0))
		holds("all but one of a", 7, 1, 3, 3)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".c.>")))
		holds("all of c", 4, 1, 3, 0)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".b"), jetstream.WithPurgeSequence(5)))
		holds("of b below 5", 3, 1, 2, 0)
		testutil.Must(t, stream.Purge(within(t)))
		holds("all", 0, 0, 0, 0)
	}},
}
