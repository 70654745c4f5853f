package topic

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// What isn't answered goes again in the next round, in its order, before what is new; and what was answered between goes as void.
func TestAnOutboxGoesAgain(t *testing.T) {
	o := newOutbox()
	var said []string
	add := func(data string) {
		m := message("orders.a", "r", data)
		o.add(&m, 0)
	}
	send := func() {
		for {
			first, count, letters := o.run()
			if count == 0 {
				return
			}
			for i := range count {
				m, rest, ok := parseLetter(letters)
				if !ok {
					t.Fatal("a letter can't be read")
				}
				letters = rest
				said = append(said, fmt.Sprintf("%d%s", int(first)+i, m.Data))
			}
		}
	}
	settle := func(seq uint64) {
		if _, c, ok := o.settle(seq); ok {
			o.free(c)
		}
	}
	add("a")
	add("b")
	add("c")
	send()
	settle(2)
	settle(2) // again
	add("d")
	if again := o.begin(); again != 2 {
		t.Errorf("%d go again, want 2", again)
	}
	send()
	settle(1)
	if o.first != 3 {
		t.Errorf("it begins with %d after the first two were answered", o.first)
	}
	settle(3)
	settle(4)
	settle(99)
	if got := strings.Join(said, " "); got != "1a 2b 3c 1a 2 3c 4d" {
		t.Errorf("sent %q", got)
	}
	if !o.empty() || o.bytes != 0 || o.next() != 5 {
		t.Errorf("it holds %d bytes, and goes on with %d", o.bytes, o.next())
	}
}

// What was left out goes again when it is put back: before what came later, and perhaps known.
func TestAnOutboxTakesBackWhatWasLeftOut(t *testing.T) {
	o := newOutbox()
	m := message("orders.a", "r", "x")
	sent := func() (said string) {
		for {
			first, count, letters := o.run()
			if count == 0 {
				return said
			}
			for i := range count {
				m, rest, _ := parseLetter(letters)
				letters = rest
				said += fmt.Sprintf(" %d%s", int(first)+i, m.Data)
			}
		}
	}
	settle := func(seq uint64) {
		if _, c, ok := o.settle(seq); ok {
			o.free(c)
		}
	}
	o.skip(3)
	if o.next() != 4 || !o.empty() || sent() != "" {
		t.Fatalf("it goes on with %d", o.next())
	}
	o.add(&m, 0)
	sent()
	o.skip(2)
	o.add(&m, 0)
	if got := sent(); got != " 7x" {
		t.Errorf("sent%s, want what is new only", got)
	}
	o.add(&m, 0)
	o.restore(2, &m, 0)
	o.restore(3, &m, 0)
	o.restore(5, &m, 0)
	if again := o.begin(); again != 5 || o.first != 2 {
		t.Errorf("%d go again from %d on, want 2, 3, 4, 5 and 7", again, o.first)
	}
	if got := sent(); got != " 2x 3x 4x 5x 6 7x 8x" || o.ever != 8 {
		t.Errorf("sent%s, none before from %d on", got, o.ever)
	}
	for seq := range o.next() {
		settle(seq)
	}
	if !o.empty() || o.bytes != 0 || o.next() != 9 {
		t.Errorf("it holds %d bytes, and goes on with %d", o.bytes, o.next())
	}
	o.restore(8, &m, 0)
	if o.begin(); sent() != " 8x" {
		t.Error("one that was answered is put back as any other")
	}
}

// Messages of one read stand in one piece, so that they go as one frame.
func TestWhatComesTogetherGoesTogether(t *testing.T) {
	o := newOutbox()
	size := 0
	var all []protocol.Message
	for i := range 400 {
		m := message("orders.a", "r", fmt.Sprintf("%0100d", i))
		size += letterSize(&m)
		all = append(all, m)
	}
	o.expect(size)
	for i := range all {
		o.add(&all[i], 0)
	}
	if first, count, letters := o.run(); first != 1 || count != 400 || len(letters) != size {
		t.Errorf("%d messages from %d on go together, want all 400", count, first)
	}
	n := testing.AllocsPerRun(1000, func() {
		o.add(&all[0], 0)
		o.run()
		if _, c, ok := o.settle(o.next() - 1); ok {
			o.free(c)
		}
	})
	if n > 0.1 {
		t.Errorf("%v allocations per message", n)
	}
}

// world is a model of some senders, leaders and their logs, with the pure pieces only: what goes over links may be cut off, leaders
// change and what followers lack is truncated; answers may be lost.
type forwardWorld struct {
	rng     *rand.Rand
	boxes   []outbox
	pending [][]sentRun // by sender: on the link
	acked   []map[uint64]uint64
	refused []map[uint64]bool
	direct  [][]uint64 // by sender: numbers of what was taken where it leads, without a way around, and is not answered

	restarts bool // replicas read only the end of their logs again
	unknown  int  // how many messages nobody knows the fate of, because of that

	logs   [][]entry // by replica
	tables []*origins
	leader int
	high   int // records that are safe
	now    int64
}

type entry struct {
	payload string
	batch   int    // records in it, where one begins
	signed  []byte // by whom
}

type sentRun struct {
	first, floor, ever uint64
	letters            []byte
}

// unread is when a leader that began with a part of its log began: what came before it doesn't know.
const unread = 1

// judge is what a leader does, on the model's log: every fifth message is refused.
func (w *forwardWorld) judge(t *testing.T, sender int, r sentRun) (gap bool) {
	table := w.tables[w.leader]
	from := table.of(uint64(sender+1), r.floor)
	var spans []keptSpan
	var records []string
	base := uint64(len(w.logs[w.leader]) + 1)
	seq := r.first
	for letters := r.letters; len(letters) > 0; seq++ {
		m, rest, ok := parseLetter(letters)
		if !ok {
			t.Fatal("a letter can't be read")
		}
		letters = rest
		switch {
		case seq > from.last+1:
			gap = true
		case seq <= from.last || len(m.Subject) == 0 || seq < r.ever && !table.knows(from, unread-1):
			from.last = max(from.last, seq)
			continue
		case seq%5 == 0:
			from.last = seq
			from.settle(seq, outcome{err: errFrame})
			continue
		}
		if gap {
			break
		}
		from.last = seq
		records = append(records, string(m.Data))
		if n := len(spans); n > 0 && spans[n-1].end() == seq {
			spans[n-1].count++
		} else {
			spans = append(spans, keptSpan{first: seq, offset: base + uint64(len(records)) - 1, count: 1})
		}
	}
	if len(records) > 0 {
		for _, payload := range records {
			w.logs[w.leader] = append(w.logs[w.leader], entry{payload: payload})
		}
		first := &w.logs[w.leader][base-1]
		first.batch, first.signed = len(records), appendForwardedFrom(nil, uint64(sender+1), r.floor, spans)
		for _, k := range spans {
			from.keep(k, w.now)
		}
	}
	return gap
}

// take is what a leader does with what is published to itself; the first senders are at the replicas.
func (w *forwardWorld) take() {
	i := w.leader
	box, from := &w.boxes[i], w.tables[i].of(uint64(i+1), 0)
	if len(w.pending[i]) > 0 || !box.empty() && (box.sent < box.next() || from.last+1 < box.next()) {
		return // what was forwarded goes first
	}
	k := keptSpan{first: box.next(), offset: uint64(len(w.logs[i]) + 1), count: uint32(1 + w.rng.IntN(4))}
	box.skip(int(k.count))
	for seq := k.first; seq < k.end(); seq++ {
		w.direct[i] = append(w.direct[i], seq)
		w.logs[i] = append(w.logs[i], entry{payload: fmt.Sprintf("%d/%d", i, seq)})
	}
	first := &w.logs[i][k.offset-1]
	first.batch, first.signed = int(k.count), appendForwardedFrom(nil, uint64(i+1), w.floor(i), []keptSpan{k})
	from.keep(k, w.now)
}

// floor is below which a sender wants to know nothing any more.
func (w *forwardWorld) floor(sender int) uint64 {
	if d := w.direct[sender]; len(d) > 0 {
		return min(d[0], w.boxes[sender].first)
	}
	return w.boxes[sender].first
}

// copy brings a follower some batches; sometimes it is far behind.
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

// elect has the other replica lead: it has all that was safe. The former leader is truncated to it.
func (w *forwardWorld) elect() {
	w.tables[w.leader].handOver()
	former := w.leader
	for _, seq := range w.direct[former] {
		m := message("orders.a", "", fmt.Sprintf("%d/%d", former, seq))
		w.boxes[former].restore(seq, &m, 0)
	}
	w.direct[former] = nil
	w.leader = 1 - w.leader
	if end := len(w.logs[w.leader]); len(w.logs[former]) > end {
		w.logs[former] = w.logs[former][:end]
		w.tables[former].truncate(uint64(end + 1))
	}
	for i := range w.boxes {
		w.begin(i)
	}
}

// restart has a replica read the end of its log again, and only that.
func (w *forwardWorld) restart(replica int) {
	log := w.logs[replica]
	table := &origins{since: unread}
	w.tables[replica] = table
	from := w.rng.IntN(len(log) + 1)
	for i := range log {
		if e := log[i]; e.batch > 0 && i >= from {
			table.noteForwarded(e.signed, uint64(i+1), e.batch, false, w.now)
		}
	}
	table.handOver()
}

// begin is another round of a sender: what was on its link is gone.
func (w *forwardWorld) begin(sender int) {
	w.pending[sender] = nil
	w.boxes[sender].begin()
}

func (w *forwardWorld) send(sender int) {
	for {
		first, count, letters := w.boxes[sender].run()
		if count == 0 {
			return
		}
		w.pending[sender] = append(w.pending[sender], sentRun{first, w.floor(sender), w.boxes[sender].ever, bytes.Clone(letters)})
	}
}

// answer tells a sender what is known of its messages, or not.
func (w *forwardWorld) answer(t *testing.T, sender int) {
	box := &w.boxes[sender]
	from := w.tables[w.leader].of(uint64(sender+1), 0)
	for d := w.direct[sender]; len(d) > 0; d = w.direct[sender] {
		offset, _, _ := from.find(d[0])
		if offset > uint64(w.high) {
			break
		}
		w.acked[sender][d[0]] = offset
		w.direct[sender] = d[1:]
	}
	for seq := box.first; seq < box.next() && seq <= from.last; seq++ {
		offset, _, ok := from.find(seq)
		if ok && offset > uint64(w.high) || w.rng.IntN(5) == 0 {
			continue
		}
		m, c, mine := box.settle(seq)
		if !mine {
			continue
		}
		if want := fmt.Sprintf("%d/%d", sender, seq); string(m.Data) != want {
			t.Fatalf("sequence %d of sender %d is %q", seq, sender, m.Data)
		}
		switch box.free(c); {
		case ok:
			w.acked[sender][seq] = offset
		case seq%5 > 0 && !w.restarts:
			t.Fatalf("sequence %d of sender %d isn't known", seq, sender)
		case from.settled[seq].err != nil || !w.restarts:
			w.refused[sender][seq] = true
		default:
			w.unknown++
		}
	}
}

// Whatever is cut, lost, truncated and elected: what is acknowledged stands where it was said, once; nothing that was refused is
// there; each sender's messages stand in their order.
func TestForwardsAgainstAModel(t *testing.T) {
	unknown := 0
	for seed := range uint64(300) {
		w := &forwardWorld{rng: rand.New(rand.NewPCG(seed, 1)), logs: make([][]entry, 2), tables: []*origins{{}, {}}, restarts: seed%2 > 0}
		const senders = 3
		for range senders {
			w.boxes = append(w.boxes, newOutbox())
			w.pending = append(w.pending, nil)
			w.acked = append(w.acked, map[uint64]uint64{})
			w.refused = append(w.refused, map[uint64]bool{})
			w.direct = append(w.direct, nil)
		}
		step := func(quiet bool) {
			i := w.rng.IntN(senders)
			switch n := w.rng.IntN(20); {
			case n < 6 && !quiet && i == w.leader:
				w.take()
			case n < 6 && !quiet:
				for range 1 + w.rng.IntN(5) {
					m := message("orders.a", "", fmt.Sprintf("%d/%d", i, w.boxes[i].next()))
					w.boxes[i].add(&m, 0)
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
			if len(w.direct[i]) > 0 {
				t.Fatalf("seed %d: sender %d has no answer to %d messages that were taken where it is", seed, i, len(w.direct[i]))
			}
			if !w.boxes[i].empty() {
				t.Fatalf("seed %d: sender %d has no answer to %d messages from %d on", seed, i, w.boxes[i].next()-w.boxes[i].first, w.boxes[i].first)
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
