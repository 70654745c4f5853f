package expiring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/env/crashfs"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/removing"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// codec reads what a message asks for from words in its header.
type codec struct{ publish.Codec }

func (codec) Conditions(header []byte) (c publish.Conditions, refusal error) {
	c.Marks = bytes.Contains(header, []byte("marks"))
	if bytes.HasPrefix(header, []byte("@")) {
		c.Schedule = &scheduling.Request{Pattern: header, Target: []byte("target")}
	}
	if bytes.Contains(header, []byte("never")) {
		c.TTL = publish.Never
	}
	return c, nil
}

func (codec) AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte {
	return fmt.Appendf(dst, "marks %v %d", ttl, last)
}

// shard is a shard as its leader has it, whose records stand in memory.
type shard struct {
	rules     Rules
	at        time.Duration
	keeper    removing.Keeper
	data      *log.Log
	records   []log.Record
	hold      bool // removals don't end
	refuse    error
	published []string
	takes     bool // publishes
	keeps     bool // and keeps them, as rollups
	unread    error
	done      []func(error)
}

func (s *shard) Name() string                      { return "orders" }
func (s *shard) Expiry() (Rules, *removing.Keeper) { return s.rules, &s.keeper }
func (s *shard) Offsets() (start, end uint64)      { return s.data.Start(), uint64(len(s.records) + 1) }
func (s *shard) Spans(of []uint64) []removal.Span  { return s.keeper.Spans(of) }

func (s *shard) Get(offset uint64) (log.Record, error) {
	if s.unread != nil {
		return log.Record{}, s.unread
	}
	if s.keeper.Set().Has(offset) {
		return log.Record{}, &records.NoRecordError{Topic: "orders", Offset: offset}
	}
	return s.records[offset-1], nil
}

func (s *shard) Scan(from, end uint64, _ int64, f func(r *log.Record) bool) (done bool, err error) {
	for i := from; i < end; i++ {
		if r := s.records[i-1]; !s.keeper.Set().Has(i) && !f(&r) {
			return true, nil
		}
	}
	return true, s.unread
}

func (s *shard) OldestBelow(_ context.Context, subject string, end uint64, _ int, _ bool) (offsets []uint64, count uint64, err error) {
	for i := uint64(1); i < end; i++ {
		if string(s.records[i-1].Subject) == subject && !s.keeper.Set().Has(i) {
			count++
		}
	}
	return nil, count, s.unread
}

func (s *shard) LastBelow(_ context.Context, subject string, end uint64, _ bool) (last uint64, err error) {
	for i := uint64(1); i < end; i++ {
		if string(s.records[i-1].Subject) == subject && !s.keeper.Set().Has(i) {
			last = i
		}
	}
	return last, s.unread
}

func (s *shard) Remove(spans []removal.Span, done func(error)) error {
	if s.refuse != nil {
		return s.refuse
	}
	if s.hold {
		s.done = append(s.done, done)
		return nil
	}
	for _, span := range spans {
		s.keeper.Set().Add(span.From, span.Next)
	}
	done(nil)
	return nil
}

func (s *shard) Publish(messages []protocol.Message) bool {
	for _, m := range messages {
		s.published = append(s.published, fmt.Sprintf("%s %s", m.Subject, m.Data))
		if s.takes && s.keeps {
			var last uint64
			_, _ = fmt.Sscanf(string(m.Data[strings.LastIndexByte(string(m.Data), ' ')+1:]), "%d", &last)
			s.keeper.Set().Add(last, last+1)
			s.add(string(m.Subject), string(m.Data), s.at, 0)
		}
	}
	return s.takes
}

// add appends a record with a time, which expires after ttl; 0: it doesn't. What is in the header
// is for codec.
func (s *shard) add(subject, header string, at time.Duration, ttl time.Duration) uint64 {
	offset := uint64(len(s.records) + 1)
	r := log.Record{Offset: offset, Time: int64(at), Subject: []byte(subject), Header: len(header), Data: []byte(header)}
	s.records = append(s.records, r)
	var b removing.Batch
	if ttl > 0 {
		b.Expire(1, offset, int64(at+ttl))
	}
	extensions, _ := b.Carry(&s.keeper, offset+1, nil)
	if _, err := s.data.Append(&log.Append{Epoch: 1, Records: []log.Record{r}, Extensions: extensions}); err != nil {
		panic(err)
	}
	s.keeper.Commit(offset+1, log.Memory)
	return offset
}

// began is when tests begin.
var began = time.Unix(0, 0)

// looking is a shard with what looks at it, at a time that a test sets.
type looking struct {
	*shard
	t      *testing.T
	wrong  time.Duration // the wall clock
	logged bytes.Buffer
	of     expirer[*shard]
}

func look(t *testing.T, rules Rules) *looking {
	disk, err := log.OpenDisk(crashfs.New(), "data", log.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = disk.Close() })
	l := &looking{t: t, shard: &shard{rules: rules, takes: true, keeps: true}}
	state, err := disk.Open(log.Identity{Topic: "orders", Part: "state"}, 1, 1, nil)
	if err == nil {
		l.data, err = disk.Open(log.Identity{Topic: "orders"}, 1, 1, nil)
	}
	if err == nil {
		err = l.keeper.Init(removing.Config{State: state, Data: l.data, Changed: func() {}, Now: func() int64 { return 1 },
			Append: func(a *log.Append) (uint64, error) { a.Epoch = 1; return state.Append(a) }})
	}
	if err != nil {
		t.Fatal(err)
	}
	l.of = expirer[*shard]{places: map[*shard]*place{}, Config: Config[*shard]{
		Led: func() []*shard { return []*shard{l.shard} }, Codec: codec{}, Logger: slog.New(slog.NewTextHandler(io.MultiWriter(&l.logged, t.Output()), nil)),
		Clock: clock.New(clock.Config{Mono: func() int64 { return int64(l.at) }, Wall: func() time.Time { return began.Add(l.at + l.wrong) }}),
	}}
	return l
}

// pass looks at a time, and fails the test unless those records are left.
func (l *looking) pass(at time.Duration, left ...uint64) {
	l.t.Helper()
	l.at = at
	for l.of.pass(l.t.Context()) {
		continue
	}
	var got []uint64
	for offset := range uint64(len(l.records)) {
		if !l.keeper.Set().Has(offset + 1) {
			got = append(got, offset+1)
		}
	}
	if !slices.Equal(got, left) {
		l.t.Errorf("after %v %v are left, want %v", at, got, left)
	}
}

// TestRules: what a Topic says, and what a message asks for.
func TestRules(t *testing.T) {
	spec := coordination.TopicSpec{Retention: coordination.Retention{Age: time.Hour}}
	if r := RulesOf(&spec); r != (Rules{}) {
		t.Errorf("without TTLs: %+v", r)
	}
	spec.Stream.AllowMessageTTL, spec.Stream.SubjectDeleteMarkerTTL = true, 90*time.Minute+time.Millisecond
	r := RulesOf(&spec)
	if r != (Rules{On: true, Age: time.Hour, Marker: 90 * time.Minute, least: 90 * time.Minute}) {
		t.Errorf("%+v", r)
	}
	spec.Stream.MaxPerSubject = 1
	one := RulesOf(&spec)
	var k removing.Keeper
	for _, c := range []struct {
		rules Rules
		ttl   time.Duration
		want  int64
	}{
		{Rules{}, 0, 0}, {r, 0, 0}, {r, publish.Never, 0}, {r, time.Hour, 10 + int64(90*time.Minute)}, {one, time.Hour, 10 + int64(time.Hour)},
		{r, 1<<63 - 1, 1<<63 - 1},
	} {
		at, err := c.rules.Expires("orders", []byte("a"), &publish.Conditions{TTL: c.ttl}, 10, &k)
		if at != c.want || err != nil {
			t.Errorf("%+v, %v: %d, %v", c.rules, c.ttl, at, err)
		}
	}
	if _, err := new(Rules).Expires("orders", []byte("a"), &publish.Conditions{TTL: publish.Never}, 10, &k); err == nil {
		t.Error("a TTL is taken without the setting")
	}
}

// TestTTLsAndAgesTogether: a record goes by whichever comes first.
func TestTTLsAndAgesTogether(t *testing.T) {
	l := look(t, Rules{On: true, Age: time.Hour})
	l.add("a", "", 0, 0)
	l.add("a", "", 0, 5*time.Minute)
	l.add("a", "never", time.Minute, 0)
	l.add("a", "", 2*time.Minute, 5*time.Hour)
	l.add("b", "", 30*time.Minute, 0)
	l.pass(4*time.Minute, 1, 2, 3, 4, 5)
	l.pass(5*time.Minute, 1, 3, 4, 5)
	l.pass(60*time.Minute, 1, 3, 4, 5)
	l.pass(61*time.Minute, 3, 4, 5)
	l.pass(63*time.Minute, 3, 5)
	l.add("b", "", 63*time.Minute, 0)
	l.pass(91*time.Minute, 3, 6)
	l.pass(123*time.Minute, 3, 6)
	l.rules.Age = 30 * time.Minute // it was shortened
	l.pass(123*time.Minute, 3)
	l.rules.Age = 0
	l.add("b", "", 123*time.Minute, 0)
	l.pass(1000*time.Hour, 3, 7)
}

// TestTimesInTheFuture: a clock was wrong. Such records go with the next one whose time is right.
func TestTimesInTheFuture(t *testing.T) {
	l := look(t, Rules{On: true, Age: time.Hour})
	l.add("a", "", 0, 0)
	l.add("a", "", 1000*time.Hour, 0)
	l.add("a", "never", 1000*time.Hour, 0)
	l.pass(61*time.Minute, 2, 3)
	l.pass(62*time.Minute, 2, 3)
	l.add("a", "", 62*time.Minute, 0)
	l.pass(121*time.Minute, 2, 3, 4)
	l.pass(123*time.Minute, 3)
}

// TestOneRemovalAtATime: nothing is removed twice while that is under way, or after it failed at
// once.
func TestOneRemovalAtATime(t *testing.T) {
	l := look(t, Rules{On: true})
	l.add("a", "", 0, time.Minute)
	l.add("a", "", 0, 2*time.Minute)
	l.hold = true
	for range 3 {
		l.pass(time.Minute, 1, 2)
	}
	if len(l.done) != 1 {
		t.Fatalf("%d removals are under way", len(l.done))
	}
	l.done[0](errors.New("leadership is in doubt"))
	l.hold, l.refuse = false, errors.New("the disk is behind")
	l.pass(time.Minute, 1, 2)
	l.refuse = nil
	l.pass(time.Minute, 1, 2) // it rests
	l.pass(time.Minute+failedRest, 2)
	l.pass(3 * time.Minute)
}

// TestNothingIsRemovedByATimeInDoubt: that is said once when it begins.
func TestNothingIsRemovedByATimeInDoubt(t *testing.T) {
	l := look(t, Rules{On: true, Age: time.Minute})
	l.add("a", "", 0, time.Minute)
	l.add("b", "", 0, 0)
	l.wrong = 1000 * time.Hour
	l.of.Clock.Observe()
	for range 3 {
		l.pass(time.Hour, 1, 2)
	}
	if n := strings.Count(l.logged.String(), "No message expires"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	l.of.Clock.Confirm(began.Add(l.at + l.wrong))
	l.pass(2 * time.Hour)
}

// TestWhichRecordsAreMarked: the only ones of their subjects that are no markers themselves.
func TestWhichRecordsAreMarked(t *testing.T) {
	for name, rules := range map[string]Rules{"by TTL": {On: true, Marker: time.Hour}, "by age": {On: true, Age: time.Minute, Marker: time.Hour}} {
		t.Run(name, func(t *testing.T) {
			l := look(t, rules)
			ttl := time.Minute - time.Duration(rules.Age)
			l.add("older", "never", 0, 0)
			l.add("older", "", 0, ttl)
			l.add("newer", "", 0, ttl)
			l.add("two", "", 0, ttl)
			l.add("one", "", 0, ttl)
			l.add("marks", "marks", 0, ttl)
			l.add("two", "", 0, ttl)
			l.add("newer", "never", 0, 0)
			l.pass(2*time.Minute, 1, 8, 9, 10)
			if want := []string{"one marks 1h0m0s 5", "two marks 1h0m0s 7"}; !slices.Equal(l.published, want) {
				t.Errorf("published are %q, want %q", l.published, want)
			}
		})
	}
}

// TestAMarkerThatIsNotKept: it is published again, at most a few times; not so while the shard can
// take nothing. In the end the record goes without.
func TestAMarkerThatIsNotKept(t *testing.T) {
	l := look(t, Rules{On: true, Marker: time.Hour})
	l.add("a", "", 0, time.Minute)
	l.keeps, l.takes = false, false
	at := time.Minute
	for range 3 * markerTries {
		l.pass(at, 1)
		l.pass(at, 1)
		at += markerRest
	}
	if n := len(l.published); n != 3*markerTries {
		t.Errorf("published %d times while nothing is taken", n)
	}
	l.takes = true
	for range markerTries {
		l.pass(at, 1)
		at += markerRest
	}
	l.pass(at)
	if n := len(l.published); n != 4*markerTries || !strings.Contains(l.logged.String(), "without a marker") {
		t.Errorf("published %d times", n)
	}
}

// TestANewerMessageIsNotMarked: it comes while the marker is on its way, which is refused then.
func TestANewerMessageIsNotMarked(t *testing.T) {
	l := look(t, Rules{On: true, Marker: time.Hour})
	l.add("a", "", 0, time.Minute)
	l.keeps = false
	l.pass(time.Minute, 1)
	l.add("a", "", time.Minute, 0)
	l.pass(time.Minute, 1, 2)
	l.pass(time.Minute+markerRest, 2)
	if len(l.published) != 1 {
		t.Errorf("published are %q", l.published)
	}
}

// TestRecordsThatCantBeRead: an index that is being made, or damage, ends nothing but this pass.
func TestRecordsThatCantBeRead(t *testing.T) {
	l := look(t, Rules{On: true, Age: time.Hour, Marker: time.Hour})
	l.add("a", "", 0, time.Minute)
	l.unread = errors.New("damaged")
	l.pass(time.Minute, 1)
	l.unread = nil
	l.pass(time.Minute, 1)
	l.pass(2*time.Minute, 2)
}

// TestManyExpireAtOnce: more than one removal takes, with and without neighbours.
func TestManyExpireAtOnce(t *testing.T) {
	for _, rules := range []Rules{{On: true}, {On: true, Age: time.Minute}, {On: true, Marker: time.Hour}} {
		l := look(t, rules)
		var left []uint64
		many := 3 * dueAtOnce
		if rules.Marker > 0 {
			many = 3 * markedAtOnce
		}
		for i := range many {
			if i%2 == 0 {
				left = append(left, l.add("kept", "never", 0, 0))
				continue
			}
			l.add("kept", "", 0, time.Minute)
		}
		l.pass(2*time.Minute, left...)
	}
}

// TestAScheduleThatIsNotKept: its message is published again, less and less often, and never given
// up. That is said once. Others that are due are not held up by it, nor by a record that can't be
// read.
func TestAScheduleThatIsNotKept(t *testing.T) {
	l := look(t, Rules{Schedules: &scheduling.Rules{Subjects: []string{">"}}})
	l.add("a", "@every 1h", 0, time.Minute)
	l.add("b", "plain", 0, time.Minute) // its TTL was given before the stream lost the setting
	l.keeps = false
	l.at = time.Minute
	l.of.pass(t.Context())
	l.of.pass(t.Context())
	if len(l.published) != 1 || !strings.HasPrefix(l.published[0], "target NATS/1.0") || l.keeper.Set().Len() != 1 {
		t.Fatalf("published are %q, and %d are removed", l.published, l.keeper.Set().Len())
	}
	times := 0
	for end := l.at + 24*time.Hour; l.at < end; l.at += time.Second {
		before := len(l.published)
		l.of.pass(t.Context())
		times += len(l.published) - before
	}
	if most := int(24 * time.Hour / firedRest); times < most || times > most+20 {
		t.Errorf("published %d times in a day", times)
	}
	if n := strings.Count(l.logged.String(), "does not take it"); n != 1 {
		t.Errorf("it is said %d times", n)
	}
	l.add("c", "@every 1h", l.at, time.Minute)
	l.published, l.at = nil, l.at+time.Hour
	l.unread = errors.New("damaged")
	if l.of.pass(t.Context()); len(l.published) > 0 {
		t.Errorf("published are %q", l.published)
	}
	l.unread, l.at = nil, l.at+2*failedRest
	if l.of.pass(t.Context()); len(l.published) != 2 {
		t.Errorf("published are %q", l.published)
	}
}

// TestManySchedulesAreDueAtOnce: they are published in parts.
func TestManySchedulesAreDueAtOnce(t *testing.T) {
	l := look(t, Rules{Schedules: &scheduling.Rules{Subjects: []string{">"}}})
	l.keeps = false
	for range 2*firedAtOnce + 1 {
		l.add("a", "@every 1h", 0, time.Minute)
	}
	l.at = time.Minute
	for i, want := range []int{firedAtOnce, 2 * firedAtOnce, 2*firedAtOnce + 1, 2*firedAtOnce + 1} {
		if more := l.of.pass(t.Context()); len(l.published) != want || more != (i < 2) {
			t.Errorf("%d: %d are published, more %v", i, len(l.published), more)
		}
	}
}
