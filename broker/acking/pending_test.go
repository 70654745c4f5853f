package acking

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/carillon-mq/carillon/broker/sender"
)

// TestAcksInARowAreOneAnswer: whatever is kept in a row, the answers of a Pending name each message
// once, with the offset that it has, and those of records of their own follow each other as one.
func TestAcksInARowAreOneAnswer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Shard
		p := s.New(sender.Back{})
		base := rapid.Uint64Range(1, 1000).Draw(t, "base")
		type kept struct {
			seq, offset uint64
			records     uint32
		}
		var want []kept
		seq, offset, breaks := uint64(1), base, 0
		joins := false // the next message continues the last answer
		for range rapid.IntRange(1, 50).Draw(t, "messages") {
			records := uint32(0)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				records = uint32(rapid.IntRange(1, 9).Draw(t, "records"))
			case 1:
				seq, joins = seq+1, false // a message between them is refused
			}
			if records > 0 || !joins {
				breaks++
			}
			offset += uint64(max(records, 1)) - 1
			p.Kept(base, Answer{Offset: offset, Records: records, Seq: seq})
			want = append(want, kept{seq, offset, records})
			seq, offset, joins = seq+1, offset+1, records == 0
		}
		var got []kept
		for _, a := range p.Answers {
			for i := range uint64(a.More) + 1 {
				got = append(got, kept{a.Seq + i, a.Offset + i, a.Records})
			}
		}
		if len(p.Answers) != breaks || p.Messages() != int64(len(want)) || p.Rest() != offset-1 {
			t.Fatalf("%d answers to %d messages up to %d, want %d to %d up to %d", len(p.Answers), p.Messages(), p.Rest(), breaks, len(want), offset-1)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("message %d is answered as %+v, want %+v", i, got[i], want[i])
			}
		}
		p.Free()
	})
}
