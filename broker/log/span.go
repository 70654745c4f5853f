package log

import "slices"

// Span is a range of offsets: From ≤ offset < Next.
type Span struct {
	From uint64 `json:"from"`
	Next uint64 `json:"next"`
}

// AddSpan returns sorted spans with the offsets of s added. Spans that touch each other are one.
func AddSpan(spans []Span, s Span) (all []Span) {
	before, behind := 0, len(spans)
	for i, other := range spans {
		switch {
		case other.Next < s.From:
			before = i + 1
		case other.From > s.Next:
			behind = min(behind, i)
		default:
			s = Span{From: min(s.From, other.From), Next: max(s.Next, other.Next)}
		}
	}
	return slices.Concat(spans[:before], []Span{s}, spans[behind:])
}
