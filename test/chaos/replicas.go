package chaos

import (
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/test/durability/checker"
)

// Record is one record of a replica's log.
type Record struct {
	Offset, Epoch uint64
	Time          int64
	Subject       string
	Header        int    // bytes of the content that are its header
	Content       string // header and payload
}

// Copy is one replica's log. It may be trimmed.
type Copy struct {
	Broker     string
	Shard      int
	Start, End uint64
	Records    []Record // by offset, dense except for damaged ones
	Damaged    []Span   // offsets that the log reports as unreadable
}

// Span is the offsets from From up to, not including, Next.
type Span struct{ From, Next uint64 }

func (c Copy) damaged(offset uint64) bool {
	return slices.ContainsFunc(c.Damaged, func(s Span) bool { return offset >= s.From && offset < s.Next })
}

// Judge compares the copy with the history of its shard, except for damaged offsets and those that
// the caller excuses in told.
func (c Copy) Judge(h *checker.History, told ...checker.Range) error {
	var entries []checker.Entry
	for _, r := range c.Records {
		entries = append(entries, checker.Entry{Seq: r.Offset, Payload: []byte(r.Content[r.Header:])})
	}
	for _, d := range c.Damaged {
		told = append(told, checker.Range{From: d.From, Next: d.Next})
	}
	if err := h.Judge(entries, told...).Err(); err != nil {
		return fmt.Errorf("the copy of %s on %s: %w", h.Stream, c.Broker, err)
	}
	return nil
}

// CompareCopies compares the replicas of one log record by record, from the latest start to the
// earliest end. known is an offset that every replica has to reach, since it was read from the log.
// It returns the first finding of each pair of replicas.
func CompareCopies(copies []Copy, known uint64) (findings []string) {
	for _, c := range copies {
		if c.End < known {
			findings = append(findings, fmt.Sprintf("%s ends at %d, and %d was read", c.Broker, c.End, known))
		}
		want := c.Start
		for i, r := range c.Records {
			for c.damaged(want) {
				want++
			}
			if r.Offset != want {
				findings = append(findings, fmt.Sprintf("%s has offset %d where %d is due", c.Broker, r.Offset, want))
				break
			}
			want++
			if i > 0 && r.Epoch < c.Records[i-1].Epoch {
				findings = append(findings, fmt.Sprintf("%s has a record of epoch %d at %d, behind one of %d", c.Broker, r.Epoch, r.Offset, c.Records[i-1].Epoch))
				break
			}
		}
	}
	for i, a := range copies {
		for _, b := range copies[i+1:] {
			differ := func(at uint64) bool {
				one, other := a.at(at), b.at(at)
				return !a.damaged(at) && !b.damaged(at) && (one == nil || other == nil || *one != *other)
			}
			for at, to := max(a.Start, b.Start), min(a.End, b.End); at < to; at++ {
				if differ(at) {
					last := at
					for last+1 < to && differ(last+1) {
						last++
					}
					findings = append(findings, fmt.Sprintf("replicas differ from %d to %d: %s has %s, %s has %s", at, last, a.Broker, a.at(at), b.Broker, b.at(at)))
					break
				}
			}
		}
	}
	return findings
}

func (c Copy) at(offset uint64) *Record {
	i, ok := slices.BinarySearchFunc(c.Records, offset, func(r Record, o uint64) int {
		switch {
		case r.Offset < o:
			return -1
		case r.Offset > o:
			return 1
		}
		return 0
	})
	if !ok {
		return nil
	}
	return &c.Records[i]
}

func (r *Record) String() string {
	if r == nil {
		return "nothing"
	}
	return fmt.Sprintf("%q of epoch %d on %s", r.Content[:min(60, len(r.Content))], r.Epoch, r.Subject)
}
