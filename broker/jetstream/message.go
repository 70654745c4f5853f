package jetstream

import (
	"cmp"
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/topic"
)

// read finds the message that the request names.
func read(shard *topic.ShardLeader, request *jsapi.GetRequest) (log.Record, *jsapi.Error) {
	var r log.Record
	var err error
	switch {
	case request.NextFor != "" || request.StartTime != nil:
		from := max(request.Sequence, 1)
		if request.StartTime != nil {
			from, err = offsetAt(shard, *request.StartTime)
		}
		if err == nil {
			r, err = shard.NextFor(cmp.Or(request.NextFor, ">"), from)
		}
	case request.LastFor != "":
		r, err = shard.LastFor(request.LastFor)
	default:
		r, err = shard.Get(request.Sequence)
	}
	var none *records.NoRecordError
	switch {
	case errors.As(err, &none):
		return r, jsapi.ErrNoMessageFound
	case err != nil:
		return r, jsapi.ErrStreamGeneral.With(err)
	}
	return r, nil
}

// getMessage answers with a stored message. "The last of its subject" and "no such message" are
// answered after a confirmation that this broker leads the stream (confirmed). A message found at
// its sequence needs none: it is there under every leader.
func (s *Server) getMessage(c *call, shard *topic.ShardLeader, confirmed bool) {
	if emptyRequest(c.payload) {
		s.refuse(c, jsapi.ErrBadRequest)
		return
	}
	request, refusal := jsapi.Decode[jsapi.GetRequest](c.payload)
	if refusal == nil {
		refusal = request.Check()
	}
	var r log.Record
	if refusal == nil {
		if !confirmed && request.LastFor != "" {
			s.confirmed(c, shard, func() { s.getMessage(c, shard, true) })
			return
		}
		r, refusal = read(shard, &request)
	}
	if refusal == jsapi.ErrNoMessageFound && !confirmed {
		s.confirmed(c, shard, func() { s.getMessage(c, shard, true) })
		return
	}
	if refusal != nil {
		s.refuse(c, refusal)
		return
	}
	header, data := protocol.SplitData(r.Data, r.Header)
	message := &jsapi.StoredMessage{Subject: string(r.Subject), Sequence: r.Offset, Header: header, Data: data, Time: time.Unix(0, r.Time).UTC()}
	if request.NoHeaders {
		message.Header = nil
	}
	s.answer(c, jsapi.MessageResponse{Response: c.Call.Answer(), Message: message})
}

func (s *Server) refuseDirect(c *call, status jsapi.Status) {
	s.errors.Add(1)
	if len(c.reply) > 0 {
		s.sendStatus(c.reply, status)
	}
}
