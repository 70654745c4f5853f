package subjectindex

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/env/crashfs"
)

// committed is a log as readers see it. Records below high never change.
type committed struct {
	of   []uint8 // number of the subject, by offset
	high atomic.Uint64
	low  atomic.Uint64 // what may have been trimmed is below
}

func (c *committed) Subjects(from, to uint64, record func(offset uint64, n int, subject []byte) error, _ func(from, to uint64) error) error {
	if to > c.high.Load() {
		return errors.New("not committed yet")
	}
	for offset := from; offset < to; offset++ {
		if err := record(offset, 1, subjectNumber(c.of[offset])); err != nil {
			return err
		}
	}
	return nil
}

func subjectNumber(n uint8) []byte { return fmt.Appendf(nil, "s.%d.%d", n%5, n) }

// While one goroutine appends, truncates, rolls, seals, replaces and trims, and another one works,
// readers get exact answers about what is committed.
func TestReadersBesideChanges(t *testing.T) {
	const records = 60_000
	fs := crashfs.New()
	log := &committed{of: make([]uint8, records+1000)}
	log.high.Store(1)
	wake := make(chan struct{}, 1)
	s, err := Open(context.Background(), Config{FS: fs, Dir: "index", Cache: NewCache(fs, 256<<10), Secret: testSecret, Source: log, PartBytes: 16 << 10,
		Wake: func() {
			select {
			case wake <- struct{}{}:
			default:
			}
		}}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for {
			if err := s.drain(context.Background()); err != nil && err.Error() != "not committed yet" {
				t.Error(err)
				return
			}
			select {
			case <-wake:
			case <-ctx.Done():
				return
			}
		}
	})
	for reader := range uint64(3) {
		all.Go(func() { log.read(ctx, t, s, reader) })
	}
	log.write(s, records)
	end()
	all.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if s.Stats().Written == 0 {
		t.Error("no index file was written")
	}
}

// write makes the changes.
func (c *committed) write(s *Shard, records uint64) {
	rng := rand.New(rand.NewPCG(4, 4))
	g := Segment{Base: 1}
	s.Roll(g)
	var sealed []Segment
	for next := uint64(1); next < records; {
		s.Begin()
		for range 1 + rng.IntN(100) {
			n := uint8(rng.IntN(200))
			c.of[next] = n
			s.Add(next, 1, subjectNumber(n))
			next++
		}
		s.End()
		switch rng.IntN(20) {
		case 0:
			next = c.high.Load() + rng.Uint64N(next-c.high.Load()+1)
			s.Truncate(next)
			if next == g.Base {
				g.Base = 0
			}
		case 1:
			low := c.high.Load() / 2
			c.low.Store(max(low, c.low.Load()))
			s.Trim(low)
		case 2:
			c.high.Store(next)
		case 3:
			if n := len(sealed); n > 2 {
				fresh := Segment{Base: sealed[n-2].Base, Generation: next}
				end := sealed[n-1].Base
				if s.Replace([]Segment{sealed[n-2]}, fresh, end, rng.IntN(2) == 0, nil) == nil {
					sealed[n-2] = fresh
				}
			}
			continue
		default:
			continue
		}
		c.high.Store(max(c.high.Load(), next-rng.Uint64N(next-c.high.Load()+1)))
		if g.Base > 0 && g.Base < c.high.Load() { // as much as is sealed is committed here
			c.high.Store(next)
			sealed = append(sealed, g)
			old := g
			g = Segment{Base: next, Generation: next}
			s.Roll(g)
			s.Sealed(old, 0)
		} else if g.Base == 0 || g.Base >= next {
			g = Segment{Base: next, Generation: next}
			s.Roll(g)
		}
	}
}

// read asks until ctx ends.
func (c *committed) read(ctx context.Context, t *testing.T, s *Shard, reader uint64) {
	rng := rand.New(rand.NewPCG(reader, 5))
	counters := map[uint8]*Counter{}
	for n := 0; ctx.Err() == nil && !t.Failed(); n++ {
		in := Range{To: c.high.Load()}
		in.From = max(1, in.To*3/4)
		of := uint8(rng.IntN(220))
		var want Info
		matching := uint64(0)
		for offset := in.From; offset < in.To; offset++ {
			if c.of[offset] == of {
				want.add(Info{Count: 1, First: offset, Last: offset})
			}
			if c.of[offset]%5 == of%5 {
				matching++
			}
		}
		expect := func(what string, err error, ok bool) {
			missing := (*MissingError)(nil)
			if !ok && c.low.Load() <= in.From && !errors.As(err, &missing) {
				t.Errorf("%s of %d in %v is wrong: %v", what, of, in, err)
			}
		}
		subject := subjectNumber(of)
		last, err := s.Last(context.Background(), subject, in)
		expect("the last record", err, err == nil && last == want.Last)
		info, err := s.Info(context.Background(), subject, in)
		expect("info", err, err == nil && info == want)
		f, _ := NewFilter(fmt.Sprintf("s.%d.*", of%5))
		count, err := s.Count(context.Background(), f, in)
		expect("the count", err, err == nil && count == matching)
		if counters[of%5] == nil {
			counters[of%5] = s.NewCounter(f)
		}
		count, err = counters[of%5].Count(context.Background(), in)
		expect("the kept count", err, err == nil && count == matching)
		if n%8 == 0 {
			_, err = s.NumSubjects(context.Background(), in)
			expect("the number of subjects", err, err == nil)
			_ = s.Resolve(context.Background(), subject)
			s.Known(subject)
		}
	}
}
