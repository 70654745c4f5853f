package replica

import (
	"bytes"
	"io"
	"math"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
	"github.com/carillon-mq/carillon/broker/log"
)

var (
	someAsk = ask{requestHead: requestHead{stream: 7, round: 3, ID: ID{"t0pic", 12}, epoch: 5}, incarnation: 99, safe: [Parts]uint64{10, 1},
		logs: [Parts]Lineage{{Start: 3, End: 20, Epochs: []log.Epoch{{Epoch: 2, Start: 1}, {Epoch: 5, Start: 11}}}, {Start: 1, End: 1, Epochs: []log.Epoch{}}}}
	someVerdict = verdict{stream: 7, round: 3, parts: [Parts]Verdict{{Truncate, 11}, {Copy, 1}}}
	someRefusal = refusal{stream: 7, round: 3, epoch: 6, why: "this broker doesn't lead it"}
	someMarks   = marks{high: [Parts]uint64{9, 1}, start: [Parts]uint64{3, 1}}
	someFetch   = fetch{requestHead: someAsk.requestHead, part: State, span: log.Span{From: 4, Next: 9}, log: someAsk.logs[0]}
	someExtent  = extent{known: true, lacks: [Parts][]log.Span{{{From: 4, Next: 9}, {From: 20, Next: math.MaxUint64}}, nil}, own: ownRecord{2, 8}}
	tellsFetch  = fetch{requestHead: someAsk.requestHead, part: State, span: someFetch.span, log: someAsk.logs[0], extent: &someExtent}
	somePiece   = piece{stream: 7, round: 3, start: 2, batches: []byte("batches")}
	someProbe   = probe{stream: 7, round: 3, epoch: 5, number: 11}
	someClock   = clockFrame{sent: 5, returns: true, echo: 3, held: 2, vote: clock.Vote{Time: 1_700_000_000_000_000_000, State: clock.Held, Age: time.Hour}}
	someData    = data{stream: 7, part: State, promised: true, marks: someMarks, batches: []byte("batches")}
)

// session returns one frame of each type.
func session() []byte {
	b := appendBeat(nil)
	b = appendAsk(b, &someAsk)
	b = appendAck(b, 7, State, 17)
	b = appendLeave(b, 7)
	b = appendVerdict(b, &someVerdict)
	b = appendRefusal(b, &someRefusal)
	b = appendRetry(b, 7, 3)
	b = append(appendDataHeader(b, &someData, len(someData.batches)), someData.batches...)
	b = appendHigh(b, 7, &someMarks)
	b = appendFetch(b, &someFetch)
	b = appendFetch(b, &tellsFetch)
	b = appendProbe(b, frameProbe, &someProbe)
	b = appendProbe(b, frameConfirm, &someProbe)
	b = appendClock(b, &someClock)
	return append(appendPieceHeader(b, &somePiece, len(somePiece.batches)), somePiece.batches...)
}

// parse parses a body with the parser of its type.
func parse(t frameType, body []byte) (any, error) {
	switch t {
	case frameAsk:
		return parseAsk(body)
	case frameAck:
		stream, p, safe, err := parseAck(body)
		return []any{stream, p, safe}, err
	case frameLeave:
		return parseLeave(body)
	case frameVerdict:
		return parseVerdict(body)
	case frameRefused:
		return parseRefusal(body)
	case frameRetry:
		stream, round, err := parseRetry(body)
		return []any{stream, round}, err
	case frameData:
		return parseData(body)
	case frameHigh:
		stream, m, err := parseHigh(body)
		return []any{stream, m}, err
	case frameFetch:
		return parseFetch(body)
	case framePiece:
		return parsePiece(body)
	case frameProbe, frameConfirm:
		return parseProbe(body)
	case frameClock:
		return parseClock(body)
	}
	return nil, nil
}

func TestFramesArriveAsTheyWereSent(t *testing.T) {
	want := []any{nil, &someAsk, []any{uint32(7), State, uint64(17)}, uint32(7), someVerdict, someRefusal, []any{uint32(7), uint32(3)}, someData, []any{uint32(7), someMarks}, &someFetch, &tellsFetch, someProbe, someProbe, someClock, somePiece}
	for name, source := range map[string]io.Reader{"whole": bytes.NewReader(session()), "byte by byte": iotest.OneByteReader(bytes.NewReader(session()))} {
		r := newReader(source, 16, maxAsk)
		for i := 0; ; {
			ft, body, ok, err := r.next()
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				if got, err := parse(ft, bytes.Clone(body)); err != nil || !reflect.DeepEqual(got, want[i]) {
					t.Errorf("%s: frame %d is %+v, %v; want %+v", name, i, got, err, want[i])
				}
				i++
				continue
			}
			if _, err := r.fill(); err == io.EOF {
				if i != len(want) {
					t.Errorf("%s: %d frames of %d", name, i, len(want))
				}
				break
			}
		}
	}
}

// tells returns a fetch that says what its follower lacks.
func tells(e extent) *fetch {
	q := someFetch
	q.extent = &e
	return &q
}

func TestInvalidFramesAreRefused(t *testing.T) {
	spoil := func(change func(*ask)) []byte {
		a := someAsk
		a.logs[Data].Epochs = append([]log.Epoch(nil), a.logs[Data].Epochs...)
		change(&a)
		return appendAsk(nil, &a)
	}
	for what, frame := range map[string][]byte{
		"safe beyond its end":        spoil(func(a *ask) { a.safe[Data] = 21 }),
		"end before its start":       spoil(func(a *ask) { a.logs[State].End = 0 }),
		"epochs that go back":        spoil(func(a *ask) { a.logs[Data].Epochs[1].Epoch = 2 }),
		"epochs out of order":        spoil(func(a *ask) { a.logs[Data].Epochs[1].Start = 1 }),
		"an epoch of nothing":        spoil(func(a *ask) { a.logs[Data].Epochs[1].Start = 20 }),
		"no epoch":                   spoil(func(a *ask) { a.epoch = 0 }),
		"no life":                    spoil(func(a *ask) { a.incarnation = -1 }),
		"no topic":                   spoil(func(a *ask) { a.Topic = "" }),
		"too many epochs":            spoil(func(a *ask) { a.logs[Data].Epochs = make([]log.Epoch, MaxLineage+1) }),
		"an ack of another part":     appendAck(nil, 7, Parts, 1),
		"an unknown verb":            appendVerdict(nil, &verdict{parts: [Parts]Verdict{{Reset + 1, 1}}}),
		"data of another part":       appendDataHeader(nil, &data{part: Parts}, 0),
		"a fetch of nothing":         appendFetch(nil, &fetch{requestHead: someFetch.requestHead, span: log.Span{From: 4, Next: 4}, log: someFetch.log}),
		"a fetch of no part":         appendFetch(nil, &fetch{requestHead: someFetch.requestHead, part: Parts, span: someFetch.span, log: someFetch.log}),
		"a fetch in no epoch":        appendFetch(nil, &fetch{requestHead: requestHead{ID: someFetch.ID}, span: someFetch.span, log: someFetch.log}),
		"a fetch for no log":         appendFetch(nil, &fetch{requestHead: someFetch.requestHead, span: someFetch.span, log: Lineage{Start: 5, End: 3}}),
		"damage out of order":        appendFetch(nil, tells(extent{lacks: [Parts][]log.Span{{{From: 4, Next: 9}, {From: 8, Next: 10}}}})),
		"damage of nothing":          appendFetch(nil, tells(extent{lacks: [Parts][]log.Span{{{From: 4, Next: 4}}}})),
		"a piece of no kind":         appendPieceHeader(nil, &piece{kind: pieceKinds}, 0),
		"own records without an end": appendPieceHeader(nil, &piece{kind: pieceOwn}, 0),
		"a piece of others":          append(appendPieceHeader(nil, &piece{kind: pieceDiverged}, 7), "batches"...),
	} {
		r := newReader(bytes.NewReader(frame), 64, maxAsk)
		for {
			ft, body, ok, err := r.next()
			if err != nil {
				break // too long
			}
			if ok {
				if got, err := parse(ft, body); err == nil {
					t.Errorf("%s: it is %+v", what, got)
				}
				break
			}
			if _, err := r.fill(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
		}
	}
	// Each frame truncated or with an additional byte, unless it ends with a text or batches.
	for rest := session(); len(rest) > 0; {
		n := 4 + int(be.Uint32(rest))
		ft, body := frameType(rest[4]), rest[frameHeader:n]
		rest = rest[n:]
		for _, wrong := range [][]byte{body[:max(len(body)-8, 0)], append(bytes.Clone(body), 1)} {
			if (ft == frameProbe || ft == frameConfirm || ft == frameClock) && len(wrong) > len(body) {
				continue // later versions append to them
			}
			if _, err := parse(ft, wrong); err == nil && ft != frameBeat && ft != frameRefused && ft != frameData && ft != framePiece {
				t.Errorf("frame %d with %d bytes instead of %d was taken", ft, len(wrong), len(body))
			}
		}
	}
	if r := appendRefusal(nil, &refusal{why: strings.Repeat("x", 2*maxReason)}); len(r) > maxReason+64 {
		t.Errorf("a refusal of %d bytes", len(r))
	}
}

// TestAReadBufferGrowsWithReceivedBytes: a reader's buffer grows with what was received, not with
// what the header claims, and shrinks again.
func TestAReadBufferGrowsWithReceivedBytes(t *testing.T) {
	claim := be.AppendUint32(nil, maxFrame)
	r := newReader(bytes.NewReader(claim), 1<<10, maxFrame)
	_, _ = r.fill()
	_, _ = r.fill()
	if len(r.buf) > 1<<10 {
		t.Errorf("a claim of %d bytes made a buffer of %d", maxFrame, len(r.buf))
	}
	large := append(appendDataHeader(nil, &someData, 100<<10), make([]byte, 100<<10)...)
	large = append(large, bytes.Repeat(appendBeat(nil), 2*shrinkAfter*(1<<10)/5)...)
	r = newReader(iotest.HalfReader(bytes.NewReader(large)), 1<<10, maxFrame)
	grown := 0
	for {
		for {
			if _, _, ok, err := r.next(); err != nil {
				t.Fatal(err)
			} else if !ok {
				break
			}
		}
		if _, err := r.fill(); err != nil {
			break
		}
		grown = max(grown, len(r.buf))
	}
	if grown < 100<<10 {
		t.Errorf("it had %d bytes at most", grown)
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(session())
	f.Add(appendAsk(nil, &someAsk))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := newReader(bytes.NewReader(stream), 64, maxAsk)
		for {
			ft, body, ok, err := r.next()
			if err != nil {
				return
			}
			if !ok {
				if _, err := r.fill(); err != nil {
					return
				}
				continue
			}
			got, err := parse(ft, body)
			if a, is := got.(*ask); is && err == nil {
				if again := appendAsk(nil, a); !bytes.Equal(again[frameHeader:], body) {
					t.Errorf("%x became %x", body, again)
				}
				for p := range Parts { // Whatever a peer sends, a verdict can be carried out.
					v := Compare(Lineage{Start: 5, End: 9, Epochs: []log.Epoch{{Epoch: 1, Start: 2}, {Epoch: 4, Start: 7}}}, a.logs[p])
					if v.Verb != Reset && (v.At < 5 || v.At > 9 || v.At > a.logs[p].End) {
						t.Errorf("%+v: %+v", a.logs[p], v)
					}
				}
			}
		}
	})
}
