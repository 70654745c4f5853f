package admission

import (
	"cmp"
	"slices"
	"time"
)

// Eviction is a claim that gives way. Its owner calls Return or Close soon; until then it is held.
type Eviction[T any] struct {
	Owner   T
	Size    int64         // bytes of the claim
	Arrived int64         // bytes of its operation that have arrived
	Held    time.Duration // since it was granted
}

// Evict measures the rates of held claims, and evicts those that give way to claims that have
// waited for Patience: the slowest since they were granted, of those below Floor, and no more than
// it takes. It is to be called at least once a second.
func (b *Budget[T]) Evict(now time.Time) []Eviction[T] {
	paused := now.Sub(b.looked) > Pause
	b.looked = now
	for _, c := range b.held {
		c.measure(now, paused)
	}
	if b.waits == 0 || !b.count(now) {
		return nil
	}
	kept := b.used
	b.slow = b.slow[:0]
	for _, c := range b.held {
		if c.evicted {
			kept -= c.size
			c.from.kept -= c.size
		} else if c.slow {
			b.slow = append(b.slow, c)
		}
	}
	slices.SortFunc(b.slow, func(x, y *Claim[T]) int { return cmp.Compare(x.rate(now), y.rate(now)) })
	var gone []Eviction[T]
	evict := func(c *Claim[T]) {
		c.evicted = true
		kept -= c.size
		c.from.kept -= c.size
		gone = append(gone, Eviction[T]{c.Owner, c.size, c.arrived.Load(), now.Sub(c.since)})
	}
	for _, c := range b.slow {
		if a := c.from; a.overdue > 0 && a.kept+a.overdue > b.share {
			evict(c)
		}
	}
	wanted := int64(0)
	for _, a := range b.turns {
		wanted += a.wants(b.share)
	}
	for _, c := range b.slow {
		if !c.evicted && kept+wanted > b.size {
			evict(c)
		}
	}
	clear(b.slow)
	return gone
}

// count prepares the scratch of all addresses that hold or wait, and reports whether a claim has
// waited for Patience.
func (b *Budget[T]) count(now time.Time) (overdue bool) {
	for _, c := range b.held {
		c.from.kept, c.from.overdue = c.from.held, 0
	}
	for _, a := range b.turns {
		a.kept, a.overdue = a.held, 0
		for _, c := range a.waiting {
			if now.Sub(c.since) < Patience {
				break // later ones came later
			}
			a.overdue += c.size
			overdue = true
		}
	}
	return overdue
}

// wants returns the bytes that the address has waited for too long and that its share allows.
func (a *address[T]) wants(share int64) (bytes int64) {
	for _, c := range a.waiting {
		if bytes += c.size; bytes > a.overdue || a.kept+bytes > share && a.kept+bytes > c.size {
			return bytes - c.size
		}
	}
	return bytes
}

// measure looks at what has arrived for a held claim since its Window began. A Window ends when
// that is enough, when its time is over, and at a pause.
func (c *Claim[T]) measure(now time.Time, paused bool) {
	took, arrived := now.Sub(c.marked), c.arrived.Load()
	enough := float64(arrived-c.mark) >= Floor*took.Seconds()
	if !enough && !paused && took < Window {
		return
	}
	c.slow = !enough && !paused
	c.mark, c.marked = arrived, now
}

// rate returns the bytes per second of a held claim since it was granted.
func (c *Claim[T]) rate(now time.Time) float64 {
	return float64(c.arrived.Load()-c.first) / max(now.Sub(c.since).Seconds(), 1e-9)
}
