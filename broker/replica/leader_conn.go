package replica

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/work"
)

// leaderDialer keeps a connection to one leader as long as a shard is followed from there.
type leaderDialer struct {
	x      *Exchange
	broker string
	wake   chan struct{}

	// Guarded by Exchange.mu.
	shards  map[*Following]struct{}
	conn    *leaderConn
	lastErr error
}

func newLeaderDialer(x *Exchange, broker string) *leaderDialer {
	return &leaderDialer{x: x, broker: broker, wake: make(chan struct{}, 1),
		shards: make(map[*Following]struct{}), lastErr: errors.New("not tried yet")}
}

// dialNow makes the dialer connect at once.
func (fd *leaderDialer) dialNow() {
	select {
	case fd.wake <- struct{}{}:
	default:
	}
}

func (fd *leaderDialer) lastError() error {
	fd.x.mu.Lock()
	defer fd.x.mu.Unlock()
	return fd.lastErr
}

// run connects, and connects again after each end.
func (fd *leaderDialer) run() {
	x := fd.x
	pause := redialMin
	for {
		x.mu.Lock()
		if x.closed || len(fd.shards) == 0 {
			if x.dialers[fd.broker] == fd {
				delete(x.dialers, fd.broker)
			}
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
		began := time.Now()
		err := fd.connect()
		if time.Since(began) > steadyAfter {
			pause = redialMin
		}
		x.mu.Lock()
		fd.lastErr = err
		x.mu.Unlock()
		timer := time.NewTimer(pause/2 + rand.N(pause/2))
		select {
		case <-timer.C:
			pause = min(2*pause, redialMax)
		case <-fd.wake:
			pause = redialMin
		case <-x.ctx.Done():
		}
		timer.Stop()
	}
}

// connect makes one connection and serves it until it ends.
func (fd *leaderDialer) connect() error {
	x := fd.x
	ctx, cancel := context.WithTimeout(x.ctx, dialTimeout)
	conn, err := x.config.Dial(ctx, fd.broker)
	cancel()
	if err != nil {
		x.log.Debug("Could not reach a leader", "leader", fd.broker, "error", err)
		return err
	}
	in := &leaderConn{dialer: fd, streams: make(map[uint32]*Following)}
	in.init(x, conn, fd.broker)
	if peer, says := conn.(interface{ SendsSegments() bool }); says {
		in.noFetch = !peer.SendsSegments()
	}
	in.extents = announces(conn, coordination.FeatureExtents)
	in.ctx, in.cancel = context.WithCancel(x.ctx)
	defer in.cancel()
	x.mu.Lock()
	if x.closed || len(fd.shards) == 0 {
		x.mu.Unlock()
		in.fail(errIdle)
		return errIdle
	}
	fd.conn = in
	shards := slices.SortedFunc(maps.Keys(fd.shards), func(a, b *Following) int {
		return cmp.Or(strings.Compare(a.config.Topic, b.config.Topic), cmp.Compare(a.config.ID.Shard, b.config.ID.Shard))
	})
	x.mu.Unlock()
	x.log.Debug("Connected to a leader", "leader", fd.broker, "shards", len(shards))
	in.serve(shards)
	x.ended(&in.connection, "leader")
	return in.err
}

// leaderConn is the follower's end of a connection to one leader broker.
type leaderConn struct {
	connection
	dialer *leaderDialer
	ctx    context.Context
	cancel context.CancelFunc
	// acksReady reports acks that are due and that no committer will signal. Reader only.
	acksReady bool
	noFetch   bool // the leader is of a version without fetches
	extents   bool // the leader's version understands what a follower says of its own damage

	mu         sync.Mutex
	last       uint32 // newest stream number
	streams    map[uint32]*Following
	asks       []*Following
	acks       []*Following
	probes     []*Following // with a barrier round to confirm
	backingOff []*Following
	leaves     []uint32
}

func (in *leaderConn) serve(shards []*Following) {
	var writer sync.WaitGroup
	writer.Go(func() {
		in.fail(in.write())
		in.cancel()
	})
	for _, f := range shards {
		f.mu.Lock()
		f.connect(in)
		f.mu.Unlock()
	}
	in.fail(in.read(newReader(in.conn, dataBuffer, maxFrame), in.handle, in.allHandled))
	in.cancel()
	writer.Wait()
	x := in.x
	x.mu.Lock()
	in.dialer.conn = nil
	x.mu.Unlock()
	in.mu.Lock()
	streams := in.streams
	in.streams = nil
	in.mu.Unlock()
	for _, f := range streams {
		f.mu.Lock()
		f.disconnected(in)
		f.mu.Unlock()
	}
}

// assign gives a shard a stream on this connection.
func (in *leaderConn) assign(f *Following) uint32 {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.last++
	if in.streams != nil {
		in.streams[in.last] = f
	}
	return in.last
}

// leave ends a stream; forGood, if its number is not used again.
func (in *leaderConn) leave(stream uint32, forGood bool) {
	in.mu.Lock()
	if forGood {
		delete(in.streams, stream)
	}
	in.leaves = append(in.leaves, stream)
	in.mu.Unlock()
	in.signal()
}

func (in *leaderConn) wantAsk(f *Following) {
	in.mu.Lock()
	in.asks = append(in.asks, f)
	in.mu.Unlock()
	in.signal()
}

func (in *leaderConn) watchBackOff(f *Following) {
	in.mu.Lock()
	in.backingOff = append(in.backingOff, f)
	in.mu.Unlock()
	in.signal()
}

// backsOff reports whether a shard waits before it asks again.
func (in *leaderConn) backsOff() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.backingOff) > 0
}

// endBackOffs has the shards ask again whose pause is over. spare is used for the list of the
// others, and what was that list is returned.
func (in *leaderConn) endBackOffs(spare []*Following) []*Following {
	in.mu.Lock()
	all := in.backingOff
	in.backingOff = spare[:0]
	in.mu.Unlock()
	now := in.x.config.Now()
	waiting := all[:0]
	for _, f := range all {
		if f.endBackOff(in, now) {
			waiting = append(waiting, f)
		}
	}
	in.mu.Lock()
	in.backingOff = append(in.backingOff, waiting...)
	in.mu.Unlock()
	clear(all)
	return all
}

// wantAck queues an ack without waking the writer, since there may be many.
func (in *leaderConn) wantAck(f *Following) {
	in.mu.Lock()
	in.acks = append(in.acks, f)
	in.mu.Unlock()
}

func (in *leaderConn) wantConfirm(f *Following) {
	in.mu.Lock()
	in.probes = append(in.probes, f)
	in.mu.Unlock()
	in.signal()
}

// following returns the shard of a stream, or nil if it is not followed on this connection any
// more.
func (in *leaderConn) following(stream uint32) *Following {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.streams[stream]
}

// handle handles one frame of the leader.
func (in *leaderConn) handle(t frameType, body []byte) error {
	switch t {
	case frameBeat:
	case frameClock:
		return in.receiveClock(body)
	case frameData:
		d, err := parseData(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(d.stream); f != nil {
			return f.receiveData(in, &d)
		}
	case frameProbe:
		p, err := parseProbe(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(p.stream); f != nil {
			f.receiveProbe(in, &p)
		}
	case frameHigh:
		stream, m, err := parseHigh(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(stream); f != nil {
			f.receiveMarks(in, &m)
		}
	case frameVerdict:
		v, err := parseVerdict(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(v.stream); f != nil && f.receiveVerdict(in, &v) && f.ackDue() != nil {
			in.signal() // to ack what became durable since the ask
		}
	case frameRefused:
		r, err := parseRefusal(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(r.stream); f != nil {
			f.receiveRefusal(in, &r)
		}
	case framePiece:
		p, err := parsePiece(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(p.stream); f != nil {
			f.receivePiece(in, &p)
		}
	case frameRetry:
		stream, round, err := parseRetry(body)
		if err != nil {
			return &garbageError{err}
		}
		if f := in.following(stream); f != nil {
			f.receiveRetry(in, round)
		}
	default:
		return garbage("a frame of type %d", t)
	}
	return nil
}

// allHandled is called when all received frames are handled.
func (in *leaderConn) allHandled() {
	if in.acksReady {
		in.acksReady = false
		in.x.Committed()
	}
}

// write sends asks, acks and heartbeats until the connection ends.
func (in *leaderConn) write() error {
	beat := work.NewTicker(beatEvery)
	defer beat.Stop()
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	var asks, acks, backingOff, probes []*Following
	var leaves []uint32
	ticking := false // retry is set
	for {
		beats, tick := false, false
		select {
		case <-in.stop:
			return in.err
		case <-in.wake:
		case <-retry.C:
			tick, ticking = true, false
		case <-beat.C:
			beat.Next()
			beats = true
			if _, err := in.out.Write(appendBeat(in.out.AvailableBuffer())); err != nil {
				return err
			}
		}
		if err := in.sendClock(beats); err != nil {
			return err
		}
		if tick { // not at each wake-up, since thousands may back off
			backingOff = in.endBackOffs(backingOff)
		}
		if !ticking && in.backsOff() {
			retry.Reset(askTick)
			ticking = true
		}
		for {
			in.mu.Lock()
			asks, in.asks = in.asks, asks[:0]
			acks, in.acks = in.acks, acks[:0]
			probes, in.probes = in.probes, probes[:0]
			leaves, in.leaves = in.leaves, leaves[:0]
			in.mu.Unlock()
			if len(asks) == 0 && len(acks) == 0 && len(leaves) == 0 && len(probes) == 0 {
				break
			}
			for _, stream := range leaves {
				if _, err := in.out.Write(appendLeave(in.out.AvailableBuffer(), stream)); err != nil {
					return err
				}
			}
			for i, f := range asks {
				if _, err := in.out.Write(f.ask(in, in.out.AvailableBuffer())); err != nil {
					return err
				}
				asks[i] = nil
			}
			for i, f := range probes {
				if _, err := in.out.Write(f.confirm(in, in.out.AvailableBuffer())); err != nil {
					return err
				}
				probes[i] = nil
			}
			for i, f := range acks {
				if _, err := in.out.Write(f.ack(in, in.out.AvailableBuffer())); err != nil {
					return err
				}
				acks[i] = nil
			}
		}
		if err := in.out.Flush(); err != nil {
			return err
		}
	}
}

// wantTrim queues a shard's logs for trimming at the next sweep.
func (x *Exchange) wantTrim(f *Following) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.trims = append(x.trims, f)
}

// epochNow returns the newest epoch of the shard that is known here.
func (f *Following) epochNow() int64 { return f.epoch.Load() }
