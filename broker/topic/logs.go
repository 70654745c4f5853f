package topic

import (
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/copystate"
	"github.com/carillon-mq/carillon/broker/dedup"
	"github.com/carillon-mq/carillon/broker/forward"
	"github.com/carillon-mq/carillon/broker/keptspec"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/replica"
)

// openLogs opens or makes the logs of a shard with a replica on this broker, and judges them.
func (s *Service) openLogs(p *Shard, v *view) error {
	if p.logs != nil {
		return nil
	}
	ids := p.logIDs()
	start := max(v.desired.Spec.Stream.FirstSequence, 1)
	known, counted := s.stored.Note(ids[replica.Data].Name()), s.counted(v)
	// A log that was here before is made anew only if it was set aside or is lost. After a restore,
	// a copy that is made anew may lack all that was deleted since the backup.
	missing := copystate.Missing(known || counted || v.restored, v.epoch)
	first := log.FirstCopy{Made: missing.Encode(), Rebuilt: copystate.ManifestLost(v.epoch).Encode()}
	data, err := s.config.Disk.OpenCopy(ids[replica.Data], start, v.epoch, keptspec.Encode(v.desired, !v.follow && !known), first)
	if err != nil {
		if !known {
			s.stored.Gone(ids[replica.Data].Name())
		}
		return err
	}
	state, err := s.openCursors(p, v, data, known && counted)
	if err != nil {
		_ = data.Close() // nothing was appended
		return err
	}
	origins, err := forward.ReadOrigins(data, s.recordTime(), forward.Mono())
	if err != nil {
		return errors.Join(err, state.Close(), data.Close())
	}
	p.fault.Store(nil)
	p.high, p.origins = [...]uint64{replica.Data: data.Watermark(), replica.State: state.Watermark()}, origins
	p.logs = &logs{parts: [...]*log.Log{replica.Data: data, replica.State: state}}
	s.judgeOpened(p, v, known, counted, missing)
	p.opened.Store(p.logs)
	return nil
}

// cannotOpen does what copystate decides after a failure to open the logs of a copy.
func (s *Service) cannotOpen(p *Shard, v *view) {
	e := copystate.CannotOpen{Restored: v.restored}
	if !v.restored {
		e.Shard = s.seen(p, v)
	}
	for _, a := range s.apply(p, e) {
		switch a {
		case copystate.Report:
			s.changeReport(p, v, func() { s.reports.Set(p.suspectClosed()) })
		case copystate.Withdraw:
			s.changeEntry(p, v, replica.Withdraw, false)
		case copystate.Resign:
			s.changeEntry(p, v, replica.Resign, false)
		}
	}
}

// openCursors opens or makes the state log of a shard. counted means that the data log exists and
// others rely on the copy. If the state log is missing then, the doubt is written to the data log's
// manifest before a new state log is made: the next process could not know it.
func (s *Service) openCursors(p *Shard, v *view, data *log.Log, counted bool) (*log.Log, error) {
	id := p.logIDs()[replica.State]
	if !s.stored.Has(id.Name()) && counted {
		if err := data.SetCopy(copystate.MissingCursors(keptState(data), v.epoch).Encode()); err != nil {
			return nil, err
		}
	}
	state, err := s.config.Disk.Open(id, 1, v.epoch, nil)
	if err == nil {
		s.stored.Note(id.Name())
	}
	return state, err
}

// recordTime returns the time to compare times of records with; zero: they can't be compared.
func (s *Service) recordTime() time.Time {
	if !s.config.Clock.Verdict().Elapsed {
		return time.Time{}
	}
	return s.config.Clock.Time()
}

// closeLogs closes the logs of a shard, if they are open.
func (s *Service) closeLogs(p *Shard) error {
	if p.logs == nil {
		return nil
	}
	p.opened.Store(nil)
	p.own.epoch = uint64(p.reach().Epoch)
	var errs []error
	for part, l := range p.logs.parts {
		_, _, p.own.reached[part] = l.Offsets()
		if err := l.Close(); err != nil && p.fault.Load() == nil {
			s.log.Error("a Topic's log was not closed as it should be", "topic", p.Name(), "log", l.Name(), "error", err)
			errs = append(errs, err)
		}
	}
	p.logs, p.mended = nil, false
	p.ids.Forget(dedup.Never)
	p.fault.Store(nil)
	return errors.Join(errs...)
}
