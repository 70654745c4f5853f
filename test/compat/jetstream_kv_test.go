package compat

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// bucket makes a key-value bucket with a name of its own.
func (s *site) bucket(t *testing.T, change func(*jetstream.KeyValueConfig)) (jetstream.KeyValue, string) {
	t.Helper()
	c := jetstream.KeyValueConfig{Bucket: s.name("bucket")}
	if change != nil {
		change(&c)
	}
	kv, err := s.client(t).CreateKeyValue(within(t), c)
	testutil.Must(t, err)
	return kv, c.Bucket
}

// put puts values, each formatted, under a key.
func put(t *testing.T, kv jetstream.KeyValue, key string, values ...any) (revision uint64) {
	t.Helper()
	for _, v := range values {
		var err error
		revision, err = kv.Put(within(t), key, fmt.Append(nil, v))
		testutil.Must(t, err)
	}
	return revision
}

// history returns the values that a key has had.
func history(t *testing.T, kv jetstream.KeyValue, key string) (values []string) {
	t.Helper()
	entries, err := kv.History(within(t), key)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return nil
	}
	testutil.Must(t, err)
	for _, e := range entries {
		if e.Operation() != jetstream.KeyValuePut {
			values = append(values, e.Operation().String())
			continue
		}
		values = append(values, string(e.Value()))
	}
	return values
}

// keys returns the keys of a bucket, sorted.
func keys(t *testing.T, kv jetstream.KeyValue) []string {
	t.Helper()
	all, err := kv.Keys(within(t))
	if errors.Is(err, jetstream.ErrNoKeysFound) {
		return nil
	}
	testutil.Must(t, err)
	slices.Sort(all)
	return all
}

// values returns how many values a bucket has.
func values(t *testing.T, kv jetstream.KeyValue) uint64 {
	t.Helper()
	is, err := kv.Status(within(t))
	testutil.Must(t, err)
	return is.Values()
}

// sees waits for what a watcher sees next: "key=value", "key operation", or "all" once it has seen
// what was there.
func sees(t *testing.T, w jetstream.KeyWatcher, want ...string) {
	t.Helper()
	for _, want := range want {
		select {
		case e := <-w.Updates():
			got := "all"
			if e != nil && e.Operation() == jetstream.KeyValuePut {
				got = e.Key() + "=" + string(e.Value())
			} else if e != nil {
				got = e.Key() + " " + e.Operation().String()
			}
			equal(t, "a watcher sees", got, want)
		case <-time.After(testutil.Patience):
			t.Fatalf("a watcher does not see %q", want)
		}
	}
}

// holds expects how many messages a stream has, and of each subject behind its name.
func holds(t *testing.T, js jetstream.JetStream, name, what string, messages uint64, subjects map[string]uint64) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	is, err := stream.Info(within(t), jetstream.WithSubjectFilter(">"))
	testutil.Must(t, err)
	equal(t, what+": messages", is.State.Msgs, messages)
	for subject, n := range subjects {
		equal(t, what+": of "+subject, is.State.Subjects[name+subject], n)
	}
}

var keyValueStories = []story{
	{"a bucket keeps the newest value of a key", func(t *testing.T, s *site) {
		kv, _ := s.bucket(t, nil)
		first := put(t, kv, "a", 1)
		put(t, kv, "b", 1)
		put(t, kv, "a", 2, 3)
		e, err := kv.Get(within(t), "a")
		testutil.Must(t, err)
		equal(t, "the value", string(e.Value()), "3")
		equal(t, "its revision", e.Revision(), uint64(4))
		equal(t, "values", values(t, kv), uint64(2))
		equalTexts(t, "the history", history(t, kv, "a"), []string{"3"})
		_, err = kv.GetRevision(within(t), "a", first)
		equal(t, "an old revision is gone", errors.Is(err, jetstream.ErrKeyNotFound), true)
		_, err = kv.Create(within(t), "a", []byte("new"))
		equal(t, "it exists", errors.Is(err, jetstream.ErrKeyExists), true)
		_, err = kv.Update(within(t), "a", []byte("4"), 3)
		equal(t, "a wrong revision", number(err), jetstream.ErrorCode(10071))
		revision, err := kv.Update(within(t), "a", []byte("4"), 4)
		testutil.Must(t, err)
		testutil.Must(t, kv.Delete(within(t), "a", jetstream.LastRevision(revision)))
		_, err = kv.Get(within(t), "a")
		equal(t, "it is deleted", errors.Is(err, jetstream.ErrKeyNotFound), true)
		equalTexts(t, "keys", keys(t, kv), []string{"b"})
		_, err = kv.Create(within(t), "a", []byte("5"))
		testutil.Must(t, err)
		equalTexts(t, "keys", keys(t, kv), []string{"a", "b"})
		equal(t, "values", values(t, kv), uint64(2))
	}},

	{"a bucket keeps some values of a key", func(t *testing.T, s *site) {
		kv, _ := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.History = 5 })
		put(t, kv, "a", 1, 2, 3)
		put(t, kv, "b", 1, 2, 3, 4, 5, 6, 7)
		put(t, kv, "a", 4, 5, 6)
		equalTexts(t, "the history of a", history(t, kv, "a"), count(2, 6))
		equalTexts(t, "the history of b", history(t, kv, "b"), count(3, 7))
		testutil.Must(t, kv.Delete(within(t), "b"))
		equalTexts(t, "with a deletion", history(t, kv, "b"), append(count(4, 7), "KeyValueDeleteOp"))
		testutil.Must(t, kv.Purge(within(t), "a"))
		equalTexts(t, "of what was purged", history(t, kv, "a"), []string{"KeyValuePurgeOp"})
		equal(t, "values", values(t, kv), uint64(6))
		put(t, kv, "a", 7)
		equalTexts(t, "after the purge", history(t, kv, "a"), []string{"KeyValuePurgeOp", "7"})
		testutil.Must(t, kv.PurgeDeletes(within(t), jetstream.DeleteMarkersOlderThan(-1)))
		equalTexts(t, "keys", keys(t, kv), []string{"a"})
	}},

	{"watchers of a bucket see every change", func(t *testing.T, s *site) {
		kv, name := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.History = 3 })
		put(t, kv, "a.x", 1, 2)
		put(t, kv, "b.x", 1)
		testutil.Must(t, kv.Delete(within(t), "b.x"))
		all, err := kv.WatchAll(within(t))
		testutil.Must(t, err)
		some, err := kv.Watch(within(t), "a.*", jetstream.IncludeHistory())
		testutil.Must(t, err)
		live, err := kv.WatchAll(within(t), jetstream.IgnoreDeletes(), jetstream.UpdatesOnly())
		testutil.Must(t, err)
		sees(t, all, "a.x=2", "b.x KeyValueDeleteOp", "all")
		sees(t, some, "a.x=1", "a.x=2", "all")
		other, err := s.client(t).KeyValue(within(t), name)
		testutil.Must(t, err)
		put(t, other, "c", 1)
		put(t, other, "a.y", 1)
		testutil.Must(t, other.Purge(within(t), "a.x"))
		put(t, other, "c", 2)
		sees(t, all, "c=1", "a.y=1", "a.x KeyValuePurgeOp", "c=2")
		sees(t, some, "a.y=1", "a.x KeyValuePurgeOp")
		sees(t, live, "c=1", "a.y=1", "c=2")
		for _, w := range []jetstream.KeyWatcher{all, some, live} {
			testutil.Must(t, w.Stop())
		}
	}},

	{"a subject keeps as many messages as it may have", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject = 3 })
		for i := range 20 {
			for _, subject := range []string{".a", ".b", ".c"}[:1+i%3] {
				_, err := js.Publish(within(t), name+subject, nil)
				testutil.Must(t, err)
			}
		}
		holds(t, js, name, "limited", 9, map[string]uint64{".a": 3, ".b": 3, ".c": 3})
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		config := is.Config
		config.MaxMsgsPerSubject = 5
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		for range 4 {
			_, err := js.Publish(within(t), name+".a", nil)
			testutil.Must(t, err)
		}
		holds(t, js, name, "raised", 11, map[string]uint64{".a": 5, ".b": 3, ".c": 3})
		last, err := stream.GetLastMsgForSubject(within(t), name+".a")
		testutil.Must(t, err)
		testutil.Must(t, stream.DeleteMsg(within(t), last.Sequence-1))
		_, err = js.Publish(within(t), name+".a", nil)
		testutil.Must(t, err)
		holds(t, js, name, "one was deleted", 11, map[string]uint64{".a": 5})
		config.MaxMsgsPerSubject = 2
		_, err = js.UpdateStream(within(t), config)
		testutil.Must(t, err)
		testutil.EventuallyTrue(t, "older ones are removed", func() bool {
			is, err := stream.Info(within(t))
			return err == nil && is.State.Msgs == 6
		})
	}},

	{"a subject that is full refuses messages", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) {
			c.MaxMsgsPerSubject, c.Discard, c.DiscardNewPerSubject = 2, jetstream.DiscardNew, true
		})
		publish := func(subject string, want jetstream.ErrorCode, headers ...string) {
			t.Helper()
			m := nats.NewMsg(name + subject)
			for i := 0; i < len(headers); i += 2 {
				m.Header.Set(headers[i], headers[i+1])
			}
			_, err := js.PublishMsg(within(t), m)
			equal(t, subject, number(err), want)
		}
		publish(".a", 0, "Nats-Msg-Id", "one")
		publish(".a", 0)
		publish(".b", 0)
		publish(".a", 10077)
		publish(".a", 0, "Nats-Msg-Id", "one") // it is kept already
		publish(".b", 0)
		publish(".b", 10077)
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".a"), jetstream.WithPurgeKeep(1)))
		publish(".a", 0)
		publish(".a", 10077)
		holds(t, js, name, "full", 4, map[string]uint64{".a": 2, ".b": 2})
	}},

	{"a message removes those before it", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowRollup = true })
		roll := func(stream, subject, rollup string) jetstream.ErrorCode {
			t.Helper()
			m := nats.NewMsg(stream + subject)
			m.Header.Set("Nats-Rollup", rollup)
			_, err := js.PublishMsg(within(t), m)
			return number(err)
		}
		fill(t, js, name+".a", 5)
		fill(t, js, name+".b", 5)
		equal(t, "of a", roll(name, ".a", "sub"), 0)
		holds(t, js, name, "of a", 6, map[string]uint64{".a": 1, ".b": 5})
		equal(t, "of c, which has none", roll(name, ".c", "sub"), 0)
		fill(t, js, name+".a", 2)
		holds(t, js, name, "and more", 9, map[string]uint64{".a": 3, ".b": 5, ".c": 1})
		equal(t, "all", roll(name, ".c", "all"), 0)
		holds(t, js, name, "all", 1, map[string]uint64{".c": 1})
		fill(t, js, name+".b", 2)
		_, err := js.Publish(within(t), name+".a", nil, jetstream.WithExpectLastSequencePerSubject(0))
		testutil.Must(t, err)
		holds(t, js, name, "after that", 4, map[string]uint64{".a": 1, ".b": 2, ".c": 1})
		equal(t, "a wrong value", roll(name, ".a", "some"), 10111)
		other := s.stream(t, nil)
		equal(t, "where it is not permitted", roll(other, ".a", "sub"), 10111)
	}},

	{"a subject with wildcards stands for all that match it", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowRollup = true })
		put := func(subject string, headers ...string) (sequence uint64, code jetstream.ErrorCode) {
			t.Helper()
			m := nats.NewMsg(name + subject)
			for i := 0; i < len(headers); i += 2 {
				m.Header.Set(headers[i], headers[i+1])
			}
			ack, err := js.PublishMsg(within(t), m)
			if err != nil {
				return 0, number(err)
			}
			return ack.Sequence, 0
		}
		takes := func(what string, want uint64, subject string, headers ...string) {
			t.Helper()
			sequence, code := put(subject, headers...)
			equal(t, what, code, jetstream.ErrorCode(0))
			equal(t, what, sequence, want)
		}
		refuses := func(what string, want jetstream.ErrorCode, subject string, headers ...string) {
			t.Helper()
			_, code := put(subject, headers...)
			equal(t, what, code, want)
		}
		const last, of, roll = "Nats-Expected-Last-Subject-Sequence", "Nats-Expected-Last-Subject-Sequence-Subject", "Nats-Rollup"
		takes("none matches", 1, ".a.x", last, "0", of, name+".>")
		takes("and of its own", 2, ".b.*", last, "0")
		refuses("one matches", 10071, ".a.y", last, "0", of, name+".a.*")
		takes("that one", 3, ".a.y", last, "1", of, name+".a.*")
		takes("another one by now", 4, ".a.x", last, "3", of, name+".*.*")
		takes("one with an asterisk", 5, ".c", last, "2", of, name+".b.>")
		refuses("not a newer one", 10071, ".c", last, "5", of, name+".b.>")
		takes("its own subject matches", 6, ".b.x", last, "2", of, name+".b.*")
		refuses("so it is no longer the last", 10071, ".b.*", last, "2")
		holds(t, js, name, "all", 6, map[string]uint64{".a.x": 2, ".a.y": 1, ".b.*": 1, ".b.x": 1, ".c": 1})

		takes("a rollup of one level", 7, ".a.*", roll, "sub", last, "4")
		holds(t, js, name, "rolled up", 4, map[string]uint64{".a.*": 1, ".b.*": 1, ".b.x": 1, ".c": 1})
		refuses("a rollup with a wrong condition", 10071, ".b.*", roll, "sub", last, "2")
		holds(t, js, name, "not rolled up", 4, map[string]uint64{".a.*": 1, ".b.*": 1, ".b.x": 1, ".c": 1})
		takes("what it has removed is not there", 8, ".a.x", last, "0", of, name+".a.x")
		takes("nor with a pattern", 9, ".a.x", last, "8", of, name+".*.x")
		takes("a subject with an asterisk is one", 10, ".*", roll, "sub")
		holds(t, js, name, "one level", 6, map[string]uint64{".a.*": 1, ".a.x": 2, ".b.*": 1, ".b.x": 1, ".*": 1})
		takes("of all levels", 11, ".>", roll, "sub")
		holds(t, js, name, "nothing else", 1, map[string]uint64{".>": 1})

		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		takes("a record", 12, ".a.x")
		takes("and another one", 13, ".a.y")
		testutil.Must(t, stream.DeleteMsg(within(t), 13))
		takes("that was deleted", 14, ".b", last, "12", of, name+".a.*")
		testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+".a.*")))
		takes("that were purged", 15, ".b", last, "0", of, name+".a.*")

		kv, _ := s.bucket(t, nil)
		for _, key := range []string{"hello.a", "hello.b", "other"} {
			_, err := kv.PutString(within(t), key, "1")
			testutil.Must(t, err)
		}
		bucket := js.Conn()
		m := nats.NewMsg("$KV." + kv.Bucket() + ".hello.*")
		m.Header.Set("KV-Operation", "PURGE")
		m.Header.Set(roll, "sub")
		_, err = bucket.RequestMsgWithContext(within(t), m)
		testutil.Must(t, err)
		_, err = kv.Get(within(t), "hello.a")
		equal(t, "a purged key", errors.Is(err, jetstream.ErrKeyNotFound), true)
		_, err = kv.Create(within(t), "hello.a", []byte("2"))
		testutil.Must(t, err)
		_, err = kv.Get(within(t), "other")
		testutil.Must(t, err)
	}},

	{"settings that contradict each other are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		for what, change := range map[string]func(*jetstream.StreamConfig){
			"roll-ups require the purge permission":                         func(c *jetstream.StreamConfig) { c.AllowRollup, c.DenyPurge = true, true },
			"discard new per subject requires discard new policy to be set": func(c *jetstream.StreamConfig) { c.MaxMsgsPerSubject, c.DiscardNewPerSubject = 1, true },
			"discard new per subject requires max msgs per subject > 0": func(c *jetstream.StreamConfig) {
				c.Discard, c.DiscardNewPerSubject = jetstream.DiscardNew, true
			},
		} {
			name := s.name("refused")
			c := jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}}
			change(&c)
			_, err := js.CreateStream(within(t), c)
			api := &jetstream.APIError{}
			if !errors.As(err, &api) || api.ErrorCode != 10052 || api.Description != what {
				t.Errorf("%s: %v", what, err)
			}
		}
	}},

	{"replaced and deleted data makes room", func(t *testing.T, s *site) {
		kv, _ := s.bucket(t, func(c *jetstream.KeyValueConfig) { c.MaxBytes = 2_000_000 })
		for i := range 40 {
			_, err := kv.Put(within(t), "a", bytes.Repeat([]byte{byte(i)}, 300_000))
			testutil.Must(t, err)
		}
		for _, key := range []string{"b", "c", "d", "e", "f"} {
			_, err := kv.Put(within(t), key, make([]byte, 300_000))
			testutil.Must(t, err)
		}
		_, err := kv.Put(within(t), "g", make([]byte, 300_000))
		equal(t, "beyond the limit", number(err), jetstream.ErrorCode(10077))

		store, err := s.client(t).CreateObjectStore(within(t), jetstream.ObjectStoreConfig{Bucket: s.name("objects"), MaxBytes: 8_000_000})
		testutil.Must(t, err)
		for i := range 6 {
			_, err := store.PutBytes(within(t), "large", bytes.Repeat([]byte{byte(i)}, 5_000_000))
			testutil.Must(t, err)
			testutil.Must(t, store.Delete(within(t), "large"))
		}
	}},

	{"an object store is sealed", func(t *testing.T, s *site) {
		js := s.client(t)
		store, err := js.CreateObjectStore(within(t), jetstream.ObjectStoreConfig{Bucket: s.name("objects")})
		testutil.Must(t, err)
		_, err = store.PutString(within(t), "a", "text")
		testutil.Must(t, err)
		testutil.Must(t, store.Seal(within(t)))
		is, err := store.Status(within(t))
		testutil.Must(t, err)
		equal(t, "sealed", is.Sealed(), true)
		_, err = store.PutString(within(t), "b", "text")
		equal(t, "nothing is taken any more", err != nil, true)
		text, err := store.GetString(within(t), "a")
		testutil.Must(t, err)
		equal(t, "what was there is", text, "text")
	}},

	{"an object store keeps large objects", func(t *testing.T, s *site) {
		store, err := s.client(t).CreateObjectStore(within(t), jetstream.ObjectStoreConfig{Bucket: s.name("objects")})
		testutil.Must(t, err)
		data := bytes.Repeat([]byte("a line of a large object\n"), 100_000)
		for i := range 3 {
			_, err := store.Put(within(t), jetstream.ObjectMeta{Name: "large"}, bytes.NewReader(data[i:]))
			testutil.Must(t, err)
		}
		_, err = store.PutString(within(t), "small", "text")
		testutil.Must(t, err)
		object, err := store.Get(within(t), "large")
		testutil.Must(t, err)
		got, err := io.ReadAll(object)
		testutil.Must(t, err)
		equal(t, "the object", sha256.Sum256(got), sha256.Sum256(data[2:]))
		all, err := store.List(within(t))
		testutil.Must(t, err)
		equal(t, "objects", len(all), 2)
		is, err := store.Status(within(t))
		testutil.Must(t, err)
		stream := is.(*jetstream.ObjectBucketStatus).StreamInfo()
		equal(t, "messages: chunks of 128 KiB and what is known of each", stream.State.Msgs, uint64((len(data)+128<<10-1)/(128<<10)+1+2))
		testutil.Must(t, store.UpdateMeta(within(t), "small", jetstream.ObjectMeta{Name: "renamed"}))
		text, err := store.GetString(within(t), "renamed")
		testutil.Must(t, err)
		equal(t, "after it was renamed", text, "text")
		testutil.Must(t, store.Delete(within(t), "large"))
		_, err = store.GetInfo(within(t), "large")
		equal(t, "it is deleted", errors.Is(err, jetstream.ErrObjectNotFound), true)
	}},
}
