package jetstream

import (
	"context"
	"errors"
	"math"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
)

// numSubjects returns how many subjects a stream has, or 0 if it takes longer to make its index than
// a client should wait.
func (s *Server) numSubjects(shard *topic.ShardLeader) int {
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
	page, total, err := shard.Subjects(ctx, subjectsPatience, request.SubjectsFilter, max(request.Offset, 0), jsapi.SubjectsPage)
	if err != nil {
		return withReason(jsapi.ErrBadRequest, err)
	}
	response.Paged = jsapi.Paged{Total: total, Offset: min(max(request.Offset, 0), total), Limit: jsapi.SubjectsPage}
	size := 0
	for _, one := range page {
		if size += len(one.Subject) + len(`"":18446744073709551615,`); size > listBytes {
			break // clients request the next page from where this one ended
		}
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
	for i := range answers {
		subjects := answers[i].StreamInfo.State.Subjects
		if paged.Total += len(subjects); len(subjects) < answers[i].Total || paged.Total > jsapi.SubjectsPage {
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
