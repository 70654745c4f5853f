package work

import (
	"context"
	"time"
)

// Poll lets a goroutine look often whether there is work, and rarely while nothing happens, so that
// a process at rest is hardly woken. It is used by one goroutine.
type Poll struct {
	Often, Rarely time.Duration // periods, as a Ticker has them
	// Changed returns a channel that is closed when what leads to work changes next. It may be nil.
	Changed func() <-chan struct{}
	// Lively is for how long after its beginning and after a change it looks often, since what
	// changed may lead to work later.
	Lively time.Duration

	change <-chan struct{} // closed: there was a change; nil before the first Wait
	until  time.Time       // it looks often until then
}

// Wait waits until it is time to look again, and reports whether ctx goes on. busy tells that the
// last look found work. A change is not missed if it comes while the caller looks. Many changes at
// once lead to one look.
func (p *Poll) Wait(ctx context.Context, busy bool) bool {
	if p.change == nil {
		p.watch()
	}
	if !busy && !time.Now().Before(p.until) {
		rest := time.NewTimer(untilMultiple(time.Now(), p.Rarely))
		defer rest.Stop()
		select {
		case <-ctx.Done():
			return false
		case <-rest.C:
			return true
		case <-p.change:
		}
	}
	if !SleepToTick(ctx, p.Often) {
		return false
	}
	select {
	case <-p.change:
		p.watch()
	default:
	}
	return true
}

// watch waits for the next change from now on, and looks often for a while.
func (p *Poll) watch() {
	p.until = time.Now().Add(p.Lively)
	if p.change = make(chan struct{}); p.Changed != nil {
		p.change = p.Changed()
	}
}
