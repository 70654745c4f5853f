package compat

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// schedules creates a stream that allows schedules and TTLs.
func (s *site) schedules(t *testing.T) string {
	t.Helper()
	return s.stream(t, func(c *jetstream.StreamConfig) { c.AllowMsgSchedules, c.AllowMsgTTL = true, true })
}

// schedule publishes a message with headers "Key: value", and returns its sequence.
func schedule(t *testing.T, js jetstream.JetStream, subject, data string, headers ...string) (sequence uint64, err error) {
	t.Helper()
	m := nats.NewMsg(subject)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	m.Data = []byte(data)
	ack, err := js.PublishMsg(within(t), m)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// atOnce is a time to schedule something at, less than a second from now.
func atOnce() string { return inSeconds(0) }

// inSeconds is a time to schedule something at, so many seconds from now, and less than one more.
func inSeconds(n int) string {
	return "@at " + time.Now().Add(time.Duration(n+1)*time.Second).UTC().Format(time.RFC3339)
}

// appears waits for the last message of a subject with a sequence above another one.
func appears(t *testing.T, js jetstream.JetStream, name, subject string, above uint64) (m *jetstream.RawStreamMsg) {
	t.Helper()
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	testutil.Eventually(t, "a message of "+subject, func() (err error) {
		if m, err = stream.GetLastMsgForSubject(within(t), subject); err == nil && m.Sequence <= above {
			err = fmt.Errorf("%s has message %d", subject, m.Sequence)
		}
		return err
	})
	return m
}

var scheduleStories = []story{
	{"a message is scheduled once", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.schedules(t)
		stream, err := other.Stream(within(t), name)
		testutil.Must(t, err)
		equal(t, "rollups are allowed", stream.CachedInfo().Config.AllowRollup, true)
		_, err = schedule(t, js, name+".when", "data", "Nats-Schedule", atOnce(), "Nats-Schedule-Target", name+".then", "Mine", "yes", "Nats-Schedule-TTL", "1h", "Nats-Msg-Id", "one")
		testutil.Must(t, err)
		m := appears(t, other, name, name+".then", 0)
		equal(t, "sequence", m.Sequence, uint64(2))
		equal(t, "data", string(m.Data), "data")
		want := nats.Header{"Mine": {"yes"}, "Nats-Scheduler": {name + ".when"}, "Nats-Schedule-Next": {"purge"}, "Nats-Ttl": {"1h"}, "Nats-TTL": {"1h"}}
		for key := range m.Header {
			equal(t, key, m.Header.Get(key), want.Get(key))
		}
		equal(t, "headers", len(m.Header), 4)
		_, err = stream.GetMsg(within(t), 1)
		equal(t, "the schedule", number(err), jetstream.ErrorCode(10037))
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(1))
	}},
	{"a message is scheduled again and again", func(t *testing.T, s *site) {
		js, other := s.client(t), s.client(t)
		name := s.schedules(t)
		_, err := schedule(t, js, name+".cron", "c", "Nats-Schedule", "* * * * * *", "Nats-Schedule-Time-Zone", "Asia/Kolkata", "Nats-Schedule-Target", name+".a")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".every", "e", "Nats-Schedule", "@every 1s", "Nats-Schedule-Target", name+".b", "Nats-Schedule-Rollup", "sub")
		testutil.Must(t, err)
		var at [3]time.Time
		for _, of := range []string{"a", "b"} {
			last := uint64(0)
			for i := range at {
				m := appears(t, other, name, name+"."+of, last)
				last = m.Sequence
				equal(t, "scheduler", m.Header.Get("Nats-Scheduler"), name+map[string]string{"a": ".cron", "b": ".every"}[of])
				at[i], err = time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Schedule-Next"))
				testutil.Must(t, err)
				if i > 0 && !at[i].After(at[i-1]) || at[i].Nanosecond() > 0 {
					t.Errorf("next times: %v", at)
				}
			}
			_, offset := at[0].Zone()
			equal(t, "zone", offset, map[string]int{"a": 5*3600 + 1800, "b": 0}[of])
		}
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		for _, of := range []string{".cron", ".every"} { // they stay, and end with their message
			_, err = stream.GetLastMsgForSubject(within(t), name+of)
			testutil.Must(t, err)
			testutil.Must(t, stream.Purge(within(t), jetstream.WithPurgeSubject(name+of)))
		}
		is, err := stream.Info(within(t), jetstream.WithSubjectFilter(name+".b"))
		testutil.Must(t, err)
		equal(t, "messages after rollups", is.State.Subjects[name+".b"], uint64(1))
	}},
	{"a schedule publishes the last message of a subject", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.schedules(t)
		fill(t, js, name+".source", 3)
		_, err := schedule(t, js, name+".when", "own", "Nats-Schedule", atOnce(), "Nats-Schedule-Target", name+".then", "Nats-Schedule-Source", name+".source")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".when2", "own", "Nats-Schedule", atOnce(), "Nats-Schedule-Target", name+".then2", "Nats-Schedule-Source", name+".nothing")
		testutil.Must(t, err)
		equal(t, "data", string(appears(t, js, name, name+".then", 0).Data), "3")
		equal(t, "without a source", string(appears(t, js, name, name+".then2", 0).Data), "own")
	}},
	{"a subject has one schedule", func(t *testing.T, s *site) {
		t.Parallel()
		js := s.client(t)
		name := s.schedules(t)
		far := "@at " + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)
		for _, when := range []string{far, far, atOnce()} {
			_, err := schedule(t, js, name+".when", when, "Nats-Schedule", when, "Nats-Schedule-Target", name+".then")
			testutil.Must(t, err)
		}
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		_, err = stream.GetMsg(within(t), 2)
		equal(t, "a former schedule", number(err), jetstream.ErrorCode(10037))
		equal(t, "sequence", appears(t, js, name, name+".then", 0).Sequence, uint64(4))
		// A message without a schedule ends one, too.
		_, err = schedule(t, js, name+".other", "", "Nats-Schedule", inSeconds(3), "Nats-Schedule-Target", name+".never")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".other", "plain")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".last", "", "Nats-Schedule", inSeconds(4), "Nats-Schedule-Target", name+".end")
		testutil.Must(t, err)
		appears(t, js, name, name+".end", 0)
		_, err = stream.GetLastMsgForSubject(within(t), name+".never")
		equal(t, "a schedule that was ended", number(err), jetstream.ErrorCode(10037))
	}},
	{"a message ends the schedule of another subject", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.schedules(t)
		far := "@at " + time.Now().Add(24*time.Hour).UTC().Format(time.RFC3339)
		_, err := schedule(t, js, name+".when", "", "Nats-Schedule", far, "Nats-Schedule-Target", name+".then")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".plain", "", "Nats-TTL", "1h")
		testutil.Must(t, err)
		_, err = schedule(t, js, name+".end", "", "Nats-Schedule-Next", "purge", "Nats-Scheduler", name+".plain")
		equal(t, "of a message that is none", number(err), jetstream.ErrorCode(10212))
		for range 2 { // the second one finds none, which is as well
			_, err = schedule(t, js, name+".end", "stopped", "Nats-Schedule-Next", "purge", "Nats-Scheduler", name+".when")
			testutil.Must(t, err)
		}
		stream, err := s.client(t).Stream(within(t), name)
		testutil.Must(t, err)
		_, err = stream.GetLastMsgForSubject(within(t), name+".when")
		equal(t, "the schedule", number(err), jetstream.ErrorCode(10037))
		m, err := stream.GetMsg(within(t), 3)
		testutil.Must(t, err)
		equal(t, "data", string(m.Data), "stopped")
		equal(t, "next", m.Header.Get("Nats-Schedule-Next"), "purge")
		is, err := stream.Info(within(t))
		testutil.Must(t, err)
		equal(t, "messages", is.State.Msgs, uint64(3))
	}},
	{"what passed is published at once", func(t *testing.T, s *site) {
		js := s.client(t)
		name := s.schedules(t)
		_, err := schedule(t, js, name+".when", "1", "Nats-Schedule", "@at 2001-01-01T00:00:00Z", "Nats-Schedule-Target", name+".then")
		testutil.Must(t, err)
		appears(t, js, name, name+".then", 0)
	}},
	{"impossible schedules are refused", func(t *testing.T, s *site) {
		js := s.client(t)
		name, plain := s.schedules(t), s.stream(t, nil)
		noTTL := s.stream(t, func(c *jetstream.StreamConfig) { c.AllowMsgSchedules = true })
		at, to := atOnce(), "Nats-Schedule-Target"
		for _, test := range []struct {
			stream string
			want   jetstream.ErrorCode
			header []string
		}{
			{plain, 10188, []string{"Nats-Schedule", at, to, plain + ".b"}},
			{plain, 10188, []string{"Nats-Schedule", "soon"}},
			{plain, 10188, []string{"Nats-Schedule-Next", "purge", "Nats-Scheduler", plain + ".b"}},
			{plain, 10212, []string{"Nats-Scheduler", plain + ".b"}},
			{plain, 0, []string{to, plain + ".b"}},
			{name, 0, []string{to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "soon", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "@at tomorrow", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "@every 1ms", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "@every day", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "* * * * *", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "0 0 0 30 2 *", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "61 * * * * *", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", at, "Nats-Schedule-Time-Zone", "Europe/Berlin", to, name + ".b"}},
			{name, 10189, []string{"Nats-Schedule", "@every 1h", "Nats-Schedule-Time-Zone", "Europe/Berlin", to, name + ".b"}},
			{name, 10223, []string{"Nats-Schedule", "@daily", "Nats-Schedule-Time-Zone", "Europe/Nowhere", to, name + ".b"}},
			{name, 10190, []string{"Nats-Schedule", at}},
			{name, 10190, []string{"Nats-Schedule", at, to, name + ".a"}},
			{name, 10190, []string{"Nats-Schedule", at, to, name + ".*"}},
			{name, 10190, []string{"Nats-Schedule", at, to, "elsewhere"}},
			{name, 10203, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-Source", name + ".a"}},
			{name, 10203, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-Source", name + ".b"}},
			{name, 10203, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-Source", name + ".>"}},
			{name, 10203, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-Source", "elsewhere"}},
			{name, 10191, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-TTL", "soon"}},
			{noTTL, 10166, []string{"Nats-Schedule", at, to, noTTL + ".b", "Nats-Schedule-TTL", "1h"}},
			{name, 10192, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Schedule-Rollup", "all"}},
			{name, 10192, []string{"Nats-Schedule", at, to, name + ".b", "Nats-Rollup", "all"}},
			{name, 10212, []string{"Nats-Scheduler", name + ".b"}},
			{name, 10212, []string{"Nats-Schedule-Next", "2030-01-01T00:00:00Z", "Nats-Scheduler", name + ".b"}},
			{name, 10212, []string{"Nats-Schedule-Next", "purge"}},
			{name, 10212, []string{"Nats-Schedule-Next", "purge", "Nats-Scheduler", name + ".a"}},
			{name, 10212, []string{"Nats-Schedule-Next", "purge", "Nats-Scheduler", name + ".*"}},
		} {
			_, err := schedule(t, js, test.stream+".a", "", test.header...)
			if number(err) != test.want || test.want == 0 && err != nil {
				t.Errorf("%q: %v, want %d", test.header, err, test.want)
			}
		}
		_, err := js.CreateStream(within(t), jetstream.StreamConfig{Name: s.name("not"), Discard: jetstream.DiscardNew, MaxMsgs: 1, AllowMsgSchedules: true})
		equal(t, "with discard new", number(err), jetstream.ErrorCode(10052))
		_, err = js.UpdateStream(within(t), jetstream.StreamConfig{Name: noTTL, Subjects: []string{noTTL + ".>"}, AllowRollup: true})
		equal(t, "an update without", number(err), jetstream.ErrorCode(10052))
	}},
}
