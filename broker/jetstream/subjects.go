package jetstream

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
)

// count calls f, which may count for seconds, unless too many calls count. It waits a moment for
// others, and reports whether it called f.
func (s *Server) count(ctx context.Context, f func()) bool {
	select {
	case s.counts <- struct{}{}:
	default:
		timer := time.NewTimer(countWait)
		defer timer.Stop()
		select {
		case s.counts <- struct{}{}:
		case <-timer.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	defer func() { <-s.counts }()
	f()
	return true
}

// numSubjects returns how many subjects a stream has, or 0 if it takes longer to make its index
// than a client should wait, or too many calls count.
func (s *Server) numSubjects(shard *topic.ShardLeader) (n int) {
	s.count(s.ctx, func() { n = s.countSubjects(shard) })
	return n
}

func (s *Server) countSubjects(shard *topic.ShardLeader) int {
	ctx, cancel := context.WithTimeout(s.ctx, subjectsTime)
	defer cancel()
	n, err := shard.NumSubjects(ctx, numSubjectsPatience)
	if err != nil {
		return 0
	}
	return int(min(n, math.MaxInt))
}

// listSubjects adds a page of the subjects that match a request's filter to an answer.
func (s *Server) listSubjects(response *jsapi.StreamInfoResponse, shard *topic.ShardLeader, request *jsapi.StreamInfoRequest) *jsapi.Error {
	if !subject.ValidPattern([]byte(request.SubjectsFilter)) {
		return withReason(jsapi.ErrBadRequest, errors.New("subjects_filter is no pattern"))
	}
	ctx, cancel := context.WithTimeout(s.ctx, subjectsTime)
	defer cancel()
	var page []records.SubjectCount
	var total int
	var err error
	if !s.count(ctx, func() {
		// Clients request the next page from where this one ended.
		page, total, err = shard.Subjects(ctx, subjectsPatience, request.SubjectsFilter, max(request.Offset, 0), records.Page{Subjects: jsapi.SubjectsPage, Bytes: listBytes})
	}) {
		return jsapi.ErrInsufficientResources
	}
	if err != nil {
		return withReason(jsapi.ErrBadRequest, err)
	}
	response.Paged = jsapi.Paged{Total: total, Offset: max(request.Offset, 0), Limit: jsapi.SubjectsPage}
	for _, one := range page {
		if response.State.Subjects == nil {
			response.State.Subjects = make(map[string]uint64, len(page))
		}
		response.State.Subjects[one.Subject] = one.Records
	}
	return nil
}

// sumSubjects adds up the answers of a Topic's shards about their subjects. No two shards have
// records of one subject.
func (s *Server) sumSubjects(info *jsapi.StreamInfo, answers []jsapi.StreamInfoResponse, stream string) (jsapi.Paged, *jsapi.Error) {
	paged := jsapi.Paged{Limit: jsapi.SubjectsPage}
	size := 0
	for i := range answers {
		subjects := answers[i].StreamInfo.State.Subjects
		for name := range subjects {
			size += len(name)
		}
		if paged.Total += len(subjects); len(subjects) < answers[i].Total || paged.Total > jsapi.SubjectsPage || size > listBytes {
			return paged, withReason(jsapi.ErrBadRequest, errors.New("stream "+stream+" has too many subjects to list those of all shards at once (ask the stream of each shard, or for fewer subjects)"))
		}
		for name, records := range subjects {
			if info.State.Subjects == nil {
				info.State.Subjects = map[string]uint64{}
			}
			info.State.Subjects[name] = records
		}
	}
	return paged, nil
}
