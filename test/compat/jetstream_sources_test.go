package compat

import (
	"bytes"
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

// copies creates a stream with sources and no subjects, and returns its name.
func (s *site) copies(t *testing.T, sources ...*jetstream.StreamSource) string {
	t.Helper()
	return s.stream(t, func(c *jetstream.StreamConfig) { c.Subjects, c.Sources = nil, sources })
}

// reach waits until a stream has a number of messages, and nothing is left of its sources.
func reach(t *testing.T, js jetstream.JetStream, name string, messages uint64) jetstream.StreamState {
	t.Helper()
	var is *jetstream.StreamInfo
	testutil.Eventually(t, fmt.Sprintf("%d messages in %s", messages, name), func() error {
		stream, err := js.Stream(within(t), name)
		if err != nil {
			return err
		}
		if is = stream.CachedInfo(); is.State.Msgs != messages {
			return fmt.Errorf("it has %+v, of %+v and %+v", is.State, is.Mirror, is.Sources)
		}
		for _, source := range is.Sources {
			if source.Lag > 0 {
				return fmt.Errorf("%d are left of %s", source.Lag, source.Name)
			}
		}
		return nil
	})
	return is.State
}

// copied returns the messages of a stream as "subject payload", in order.
func copied(t *testing.T, js jetstream.JetStream, name string) (all []string) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	is := stream.CachedInfo().State
	for seq := max(is.FirstSeq, 1); seq <= is.LastSeq; seq++ {
		m, err := stream.GetMsg(within(t), seq)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue
		}
		testutil.Must(t, err)
		all = append(all, m.Subject+" "+string(m.Data))
	}
	return all
}

var sourceStories = []story{
	{"a stream has the messages of its sources, in the order of each", func(t *testing.T, s *site) {
		js := s.client(t)
		a, b := s.stream(t, nil), s.stream(t, nil)
		fill(t, js, a+".x", 20)
		into := s.stream(t, func(c *jetstream.StreamConfig) { c.Sources = []*jetstream.StreamSource{{Name: a}, {Name: b}} })
		fill(t, js, b+".y", 20)
		reach(t, js, into, 40)
		fill(t, s.client(t), into+".own", 1)
		fill(t, js, a+".x", 1)
		reach(t, js, into, 42)
		of := map[string][]string{}
		for _, m := range copied(t, js, into) {
			subject, data, _ := strings.Cut(m, " ")
			of[subject] = append(of[subject], data)
		}
		equalTexts(t, "of a", of[a+".x"], append(count(1, 20), "1"))
		equalTexts(t, "of b", of[b+".y"], count(1, 20))
		equalTexts(t, "its own", of[into+".own"], count(1, 1))
		stream, err := s.client(t).Stream(within(t), into)
		testutil.Must(t, err)
		for _, is := range stream.CachedInfo().Sources {
			if is.Active < 0 || is.Active > patience || is.Name != a && is.Name != b {
				t.Errorf("a source is %+v", is)
			}
		}
		equal(t, "sources", len(stream.CachedInfo().Sources), 2)
	}},
	{"large messages are copied", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		large := bytes.Repeat([]byte("large "), 150<<10)
		for range 5 {
			_, err := js.Publish(within(t), from+".x", large)
			testutil.Must(t, err)
		}
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		mirror := s.mirror(t, jetstream.StreamSource{Name: from})
		for _, name := range []string{into, mirror} {
			reach(t, js, name, 5)
			stream, err := s.client(t).Stream(within(t), name)
			testutil.Must(t, err)
			m, err := stream.GetMsg(within(t), 5)
			testutil.Must(t, err)
			equal(t, "the last one is complete", bytes.Equal(m.Data, large), true)
		}
	}},
	{"a copy says where it is from, and asks for nothing that was asked of the origin", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		m := nats.NewMsg(from + ".x")
		m.Data = []byte("data")
		m.Header.Set("Nats-Expected-Stream", from)
		m.Header.Set("Nats-Expected-Last-Sequence", "0")
		m.Header.Set("Nats-Msg-Id", "one")
		m.Header.Set("Other", "kept")
		_, err := js.PublishMsg(within(t), m)
		testutil.Must(t, err)
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		reach(t, js, into, 1)
		again := s.copies(t, &jetstream.StreamSource{Name: into, FilterSubject: from + ".*"})
		reach(t, js, again, 1)
		for _, at := range []struct{ stream, from, filter string }{{into, from, ">"}, {again, into, from + ".*"}} {
			stream, err := js.Stream(within(t), at.stream)
			testutil.Must(t, err)
			got, err := stream.GetMsg(within(t), 1)
			testutil.Must(t, err)
			equal(t, "subject", got.Subject, from+".x")
			equal(t, "payload", string(got.Data), "data")
			equal(t, "other header", got.Header.Get("Other"), "kept")
			equal(t, "id", got.Header.Get("Nats-Msg-Id"), "one")
			equal(t, "expectations", got.Header.Get("Nats-Expected-Stream")+got.Header.Get("Nats-Expected-Last-Sequence"), "")
			equal(t, "headers of the source", len(got.Header.Values("Nats-Stream-Source")), 1)
			fields := strings.Split(got.Header.Get("Nats-Stream-Source"), " ")
			equal(t, "fields", len(fields), 6)
			equal(t, "source", strings.Join(fields[:5], " "), fmt.Sprintf("%s 1 %s > %s.x", at.from, at.filter, from))
		}
		m = nats.NewMsg(from + ".x")
		m.Header.Set("Nats-Stream-Source", "x 1 > > x")
		_, err = js.PublishMsg(within(t), m)
		equal(t, "a client that says so", number(err), jetstream.ErrorCode(10227))
	}},
	{"sources have filters, other subjects and a start", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 3)
		fill(t, js, from+".b", 3)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		fifth, err := stream.GetMsg(within(t), 5)
		testutil.Must(t, err)
		for _, of := range []struct {
			source jetstream.StreamSource
			want   []string
		}{
			{jetstream.StreamSource{FilterSubject: from + ".b"}, []string{from + ".b 1", from + ".b 2", from + ".b 3"}},
			{jetstream.StreamSource{OptStartSeq: 6}, []string{from + ".b 3"}},
			{jetstream.StreamSource{OptStartSeq: 2, FilterSubject: from + ".a"}, []string{from + ".a 2", from + ".a 3"}},
			{jetstream.StreamSource{OptStartTime: &fifth.Time}, []string{from + ".b 2", from + ".b 3"}},
			{jetstream.StreamSource{SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: from + ".b", Destination: "other.b"}}}, []string{"other.b 1", "other.b 2", "other.b 3"}},
			{jetstream.StreamSource{OptStartSeq: 3, SubjectTransforms: []jetstream.SubjectTransformConfig{
				{Source: from + ".a", Destination: "other.a"}, {Source: from + ".b"},
			}}, []string{"other.a 3", from + ".b 1", from + ".b 2", from + ".b 3"}},
		} {
			of.source.Name = from
			into := s.copies(t, &of.source)
			reach(t, js, into, uint64(len(of.want)))
			equalTexts(t, fmt.Sprintf("of %+v", of.source), copied(t, js, into), of.want)
			is, err := s.client(t).Stream(within(t), into)
			testutil.Must(t, err)
			equal(t, "filter", is.CachedInfo().Sources[0].FilterSubject, of.source.FilterSubject)
			equal(t, "transforms", len(is.CachedInfo().Sources[0].SubjectTransforms), len(of.source.SubjectTransforms))
			_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: into, Sources: []*jetstream.StreamSource{&of.source}})
			testutil.Must(t, err) // it is the same
		}
	}},
	{"what is deleted at the origin stays in copies", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 5)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		testutil.Must(t, stream.DeleteMsg(within(t), 2))
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		reach(t, js, into, 4)
		testutil.Must(t, stream.DeleteMsg(within(t), 3))
		testutil.Must(t, stream.Purge(within(t)))
		fill(t, js, from+".b", 2)
		state := reach(t, js, into, 6)
		equal(t, "last", state.LastSeq, uint64(6))
		equalTexts(t, "copies", copied(t, js, into), []string{from + ".a 1", from + ".a 3", from + ".a 4", from + ".a 5", from + ".b 1", from + ".b 2"})
		copy, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		testutil.Must(t, copy.Purge(within(t)))
		fill(t, js, from+".b", 1)
		equal(t, "last after a purge of the copies", reach(t, js, into, 1).LastSeq, uint64(7))
	}},
	{"a stream that is made anew is copied from its start on", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 3)
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		reach(t, js, into, 3)
		testutil.Must(t, js.DeleteStream(within(t), from))
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: from, Subjects: []string{from + ".>"}})
		testutil.Must(t, err)
		fill(t, js, from+".b", 2)
		if s.peer {
			return // it looks again after more than ten seconds
		}
		reach(t, js, into, 5)
		equalTexts(t, "copies", copied(t, js, into), []string{from + ".a 1", from + ".a 2", from + ".a 3", from + ".b 1", from + ".b 2"})
	}},
	{"a source may come later than the stream that has it", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.name("s")
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		testutil.Eventually(t, "the source is missed", func() error {
			answer := ask(t, js, "$JS.API.STREAM.INFO."+into, "")
			sources, _ := answer["sources"].([]any)
			if len(sources) != 1 || s.peer { // nats-server forgets the error before it asks again
				return nil
			}
			if code := at(sources[0].(map[string]any), "error", "err_code"); code != float64(10059) {
				return fmt.Errorf("it says %v", sources[0])
			}
			return nil
		})
		if s.peer {
			return // it looks again after seconds
		}
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: from, Subjects: []string{from + ".>"}})
		testutil.Must(t, err)
		fill(t, js, from+".a", 2)
		reach(t, js, into, 2)
	}},
	{"copies keep to the limits and the window of their stream", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		for i, id := range []string{"1", "2", "", "3"} {
			m := nats.NewMsg(fmt.Sprintf("%s.%d", from, i%2))
			m.Data = []byte(id)
			if id != "" {
				m.Header.Set("Nats-Msg-Id", id)
			}
			_, err := js.PublishMsg(within(t), m)
			testutil.Must(t, err)
		}
		only := s.stream(t, func(c *jetstream.StreamConfig) {
			c.Subjects, c.MaxMsgsPerSubject, c.Sources = nil, 1, []*jetstream.StreamSource{{Name: from}}
		})
		equal(t, "last", reach(t, js, only, 2).LastSeq, uint64(4))
		once := s.stream(t, func(c *jetstream.StreamConfig) {
			c.Subjects, c.Duplicates = nil, time.Minute
			c.Sources = []*jetstream.StreamSource{{Name: from}, {Name: from, FilterSubject: from + ".*"}}
		})
		reach(t, js, once, 5)
		two := s.stream(t, func(c *jetstream.StreamConfig) {
			c.Subjects, c.MaxMsgs, c.Discard, c.Sources = nil, 2, jetstream.DiscardNew, []*jetstream.StreamSource{{Name: from}}
		})
		testutil.Eventually(t, "it is full", func() error {
			stream, err := js.Stream(within(t), two)
			if err == nil && stream.CachedInfo().State.LastSeq != 2 {
				err = fmt.Errorf("it ends with %d", stream.CachedInfo().State.LastSeq)
			}
			return err
		})
		full, err := js.Stream(within(t), two)
		testutil.Must(t, err)
		testutil.Must(t, full.Purge(within(t)))
		if s.peer {
			return // it looks again after seconds
		}
		equal(t, "last after a purge", reach(t, js, two, 2).LastSeq, uint64(4))
		equalTexts(t, "the rest", copied(t, js, two), []string{from + ".0 ", from + ".1 3"})
	}},
	{"the sources of a stream can be changed", func(t *testing.T, s *site) {
		js := s.client(t)
		a, b := s.stream(t, nil), s.stream(t, nil)
		fill(t, js, a+".x", 2)
		fill(t, js, b+".x", 2)
		into := s.copies(t, &jetstream.StreamSource{Name: a})
		reach(t, js, into, 2)
		change := func(sources ...*jetstream.StreamSource) {
			t.Helper()
			_, err := s.client(t).UpdateStream(within(t), jetstream.StreamConfig{Name: into, Subjects: []string{into + ".>"}, Sources: sources})
			testutil.Must(t, err)
		}
		change(&jetstream.StreamSource{Name: a}, &jetstream.StreamSource{Name: b})
		reach(t, js, into, 4)
		change(&jetstream.StreamSource{Name: b})
		fill(t, js, a+".x", 1)
		fill(t, js, b+".x", 1)
		reach(t, js, into, 5)
		change(&jetstream.StreamSource{Name: a}, &jetstream.StreamSource{Name: b})
		reach(t, js, into, 6)
		change()
		fill(t, js, b+".x", 1)
		fill(t, js, into+".own", 1)
		reach(t, js, into, 7)
	}},
	{"messages of the largest size are copied", func(t *testing.T, s *site) {
		js := s.client(t)
		var sources []*jetstream.StreamSource
		payload := make([]byte, js.Conn().MaxPayload())
		for range 4 { // some are led by other brokers than the copy
			from := s.stream(t, nil)
			_, err := js.Publish(within(t), from+".x", payload)
			testutil.Must(t, err)
			sources = append(sources, &jetstream.StreamSource{Name: from})
		}
		reach(t, js, s.copies(t, sources...), 4)
	}},
	{"sources that can't be are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize = 1000 })
		refused := func(what string, code float64, change string) {
			t.Helper()
			name := s.name("s")
			var config map[string]any
			testutil.Must(t, json.Unmarshal(fmt.Appendf(nil, `{"name":%q,%s}`, name, change), &config))
			text, err := json.Marshal(config)
			testutil.Must(t, err)
			answer := ask(t, js, "$JS.API.STREAM.CREATE."+name, string(text))
			if got := at(answer, "error", "err_code"); got != code {
				t.Errorf("%s: %v, want %v: %v", what, got, code, answer)
			}
		}
		refused("no name", 10141, `"sources":[{}]`)
		refused("a bad name", 10141, `"sources":[{"name":"a.b"}]`)
		refused("null", 10141, `"sources":[null]`)
		refused("twice", 10140, `"sources":[{"name":"a"},{"name":"a","filter_subject":">"}]`)
		refused("both filters", 10144, `"sources":[{"name":"a","filter_subject":"x","subject_transforms":[{"src":"y","dest":"z"}]}]`)
		refused("a bad source of a transform", 10145, `"sources":[{"name":"a","subject_transforms":[{"src":"y..","dest":"z"}]}]`)
		refused("a bad destination", 10146, `"sources":[{"name":"a","subject_transforms":[{"src":"y.*","dest":"z.{{wildcard(2)}}"}]}]`)
		refused("overlapping filters", 10147, `"sources":[{"name":"a","subject_transforms":[{"src":"y.*","dest":"z.$1"},{"src":"y.a","dest":"z"}]}]`)
		refused("smaller messages", 10046, fmt.Sprintf(`"max_msg_size":999,"sources":[{"name":%q}]`, from))
		into := s.copies(t, &jetstream.StreamSource{Name: from})
		_, err := js.UpdateStream(within(t), jetstream.StreamConfig{Name: from, Subjects: []string{from + ".>"}, MaxMsgSize: 1000, Sources: []*jetstream.StreamSource{{Name: into}}})
		equal(t, "a cycle", number(err), jetstream.ErrorCode(10052))
		_, err = js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("s"), Sources: []*jetstream.StreamSource{{Name: from}}, Subjects: []string{from + ".x"}})
		equal(t, "the subjects of another stream", number(err), jetstream.ErrorCode(10065))
	}},
	{"a bucket has the keys of another one", func(t *testing.T, s *site) {
		kv, from := s.bucket(t, nil)
		put(t, kv, "a", 1, 2)
		put(t, kv, "b", 3)
		testutil.Must(t, kv.Delete(within(t), "b"))
		all, name := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.Sources = []*jetstream.StreamSource{{Name: from}} })
		testutil.Eventually(t, "the value", func() error {
			e, err := all.Get(within(t), "a")
			if err == nil && string(e.Value()) != "2" {
				err = fmt.Errorf("it is %s", e.Value())
			}
			return err
		})
		put(t, all, "own", "x")
		put(t, kv, "c", 4)
		testutil.Eventually(t, "the keys", func() error {
			if got := keys(t, all); !slices.Equal(got, []string{"a", "c", "own"}) {
				return fmt.Errorf("%s has %v", name, got)
			}
			return nil
		})
	}},
}
