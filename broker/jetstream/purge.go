package jetstream

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sort"
	"strings"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/removal"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
)

// mayRemove says why single messages can't be removed while a broker is there that would show them
// again, or nil. Such a broker also takes the removals in the log of cursors for damage.
func (s *Server) mayRemove() error {
	for _, b := range s.state().Brokers {
		if !b.Features.Has(coordination.FeatureRemovals) {
			return fmt.Errorf("removing single messages needs brokers of this version, and %s is of an earlier one (finish the update)", b.Name)
		}
	}
	return nil
}

// deleteMessage removes one message, and answers when that is as durable as the stream asks. "Not
// found" is answered after a confirmation that this broker leads the stream (confirmed).
// Messages are never overwritten with other bytes, so no_erase changes nothing.
func (s *Server) deleteMessage(c *call, t *topic.Shard, shard *topic.ShardLeader, confirmed bool) {
	request, refusal := jsapi.Decode[jsapi.MessageDeleteRequest](c.payload)
	switch {
	case emptyRequest(c.payload):
		refusal = jsapi.ErrBadRequest
	case refusal != nil:
	case t.Desired().Spec.Stream.Sealed:
		refusal = jsapi.ErrStreamSealed
	case t.Desired().Spec.Stream.DenyDelete:
		refusal = jsapi.ErrStreamMsgDeleteFailed.With("message delete not permitted")
	default:
		if err := s.mayRemove(); err != nil {
			refusal = jsapi.ErrStreamMsgDeleteFailed.With(err)
		}
	}
	if refusal == nil && !shard.Removed().Has(request.Sequence) {
		_, refusal = read(shard, &jsapi.GetRequest{Sequence: request.Sequence})
	} else if refusal == nil {
		refusal = jsapi.ErrNoMessageFound
	}
	if refusal == jsapi.ErrNoMessageFound {
		if !confirmed {
			s.confirmed(c, shard, func() { s.deleteMessage(c, t, shard, true) })
			return
		}
		refusal = jsapi.ErrSequenceNotFound.With(request.Sequence)
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	err := shard.Remove(shard.Spans([]uint64{request.Sequence}), func(err error) {
		if err != nil {
			s.refuse(c, jsapi.ErrStreamMsgDeleteFailed.With(err))
			return
		}
		s.answer(c, jsapi.DoneResponse{Response: c.Call.Answer(), Success: true})
	})
	if err != nil {
		s.refuse(c, jsapi.ErrStreamMsgDeleteFailed.With(err))
	}
}

func (s *Server) purgeStream(c *call, t *topic.Shard, shard *topic.ShardLeader) {
	request, refusal := jsapi.Decode[jsapi.PurgeRequest](c.payload)
	if refusal == nil {
		refusal = request.Check()
	}
	switch {
	case refusal != nil:
	case t.Desired().Spec.Stream.Sealed:
		refusal = jsapi.ErrStreamSealed
	case t.Desired().Spec.Stream.DenyPurge:
		refusal = jsapi.ErrStreamPurgeFailed.With("stream purge not permitted")
	case request.Subject != "" && request.Subject != ">":
		if refusal = s.checkPurge(&request); refusal == nil {
			s.submitSlow(c, func(ctx context.Context) { s.purgeSubjects(ctx, c, shard, &request) })
			return
		}
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	start, end := shard.Offsets()
	below := end
	switch {
	case request.Sequence > 0:
		below = min(request.Sequence, end)
	case request.Keep > 0:
		below = keepFrom(shard.Removed(), start, end, request.Keep)
	}
	purged, err := shard.Purge(s.ctx, below)
	if err != nil {
		s.refuse(c, jsapi.ErrStreamGeneral.With(err))
		return
	}
	s.answer(c, jsapi.PurgeResponse{Response: c.Call.Answer(), Success: true, Purged: purged})
}

// keepFrom returns the offset from which on a log has that many offsets that are not removed, or
// start if it has fewer.
func keepFrom(removed *removal.Set, start, end, keep uint64) uint64 {
	kept := func(n int) bool { // of the last n offsets
		from := end - uint64(n)
		return uint64(n)-removed.Count(from, end) >= keep
	}
	return end - uint64(sort.Search(int(end-start), kept))
}

// checkPurge refuses purges of subjects that can't be done.
func (s *Server) checkPurge(request *jsapi.PurgeRequest) *jsapi.Error {
	if !subject.ValidPattern([]byte(request.Subject)) {
		return withReason(jsapi.ErrBadRequest, errors.New("filter is no pattern"))
	}
	if request.Keep > purgeKeep {
		return jsapi.ErrStreamPurgeFailed.With(fmt.Sprintf("keep is %d, and can be %d at most with a filter", request.Keep, purgeKeep))
	}
	if err := s.mayRemove(); err != nil {
		return jsapi.ErrStreamPurgeFailed.With(err)
	}
	return nil
}

// purgeSubjects removes the messages of some subjects, one by one. If it fails, or time is up, some
// of them may have been removed; repeating the call removes the rest.
func (s *Server) purgeSubjects(ctx context.Context, c *call, shard *topic.ShardLeader, request *jsapi.PurgeRequest) {
	start, end := shard.Offsets()
	if request.Sequence > 0 {
		end = min(end, request.Sequence)
	}
	p := subjectPurge{shard: shard, pattern: request.Subject, keep: int(request.Keep)}
	err := p.purge(ctx, start, end)
	if err == nil && p.purged > 0 {
		start, end = shard.Offsets()
		_, err = shard.Purge(ctx, min(shard.Removed().Next(start), end)) // what is at the front takes no space any more
	}
	switch {
	case err != nil && ctx.Err() != nil:
		s.refuse(c, jsapi.ErrStreamPurgeFailed.With(fmt.Sprintf("%d messages were purged, and there may be more; purge again", p.purged)))
	case err != nil:
		s.refuse(c, jsapi.ErrStreamPurgeFailed.With(err))
	default:
		s.answer(c, jsapi.PurgeResponse{Response: c.Call.Answer(), Success: true, Purged: p.purged})
	}
}

// subjectPurge removes the messages of a shard that match a pattern, but the newest of them.
type subjectPurge struct {
	shard   *topic.ShardLeader
	pattern string
	keep    int
	kept    []uint64 // the newest matching offsets until now, at most keep
	due     []uint64 // to be removed
	purged  uint64
}

// purge looks at the records from from up to and without end, in pieces. It reads none where the
// index of the subjects knows that no record matches.
func (p *subjectPurge) purge(ctx context.Context, from, end uint64) error {
	for from < end && ctx.Err() == nil {
		to := min(end, from+purgePiece)
		if n, err := p.shard.Count(ctx, 0, []string{p.pattern}, from, to); err == nil && n == 0 {
			from = to
			continue
		}
		next, err := p.scan(ctx, from, to)
		if damage, ok := errors.AsType[*log.CorruptError](err); ok && damage.Next > next {
			next, err = damage.Next, nil // no replica has these records
		}
		if err == nil {
			err = p.remove(ctx)
		}
		if err != nil {
			return err
		}
		from = next
	}
	return ctx.Err()
}

// scan gathers what is due from from on, up to and without end, until that is enough for one
// removal. It returns the offset to continue at.
func (p *subjectPurge) scan(ctx context.Context, from, end uint64) (next uint64, err error) {
	literal, pattern, next := !strings.ContainsAny(p.pattern, "*>"), []byte(p.pattern), from
	removed := p.shard.Removed()
	done, err := p.shard.Scan(from, end, math.MaxInt64, func(r *log.Record) bool {
		next = r.Offset + 1
		matches := string(r.Subject) == p.pattern || !literal && subject.Matches(pattern, r.Subject)
		if !matches || removed.Has(r.Offset) {
			return ctx.Err() == nil
		}
		p.kept = append(p.kept, r.Offset)
		if len(p.kept) > p.keep {
			p.due = append(p.due, p.kept[0])
			p.kept = p.kept[1:]
		}
		return len(p.due) < removal.ItemSpans && ctx.Err() == nil
	})
	if err == nil && done && len(p.due) < removal.ItemSpans && ctx.Err() == nil {
		next = end
	}
	return next, err
}

// remove removes what is due, and waits until that is durable.
func (p *subjectPurge) remove(ctx context.Context) error {
	if len(p.due) == 0 {
		return nil
	}
	done := make(chan error, 1)
	if err := p.shard.Remove(p.shard.Spans(p.due), func(err error) { done <- err }); err != nil {
		return err
	}
	select {
	case err := <-done:
		if err != nil {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	p.purged += uint64(len(p.due))
	p.due = p.due[:0]
	return nil
}
