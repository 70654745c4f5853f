package route

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/session"
)

// flat returns the bytes of a queue and frees it.
func flat(f *frames) []byte {
	var all []byte
	head := f.take()
	for c := head; c != nil; c = c.next {
		all = append(all, c.data[:c.used]...)
	}
	discard(head)
	return all
}

func TestFramesOnTheWire(t *testing.T) {
	var f frames
	f.interest(session.Interest{Pattern: "a.*", Queue: "q", Count: 2})
	f.message(&session.Message{Subject: []byte("s"), Reply: []byte("r"), Header: 2, Data: []byte("hhdd")}, session.Reach{Plain: true, Queues: []string{"q"}}, 4)
	f.message(&session.Message{To: []byte("i"), Subject: []byte("s"), Data: []byte("dd")}, session.Reach{Keep: true}, 4)
	f.token(framePing, 258)
	f.empty(frameLeaving)
	want := "0000000b" + "03" + "00000002" + "0001" + "71" + "612e2a" + // interest
		// a message
		"00000017" + "06" + "01" + "0001" + "0000" + "0001" + "0001" + "00000002" + "73" + "72" + "000171" + "68686464" +
		// a message for Takers
		"00000012" + "06" + "02" + "0000" + "0001" + "0001" + "0000" + "00000000" + "69" + "73" + "6464" +
		"00000009" + "07" + "0000000000000102" + // ping
		"00000001" + "09" // leaving
	if got := hex.EncodeToString(flat(&f)); got != want {
		t.Errorf("the link protocol changed, which needs a new version of it:\n got %s\nwant %s", got, want)
	}
}

func TestFramesSurviveAnySplitting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type sent struct {
			to, subject, reply, data string
			header                   int
			plain, keep              bool
			queues                   []string
		}
		var f frames
		var all []sent
		for range rapid.IntRange(1, 20).Draw(t, "messages") {
			data := rapid.StringN(0, -1, 100).Draw(t, "data")
			if rapid.IntRange(0, 9).Draw(t, "large") == 0 {
				data = strings.Repeat(data+"x", 3000)
			}
			s := sent{
				to: rapid.StringN(0, -1, 20).Draw(t, "to"), keep: rapid.Bool().Draw(t, "keep"),
				subject: rapid.StringN(1, -1, 50).Draw(t, "subject"), reply: rapid.StringN(0, -1, 20).Draw(t, "reply"),
				data: data, header: rapid.IntRange(0, len(data)).Draw(t, "header"), plain: rapid.Bool().Draw(t, "plain"),
				queues: rapid.SliceOfN(rapid.StringN(1, -1, 20), 0, 4).Draw(t, "queues"),
			}
			if !s.plain && !s.keep && len(s.queues) == 0 {
				s.plain = true
			}
			m := session.Message{To: []byte(s.to), Subject: []byte(s.subject), Reply: []byte(s.reply), Header: s.header, Data: []byte(s.data)}
			if f.message(&m, session.Reach{Plain: s.plain, Keep: s.keep, Queues: s.queues}, 1<<20) != 1 {
				t.Fatal("not one frame")
			}
			all = append(all, s)
		}
		wire := flat(&f)
		var source io.Reader = bytes.NewReader(wire)
		switch rapid.IntRange(0, 2).Draw(t, "split") {
		case 0:
			source = iotest.OneByteReader(source)
		case 1:
			source = iotest.HalfReader(source)
		}
		in := newReader(source)
		in.limit = 1<<20 + frameOverhead
		var d decoder
		for i, want := range all {
			typ, body, err := in.one()
			if err != nil || typ != frameMessage {
				t.Fatalf("frame %d: type %d, %v", i, typ, err)
			}
			m, reach, err := d.decode(body)
			if err != nil {
				t.Fatal(err)
			}
			if string(m.To) != want.to || string(m.Subject) != want.subject || string(m.Reply) != want.reply || string(m.Data) != want.data || m.Header != want.header ||
				reach.Plain != want.plain || reach.Keep != want.keep || strings.Join(reach.Queues, "\x00") != strings.Join(want.queues, "\x00") {
				t.Fatalf("frame %d: got %q %q %d %+v, want %+v", i, m.Subject, m.Reply, m.Header, reach, want)
			}
		}
		if _, _, err := in.one(); err != io.EOF {
			t.Fatalf("after the last frame: %v", err)
		}
	})
}

func TestABufferGrowsWithTheBytesNotWithTheClaim(t *testing.T) {
	claim := binary.BigEndian.AppendUint32(nil, 60<<20)
	in := newReader(io.MultiReader(bytes.NewReader(claim), bytes.NewReader(make([]byte, 100<<10))))
	in.limit = maxPayloadCeiling + frameOverhead
	if _, _, err := in.one(); err != io.ErrUnexpectedEOF {
		t.Errorf("half a frame: %v", err)
	}
	if len(in.buf) > 256<<10 {
		t.Errorf("a claim of 60 MiB and 100 KiB of bytes took a buffer of %d", len(in.buf))
	}
}

func TestABufferShrinksAgain(t *testing.T) {
	var f frames
	f.message(&session.Message{Subject: []byte("s"), Data: make([]byte, 1<<20)}, session.Reach{Plain: true}, 1<<20)
	for range 3 * shrinkAfter {
		f.message(&session.Message{Subject: []byte("s"), Data: make([]byte, 100)}, session.Reach{Plain: true}, 1<<20)
	}
	wire := flat(&f)
	large := len(wire) - 3*shrinkAfter*(headerSize+messageSize+1+100)
	in := newReader(io.MultiReader(bytes.NewReader(wire[:large]), iotest.DataErrReader(smallReads{bytes.NewReader(wire[large:])})))
	in.limit = 2 << 20
	for {
		if _, _, err := in.one(); err != nil {
			break
		}
	}
	if len(in.buf) != readSize {
		t.Errorf("after many small frames the buffer has %d bytes", len(in.buf))
	}
}

type smallReads struct{ io.Reader }

func (r smallReads) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 200)]) }

// FuzzFrames feeds a reader with arbitrary bytes. It must not panic nor read outside of a frame,
// and what it accepts must encode to the same bytes.
func FuzzFrames(f *testing.F) {
	var seed frames
	seed.interest(session.Interest{Pattern: "a.*", Queue: "q", Count: 2})
	seed.message(&session.Message{Subject: []byte("s"), Reply: []byte("r"), Header: 2, Data: []byte("hhdd")}, session.Reach{Plain: true, Queues: []string{"q", "long queue name"}}, 4)
	seed.message(&session.Message{To: []byte("inbox"), Subject: []byte("s"), Reply: []byte("r"), Data: []byte("d")}, session.Reach{Keep: true}, 4)
	seed.token(framePing, 1)
	seed.empty(frameReady)
	f.Add(flat(&seed))
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 6})
	f.Add([]byte{0, 0, 0, 12, 6, 1, 0xff, 0xff, 0, 1, 0, 0, 0, 0, 0, 0, 's'})
	f.Add([]byte("\x00\x00\x00\x15\x01{\"magic\":\"carillon\"}"))
	f.Fuzz(func(t *testing.T, wire []byte) {
		in := newReader(bytes.NewReader(wire))
		var d decoder
		for {
			typ, body, err := in.one()
			if err != nil {
				return
			}
			var again frames
			switch typ {
			case frameMessage:
				m, reach, err := d.decode(body)
				if err != nil {
					return
				}
				if m.Header > len(m.Data) || len(m.Subject) == 0 {
					t.Fatalf("impossible message %+v", m)
				}
				for _, queue := range reach.Queues {
					if queue == "" {
						return
					}
				}
				if body[0] > flagPlain|flagKeep || (!reach.Plain && !reach.Keep && len(reach.Queues) == 0) {
					return // Accepted, but our encoder would not write it.
				}
				again.message(m, reach, maxHello)
			case frameInterest:
				change, err := parseInterest(body)
				if err != nil {
					return
				}
				again.interest(change)
			case framePing, framePong:
				token, err := parseToken(body)
				if err != nil {
					return
				}
				again.token(typ, token)
			case frameHello:
				if h, refused := parseHello(body); refused == nil {
					_ = (hello{Newest: 1, Oldest: 1}).judge(h, kindCore)
				}
				return
			case frameRefused:
				_ = parseRefusal(body)
				return
			default:
				return
			}
			if got := flat(&again); !bytes.Equal(got[headerSize:], body) {
				t.Fatalf("type %d: read %x, wrote %x", typ, body, got[headerSize:])
			}
		}
	})
}
