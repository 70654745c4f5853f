package subjectindex

import "slices"

const (
	chunkShift = 12
	chunkSize  = 1 << chunkShift
)

// list is a sequence that grows at its end. A snapshot stays as it is while the list grows and
// shrinks, and may be read by other goroutines meanwhile: elements below the length never change,
// and truncate copies the chunk in which it cuts.
type list[T any] struct {
	chunks [][]T // all but the last have chunkSize elements
	n      int
}

func (l *list[T]) at(i int) *T { return &l.chunks[i>>chunkShift][i&(chunkSize-1)] }

func (l *list[T]) add(v T) {
	if l.n&(chunkSize-1) == 0 && l.n>>chunkShift == len(l.chunks) {
		size := chunkSize
		if l.n == 0 {
			size = 16 // most shards are small
		}
		l.chunks = append(l.chunks, make([]T, 0, size))
	}
	last := &l.chunks[len(l.chunks)-1]
	*last = append(*last, v)
	l.n++
}

// truncate keeps the first n elements.
func (l *list[T]) truncate(n int) {
	if n >= l.n {
		return
	}
	l.chunks = slices.Clone(l.chunks[:(n+chunkSize-1)>>chunkShift])
	if k := len(l.chunks); k > 0 {
		keep := n - (k-1)<<chunkShift
		l.chunks[k-1] = append(make([]T, 0, cap(l.chunks[k-1])), l.chunks[k-1][:keep]...)
	}
	l.n = n
}

func (l *list[T]) snapshot() list[T] { return list[T]{chunks: slices.Clone(l.chunks), n: l.n} }
