package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
)

// step is the state of a Following.
type step uint8

const (
	idle    step = iota // no leader
	waiting             // for a connection, or for the writer to send its ask
	asked               // sent, not answered
	working             // a worker prepares the logs
	copying
	backingOff  // refused or out of space; asks again later
	failed      // a log failed for good
	repairEnded // the repair ended: the logs are complete, or cannot be completed
)

// Following is a shard that is copied from its leader. Its methods are safe for concurrent use.
type Following struct {
	x      *Exchange
	config FollowConfig
	epoch  atomic.Int64
	round  atomic.Uint32 // incremented whenever what is under way becomes void
	high   [Parts]atomic.Uint64
	parts  [Parts]arrivals
	due    atomic.Bool  // in Exchange.due
	caught atomic.Int64 // see CaughtUp

	mu          sync.Mutex
	free        sync.Cond // users fell to 0
	users       int       // users of the logs without mu
	askWhenFree bool      // ask again when users is 0
	ended       bool
	step        step
	leader      string
	dialer      *leaderDialer
	conn        *leaderConn // the dialer's connection, while f has a stream on it
	stream      uint32
	asking      bool   // in leaderConn.asks
	acking      bool   // in leaderConn.acks
	probes      bool   // in leaderConn.probes
	number      uint64 // newest barrier round that the leader asked for; valid while probes
	todo        [Parts]Verdict
	tries       int // consecutive verdicts other than Copy
	acked       [Parts]uint64
	goal        [Parts]uint64 // what the leader's verdict asks for; see CaughtUp
	why         string
	// noProgress reports that nothing was copied since the last ask. The pause between asks grows
	// with consecutive refusals.
	noProgress bool
	pause      time.Duration
	retryAt    time.Duration // when a Following that backs off asks again

	repair *repairing // nil: the logs lack nothing

	starts  [Parts]uint64 // of the leader's logs
	trimmed [Parts]uint64
	trims   bool // in Exchange.trims, or being trimmed
}

// arrivals is the completion of a log's appends.
type arrivals struct {
	f    *Following
	safe Watermark
}

// Committed implements log.Completion. The disk's committer calls it, or the append itself if
// memory is sufficient.
func (a *arrivals) Committed(_, end uint64, err error) {
	f := a.f
	if err != nil {
		f.x.disk.Submit(func() { f.fail(err) }, 0)
		return
	}
	a.safe.Raise(end)
	if f.due.Swap(true) {
		return
	}
	x := f.x
	x.dueMu.Lock()
	x.due = append(x.due, f)
	x.dueMu.Unlock()
}

// Follow starts to copy a shard from its leader.
func (x *Exchange) Follow(c FollowConfig) *Following {
	f := &Following{x: x, config: c, leader: c.Shard.Leader}
	f.free.L = &f.mu
	f.epoch.Store(c.Shard.Epoch)
	f.config.Shard = nil
	switch {
	case c.Unwanted != nil:
		f.repair = &repairing{offering: offering{kind: offersLast}}
	case c.RepairEnded != nil:
		f.repair = &repairing{}
	}
	for p := range f.parts {
		f.parts[p].f = f
		f.high[p].Store(c.High[p])
	}
	x.mu.Lock()
	x.follows[c.ID] = f
	x.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.attach()
	return f
}

// Adopt applies a newer state of the shard. With another epoch or leader, it asks again.
func (f *Following) Adopt(shard *coordination.Shard) {
	f.mu.Lock()
	defer f.mu.Unlock()
	epoch := f.epoch.Load()
	if f.ended || shard.Epoch < epoch || shard.Epoch == epoch && shard.Leader == f.leader {
		return
	}
	f.round.Add(1) // from here on, batches and acks of the former leader are void
	f.epoch.Store(shard.Epoch)
	f.detach()
	f.leader, f.pause = shard.Leader, 0
	if f.step != working && f.step != repairEnded {
		f.step = waiting
	}
	f.attach()
}

// attach attaches f to the dialer of its leader. mu is held.
func (f *Following) attach() {
	x := f.x
	if f.leader == "" || f.leader == x.config.Self {
		if f.step != working && f.step != repairEnded {
			f.step = idle
		}
		return
	}
	if f.step == idle {
		f.step = waiting
	}
	x.mu.Lock()
	if x.closed {
		x.mu.Unlock()
		return
	}
	fd := x.dialers[f.leader]
	if fd == nil {
		fd = newLeaderDialer(x, f.leader)
		x.dialers[f.leader] = fd
		x.workers.Go(fd.run)
	}
	fd.shards[f] = struct{}{}
	in := fd.conn
	x.mu.Unlock()
	f.dialer = fd
	if in != nil {
		f.connect(in)
	}
}

// detach detaches f from its dialer. mu is held.
func (f *Following) detach() {
	if f.conn != nil {
		f.conn.leave(f.stream, true)
		f.conn = nil
	}
	fd := f.dialer
	if fd == nil {
		return
	}
	f.dialer = nil
	x := f.x
	x.mu.Lock()
	delete(fd.shards, f)
	in := fd.conn
	last := len(fd.shards) == 0
	x.mu.Unlock()
	if last && in != nil {
		in.fail(errIdle)
	}
	if last {
		fd.dialNow()
	}
}

// connect gives f a stream on a connection. mu is held.
func (f *Following) connect(in *leaderConn) {
	if f.ended || f.dialer != in.dialer || f.conn == in {
		return
	}
	f.conn, f.asking, f.acking, f.probes = in, false, false, false
	f.stream = in.assign(f)
	switch f.step {
	case asked, copying, backingOff:
		f.step = waiting
	}
	f.request()
}

// disconnected handles the end of the connection. mu is held.
func (f *Following) disconnected(in *leaderConn) {
	if f.conn != in {
		return
	}
	f.conn = nil
	f.round.Add(1)
	switch f.step {
	case asked, copying, backingOff:
		f.step = waiting
	}
}

// askAgain asks again, whatever was answered before.
func (f *Following) askAgain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.step {
	case asked, copying, backingOff:
		f.round.Add(1)
		f.step = waiting
	}
	f.request()
}

// request makes the connection's writer send an ask. mu is held.
func (f *Following) request() {
	if f.ended || f.step != waiting || f.conn == nil || f.asking {
		return
	}
	f.asking = true
	f.conn.wantAsk(f)
}

// ask appends the ask frame, if one is due.
func (f *Following) ask(in *leaderConn, dst []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Read under mu: a change of the incarnation after this makes f ask again
	self := f.x.registeredSelf()
	if f.conn != in {
		return dst
	}
	f.asking = false
	switch {
	case f.ended || f.step != waiting:
		return dst
	case self.Incarnation == 0:
		f.why = "this broker is not registered yet"
		return dst // Observe asks again
	case f.users > 0:
		f.askWhenFree = true
		return dst
	case f.repair != nil:
		return f.askPiece(in, dst)
	}
	a := ask{requestHead: requestHead{stream: f.stream, ID: f.config.ID, epoch: f.epoch.Load()},
		incarnation: self.Incarnation}
	for p, lg := range f.config.Logs {
		_, end, durable := lg.Offsets()
		safe := durable
		if f.config.Durability == log.Memory {
			safe = end
		}
		if safe < end {
			// Everything in the log must count as durable in the ask, and nothing else will flush
			// it.
			f.prepare()
			return dst
		}
		f.parts[p].safe.Raise(safe)
		a.logs[p] = LineageOf(lg)
		a.safe[p] = a.logs[p].End
	}
	f.acked = a.safe
	a.round = f.round.Add(1)
	f.step = asked
	f.x.counters.outAsks.Add(1)
	return appendAsk(dst, &a)
}

// prepare makes a worker carry out the verdict and flush the logs. mu is held.
func (f *Following) prepare() {
	f.step = working
	round := f.round.Load()
	f.x.disk.Submit(func() { f.work(round) }, 0)
}

// receiveVerdict handles the leader's verdict.
func (f *Following) receiveVerdict(in *leaderConn, v *verdict) (ack bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || f.step != asked || f.round.Load() != v.round {
		return false
	}
	f.noProgress = true
	if why := f.contradiction(v); why != "" {
		f.contradict(why)
		return false
	}
	for p := range Parts {
		if v.parts[p].Verb != Copy {
			f.tries++
			f.todo, f.trimmed = v.parts, [Parts]uint64{}
			f.prepare()
			return false
		}
	}
	f.step, f.why, f.tries = copying, "", 0
	for p := range Parts {
		f.goal[p] = v.parts[p].At
	}
	f.noteCaughtUp()
	return true
}

// noteCaughtUp updates the result of CaughtUp. It precedes every ack, so that it is up to date
// before the leader can ask for a set with this copy. mu is held.
func (f *Following) noteCaughtUp() {
	epoch := f.epoch.Load()
	if f.step != copying || f.caught.Load() == epoch {
		return
	}
	for p := range Parts {
		if f.parts[p].safe.Load() < f.goal[p] {
			return
		}
	}
	f.caught.Store(epoch)
}

// CaughtUp returns the newest epoch in which this Following has had everything that was safe, or
// that the leader's logs held when the epoch began, when the leader let it copy; 0: there is none.
// The leader counts what this Following confirms from then on, and nothing that the copy confirmed
// before. The leader of a version that does not say what was safe counts as caught up with at once.
func (f *Following) CaughtUp() (epoch int64) { return f.caught.Load() }

// contradiction returns why a verdict must not be carried out: it would drop records that are known
// to be safe on all members; empty: it may be. mu is held.
func (f *Following) contradiction(v *verdict) string {
	if f.config.Contradicted == nil || f.config.InDoubt != nil && f.config.InDoubt() {
		return ""
	}
	for p := range Parts {
		if v.parts[p].Verb == Copy {
			continue
		}
		_, end, _ := f.config.Logs[p].Offsets()
		if known := f.committed(p, v.parts[p].At, end); known > 0 {
			return fmt.Sprintf("broker %s, which leads epoch %d, lacks records of the %s log from %d to %d that were safe on all in-sync replicas",
				f.leader, f.epoch.Load(), p, v.parts[p].At, known-1)
		}
	}
	return ""
}

// emptying returns why verdicts must not be carried out although the leader lacks nothing: a log
// would be emptied, and be copied anew, while the copy counts. Empty: they may be. The logs are in
// use.
func (f *Following) emptying(todo *[Parts]Verdict) (why string, err error) {
	if f.config.Contradicted == nil || f.config.InDoubt != nil && f.config.InDoubt() {
		return "", nil
	}
	for p := range Parts {
		if todo[p].Verb != Truncate {
			continue
		}
		empties, err := f.config.Logs[p].Empties(todo[p].At)
		if err != nil {
			return "", err
		}
		if empties {
			return fmt.Sprintf("the %s log is to be truncated to %d, below records because of which others were removed, so it is copied anew", p, todo[p].At), nil
		}
	}
	return "", nil
}

// contradict ends following because a verdict makes the copy drop records that are safe on all
// members, and calls Contradicted. mu is held.
func (f *Following) contradict(why string) {
	f.round.Add(1)
	f.step, f.why = failed, why
	if f.conn != nil {
		f.conn.leave(f.stream, false)
	}
	f.users++ // End waits for the call
	told := func() {
		f.config.Contradicted(why)
		f.mu.Lock()
		defer f.mu.Unlock()
		f.release()
	}
	if !f.x.disk.Submit(told, 0) {
		f.release() // the exchange closes
	}
}

// work carries out a verdict on a worker, and flushes the logs: then it asks again.
func (f *Following) work(round uint32) {
	f.mu.Lock()
	for f.users > 0 {
		f.free.Wait()
	}
	todo := f.todo
	if f.round.Load() != round {
		todo = [Parts]Verdict{} // the verdict was of another leader or epoch
	}
	f.todo = [Parts]Verdict{}
	if f.ended {
		f.mu.Unlock()
		return
	}
	f.users++
	f.mu.Unlock()
	why, err := f.emptying(&todo)
	for p := range Parts {
		if err == nil && why == "" {
			err = f.carryOut(p, todo[p])
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.workDone()
	switch {
	case f.ended:
	case why != "" && f.round.Load() == round: // otherwise the next leader's verdict may be another one
		f.contradict(why)
	case err == nil && f.tries > maxTries:
		f.backOff(fmt.Sprintf("its logs differ from its leader's after %d changes; it goes on trying", f.tries),
			f.pause)
	default:
		f.resume(err)
	}
}

// workDone ends a worker's use of the logs. f asks next, if there is a leader. mu is held.
func (f *Following) workDone() {
	f.step = waiting
	if f.leader == "" || f.leader == f.x.config.Self {
		f.step = idle
	}
	f.release()
}

// resume continues after a worker: f asks again, backs off after an error, or ends after a fatal
// one. mu is held.
func (f *Following) resume(err error) {
	switch {
	case err == nil:
		f.request()
	case fatal(err):
		f.x.disk.Submit(func() { f.fail(err) }, 0)
	default:
		f.backOff(err.Error(), askAgainMax)
	}
}

// carryOut carries out a verdict on one log, which is in use.
func (f *Following) carryOut(p Part, v Verdict) error {
	lg, x := f.config.Logs[p], f.x
	args := []any{"topic_id", f.config.Topic, "shard", f.config.ID.Shard, "part", p.String(),
		"epoch", f.epoch.Load()}
	start, end, _ := lg.Offsets()
	switch v.Verb {
	case Truncate:
		left, aside, err := lg.TruncateTo(v.At, f.committed(p, v.At, end))
		if err != nil {
			return err
		}
		f.reportAside(aside, args)
		x.counters.truncations.Add(1)
		if p == Data && f.config.Watch != nil {
			f.config.Watch.Truncated(left)
		}
		f.lowerHigh(p, left)
		x.log.Info("Truncated a log to what its leader has too", append(args, "from", end, "to", left)...)
		f.parts[p].safe.Store(0)
	case Reset:
		aside, err := lg.ResetTo(v.At, f.committed(p, v.At, end))
		if err != nil {
			return err
		}
		f.reportAside(aside, args)
		x.counters.resets.Add(1)
		if p == Data && f.config.Watch != nil {
			f.config.Watch.Reset()
		}
		f.lowerHigh(p, v.At)
		x.log.Info("Began a log anew, as it has nothing in common with its leader's",
			append(args, "had_start", start, "had_end", end, "start", v.At)...)
		f.parts[p].safe.Store(0)
	}
	if f.config.Durability == log.Memory {
		return nil
	}
	return lg.Flush()
}

// committed returns the offset below which the records from the given offset to the end of the log
// are known to be safe on all members; 0: none is. A leader that lacks such records was elected in
// doubt or is faulty, so they are set aside when the log drops them. Records below from were
// trimmed by the leader, or stay.
func (f *Following) committed(p Part, from, end uint64) uint64 {
	if known := min(f.high[p].Load(), end); known > from {
		return known
	}
	return 0
}

// lowerHigh lowers the watermark to the log's new end.
func (f *Following) lowerHigh(p Part, end uint64) {
	if f.high[p].Load() > end {
		f.high[p].Store(end)
	}
}

// reportAside counts and logs committed records that were set aside, if there are any.
func (f *Following) reportAside(aside string, args []any) {
	if aside != "" {
		f.x.counters.setAside.Add(1)
		f.x.log.Warn("The leader lacks records that were safe on all in-sync replicas; they were set aside here. Delete them if nobody misses them", append(args, "to", aside)...)
	}
}

// maxTries bounds consecutive verdicts without a pause. Two are usual: one to the divergence of
// epochs, one to the start of the batch there.
const maxTries = 4

// fatal reports whether a log with that error accepts no more appends.
func fatal(err error) bool {
	_, is := errors.AsType[*log.FailedError](err)
	return is || errors.Is(err, log.ErrClosed)
}

// release ends a use of the logs. mu is held.
func (f *Following) release() {
	if f.users--; f.users > 0 {
		return
	}
	f.free.Broadcast()
	if f.askWhenFree {
		f.askWhenFree = false
		f.request()
	}
}

// receiveRefusal handles the leader's refusal, or the end of a stream.
func (f *Following) receiveRefusal(in *leaderConn, r *refusal) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || f.round.Load() != r.round || f.step != asked && f.step != copying {
		return
	}
	if f.step == copying && !f.noProgress {
		f.pause = 0
	}
	f.noProgress = true
	why := "broker " + in.broker + ": " + r.why
	if f.repair != nil {
		f.refusePiece(why, r.round)
		return
	}
	f.backOff(why, f.pause)
}

// backOff waits at least the given pause before the next ask. mu is held.
func (f *Following) backOff(why string, pause time.Duration) {
	pause = max(pause, askAgainMin)
	f.step, f.why = backingOff, why
	f.retryAt = f.x.config.Now() + pause/2 + rand.N(pause/2)
	f.pause = min(2*pause, askAgainMax)
	if f.conn != nil {
		f.conn.watchBackOff(f)
	}
}

// endBackOff asks again if the pause is over. It reports whether f still waits.
func (f *Following) endBackOff(in *leaderConn, now time.Duration) (on bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || f.step != backingOff {
		return false
	}
	if now < f.retryAt {
		return true
	}
	f.step = waiting
	f.request()
	return false
}

// receiveRetry asks at once if the ask of that round was refused.
func (f *Following) receiveRetry(in *leaderConn, round uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == in && f.step == backingOff && f.round.Load() == round {
		f.step = waiting
		f.request()
	}
}

// fail ends following because a log accepts no more appends, and calls Failed.
func (f *Following) fail(err error) {
	f.mu.Lock()
	if f.ended || f.step == failed || f.step == repairEnded {
		f.mu.Unlock()
		return
	}
	if f.step == working {
		f.mu.Unlock()
		return // the worker gets the error itself
	}
	f.round.Add(1)
	f.step, f.why = failed, err.Error()
	if f.conn != nil {
		f.conn.leave(f.stream, false)
	}
	f.users++ // so that End waits for the call
	f.mu.Unlock()
	if f.config.Failed != nil {
		f.config.Failed(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
}

// ackDue queues f on its connection for an ack and returns the connection.
func (f *Following) ackDue() *leaderConn {
	f.due.Store(false)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.ended || f.step != copying || f.conn == nil {
		return nil
	}
	if !f.acking {
		f.acking = true
		f.conn.wantAck(f)
	}
	return f.conn
}

// ack appends the acks that are due.
func (f *Following) ack(in *leaderConn, dst []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in {
		return dst
	}
	f.acking = false
	if f.ended || f.step != copying {
		return dst
	}
	f.noteCaughtUp()
	for p := range Parts {
		if safe := f.parts[p].safe.Load(); safe > f.acked[p] {
			f.acked[p] = safe
			f.x.counters.outAcks.Add(1)
			dst = appendAck(dst, f.stream, p, safe)
		}
	}
	return dst
}

// receiveProbe handles a leader's probe. If f does not copy under that epoch, it does not answer;
// the leader learns of that by itself and probes the next stream.
func (f *Following) receiveProbe(in *leaderConn, p *probe) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || f.ended || f.step != copying || f.round.Load() != p.round ||
		f.epoch.Load() != p.epoch {
		return
	}
	f.number = p.number
	if !f.probes {
		f.probes = true
		in.wantConfirm(f)
	}
}

// confirm appends the confirmation of a barrier round: this broker copies under its leader's epoch.
func (f *Following) confirm(in *leaderConn, dst []byte) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn != in || !f.probes {
		return dst
	}
	f.probes = false
	if f.ended || f.step != copying {
		return dst
	}
	return appendProbe(dst, frameConfirm,
		&probe{stream: f.stream, round: f.round.Load(), epoch: f.epoch.Load(), number: f.number})
}

// High returns the watermark that the leader sent last.
func (f *Following) High(p Part) uint64 { return f.high[p].Load() }

// State reports whether the logs are being copied, and describes the state.
func (f *Following) State() (copies bool, why string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.step {
	case copying:
		if f.ended {
			return false, "it has ended"
		}
		if f.parts[Data].safe.Load() < f.high[Data].Load() {
			return true, "catching up"
		}
		return true, ""
	case idle:
		return false, "it has no leader"
	case working:
		return false, "its logs are being made ready"
	case backingOff, failed:
		return false, f.why
	case repairEnded:
		return false, "its logs are to be opened again"
	}
	if f.conn == nil && f.dialer != nil {
		return false, fmt.Sprintf("no connection to broker %s: %s", f.leader, f.dialer.lastError())
	}
	if f.why != "" {
		return false, f.why
	}
	return false, "asking broker " + f.leader
}

// End ends following. Afterwards the exchange does not change the logs, though appends may still be
// under way to the disk.
func (f *Following) End() {
	f.mu.Lock()
	f.ended = true
	f.round.Add(1)
	f.detach()
	for f.users > 0 {
		f.free.Wait()
	}
	f.mu.Unlock()
	if f.repair != nil {
		f.repair.abandon() // no worker uses it any more
	}
	x := f.x
	x.mu.Lock()
	if x.follows[f.config.ID] == f {
		delete(x.follows, f.config.ID)
	}
	x.mu.Unlock()
}
