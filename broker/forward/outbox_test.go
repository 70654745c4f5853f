package forward

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// TestUnansweredMessagesAreResentInOrder: unanswered messages are sent again in the next round, in
// order, before new ones. Answered numbers in between are sent as void.
func TestUnansweredMessagesAreResentInOrder(t *testing.T) {
	o := NewOutbox()
	var said []string
	add := func(data string) {
		m := message("orders.a", "r", data)
		o.Add(&m, nil, 0)
	}
	send := func() {
		for {
			first, count, entries, _ := o.Run()
			if count == 0 {
				return
			}
			for i := range count {
				m, rest, ok := ParseEntry(entries)
				if !ok {
					t.Fatal("an entry can't be read")
				}
				entries = rest
				said = append(said, fmt.Sprintf("%d%s", int(first)+i, m.Data))
			}
		}
	}
	settle := func(seq uint64) {
		if _, c, ok := o.Settle(seq); ok {
			o.Free(c, 1)
		}
	}
	add("a")
	add("b")
	add("c")
	send()
	settle(2)
	settle(2) // again
	add("d")
	if again := o.Begin(); again != 2 {
		t.Errorf("%d go again, want 2", again)
	}
	send()
	settle(1)
	if o.First != 3 {
		t.Errorf("it begins with %d after the first two were answered", o.First)
	}
	settle(3)
	settle(4)
	settle(99)
	if got := strings.Join(said, " "); got != "1a 2b 3c 1a 2 3c 4d" {
		t.Errorf("sent %q", got)
	}
	if !o.Empty() || o.Bytes != 0 || o.Next() != 5 {
		t.Errorf("it holds %d bytes, and goes on with %d", o.Bytes, o.Next())
	}
}

// TestMessagesOfOneReadShareAFrame: messages of one read share a chunk, so that they are sent as
// one frame.
func TestMessagesOfOneReadShareAFrame(t *testing.T) {
	o := NewOutbox()
	size := 0
	var all []protocol.Message
	for i := range 400 {
		m := message("orders.a", "r", fmt.Sprintf("%0100d", i))
		size += EntrySize(&m)
		all = append(all, m)
	}
	o.Expect(size)
	for i := range all {
		o.Add(&all[i], nil, 0)
	}
	if first, count, entries, _ := o.Run(); first != 1 || count != 400 || len(entries) != size {
		t.Errorf("%d messages from %d on go together, want all 400", count, first)
	}
	n := testing.AllocsPerRun(1000, func() {
		o.Add(&all[0], nil, 0)
		o.Run()
		if _, c, ok := o.Settle(o.Next() - 1); ok {
			o.Free(c, 1)
		}
	})
	if n > 0.1 {
		t.Errorf("%v allocations per message", n)
	}
}

// TestABatchIsCountedWhole: an atomic batch was gathered elsewhere than in the memory of the
// message that commits it, so all of it counts, and that memory is free at once.
func TestABatchIsCountedWhole(t *testing.T) {
	o := NewOutbox()
	l := &lent{size: 1 << 10}
	m := message("x", "r", strings.Repeat("d", 1<<20))
	m.To = m.Subject
	kept := o.Add(&m, l, 0)
	if o.Bytes < len(m.Data) || l.refs != 0 {
		t.Errorf("%d bytes are counted for a batch of %d, and the memory of its commit has %d references", o.Bytes, len(m.Data), l.refs)
	}
	if clear(m.Data); string(kept.To) != "x" || !bytes.Equal(kept.Data, bytes.Repeat([]byte("d"), 1<<20)) {
		t.Error("the batch is not kept")
	}
}

// lent is memory that counts its references.
type lent struct{ size, refs int }

func (l *lent) Retain()   { l.refs++ }
func (l *lent) Release()  { l.refs-- }
func (l *lent) Size() int { return l.size }

// TestALargeMessageIsNotCopied: the outbox refers to the data of a large message until it is
// answered, and counts the whole buffer that it keeps. Others are copied.
func TestALargeMessageIsNotCopied(t *testing.T) {
	o := NewOutbox()
	const size = 64 << 10
	data := strings.Repeat("x", size)
	buffer, wide := &lent{size: 2 * size}, &lent{size: 2*size + 1}
	large, small := message("orders.a", "r", data), message("orders.b", "s", "y")
	large.Header = 3
	kept := o.Add(&large, buffer, 0)
	if &kept.Data[0] != &large.Data[0] || &kept.Subject[0] == &large.Subject[0] {
		t.Error("the data was copied, or the subject was not")
	}
	o.Add(&small, buffer, 0)
	if c := o.Add(&large, wide, 0); &c.Data[0] == &large.Data[0] {
		t.Error("a buffer is kept for a message that fills less than half of it")
	}
	if c := o.Add(&large, nil, 0); &c.Data[0] == &large.Data[0] {
		t.Error("a message without memory of its own was not copied")
	}
	if buffer.refs != 1 || wide.refs != 0 || o.Bytes < 2*size+2*size {
		t.Errorf("%d and %d references, %d bytes are counted", buffer.refs, wide.refs, o.Bytes)
	}
	for range 2 { // a round, and another one
		first, count, entries, apart := o.Run()
		m := JoinEntry(entries, apart)
		if first != 1 || count != 1 || &apart[0] != &large.Data[0] || string(m.Subject) != "orders.a" || string(m.Reply) != "r" || m.Header != 3 {
			t.Errorf("%d messages from %d on, the first is %s %s", count, first, m.Subject, m.Reply)
		}
		if m, rest, ok := ParseEntry(append(slices.Clone(entries), apart...)); !ok || len(rest) > 0 || string(m.Data) != data {
			t.Errorf("entry and data are no entry")
		}
		if first, _, entries, apart := o.Run(); first != 2 || apart != nil || len(entries) == 0 {
			t.Errorf("then follow %d bytes from %d on", len(entries), first)
		}
		o.Begin()
	}
	for seq := uint64(1); seq <= 4; seq++ {
		reply, c, ok := o.Settle(seq)
		if want := map[bool]string{true: "s", false: "r"}[seq == 2]; !ok || string(reply) != want {
			t.Errorf("the answer to %d goes to %q, want %q", seq, reply, want)
		}
		if seq == 1 && buffer.refs != 1 {
			t.Error("the buffer was released before the reply was sent")
		}
		o.Free(c, 1)
	}
	if buffer.refs != 0 || o.Bytes != 0 {
		t.Errorf("%d references and %d bytes are left", buffer.refs, o.Bytes)
	}
	n := testing.AllocsPerRun(1000, func() {
		o.Add(&large, buffer, 0)
		o.Run()
		if _, c, ok := o.Settle(o.Next() - 1); ok {
			o.Free(c, 1)
		}
	})
	if n > 0.1 {
		t.Errorf("%v allocations per large message", n)
	}
}

// TestAnEmptyOutboxHoldsNothing: in whichever order messages are answered and their chunks freed,
// no memory is left.
func TestAnEmptyOutboxHoldsNothing(t *testing.T) {
	for _, order := range [][]uint64{{1, 2, 3}, {3, 2, 1}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}} {
		o := NewOutbox()
		buffer := &lent{size: 1}
		small, large := message("orders.a", "r", "y"), message("orders.a", "r", strings.Repeat("x", smallestChunk))
		o.Add(&small, nil, 0)
		o.Add(&large, buffer, 0)
		o.Add(&large, nil, 0)
		for _, seq := range order {
			_, c, _ := o.Settle(seq)
			o.Free(c, 1)
		}
		if !o.Empty() || o.Bytes != 0 || buffer.refs != 0 {
			t.Errorf("answered in the order %v, it holds %d bytes and %d references", order, o.Bytes, buffer.refs)
		}
	}
}

// forwardWorld is a model of senders, leaders and their logs, with the pure parts only. Links are
// cut, leaders change, followers truncate, and answers are lost.
type forwardWorld struct {
	rng     *rand.Rand
	boxes   []Outbox
	pending [][]sentRun // by sender: on the link
	acked   []map[uint64]uint64
	refused []map[uint64]bool

	restarts bool // replicas read only the end of their logs again
	unknown  int  // messages whose fate is unknown because of that

	logs   [][]logEntry // by replica
	tables []*Origins
	leader int
	high   int // records that are durable
	now    int64
}

type logEntry struct {
	payload string
	batch   int    // records in the batch that begins here
	signed  []byte // by sources
}

type sentRun struct {
	first, floor, ever uint64
	entries            []byte
}

// unread is when a leader that read a part of its log began: it does not know what came before.
const unread = 1

// judge does what a leader does, on the model's log. It refuses every fifth message.
func (w *forwardWorld) judge(t *testing.T, sender int, r sentRun) (gap bool) {
	table := w.tables[w.leader]
	from := table.Of(uint64(sender+1), r.floor)
	var spans []Span
	var records []string
	base := uint64(len(w.logs[w.leader]) + 1)
	seq := r.first
	for entries := r.entries; len(entries) > 0; seq++ {
		m, rest, ok := ParseEntry(entries)
		if !ok {
			t.Fatal("an entry can't be read")
		}
		entries = rest
		switch {
		case seq > from.Last+1:
			gap = true
		case seq <= from.Last || len(m.Subject) == 0 || seq < r.ever && !table.Knows(from, unread-1):
			from.Last = max(from.Last, seq)
			continue
		case seq%5 == 0:
			from.Last = seq
			from.Settle(seq, Outcome{Err: ErrFrame})
			continue
		}
		if gap {
			break
		}
		from.Last = seq
		records = append(records, string(m.Data))
		if n := len(spans); n > 0 && spans[n-1].End() == seq {
			spans[n-1].Count++
		} else {
			spans = append(spans, Span{First: seq, Offset: base + uint64(len(records)) - 1, Count: 1})
		}
	}
	if len(records) > 0 {
		for _, payload := range records {
			w.logs[w.leader] = append(w.logs[w.leader], logEntry{payload: payload})
		}
		first := &w.logs[w.leader][base-1]
		first.batch, first.signed = len(records), AppendExtension(nil, uint64(sender+1), r.floor, spans)
		for _, k := range spans {
			from.Keep(k, w.now)
		}
	}
	return gap
}

// copy replicates some batches to a follower, which is sometimes far behind.
func (w *forwardWorld) copy(follower int) {
	from, to := w.logs[w.leader], w.logs[follower]
	for len(to) < len(from) {
		e := from[len(to)]
		w.tables[follower].noteForwarded(e.signed, uint64(len(to)+1), e.batch, false, w.now)
		to = append(to, from[len(to):len(to)+e.batch]...)
		if w.rng.IntN(4) == 0 {
			break
		}
	}
	w.logs[follower] = to
	w.high = max(w.high, min(len(w.logs[0]), len(w.logs[1])))
}

// elect makes the other replica the leader, which has everything durable. The former leader
// truncates to it.
func (w *forwardWorld) elect() {
	w.tables[w.leader].HandOver()
	former := w.leader
	w.leader = 1 - w.leader
	if end := len(w.logs[w.leader]); len(w.logs[former]) > end {
		w.logs[former] = w.logs[former][:end]
		w.tables[former].Truncate(uint64(end + 1))
	}
	for i := range w.boxes {
		w.begin(i)
	}
}

// restart makes a replica read the end of its log, and only that.
func (w *forwardWorld) restart(replica int) {
	log := w.logs[replica]
	table := &Origins{Since: unread}
	w.tables[replica] = table
	from := w.rng.IntN(len(log) + 1)
	for i := range log {
		if e := log[i]; e.batch > 0 && i >= from {
			table.noteForwarded(e.signed, uint64(i+1), e.batch, false, w.now)
		}
	}
	table.HandOver()
}

// begin begins another round of a sender. What was on its link is lost.
func (w *forwardWorld) begin(sender int) {
	w.pending[sender] = nil
	w.boxes[sender].Begin()
}

func (w *forwardWorld) send(sender int) {
	for {
		first, count, entries, _ := w.boxes[sender].Run()
		if count == 0 {
			return
		}
		w.pending[sender] = append(w.pending[sender], sentRun{first, w.boxes[sender].First, w.boxes[sender].Ever, bytes.Clone(entries)})
	}
}

// answer answers some of a sender's messages.
func (w *forwardWorld) answer(t *testing.T, sender int) {
	box := &w.boxes[sender]
	from := w.tables[w.leader].Of(uint64(sender+1), 0)
	for seq := box.First; seq < box.Next() && seq <= from.Last; seq++ {
		offset, _, ok := from.Find(seq)
		if ok && offset > uint64(w.high) || w.rng.IntN(5) == 0 {
			continue
		}
		reply, c, mine := box.Settle(seq)
		if !mine {
			continue
		}
		if want := fmt.Sprintf("%d/%d", sender, seq); string(reply) != want {
			t.Fatalf("sequence %d of sender %d is %q", seq, sender, reply)
		}
		switch box.Free(c, 1); {
		case ok:
			w.acked[sender][seq] = offset
		case seq%5 > 0 && !w.restarts:
			t.Fatalf("sequence %d of sender %d isn't known", seq, sender)
		case from.Settled[seq].Err != nil || !w.restarts:
			w.refused[sender][seq] = true
		default:
			w.unknown++
		}
	}
}

// TestForwardsAgainstAModel: after cuts, losses, truncations and elections, every acknowledged
// message is at its offset once, no refused one is in the log, and each sender's messages are in
// order.
func TestForwardsAgainstAModel(t *testing.T) {
	unknown := 0
	for seed := range uint64(300) {
		w := &forwardWorld{rng: rand.New(rand.NewPCG(seed, 1)), logs: make([][]logEntry, 2), tables: []*Origins{{}, {}}, restarts: seed%2 > 0}
		const senders = 3
		for range senders {
			w.boxes = append(w.boxes, NewOutbox())
			w.pending = append(w.pending, nil)
			w.acked = append(w.acked, map[uint64]uint64{})
			w.refused = append(w.refused, map[uint64]bool{})
		}
		step := func(quiet bool) {
			i := w.rng.IntN(senders)
			switch n := w.rng.IntN(20); {
			case n < 6 && !quiet:
				box := &w.boxes[i]
				direct := sentRun{first: box.Next(), floor: box.First, ever: box.Ever}
				isDirect := box.Sent()
				for range 1 + w.rng.IntN(5) {
					which := fmt.Sprintf("%d/%d", i, box.Next())
					m := message("orders.a", which, which)
					copied := box.Add(&m, nil, 0)
					direct.entries = AppendEntry(direct.entries, &copied)
				}
				if isDirect {
					box.Send()
					w.pending[i] = append(w.pending[i], direct)
				}
				w.send(i)
			case n < 12:
				w.send(i)
				if len(w.pending[i]) > 0 {
					r := w.pending[i][0]
					w.pending[i] = w.pending[i][1:]
					if w.judge(t, i, r) {
						w.begin(i)
					}
				}
			case n < 15:
				w.copy(1 - w.leader)
			case n < 18:
				w.answer(t, i)
			case quiet:
			case n == 18:
				w.begin(i) // its link was cut
			case w.restarts && w.rng.IntN(3) == 0:
				w.restart(1 - w.leader)
			default:
				if len(w.logs[1-w.leader]) >= w.high {
					w.elect()
				}
			}
		}
		for range 400 {
			step(false)
		}
		for range senders {
			for i := range w.boxes {
				w.begin(i)
			}
			for range 3000 {
				step(true)
			}
		}
		unknown += w.unknown
		at := map[string]int{}
		last := make([]uint64, senders)
		for offset, e := range w.logs[w.leader] {
			var sender int
			var seq uint64
			if _, err := fmt.Sscanf(e.payload, "%d/%d", &sender, &seq); err != nil {
				t.Fatal(err)
			}
			if before, twice := at[e.payload]; twice {
				t.Fatalf("seed %d: %s is kept twice, at %d and %d", seed, e.payload, before, offset+1)
			}
			at[e.payload] = offset + 1
			if seq < last[sender] {
				t.Fatalf("seed %d: %s stands behind %d", seed, e.payload, last[sender])
			}
			last[sender] = seq
		}
		for i := range w.boxes {
			if !w.boxes[i].Empty() {
				t.Fatalf("seed %d: sender %d has no answer to %d messages from %d on", seed, i, w.boxes[i].Next()-w.boxes[i].First, w.boxes[i].First)
			}
			for seq, offset := range w.acked[i] {
				if got := at[fmt.Sprintf("%d/%d", i, seq)]; got != int(offset) {
					t.Fatalf("seed %d: %d/%d was acknowledged at %d and stands at %d", seed, i, seq, offset, got)
				}
			}
			for seq := range w.refused[i] {
				if got, ok := at[fmt.Sprintf("%d/%d", i, seq)]; ok {
					t.Fatalf("seed %d: %d/%d was refused and stands at %d", seed, i, seq, got)
				}
			}
		}
	}
	t.Logf("of %d messages nobody knows the fate", unknown)
}

func message(on, reply, data string) protocol.Message {
	return protocol.Message{Subject: []byte(on), Reply: []byte(reply), Data: []byte(data)}
}

// TestBatchesAreTold: an atomic batch is one entry, told from messages on every way to the leader,
// and to the sender when it is answered.
func TestBatchesAreTold(t *testing.T) {
	o := NewOutbox()
	large := bytes.Repeat([]byte("x"), 1<<10)
	for _, m := range []protocol.Message{
		{Subject: []byte("a"), Reply: []byte("r1"), Data: []byte("1")},
		{To: []byte("b"), Subject: []byte("b"), Reply: []byte("r2"), Data: []byte("2")},
		{To: []byte("c"), Subject: []byte("c"), Reply: []byte("r3"), Data: large},
	} {
		if kept := o.Add(&m, nil, 1); string(kept.To) != string(m.To) || string(kept.Subject) != string(m.Subject) || string(kept.Reply) != string(m.Reply) {
			t.Errorf("%s is kept as %+v", m.Subject, kept)
		}
	}
	if joined := JoinEntry(appendEntryHead(nil, &protocol.Message{To: []byte("b"), Subject: []byte("b"), Data: large}), large); string(joined.To) != "b" {
		t.Errorf("joined: %+v", joined)
	}
	var told []string
	for {
		_, count, entries, _ := o.Run()
		if count == 0 {
			break
		}
		for len(entries) > 0 {
			m, rest, ok := ParseEntry(entries)
			if !ok {
				t.Fatal("malformed")
			}
			told, entries = append(told, string(m.To)), rest
		}
	}
	if !slices.Equal(told, []string{"", "b", "c"}) {
		t.Errorf("%q", told)
	}
	if o.Batch(1) != nil || string(o.Batch(2)) != "b" || string(o.Batch(3)) != "c" || o.Batch(4) != nil {
		t.Error("its batches are others")
	}
}

// TestAnEntrySaysWhatItStandsBehind: to the leader on this broker, and over a link. The reply to
// the publisher does not have it.
func TestAnEntrySaysWhatItStandsBehind(t *testing.T) {
	for _, data := range []string{"x", strings.Repeat("x", 1<<16)} {
		o := NewOutbox()
		m := protocol.Message{Subject: []byte("orders.a"), Reply: []byte("r"), Data: []byte(data), Behind: 1 << 40}
		kept := o.Add(&m, nil, 0)
		_, _, entries, _ := o.Run()
		sent, rest, ok := ParseEntry(entries)
		for _, got := range []protocol.Message{kept, sent} {
			if got.Behind != 1<<40 || string(got.Reply) != "r" || string(got.Data) != data || string(got.Subject) != "orders.a" {
				t.Errorf("it is %+v", got)
			}
		}
		if !ok || len(rest) > 0 || EntrySize(&m) != len(entries) {
			t.Errorf("%v, %d bytes are left, its size is %d of %d", ok, len(rest), EntrySize(&m), len(entries))
		}
		for n := range len(entries) - len(data) {
			if _, _, ok := ParseEntry(entries[:n]); ok {
				t.Errorf("%d bytes of it are taken", n)
			}
		}
		if head := appendEntryHead(nil, &m); JoinEntry(head, m.Data).Behind != 1<<40 {
			t.Error("a large one does not have it")
		}
		if reply, _, ok := o.Settle(1); !ok || string(reply) != "r" {
			t.Errorf("its answer goes to %q", reply)
		}
	}
}

// TestAbandonedMessagesAreVoidInTheNextRound: and not before. Their memory is free then.
func TestAbandonedMessagesAreVoidInTheNextRound(t *testing.T) {
	o := NewOutbox()
	for i := range 6 {
		o.Add(&protocol.Message{Subject: []byte("orders.a"), Data: []byte{byte('1' + i)}}, nil, 0)
	}
	round := func() (all string) {
		for {
			_, count, entries, _ := o.Run()
			if count == 0 {
				return all
			}
			for range count {
				m, rest, _ := ParseEntry(entries)
				if entries = rest; len(m.Subject) == 0 {
					m.Data = []byte("-")
				}
				all += string(m.Data)
			}
		}
	}
	first := round()
	for _, seq := range []uint64{1, 2, 4, 5, 9} {
		o.Abandon(seq)
	}
	if _, c, ok := o.Settle(2); ok { // its answer comes before the round
		o.Free(c, 1)
	}
	again := o.Begin()
	if second := round(); first != "123456" || second != "3--6" || again != 2 || o.First != 3 {
		t.Errorf("sent %q, then %q (%d, from %d)", first, second, again, o.First)
	}
	for _, seq := range []uint64{3, 6} {
		_, c, _ := o.Settle(seq)
		o.Free(c, 1)
	}
	if !o.Empty() || o.Bytes != 0 {
		t.Errorf("it holds %d bytes", o.Bytes)
	}
	o.Add(&protocol.Message{Subject: []byte("orders.a"), Data: []byte("7")}, nil, 0)
	o.Abandon(7)
	if o.Begin(); !o.Empty() || o.Bytes != 0 || o.Next() != 8 {
		t.Errorf("it holds %d bytes, and %d is next", o.Bytes, o.Next())
	}
}
