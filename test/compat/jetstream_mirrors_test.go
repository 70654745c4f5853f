package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// mirror creates a stream that mirrors another one, and returns its name.
func (s *site) mirror(t *testing.T, of jetstream.StreamSource) string {
	t.Helper()
	return s.stream(t, func(c *jetstream.StreamConfig) { c.Subjects, c.Mirror = nil, &of })
}

// same fails unless two streams have the same messages at some sequences, and nothing else.
func same(t *testing.T, js jetstream.JetStream, a, b string, sequences ...uint64) {
	t.Helper()
	one, err := js.Stream(within(t), a)
	testutil.Must(t, err)
	other, err := js.Stream(within(t), b)
	testutil.Must(t, err)
	for seq := uint64(1); seq <= sequences[len(sequences)-1]+1; seq++ {
		got, err := other.GetMsg(within(t), seq)
		if !slices.Contains(sequences, seq) {
			if !errors.Is(err, jetstream.ErrMsgNotFound) {
				t.Errorf("message %d of the mirror: %v, %v", seq, got, err)
			}
			continue
		}
		testutil.Must(t, err)
		want, err := one.GetMsg(within(t), seq)
		testutil.Must(t, err)
		if got.Subject != want.Subject || string(got.Data) != string(want.Data) || !got.Time.Equal(want.Time) || len(got.Header) != len(want.Header) {
			t.Errorf("message %d: %+v, want %+v", seq, got, want)
		}
	}
}

var mirrorStories = []story{
	{"a mirror has the messages of its stream with their sequences and times", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 10)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		for _, seq := range []uint64{3, 4, 8} {
			testutil.Must(t, stream.DeleteMsg(within(t), seq))
		}
		into := s.mirror(t, jetstream.StreamSource{Name: from})
		reach(t, js, into, 7)
		same(t, js, from, into, 1, 2, 5, 6, 7, 9, 10)
		fill(t, s.client(t), from+".b", 3)
		testutil.Must(t, stream.DeleteMsg(within(t), 2))
		state := reach(t, js, into, 10)
		equal(t, "last", state.LastSeq, uint64(13))
		equal(t, "first", state.FirstSeq, uint64(1))
		equal(t, "deleted", state.NumDeleted, 3)
		c, err := js.CreateConsumer(within(t), into, jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, FilterSubject: from + ".>"})
		testutil.Must(t, err)
		batch, err := c.Fetch(10)
		var sequences []uint64
		for _, m := range take(t, batch, err) {
			is, err := m.Metadata()
			testutil.Must(t, err)
			sequences = append(sequences, is.Sequence.Stream)
		}
		if want := []uint64{1, 2, 5, 6, 7, 9, 10, 11, 12, 13}; !slices.Equal(sequences, want) {
			t.Errorf("delivered %v, want %v", sequences, want)
		}
		mirror, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		if is := mirror.CachedInfo().Mirror; is == nil || is.Name != from || is.Lag != 0 || is.Active < 0 {
			t.Errorf("the mirror is %+v", is)
		}
	}},
	{"a mirror begins where its stream does, or where it is told to", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, func(c *jetstream.StreamConfig) { c.FirstSeq = 1_000_000_000 })
		fill(t, js, from+".a", 5)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		third, err := stream.GetMsg(within(t), 1_000_000_002)
		testutil.Must(t, err)
		for _, of := range []struct {
			source jetstream.StreamSource
			first  uint64
		}{
			{jetstream.StreamSource{}, 1_000_000_000},
			{jetstream.StreamSource{OptStartSeq: 1_000_000_003}, 1_000_000_003},
			{jetstream.StreamSource{OptStartTime: &third.Time}, 1_000_000_002},
		} {
			of.source.Name = from
			into := s.mirror(t, of.source)
			testutil.Eventually(t, "its start", func() error {
				mirror, err := js.Stream(within(t), into)
				if err != nil {
					return err
				}
				if is := mirror.CachedInfo().State; is.FirstSeq != of.first || is.LastSeq != 1_000_000_004 || is.Msgs != 1_000_000_005-of.first || is.NumDeleted != 0 {
					return fmt.Errorf("it is %+v", is)
				}
				return nil
			})
		}
	}},
	{"a mirror has filters and other subjects", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		for range 3 {
			fill(t, js, from+".a", 1)
			fill(t, js, from+".b", 1)
		}
		into := s.mirror(t, jetstream.StreamSource{Name: from, FilterSubject: from + ".b"})
		reach(t, js, into, 3)
		same(t, js, from, into, 2, 4, 6)
		into = s.mirror(t, jetstream.StreamSource{Name: from, SubjectTransforms: []jetstream.SubjectTransformConfig{{Source: from + ".a", Destination: "x.a"}}})
		equal(t, "last", reach(t, js, into, 3).LastSeq, uint64(5))
		equalTexts(t, "messages", copied(t, js, into), []string{"x.a 1", "x.a 1", "x.a 1"})
	}},
	{"a mirror keeps what its stream loses, and takes nothing else", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 5)
		into := s.mirror(t, jetstream.StreamSource{Name: from})
		reach(t, js, into, 5)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		testutil.Must(t, stream.Purge(within(t)))
		if _, err := js.Publish(within(t), into, nil, jetstream.WithRetryAttempts(0)); !errors.Is(err, jetstream.ErrNoStreamResponse) {
			t.Errorf("a publish to the mirror: %v", err)
		}
		fill(t, js, from+".a", 1)
		reach(t, js, into, 6)
		mirror, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		testutil.Must(t, mirror.Purge(within(t)))
	}},
	{"a mirror becomes a stream of its own", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, nil)
		fill(t, js, from+".a", 3)
		into := s.mirror(t, jetstream.StreamSource{Name: from})
		reach(t, js, into, 3)
		_, err := js.UpdateStream(within(t), jetstream.StreamConfig{Name: into, Mirror: &jetstream.StreamSource{Name: "other"}})
		equal(t, "another one", number(err), jetstream.ErrorCode(10055))
		_, err = js.UpdateStream(within(t), jetstream.StreamConfig{Name: from, Mirror: &jetstream.StreamSource{Name: "other"}})
		equal(t, "a stream that is none", number(err), jetstream.ErrorCode(10055))
		_, err = js.UpdateStream(within(t), jetstream.StreamConfig{Name: into, Subjects: []string{into + ".>"}})
		testutil.Must(t, err)
		fill(t, js, from+".a", 1)
		ack, err := js.Publish(within(t), into+".own", nil)
		testutil.Must(t, err)
		equal(t, "sequence", ack.Sequence, uint64(4))
	}},
	{"mirrors that can't be are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		from := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgSize, c.AllowDirect = 1000, true })
		for _, test := range []struct {
			what, change string
			code         float64
		}{
			{"a bad name", `"mirror":{"name":"a.b"}`, 10142},
			{"no mirror", `"mirror_direct":true`, 10052},
			{"subjects", `"mirror":{"name":"a"},"subjects":["x"]`, 10034},
			{"sources", `"mirror":{"name":"a"},"sources":[{"name":"b"}]`, 10031},
			{"a first sequence", `"mirror":{"name":"a"},"first_seq":7`, 10143},
			{"both filters", `"mirror":{"name":"a","filter_subject":"x","subject_transforms":[{"src":"y","dest":"z"}]}`, 10150},
			{"a bad source of a transform", `"mirror":{"name":"a","subject_transforms":[{"src":"y..","dest":"z"}]}`, 10151},
			{"overlapping filters", `"mirror":{"name":"a","subject_transforms":[{"src":"y.*","dest":"z.$1"},{"src":"y.a","dest":"z"}]}`, 10152},
			{"a bad destination", `"mirror":{"name":"a","subject_transforms":[{"src":"y.*","dest":"z.{{wildcard(2)}}"}]}`, 10154},
			{"smaller messages", fmt.Sprintf(`"max_msg_size":999,"mirror":{"name":%q}`, from), 10030},
			{"markers", `"subject_delete_marker_ttl":1000000000,"allow_msg_ttl":true,"mirror":{"name":"a"}`, 10052},
		} {
			name := s.name("s")
			var config map[string]any
			testutil.Must(t, json.Unmarshal(fmt.Appendf(nil, `{"name":%q,%s}`, name, test.change), &config))
			text, err := json.Marshal(config)
			testutil.Must(t, err)
			answer := ask(t, js, "$JS.API.STREAM.CREATE."+name, string(text))
			if got := at(answer, "error", "err_code"); got != test.code {
				t.Errorf("%s: %v, want %v: %v", test.what, got, test.code, answer)
			}
		}
		into := s.mirror(t, jetstream.StreamSource{Name: from})
		is, err := js.Stream(within(t), into)
		testutil.Must(t, err)
		equal(t, "mirror_direct", is.CachedInfo().Config.MirrorDirect, true)
	}},
	{"a cluster names the mirrors of a stream", func(t *testing.T, s *site) {
		from := s.stream(t, nil)
		js := s.client(t)
		stream, err := js.Stream(within(t), from)
		testutil.Must(t, err)
		alternates := func() (names []string) {
			is, err := stream.Info(within(t))
			testutil.Must(t, err)
			for _, a := range is.Alternates {
				if a.Cluster == "" {
					t.Errorf("%s is in no cluster", a.Name)
				}
				names = append(names, a.Name)
			}
			slices.Sort(names)
			return names
		}
		equal(t, "alternates", fmt.Sprint(alternates()), "[]")
		into := s.mirror(t, jetstream.StreamSource{Name: from})
		want := []string{from, into}
		slices.Sort(want)
		if len(s.urls) == 1 {
			want = nil
		}
		testutil.Eventually(t, "its mirror is named", func() error {
			if got := alternates(); !slices.Equal(got, want) {
				return fmt.Errorf("alternates %v, want %v", got, want)
			}
			return nil
		})
	}},
	{"a bucket mirrors another one", func(t *testing.T, s *site) {
		kv, from := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.History = 3 })
		put(t, kv, "a", 1, 2, 3, 4, 5)
		put(t, kv, "b", 6)
		mirror, name := s.bucket(t, func(c *jetstream.KeyValueConfig) { // nats.go looks for keys under the name of the mirror
			c.Mirror = &jetstream.StreamSource{Name: from, SubjectTransforms: []jetstream.SubjectTransformConfig{
				{Source: "$KV." + from + ".>", Destination: "$KV." + c.Bucket + ".>"},
			}}
		})
		values := func(want string) {
			t.Helper()
			testutil.Eventually(t, "the values", func() error {
				var got []string
				for _, key := range []string{"a", "b"} {
					e, err := mirror.Get(within(t), key)
					if err != nil {
						return err
					}
					got = append(got, fmt.Sprint(string(e.Value()), "@", e.Revision()))
				}
				if strings.Join(got, " ") != want {
					return fmt.Errorf("%s has %v", name, got)
				}
				return nil
			})
		}
		values("5@5 6@6")
		revision, err := mirror.Put(within(t), "b", []byte("7")) // it goes to the other one
		testutil.Must(t, err)
		equal(t, "revision", revision, uint64(7))
		values("5@5 7@7")
	}},
}
