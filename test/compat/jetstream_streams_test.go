package compat

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// number returns the JetStream error code of err; 0: none.
func number(err error) jetstream.ErrorCode {
	var e jetstream.JetStreamError
	if errors.As(err, &e) && e.APIError() != nil {
		return e.APIError().ErrorCode
	}
	return 0
}

var streamStories = []story{
	{"a stream is made, found, described and deleted", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.name("orders")
		config := jetstream.StreamConfig{
			Name: name, Subjects: []string{name + ".>"}, Description: "what was ordered", MaxMsgs: 1000, MaxAge: time.Hour,
			Metadata: map[string]string{"team": "sales"},
		}
		_, err := other.Stream(within(t), name)
		if !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Fatalf("before it is made: %v", err)
		}
		made, err := js.CreateStream(within(t), config)
		testutil.Must(t, err)
		is := made.CachedInfo()
		equal(t, "name", is.Config.Name, name)
		equal(t, "description", is.Config.Description, config.Description)
		equal(t, "subjects", fmt.Sprint(is.Config.Subjects), fmt.Sprint(config.Subjects))
		equal(t, "max messages", is.Config.MaxMsgs, 1000)
		equal(t, "max bytes", is.Config.MaxBytes, -1)
		equal(t, "max age", is.Config.MaxAge, time.Hour)
		equal(t, "duplicates", is.Config.Duplicates, 2*time.Minute)
		equal(t, "replicas", is.Config.Replicas, 1)
		equal(t, "storage", is.Config.Storage, jetstream.FileStorage)
		equal(t, "team", is.Config.Metadata["team"], "sales")
		equal(t, "messages", is.State.Msgs, 0)
		equal(t, "first sequence", is.State.FirstSeq, 0)
		equal(t, "last sequence", is.State.LastSeq, 0)
		if is.Created.IsZero() || time.Since(is.Created) > time.Minute {
			t.Errorf("created %v", is.Created)
		}

		found, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		fill(t, other, name+".new", 3)
		is, err = found.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, 3)
		equal(t, "first sequence", is.State.FirstSeq, 1)
		equal(t, "last sequence", is.State.LastSeq, 3)
		if is.State.Bytes == 0 || is.State.FirstTime.IsZero() || is.State.LastTime.Before(is.State.FirstTime) {
			t.Errorf("state %+v", is.State)
		}

		testutil.Must(t, js.DeleteStream(within(t), name))
		if _, err := js.Stream(within(t), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("after it was deleted: %v", err)
		}
		if err := js.DeleteStream(within(t), name); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("deleted twice: %v", err)
		}
		if _, err := js.CreateStream(within(t), config); err != nil {
			t.Errorf("made again: %v", err)
		}
		again, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "messages of the one made again", again.CachedInfo().State.Msgs, 0)
	}},

	{"what is there already is recognised", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		config := jetstream.StreamConfig{Name: s.name("same")}
		config.Subjects = []string{config.Name + ".a", config.Name + ".b"}
		_, err := js.CreateStream(within(t), config)
		testutil.Must(t, err)
		if _, err := other.CreateStream(within(t), config); err != nil {
			t.Errorf("the same again: %v", err)
		}
		different := config
		different.MaxMsgs = 7
		if _, err := other.CreateStream(within(t), different); !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			t.Errorf("another one of that name: %v", err)
		}
		overlapping := jetstream.StreamConfig{Name: s.name("overlap"), Subjects: []string{config.Name + ".*"}}
		_, err = other.CreateStream(within(t), overlapping)
		equal(t, "one of the same subjects", number(err), jetstream.ErrorCode(10065))
	}},

	{"a stream is changed", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		config := jetstream.StreamConfig{Name: s.name("change"), MaxMsgs: 100}
		config.Subjects = []string{config.Name + ".a"}
		if _, err := js.UpdateStream(within(t), config); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("before it is made: %v", err)
		}
		_, err := js.CreateOrUpdateStream(within(t), config)
		testutil.Must(t, err)
		config.MaxMsgs, config.Description = 3, "shorter"
		config.Subjects = append(config.Subjects, config.Name+".b")
		changed, err := other.CreateOrUpdateStream(within(t), config)
		testutil.Must(t, err)
		is := changed.CachedInfo().Config
		equal(t, "max messages", is.MaxMsgs, 3)
		equal(t, "description", is.Description, "shorter")
		equal(t, "subjects", len(is.Subjects), 2)
		fill(t, js, config.Name+".a", 1)
		testutil.EventuallyTrue(t, "the new subject is kept", func() bool {
			_, err := js.Publish(within(t), config.Name+".b", nil)
			return err == nil
		})
		fill(t, js, config.Name+".b", 4)
		testutil.EventuallyTrue(t, "the new limit holds", func() bool {
			is, err := changed.Info(within(t))
			testutil.Must(t, err)
			return is.State.Msgs == 3
		})
		config.Storage = jetstream.MemoryStorage
		_, err = js.UpdateStream(within(t), config)
		equal(t, "other storage", number(err), jetstream.ErrorCode(10052))
	}},

	{"what can't be is refused with a reason", func(t *testing.T, s *site) {
		js := s.client(t)
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("bad"), Subjects: []string{"a..b"}})
		equal(t, "subject", number(err), jetstream.ErrorCode(10052))
		_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("bad"), MaxAge: time.Millisecond})
		equal(t, "age", number(err), jetstream.ErrorCode(10052))
		_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("bad"), Replicas: 6})
		equal(t, "replicas", number(err), jetstream.ErrorCode(10052))
		reply, err := js.Conn().Request("$JS.API.STREAM.CREATE.one", []byte(`{"name":"two"}`), patience)
		testutil.Must(t, err)
		if !strings.Contains(string(reply.Data), `"err_code":10056`) {
			t.Errorf("two names: %s", reply.Data)
		}
		reply, err = js.Conn().Request("$JS.API.STREAM.CREATE.one", []byte(`{"name":"one","no_such_setting":1}`), patience)
		testutil.Must(t, err)
		if !strings.Contains(string(reply.Data), `"err_code":10025`) {
			t.Errorf("a setting that is unknown: %s", reply.Data)
		}
		ask := &nats.Msg{Subject: "$JS.API.STREAM.NAMES", Header: nats.Header{"Nats-Required-Api-Level": {"99"}}}
		reply, err = js.Conn().RequestMsg(ask, patience)
		testutil.Must(t, err)
		if !strings.Contains(string(reply.Data), `"err_code":10185`) {
			t.Errorf("a level that isn't there: %s", reply.Data)
		}
	}},

	{"streams are named and listed", func(t *testing.T, s *site) {
		js := s.client(t)
		family := s.name("family")
		var want []string
		for i := range 5 {
			name := fmt.Sprintf("%s-%d", family, i)
			s.stream(t, func(c *jetstream.StreamConfig) { c.Name, c.Subjects = name, []string{fmt.Sprintf("%s.%d", family, i)} })
			want = append(want, name)
		}
		fill(t, js, family+".3", 3)
		var names []string
		testutil.EventuallyTrue(t, "all are named", func() bool {
			list := js.StreamNames(within(t), jetstream.WithStreamListSubject(family+".>"))
			names = nil
			for name := range list.Name() {
				names = append(names, name)
			}
			testutil.Must(t, list.Err())
			return len(names) == len(want)
		})
		slices.Sort(names)
		equalTexts(t, "names", names, want)

		list := js.ListStreams(within(t), jetstream.WithStreamListSubject(family+".>"))
		messages := map[string]uint64{}
		for info := range list.Info() {
			messages[info.Config.Name] = info.State.Msgs
		}
		testutil.Must(t, list.Err())
		equal(t, "listed", len(messages), 5)
		equal(t, "messages of one", messages[want[3]], 3)

		by, err := js.StreamNameBySubject(within(t), family+".2")
		testutil.Must(t, err)
		equal(t, "by subject", by, want[2])
		if _, err := js.StreamNameBySubject(within(t), s.name("nobody")); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("by a subject of none: %v", err)
		}
	}},

	{"the account counts", func(t *testing.T, s *site) {
		js := s.client(t)
		before, err := js.AccountInfo(within(t))
		testutil.Must(t, err)
		name := s.stream(t, nil)
		_, err = js.CreateConsumer(within(t), name, jetstream.ConsumerConfig{Durable: "one"})
		testutil.Must(t, err)
		fill(t, js, name+".x", 10)
		testutil.EventuallyTrue(t, "one more of each", func() bool {
			after, err := js.AccountInfo(within(t))
			testutil.Must(t, err)
			return after.Streams == before.Streams+1 && after.Consumers == before.Consumers+1 && after.Store > before.Store
		})
	}},

	{"a stream is purged", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		fill(t, js, name+".x", 10)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		holds := func(what string, messages, first, last uint64) {
			t.Helper()
			is, err := stream.Info(within(t))
			testutil.Must(t, err)
			equal(t, what+": messages", is.State.Msgs, messages)
			equal(t, what+": first", is.State.FirstSeq, first)
			equal(t, what+": last", is.State.LastSeq, last)
		}
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSequence(4)))
		holds("up to 4", 7, 4, 10)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeKeep(2)))
		holds("all but 2", 2, 9, 10)
		testutil.Must(t, stream.Purge(within(t)))
		holds("all", 0, 11, 10)
		fill(t, js, name+".x", 1)
		holds("one more", 1, 11, 11)

		fixed := s.stream(t, func(c *jetstream.StreamConfig) { c.DenyPurge = true })
		stream, err = js.Stream(within(t), fixed)
		testutil.Must(t, err)
		equal(t, "where it is denied", number(stream.Purge(within(t))), jetstream.ErrorCode(10110))
	}},
}

var messageStories = []story{
	{"a sealed stream stays as it is", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		config := jetstream.StreamConfig{Name: s.name("sealed"), MaxAge: time.Hour, Compression: jetstream.S2Compression}
		config.Subjects = []string{config.Name}
		sealed := config
		sealed.Sealed = true
		_, err := js.CreateStream(within(t), sealed)
		equal(t, "sealed from the start", number(err), jetstream.ErrorCode(10052))
		_, err = js.CreateStream(within(t), config)
		testutil.Must(t, err)
		fill(t, js, config.Name, 2)
		stream, err := other.UpdateStream(within(t), sealed)
		testutil.Must(t, err)
		is := stream.CachedInfo().Config
		equal(t, "sealed", is.Sealed, true)
		equal(t, "discards", is.Discard, jetstream.DiscardNew)
		equal(t, "longest age", is.MaxAge, 0)
		equal(t, "denies purges", is.DenyPurge, true)
		equal(t, "denies deletions", is.DenyDelete, true)
		equal(t, "compression", is.Compression, jetstream.S2Compression)
		testutil.Eventually(t, "a refusal", func() error {
			_, err := js.Publish(within(t), config.Name, []byte("3"))
			if number(err) != 10109 {
				return fmt.Errorf("published: %w", err)
			}
			return nil
		})
		equal(t, "a purge", number(stream.Purge(within(t))), jetstream.ErrorCode(10109))
		if err := stream.DeleteMsg(within(t), 1); err == nil || !strings.Contains(err.Error(), "sealed") {
			t.Errorf("a deletion: %v", err)
		}
		_, err = other.UpdateStream(within(t), config)
		equal(t, "unsealed", number(err), jetstream.ErrorCode(10052))
		m, err := stream.GetLastMsgForSubject(within(t), config.Name)
		testutil.Must(t, err)
		equal(t, "the last message", string(m.Data), "2")
	}},

	{"a stream begins with a chosen sequence", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.FirstSeq = 1000 })
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		is := stream.CachedInfo().State
		equal(t, "first of an empty stream", is.FirstSeq, 1000)
		equal(t, "last of an empty stream", is.LastSeq, 999)
		ack, err := js.Publish(within(t), name+".a", nil, jetstream.WithExpectLastSequence(999))
		testutil.Must(t, err)
		equal(t, "the first message", ack.Sequence, 1000)
		ack, err = js.Publish(within(t), name+".a", nil, jetstream.WithExpectLastSequencePerSubject(1000))
		testutil.Must(t, err)
		equal(t, "the second message", ack.Sequence, 1001)
		_, err = stream.GetMsg(within(t), 1)
		equal(t, "an earlier message", number(err), jetstream.ErrorCode(10037))
		consumer, err := other.CreateConsumer(within(t), name, jetstream.ConsumerConfig{OptStartSeq: 7, DeliverPolicy: jetstream.DeliverByStartSequencePolicy})
		testutil.Must(t, err)
		m, err := consumer.Next(jetstream.FetchMaxWait(patience))
		testutil.Must(t, err)
		meta, err := m.Metadata()
		testutil.Must(t, err)
		equal(t, "the first delivery", meta.Sequence.Stream, 1000)
		equal(t, "what follows it", meta.NumPending, 1)
		is2, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is2.State.Msgs, 2)
		equal(t, "deleted", is2.State.NumDeleted, 0)
		// Later changes of the sequence have no effect, also not on replicas that are added.
		changed := is2.Config
		changed.FirstSeq, changed.Replicas = 5000, len(s.urls)
		_, err = other.UpdateStream(within(t), changed)
		testutil.Must(t, err)
		testutil.Eventually(t, "replicas in sync", func() error {
			is, err := stream.Info(within(t))
			if err != nil {
				return err
			}
			if c := is.Cluster; c != nil && (len(c.Replicas) != len(s.urls)-1 || slices.ContainsFunc(c.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current })) {
				return fmt.Errorf("replicas: %+v", c.Replicas)
			}
			return nil
		})
		ack, err = js.Publish(within(t), name+".a", nil)
		testutil.Must(t, err)
		equal(t, "the message after a change", ack.Sequence, 1002)
	}},

	{"a stream stores messages under other subjects", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.name("moved")
		config := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".in.>"}, AllowDirect: true}
		config.SubjectTransform = &jetstream.SubjectTransformConfig{Source: name + ".in.*", Destination: name + ".out.{{splitFromLeft(1,1)}}"}
		_, err := js.CreateStream(within(t), config)
		testutil.Must(t, err)
		live, err := other.Conn().SubscribeSync(name + ".in.*")
		testutil.Must(t, err)
		settle(t, js.Conn(), other.Conn(), s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
		_, err = js.Publish(within(t), name+".in.abc", []byte("1"))
		testutil.Must(t, err)
		_, err = js.Publish(within(t), name+".in.not.mapped", []byte("2"))
		testutil.Must(t, err)
		m, err := live.NextMsg(patience)
		testutil.Must(t, err)
		equal(t, "what subscribers receive", m.Subject, name+".in.abc")
		// Conditions are about the stored subject.
		_, err = js.Publish(within(t), name+".in.abc", []byte("3"), jetstream.WithExpectLastSequencePerSubject(0))
		equal(t, "a wrong condition", number(err), jetstream.ErrorCode(10071))
		_, err = js.Publish(within(t), name+".in.abc", []byte("3"), jetstream.WithExpectLastSequencePerSubject(1))
		testutil.Must(t, err)
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		last, err := stream.GetLastMsgForSubject(within(t), name+".out.a.bc")
		testutil.Must(t, err)
		equal(t, "the last message", string(last.Data), "3")
		_, err = stream.GetLastMsgForSubject(within(t), name+".in.abc")
		equal(t, "the last message under the former subject", errors.Is(err, jetstream.ErrMsgNotFound), true)
		consumer, err := other.CreateConsumer(within(t), name, jetstream.ConsumerConfig{FilterSubject: name + ".out.>"})
		testutil.Must(t, err)
		batch, err := consumer.Fetch(2, jetstream.FetchMaxWait(patience))
		equalTexts(t, "under the new subject", texts(take(t, batch, err)), []string{"1", "3"})
		is, err := stream.Info(within(t), jetstream.WithSubjectFilter(">"))
		testutil.Must(t, err)
		equal(t, "subjects", fmt.Sprint(is.State.Subjects), fmt.Sprint(map[string]uint64{name + ".out.a.bc": 2, name + ".in.not.mapped": 1}))
		// It can be changed and taken away.
		config.SubjectTransform = &jetstream.SubjectTransformConfig{Destination: "then.>"}
		_, err = other.UpdateStream(within(t), config)
		testutil.Must(t, err)
		stored := func(subject string) func() error {
			return func() error {
				if _, err := js.Publish(within(t), name+".in.x", nil); err != nil {
					return err
				}
				_, err := stream.GetLastMsgForSubject(within(t), subject)
				return err
			}
		}
		testutil.Eventually(t, "a message under the changed subject", stored("then."+name+".in.x"))
		config.SubjectTransform = nil
		stream, err = other.UpdateStream(within(t), config)
		testutil.Must(t, err)
		equal(t, "no transform", stream.CachedInfo().Config.SubjectTransform == nil, true)
		testutil.Eventually(t, "a message under its own subject", stored(name+".in.x"))
	}},

	{"impossible transforms are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		for _, test := range []struct {
			source, destination string
			want                jetstream.ErrorCode
			says                string
		}{
			{"a..b", "b", 10155, "stream transform source: "},
			{"a.*", "b.$2", 10156, "stream transform: invalid mapping destination: wildcard index out of range in $2: [2]"},
			{"a.*", "b.{{nothing(1)}}", 10156, "stream transform: invalid mapping destination: unknown function in {{nothing(1)}}"},
			{"a.>", "b", 10156, "stream transform: "},
			{"a", "b..c", 10156, "stream transform: invalid mapping destination: invalid transform"},
		} {
			_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("not"), SubjectTransform: &jetstream.SubjectTransformConfig{Source: test.source, Destination: test.destination}})
			if number(err) != test.want || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s to %s: %v, want %d, %s", test.source, test.destination, err, test.want, test.says)
			}
		}
	}},

	{"a stream that discards new messages keeps the old ones", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.Discard, c.MaxMsgs = jetstream.DiscardNew, 3 })
		fill(t, js, name+".x", 2)
		_, err := other.Publish(within(t), name+".x", []byte("3"), jetstream.WithMsgID("third"))
		testutil.Must(t, err)
		for _, options := range [][]jetstream.PublishOpt{nil, {jetstream.WithMsgID("fourth")}, {jetstream.WithExpectLastSequence(3)}} {
			_, err = js.Publish(within(t), name+".x", []byte("4"), options...)
			if number(err) != 10077 || !strings.Contains(err.Error(), "maximum messages exceeded") {
				t.Errorf("a fourth message: %v", err)
			}
		}
		again, err := js.Publish(within(t), name+".x", []byte("3"), jetstream.WithMsgID("third"))
		testutil.Must(t, err)
		equal(t, "the third, published again", again.Duplicate, true)
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "first", stream.CachedInfo().State.FirstSeq, 1)
		equal(t, "messages", stream.CachedInfo().State.Msgs, 3)
		equal(t, "discards", stream.CachedInfo().Config.Discard, jetstream.DiscardNew)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSequence(2)))
		ack, err := js.Publish(within(t), name+".x", []byte("4"), jetstream.WithMsgID("fourth"))
		testutil.Must(t, err)
		equal(t, "sequence", ack.Sequence, 4)
		_, err = js.Publish(within(t), name+".x", []byte("5"))
		equal(t, "a fifth message", number(err), jetstream.ErrorCode(10077))

		small := s.stream(t, func(c *jetstream.StreamConfig) { c.Discard, c.MaxBytes = jetstream.DiscardNew, 64<<10 })
		for i := 0; ; i++ {
			_, err := js.Publish(within(t), small+".x", make([]byte, 8<<10))
			if err == nil && i < 16 {
				continue
			}
			if number(err) != 10077 || !strings.Contains(err.Error(), "maximum bytes exceeded") || i < 4 || i > 8 {
				t.Errorf("message %d of 8 KiB: %v", i, err)
			}
			break
		}
	}},

	{"what is published is kept, in order, and acknowledged", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		for i := range 5 {
			ack, err := js.Publish(within(t), name+".x", fmt.Appendf(nil, "%d", i))
			testutil.Must(t, err)
			equal(t, "stream", ack.Stream, name)
			equal(t, "sequence", ack.Sequence, uint64(i+1))
		}
		ack, err := js.Publish(within(t), name+".x", nil, jetstream.WithMsgID("once"))
		testutil.Must(t, err)
		equal(t, "first", ack.Duplicate, false)
		again, err := js.Publish(within(t), name+".x", nil, jetstream.WithMsgID("once"))
		testutil.Must(t, err)
		equal(t, "again", again.Duplicate, true)
		equal(t, "sequence of the first", again.Sequence, ack.Sequence)

		_, err = js.Publish(within(t), name+".x", nil, jetstream.WithExpectStream("another"))
		equal(t, "expected stream", number(err), jetstream.ErrorCode(10060))
		_, err = js.Publish(within(t), name+".x", nil, jetstream.WithExpectLastSequence(3))
		equal(t, "expected sequence", number(err), jetstream.ErrorCode(10071))
		_, err = js.Publish(within(t), name+".x", nil, jetstream.WithExpectLastSequence(6))
		testutil.Must(t, err)
		_, err = js.Publish(within(t), name+".x", nil, jetstream.WithExpectLastMsgID("never"))
		equal(t, "expected id", number(err), jetstream.ErrorCode(10070))
	}},

	{"publishing without waiting", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		const many = 2000
		var acks []jetstream.PubAckFuture
		for i := range many {
			ack, err := js.PublishAsync(name+".x", fmt.Appendf(nil, "%d", i+1))
			testutil.Must(t, err)
			acks = append(acks, ack)
		}
		wait(t, "all are acknowledged", js.PublishAsyncComplete())
		for i, ack := range acks {
			select {
			case ok := <-ack.Ok():
				if ok.Sequence != uint64(i+1) {
					t.Fatalf("message %d has sequence %d", i+1, ok.Sequence)
				}
			case err := <-ack.Err():
				t.Fatalf("message %d: %v", i+1, err)
			}
		}
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "messages", stream.CachedInfo().State.Msgs, many)
	}},

	{"a message is read by its sequence, or as the last of its subject", func(t *testing.T, s *site) {
		for _, direct := range []bool{false, true} {
			name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowDirect = direct })
			js := s.client(t)
			fill(t, js, name+".a", 3)
			_, err := js.PublishMsg(within(t), &nats.Msg{Subject: name + ".b", Data: []byte("with header"), Header: nats.Header{"Colour": {"blue"}}})
			testutil.Must(t, err)
			fill(t, js, name+".a", 2)
			stream, err := s.client(t).Stream(within(t), name)
			testutil.Must(t, err)

			m, err := stream.GetMsg(within(t), 4)
			testutil.Must(t, err)
			equal(t, "subject", m.Subject, name+".b")
			equal(t, "data", string(m.Data), "with header")
			equal(t, "header", m.Header.Get("Colour"), "blue")
			equal(t, "sequence", m.Sequence, 4)
			if time.Since(m.Time) > time.Minute {
				t.Errorf("time %v", m.Time)
			}
			m, err = stream.GetMsg(within(t), 2, jetstream.WithGetMsgSubject(name+".b"))
			testutil.Must(t, err)
			equal(t, "the next of a subject", m.Sequence, 4)
			m, err = stream.GetLastMsgForSubject(within(t), name+".a")
			testutil.Must(t, err)
			equal(t, "the last of a subject", m.Sequence, 6)
			equal(t, "its data", string(m.Data), "2")
			if _, err := stream.GetMsg(within(t), 7); !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("one that isn't there: %v", err)
			}
			if _, err := stream.GetLastMsgForSubject(within(t), name+".c"); !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("the last of none: %v", err)
			}
		}
	}},

	{"a stream counts its subjects", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		fill(t, js, name+".a.x", 3)
		fill(t, js, name+".a.y", 2)
		fill(t, js, name+".b.x", 1)
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		is, err := stream.Info(within(t), jetstream.WithSubjectFilter(name+".a.*"))
		testutil.Must(t, err)
		equal(t, "subjects", is.State.NumSubjects, 3)
		equal(t, "matching", fmt.Sprint(is.State.Subjects), fmt.Sprintf("map[%s.a.x:3 %s.a.y:2]", name, name))
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSequence(4)))
		is, err = stream.Info(within(t), jetstream.WithSubjectFilter(">"))
		testutil.Must(t, err)
		equal(t, "subjects that are left", is.State.NumSubjects, 2)
		equal(t, "all of them", fmt.Sprint(is.State.Subjects), fmt.Sprintf("map[%s.a.y:2 %s.b.x:1]", name, name))
		is, err = stream.Info(within(t), jetstream.WithSubjectFilter(name+".c"))
		testutil.Must(t, err)
		equal(t, "of none", len(is.State.Subjects), 0)
		config := stream.CachedInfo().Config
		for what, change := range map[string]func(context.Context, jetstream.StreamConfig) (jetstream.Stream, error){
			"subjects when it is created again": js.CreateStream, "subjects when it is updated": js.UpdateStream,
		} {
			again, err := change(within(t), config)
			testutil.Must(t, err)
			equal(t, what, again.CachedInfo().State.NumSubjects, 2)
		}
		testutil.Must(t, stream.Purge(within(t)))
		is, err = stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "subjects after a purge", is.State.NumSubjects, 0)
	}},

	{"pending messages are counted for any filter", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		for _, of := range []string{".a.x", ".b.x", ".a.y", ".c.x", ".a.x"} {
			fill(t, js, name+of, 10)
		}
		pending := func(what string, change func(*jetstream.ConsumerConfig), want uint64) {
			t.Helper()
			config := jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy}
			change(&config)
			c := s.consumer(t, name, config)
			is, err := c.Info(within(t))
			testutil.Must(t, err)
			equal(t, what, is.NumPending, want)
			if want == 0 {
				return
			}
			for left := want; left > 0; left-- {
				batch, err := c.Fetch(1)
				got := take(t, batch, err)
				equal(t, what+": messages", len(got), 1)
				is, err := got[0].Metadata()
				testutil.Must(t, err)
				equal(t, what+": behind a message", is.NumPending, left-1)
				testutil.Must(t, got[0].DoubleAck(within(t)))
			}
			is, err = c.Info(within(t))
			testutil.Must(t, err)
			equal(t, what+": at the end", is.NumPending, 0)
		}
		pending("all", func(c *jetstream.ConsumerConfig) {}, 50)
		pending("one subject", func(c *jetstream.ConsumerConfig) { c.FilterSubject = name + ".a.x" }, 20)
		pending("a wildcard", func(c *jetstream.ConsumerConfig) { c.FilterSubject = name + ".*.x" }, 40)
		pending("several filters", func(c *jetstream.ConsumerConfig) { c.FilterSubjects = []string{name + ".b.*", name + ".a.y"} }, 20)
		pending("from a sequence on", func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.DeliverPolicy, c.OptStartSeq = name+".a.>", jetstream.DeliverByStartSequencePolicy, 26
		}, 15)
		pending("the last of each subject", func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.DeliverPolicy = name+".*.x", jetstream.DeliverLastPerSubjectPolicy
		}, 3)
		pending("the last", func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.DeliverPolicy = name+".c.*", jetstream.DeliverLastPolicy
		}, 1)
		pending("new ones", func(c *jetstream.ConsumerConfig) {
			c.FilterSubject, c.DeliverPolicy = name+".a.*", jetstream.DeliverNewPolicy
		}, 0)
		pending("none", func(c *jetstream.ConsumerConfig) { c.FilterSubject = name + ".d" }, 0)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSequence(6)))
		pending("what a purge left", func(c *jetstream.ConsumerConfig) { c.FilterSubject = name + ".a.x" }, 15)
	}},

	{"the last message of a subject is read directly", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowDirect = true })
		fill(t, js, name+".a.x", 3)
		fill(t, js, name+".a.y", 2)
		fill(t, js, name+".a.x", 1)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		for of, want := range map[string]string{".a.x": "6 1", ".a.y": "5 2"} {
			m, err := stream.GetLastMsgForSubject(within(t), name+of)
			testutil.Must(t, err)
			equal(t, of, fmt.Sprint(m.Sequence, " ", string(m.Data)), want)
			equal(t, of+": subject", m.Subject, name+of)
		}
		_, err = stream.GetLastMsgForSubject(within(t), name+".a.z")
		equal(t, "of none", fmt.Sprint(err), fmt.Sprint(jetstream.ErrMsgNotFound))
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSequence(6)))
		_, err = stream.GetLastMsgForSubject(within(t), name+".a.y")
		equal(t, "of one that is gone", fmt.Sprint(err), fmt.Sprint(jetstream.ErrMsgNotFound))
	}},

	{"subjects are listed in pages", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		for i := range 300 {
			fill(t, js, fmt.Sprintf("%s.%d", name, i), 1)
		}
		nc := js.Conn()
		call := func(request string) (is struct {
			Total, Offset, Limit int
			State                struct {
				NumSubjects int `json:"num_subjects"`
				Subjects    map[string]uint64
			}
		}) {
			m, err := nc.RequestWithContext(within(t), "$JS.API.STREAM.INFO."+name, []byte(request))
			testutil.Must(t, err)
			testutil.Must(t, json.Unmarshal(m.Data, &is))
			return is
		}
		is := call(`{"subjects_filter":">","offset":290}`)
		equal(t, "the last page", fmt.Sprint(is.Total, is.Offset, is.Limit, len(is.State.Subjects), is.State.NumSubjects), "300 290 100000 10 300")
		is = call(`{"subjects_filter":">","offset":1000}`)
		equal(t, "behind the last page", fmt.Sprint(is.Total, is.Offset, len(is.State.Subjects)), "300 1000 0")
	}},

	{"much lies between the messages of a subject", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, nil)
		noise := make([]byte, 1000)
		crowd := func() { // more than one answer reads of a log
			for range 20 {
				for range 1000 { // fewer than a client lets wait for acks
					_, err := js.PublishAsync(name+".noise", noise)
					testutil.Must(t, err)
				}
				select {
				case <-js.PublishAsyncComplete():
				case <-time.After(patience):
					t.Fatal("messages were not acknowledged")
				}
			}
		}
		fill(t, js, name+".rare", 4)
		crowd()
		fill(t, js, name+".rare", 3)
		c := s.consumer(t, name, jetstream.ConsumerConfig{FilterSubject: name + ".rare"})
		batch, err := c.Fetch(2)
		pending := []uint64{}
		for _, m := range take(t, batch, err) {
			is, err := m.Metadata()
			testutil.Must(t, err)
			pending = append(pending, is.NumPending)
		}
		equal(t, "pending behind each message", fmt.Sprint(pending), "[6 5]")
		standing(t, "what is to be delivered is counted", c, func(is *jetstream.ConsumerInfo) bool { return is.NumPending == 5 })
		none := s.consumer(t, name, jetstream.ConsumerConfig{FilterSubject: name + ".none"})
		standing(t, "nothing is pending of a subject without messages", none, func(is *jetstream.ConsumerInfo) bool { return is.NumPending == 0 })
		crowd()
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		last, err := stream.GetLastMsgForSubject(within(t), name+".rare")
		testutil.Must(t, err)
		equal(t, "the last of a subject", last.Sequence, 20_007)
		// While its subjects are being indexed, a broker refuses what depends on them.
		testutil.EventuallyTrue(t, "another last message is refused", func() bool {
			_, err = js.Publish(within(t), name+".rare", nil, jetstream.WithExpectLastSequencePerSubject(20_006))
			return number(err) == jetstream.JSErrCodeStreamWrongLastSequence
		})
		testutil.EventuallyTrue(t, "the right one is kept", func() bool {
			_, err = js.Publish(within(t), name+".rare", nil, jetstream.WithExpectLastSequencePerSubject(20_007))
			return err == nil
		})
		testutil.EventuallyTrue(t, "the first of a subject is kept", func() bool {
			_, err = js.Publish(within(t), name+".none", nil, jetstream.WithExpectLastSequencePerSubject(0))
			return err == nil
		})
		_, err = js.Publish(within(t), name+".none", nil, jetstream.WithExpectLastSequencePerSubject(0))
		equal(t, "the first, again", number(err), jetstream.JSErrCodeStreamWrongLastSequence)
	}},

	{"limits let the oldest go", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgs = 5 })
		fill(t, js, name+".x", 12)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "five are left", func() bool {
			is, err := stream.Info(within(t))
			testutil.Must(t, err)
			return is.State.Msgs == 5 && is.State.FirstSeq == 8 && is.State.LastSeq == 12
		})
		aging := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxAge = 200 * time.Millisecond })
		fill(t, js, aging+".x", 3)
		stream, err = js.Stream(within(t), aging)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "none is left", func() bool {
			is, err := stream.Info(within(t))
			testutil.Must(t, err)
			return is.State.Msgs == 0 && is.State.LastSeq == 3
		})
		small := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 100 })
		_, err = js.Publish(within(t), small+".x", make([]byte, 200))
		equal(t, "too large", number(err), jetstream.ErrorCode(10054))
	}},

	{"who publishes without JetStream is kept, too", func(t *testing.T, s *site) {
		name := s.stream(t, nil)
		js := s.client(t)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		fill(t, js, name+".first", 1) // this client's broker knows the offered subjects
		for range 3 {
			testutil.Must(t, js.Conn().Publish(name+".x", []byte("plain")))
		}
		testutil.EventuallyTrue(t, "all are kept", func() bool {
			is, err := stream.Info(within(t))
			testutil.Must(t, err)
			return is.State.Msgs == 4
		})
		quiet := s.stream(t, func(c *jetstream.StreamConfig) { c.NoAck = true })
		silent, err := js.Stream(within(t), quiet)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "kept without an ack", func() bool {
			testutil.Must(t, js.Conn().Publish(quiet+".x", nil))
			is, err := silent.Info(within(t))
			testutil.Must(t, err)
			return is.State.Msgs > 0
		})
	}},
}
