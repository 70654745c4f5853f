package session

import "time"

// Bounds of what a loop serves before it writes. With smaller portions a flood to hundreds of
// connections is written a few bytes at a time, and its queue takes longer altogether: at 500
// receivers a portion of 4,096 has 8 messages for each, and the writes take most of the time.
const (
	portionDeliveries = 8 << 10 // half of what a loop may have queued
	portionTime       = time.Millisecond
	// clockEvery is the number of deliveries after which the clock is read, since reading it takes
	// as long as a delivery.
	clockEvery = 64
	// largeStep is how many bytes of a message take as long as the delivery of a small one.
	largeStep = 4 << 10
)

// portion measures what a loop has served since its last writes.
type portion struct {
	deliveries int // entries without receivers count as one
	bytes      int // of messages that are served to all receivers
	steps      int // since the clock was read
	began      time.Time
}

// count adds deliveries of a message of the given size.
func (p *portion) count(deliveries, size int) {
	p.deliveries += deliveries
	p.steps += deliveries * (1 + size/largeStep)
}

// full reports whether it is time to write.
func (p *portion) full() bool {
	if p.deliveries >= portionDeliveries {
		return true
	}
	if p.steps < clockEvery {
		return false
	}
	p.steps = 0
	now := time.Now()
	if p.began.IsZero() {
		p.began = now
	}
	return now.Sub(p.began) >= portionTime
}

// strideOf returns how many deliveries of a message of that size are made before full is asked.
func strideOf(size int) int { return max(1, clockEvery/(1+size/largeStep)) }
