package batching

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// words is a Codec whose headers are "id sequence commit".
type words struct{}

func (words) Part(header []byte) (p publish.Part, ok bool) {
	fields := bytes.Fields(header)
	p.Batch = fields[0]
	p.Sequence, _ = strconv.ParseUint(string(fields[1]), 10, 64)
	p.Sequenced = true
	if len(fields) > 2 {
		p.Commit = map[string]publish.Commit{"commit": publish.CommitWith, "end": publish.CommitBefore}[string(fields[2])]
	}
	return p, true
}
func (words) Counter(_, _ []byte) (total, sources []byte, ok bool)             { return nil, nil, false }
func (words) AppendCounter(dst, _ []byte, _, _ string, _ []byte) ([]byte, int) { return dst, 0 }
func (words) CounterSource(_ []byte, _, _, _ string) (updated []byte, before string, ok bool) {
	return nil, "", false
}
func (words) AppendCommit(dst, header []byte) []byte {
	return append(append(dst, header...), " commit"...)
}
func (words) Conditions([]byte) (c publish.Conditions, _ error)         { return c, nil }
func (words) AppendAck(dst []byte, _ string, _ publish.Ack) []byte      { return dst }
func (words) AppendMarker(dst []byte, _ time.Duration, _ uint64) []byte { return dst }
func (words) AppendRefusal(dst []byte, _ string, err error) []byte {
	return append(dst, err.Error()...)
}

// bench is a Staging whose answers and ended batches are noted.
type bench struct {
	*Staging
	t         *testing.T
	topic     Topic
	answers   []string
	abandoned []string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, topic: Topic{ID: "1", Name: "orders", Atomic: true, Subjects: &publish.Subjects{}}}
	b.Staging = New(Config{Codec: words{}, Payload: 1 << 20, Refused: &publish.Refusals{},
		Send: func(messages []protocol.Message) {
			for _, m := range messages {
				b.answers = append(b.answers, string(m.Data))
			}
		},
		Abandoned: func(topic, id string, why Reason) {
			b.abandoned = append(b.abandoned, fmt.Sprint(topic, " ", id, " ", why))
		},
	})
	return b
}

// take publishes one message, and returns its answer and what goes on to the leader.
func (b *bench) take(header, data string) (answer, goesOn string) {
	b.t.Helper()
	b.answers = nil
	m := protocol.Message{Subject: []byte("orders.a"), Reply: []byte("r"), Header: len(header), Data: []byte(header + data)}
	left := b.Take(&b.topic, []protocol.Message{m})
	if len(left) == 1 {
		parts, ok := Parts(nil, &left[0])
		if !ok || string(left[0].Reply) != "r" {
			b.t.Fatalf("a batch is %+v", left[0])
		}
		all := []string{string(left[0].To)}
		for _, p := range parts {
			all = append(all, string(p.Data))
		}
		return "", strings.Join(all, "|")
	}
	if len(b.answers) != 1 {
		b.t.Fatalf("answers: %q", b.answers)
	}
	return b.answers[0], ""
}

func (b *bench) expect(header, data, answer, goesOn string) {
	b.t.Helper()
	if got, on := b.take(header, data); on != goesOn || !strings.HasSuffix(got, answer) || answer == "" && got != "" {
		b.t.Errorf("%q was answered %q, and %q goes on", header, got, on)
	}
}

func (b *bench) idle() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.open)+len(b.topics)+b.bytes != 0 {
		b.t.Errorf("left: %v, %v, %d bytes", b.open, b.topics, b.bytes)
	}
}

// TestABatchGoesOnWhenItIsCommitted: as one message, also if its end comes behind it.
func TestABatchGoesOnWhenItIsCommitted(t *testing.T) {
	b := newBench(t)
	b.expect("x 1", "a", "", "")
	b.expect("y 1", "b", "", "")
	b.expect("x 2", "", "", "")
	b.expect("x 3 commit", "c", "", "x|x 1a|x 2|x 3 commitc")
	b.expect("y 2 end", "no", "", "y|y 1 commitb")
	b.expect("x 1 commit", "again", "", "x|x 1 commitagain")
	b.expect("x 1 end", "", "messages of the batch are missing", "")
	b.idle()
}

// TestABatchEndsWithAMissingMessage: then its other messages are refused.
func TestABatchEndsWithAMissingMessage(t *testing.T) {
	b := newBench(t)
	b.expect("x 2", "a", "messages of the batch are missing", "")
	b.expect("x 1", "a", "", "")
	b.expect("x 3", "a", "messages of the batch are missing", "")
	b.expect("x 4 commit", "a", "messages of the batch are missing", "")
	b.idle()
	if want := []string{"orders x incomplete"}; !slices.Equal(b.abandoned, want) {
		t.Errorf("%q", b.abandoned)
	}
}

// TestABatchWaitsForATime: for each of its messages anew.
func TestABatchWaitsForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.expect("x 1", "a", "", "")
		time.Sleep(maxAge - time.Second)
		b.expect("x 2", "b", "", "")
		time.Sleep(maxAge - time.Second)
		b.expect("y 1", "b", "", "")
		b.expect("x 3 commit", "c", "", "x|x 1a|x 2b|x 3 commitc")
		b.expect("x 1", "other", "", "")
		time.Sleep(maxAge - time.Second)
		b.expect("x 2", "other", "", "")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if want := []string{"orders y timeout"}; !slices.Equal(b.abandoned, want) {
			t.Errorf("%q", b.abandoned)
		}
		b.expect("y 2", "b", "messages of the batch are missing", "")
		time.Sleep(maxAge)
		synctest.Wait()
		b.idle()
		b.Close()
		b.expect("x 1", "a", "too many batches are open", "")
	})
}

// TestOpenBatchesAreBounded: in number and bytes, of a Topic and in all.
func TestOpenBatchesAreBounded(t *testing.T) {
	b := newBench(t)
	for i := range maxOpenTotal {
		b.topic.ID = fmt.Sprint(i / maxOpen)
		b.expect(fmt.Sprint("x", i, " 1"), "a", "", "")
	}
	b.expect("y 1", "a", "too many batches are open", "")
	b.topic.ID = "another"
	b.expect("y 1", "a", "too many batches are open", "")
	b.topic.ID = "0"
	b.expect("x0 2 commit", "a", "", "x0|x0 1a|x0 2 commita")
	b.expect("y 1", "a", "", "")
	b.Close()
	b.idle()

	b = newBench(t)
	large := strings.Repeat("x", 1<<19)
	b.expect("x 1", large, "", "")
	b.expect("x 2", large, "the batch is too large 1048576 bytes", "")
	b.idle()
	open := 0
	for i := range maxBytes >> 19 {
		b.topic.ID = fmt.Sprint(i % 4)
		if answer, _ := b.take(fmt.Sprint("x", i, " 1"), large); answer == "" {
			open++
		}
	}
	if open >= maxBytes>>19 || open < maxBytes>>20 {
		t.Errorf("%d are open", open)
	}
	b.Close()
	b.idle()

	b = newBench(t)
	open = 0
	for i := range maxOpen * 2 {
		b.expect(fmt.Sprint("x", i, " 1"), large, map[bool]string{false: "", true: "too many batches are open"}[i >= maxOpen], "")
	}
	b.config.Payload = 2 << 20
	for i := range maxOpen {
		if answer, _ := b.take(fmt.Sprint("x", i, " 2"), large); answer == "" {
			open++
		}
	}
	if b.bytes > maxTopicBytes || b.bytes < maxTopicBytes*9/10 {
		t.Errorf("one Topic has %d bytes", b.bytes)
	}
	for i := range 1001 {
		want := ""
		if i == 1000 {
			want = "the batch is too large 1000"
		}
		b.topic.ID = "messages"
		b.expect(fmt.Sprint("m ", i+1), "a", want, "")
	}
	if !slices.Contains(b.abandoned, "orders m large") {
		t.Errorf("%q", b.abandoned)
	}
}

// TestDamagedBatchesAreRefused: what no Staging made is no batch.
func TestDamagedBatchesAreRefused(t *testing.T) {
	b := newBench(t)
	b.expect("x 1", "a", "", "")
	m := protocol.Message{Subject: []byte("orders.a"), Header: 10, Data: []byte("x 2 commit")}
	whole := b.Take(&b.topic, []protocol.Message{m})[0]
	for n := range whole.Data {
		cut := whole
		cut.Data = whole.Data[:n]
		if parts, ok := Parts(nil, &cut); ok && len(parts) == 2 {
			t.Errorf("%d bytes of %d are taken", n, len(whole.Data))
		}
	}
}
