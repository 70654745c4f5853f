package sourcing

import "context"

// budget bounds how many bytes are under way, in units of heavyUnit.
type budget struct {
	turn  chan struct{} // held while one takes its units, so that two don't wait for each other
	units chan struct{} // one for each that is taken
}

func newBudget(units int) *budget {
	return &budget{turn: make(chan struct{}, 1), units: make(chan struct{}, units)}
}

// take waits until there is room for some bytes, or for all that there may be, until release.
func (b *budget) take(ctx context.Context, bytes int) (release func(), err error) {
	taken := 0
	release = func() {
		for ; taken > 0; taken-- {
			<-b.units
		}
	}
	select {
	case b.turn <- struct{}{}:
		defer func() { <-b.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for n := min((bytes+heavyUnit-1)/heavyUnit, cap(b.units)); taken < n; taken++ {
		select {
		case b.units <- struct{}{}:
		case <-ctx.Done():
			release()
			return nil, ctx.Err()
		}
	}
	return release, nil
}
