package replica

import (
	"context"
	"errors"

	"github.com/carillon-mq/carillon/broker/log"
)

// receiveData appends received batches of a log. An error ends the connection.
func (f *Following) receiveData(in *leaderConn, d *data) error {
	f.mu.Lock()
	if f.conn != in || f.step != copying {
		f.mu.Unlock()
		return nil
	}
	f.noProgress, f.pause = false, 0
	f.setMarks(&d.marks)
	f.users++
	round := f.round.Load()
	f.mu.Unlock()
	err := f.append(in, d, round)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.release()
	if bad, is := errors.AsType[*garbageError](err); is {
		return bad
	}
	if in.ctx.Err() != nil {
		return in.ctx.Err()
	}
	if err == nil || f.round.Load() != round {
		return nil
	}
	in.leave(f.stream, false)
	if fatal(err) {
		f.x.disk.Submit(func() { f.fail(err) }, 0)
	}
	// An administrator has to repair the disk first, so asking fast is useless.
	f.round.Add(1)
	f.backOff(err.Error(), askAgainMax)
	return nil
}

// append appends batches. The logs are in use.
func (f *Following) append(in *leaderConn, d *data, round uint32) error {
	lg, epoch := f.config.Logs[d.part], uint64(f.epoch.Load())
	durability, done := log.Memory, log.Completion(nil)
	if d.promised {
		durability, done = f.config.Durability, &f.parts[d.part]
	}
	count := uint64(0)
	for rest := d.batches; len(rest) > 0 && f.round.Load() == round; {
		b, err := log.ParseBatch(rest)
		if err != nil {
			return garbage("%s of shard %d of topic id %s: %w",
				d.part, f.config.ID.Shard, f.config.Topic, err)
		}
		if b.Epoch() > epoch {
			return garbage("%s of shard %d of topic id %s: a batch of epoch %d from the leader of epoch %d",
				d.part, f.config.ID.Shard, f.config.Topic, b.Epoch(), epoch)
		}
		err = lg.AppendBatch(b, durability, done)
		if err == log.ErrOverloaded {
			if err := f.waitRoom(in.ctx, lg); err != nil {
				return err
			}
			continue
		}
		if offset, is := errors.AsType[*log.OffsetError](err); is {
			return garbage("%w", offset)
		}
		if older, is := errors.AsType[*log.EpochError](err); is {
			return garbage("%w", older)
		}
		if err != nil {
			return err
		}
		if d.part == Data && f.config.Watch != nil {
			f.config.Watch.Appended(b)
		}
		rest = rest[len(b):]
		count++
	}
	if durability == log.Memory && done != nil {
		in.acksReady = true
	}
	f.x.counters.inBytes.Add(uint64(len(d.batches)))
	f.x.counters.inBatches.Add(count)
	return nil
}

// waitRoom waits until the disk has less to do. Meanwhile the logs are not in use, so that End does
// not wait.
func (f *Following) waitRoom(ctx context.Context, lg *log.Log) error {
	f.mu.Lock()
	f.release()
	f.mu.Unlock()
	err := lg.WaitRoom(ctx)
	f.mu.Lock()
	f.users++
	f.mu.Unlock()
	return err
}

// setMarks records the leader's watermarks and starts. mu is held.
func (f *Following) setMarks(m *marks) {
	for p := range Parts {
		f.high[p].Store(m.high[p])
		f.config.Logs[p].NoteWatermark(m.high[p])
		f.starts[p] = m.start[p]
		if f.starts[p] > f.trimmed[p] && !f.trims {
			f.trims = true
			f.x.wantTrim(f)
		}
	}
}

// receiveMarks handles marks without data.
func (f *Following) receiveMarks(in *leaderConn, m *marks) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.conn == in && f.step == copying {
		f.setMarks(m)
	}
}

// trim trims the logs to where the leader's start, or to their own end if that is before.
func (f *Following) trim() {
	f.mu.Lock()
	f.trims = false
	if f.ended || f.step != copying {
		f.mu.Unlock()
		return // the leader sends the starts again
	}
	starts := f.starts
	f.trims = true
	f.users++
	f.mu.Unlock()
	var trimmed [Parts]uint64
	for p, lg := range f.config.Logs {
		if lg.Start() >= starts[p] {
			trimmed[p] = starts[p]
			continue
		}
		at, err := lg.Trim(starts[p])
		if err != nil {
			f.x.warnThrottled("trim "+lg.Name(), "Could not delete what the leader has deleted",
				"log", lg.Name(), "error", err)
		}
		trimmed[p] = min(at, starts[p])
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.trims, f.trimmed = false, trimmed
	f.release()
}
