package topic

import (
	"context"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/clock"
)

// testMachine is a machine whose time passes, and whose wall clock jumps, as a test says.
type testMachine struct {
	dir          string
	base         time.Time
	passed, jump atomic.Int64
	boots        int
	forgets      bool         // what the last life saved
	clock        *clock.Clock // of the broker on it; nil: there was none yet
	end          func()       // ends that life
}

func newMachine(t testing.TB) *testMachine { return &testMachine{dir: t.TempDir(), base: time.Now()} }

func (m *testMachine) mono() int64 {
	return int64(time.Since(m.base)) + m.passed.Load() + int64(time.Hour)
}

func (m *testMachine) wall() time.Time {
	return time.Now().Add(time.Duration(m.passed.Load() + m.jump.Load()))
}

// start begins a life of the broker on the machine.
func (m *testMachine) start() *clock.Clock {
	c := clock.Config{Wall: m.wall, Mono: m.mono, Boot: strconv.Itoa(m.boots)}
	if !m.forgets {
		c.Store = clock.File(filepath.Join(m.dir, "clock.json"))
	}
	m.clock = clock.New(c)
	return m.clock
}

// run has the clock of this life observed until it ends.
func (m *testMachine) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { m.clock.Run(ctx); close(ended) }()
	m.end = func() {
		cancel()
		<-ended
		m.clock.Save()
	}
}

// pass lets time pass.
func (m *testMachine) pass(d time.Duration) {
	m.passed.Add(int64(d))
	m.clock.Observe()
}

// set has the wall clock be wrong by so much.
func (m *testMachine) set(wrong time.Duration) {
	m.jump.Store(int64(wrong))
	m.clock.Observe()
}
