package jetstream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// directGetOf serves a direct get. If that is asked for, it is confirmed before that this broker
// leads the stream.
func (s *Server) directGetOf(c *call, t *topic.Shard, shard *topic.ShardLeader) {
	if c.wantsLatest() {
		s.confirmed(c, shard, func() { s.directGet(c, t, shard) })
		return
	}
	s.directGet(c, t, shard)
}

// directGet answers with the messages themselves, not with JSON.
func (s *Server) directGet(c *call, t *topic.Shard, shard *topic.ShardLeader) {
	if !t.Desired().Spec.Stream.AllowDirect {
		s.refuse(c, jsapi.ErrStreamNotFound) // as if nobody served the subject
		return
	}
	if len(c.reply) == 0 {
		return
	}
	request, refusal := directRequest(c)
	if refusal != "" {
		s.refuseDirect(c, refusal)
		return
	}
	d := &directAnswer{server: s, call: c, shard: shard, request: &request}
	switch {
	case len(request.MultiLastFor) > 0:
		refusal = d.lastOfMany()
	case request.Batch > 0:
		refusal = d.batch()
	default:
		refusal = d.one()
	}
	if refusal != "" {
		s.refuseDirect(c, refusal)
	}
	d.flush()
}

// directRequest decodes and checks a direct get.
func directRequest(c *call) (request jsapi.GetRequest, refusal jsapi.Status) {
	if len(bytes.TrimSpace(c.payload)) == 0 {
		if c.Call == jsapi.DirectGet {
			return request, jsapi.EmptyRequest
		}
		request.LastFor = string(c.Filter)
		return request, ""
	}
	request, err := jsapi.Decode[jsapi.GetRequest](c.payload)
	if err != nil {
		return request, jsapi.MalformedRequest
	}
	if c.Call == jsapi.DirectGet {
		return request, request.CheckDirect()
	}
	if !request.IsEmpty() {
		return request, jsapi.BadRequest // the subject names the message
	}
	request.LastFor = string(c.Filter)
	return request, ""
}

// directAnswer is a direct get under way. It sends the messages in batches, so that many large ones
// take a bounded amount of memory.
type directAnswer struct {
	server  *Server
	call    *call
	shard   *topic.ShardLeader
	request *jsapi.GetRequest

	messages []protocol.Message
	bytes    int    // of messages
	sent     int    // messages, flushed or not
	size     int    // of all sent messages, in bytes
	last     uint64 // sequence of the last one
	behind   work.Behind
}

// one sends the message that the request names.
func (d *directAnswer) one() jsapi.Status {
	r, refusal := read(d.shard, d.request)
	switch {
	case refusal == jsapi.ErrNoMessageFound:
		return jsapi.MessageNotFound
	case refusal != nil:
		return jsapi.Status("500 " + refusal.Description)
	}
	return d.add(&r, nil)
}

// batch sends the next messages of a subject from a sequence or a time on, and then an end of
// batch.
func (d *directAnswer) batch() jsapi.Status {
	from, status := d.start()
	if status != "" {
		return status
	}
	start, end := d.shard.Offsets()
	from = max(from, start)
	pattern := cmp.Or(d.request.NextFor, ">")
	pending, err := d.count(pattern, from, end)
	if err != nil {
		return failed(err)
	}
	filter, status := []byte(pattern), jsapi.Status("")
	done, err := d.shard.Scan(from, end, directScanBytes, func(r *log.Record) bool {
		if !subject.Matches(filter, r.Subject) {
			return true
		}
		if pending > 0 {
			pending--
		}
		status = d.add(r, &pending)
		return status == "" && d.sent < d.request.Batch && !d.isFull()
	})
	switch {
	case status != "":
		return status
	case err != nil:
		return failed(err)
	case !done && d.sent == 0:
		return tooMuchToSearch
	}
	if d.sent == 0 {
		return jsapi.MessageNotFound
	}
	d.end(pending, 0)
	return ""
}

// lastOfMany sends the last message of each subject that matches, in the order of their sequences,
// and then an end of batch.
func (d *directAnswer) lastOfMany() jsapi.Status {
	start, end := d.shard.Offsets()
	if upTo := d.request.UpToTime; upTo != nil {
		later, err := offsetAt(d.shard, *upTo)
		if err != nil {
			return failed(err)
		}
		end = later
	} else if d.request.UpToSequence > 0 {
		end = min(d.request.UpToSequence+1, end)
	}
	offsets, status := d.lasts(max(d.request.Sequence, start), end)
	if status != "" {
		return status
	}
	if len(offsets) == 0 {
		return jsapi.NoResults
	}
	pending := uint64(len(offsets))
	for _, offset := range offsets {
		if d.request.Batch > 0 && d.sent >= d.request.Batch || d.isFull() {
			break
		}
		r, err := d.shard.Get(offset)
		if isNoRecord(err) {
			return jsapi.MessageNotFound // retention took it meanwhile
		}
		if err != nil {
			return failed(err)
		}
		pending--
		if status := d.add(&r, &pending); status != "" {
			return status
		}
	}
	d.end(pending, end-1)
	return ""
}

// lasts returns the offsets of the last messages of the requested subjects, in order.
func (d *directAnswer) lasts(from, end uint64) ([]uint64, jsapi.Status) {
	last := map[string]uint64{}
	patterns := make([][]byte, 0, len(d.request.MultiLastFor))
	for _, pattern := range d.request.MultiLastFor {
		patterns = append(patterns, []byte(pattern))
	}
	done, err := d.shard.Scan(from, end, directScanBytes, func(r *log.Record) bool {
		matches := func(pattern []byte) bool { return subject.Matches(pattern, r.Subject) }
		if _, known := last[string(r.Subject)]; known || slices.ContainsFunc(patterns, matches) {
			last[string(r.Subject)] = r.Offset
		}
		return len(last) <= directSubjects
	})
	switch {
	case len(last) > directSubjects:
		return nil, jsapi.TooManyResults
	case err != nil:
		return nil, failed(err)
	case !done:
		return nil, tooMuchToSearch
	}
	offsets := make([]uint64, 0, len(last))
	for _, offset := range last {
		offsets = append(offsets, offset)
	}
	slices.Sort(offsets)
	return offsets, ""
}

// start returns the sequence from which on a batch is sent.
func (d *directAnswer) start() (uint64, jsapi.Status) {
	if d.request.StartTime == nil {
		return max(d.request.Sequence, 1), ""
	}
	from, err := offsetAt(d.shard, *d.request.StartTime)
	if err != nil {
		return 0, failed(err)
	}
	return from, ""
}

// count returns how many messages match from a sequence on: an upper bound if there is no index of
// the subjects yet and counting takes too much reading.
func (d *directAnswer) count(pattern string, from, end uint64) (n uint64, err error) {
	if from >= end {
		return 0, nil
	}
	if pattern == ">" {
		return d.shard.Messages(from, end), nil
	}
	ctx, cancel := context.WithTimeout(d.server.ctx, subjectsTime)
	defer cancel()
	if n, err := d.shard.Count(ctx, 0, []string{pattern}, from, end); err == nil {
		return n, nil
	}
	filter, next := []byte(pattern), from
	done, err := d.shard.Scan(from, end, directCountBytes, func(r *log.Record) bool {
		if next = r.Offset + 1; subject.Matches(filter, r.Subject) {
			n++
		}
		return true
	})
	if err != nil || done {
		return n, err
	}
	return n + end - next, nil
}

// isFull reports whether the messages exceed the request's bound of bytes.
func (d *directAnswer) isFull() bool {
	most := directBytes
	if asked := d.request.MaxBytes; asked > 0 {
		most = min(asked, most)
	}
	return d.size >= most
}

// add sends a message. pending is how many follow it, or nil if it is the only one.
func (d *directAnswer) add(r *log.Record, pending *uint64) jsapi.Status {
	header, payload := protocol.SplitData(r.Data, r.Header)
	data := make([]byte, 0, len(header)+len(payload)+256)
	if !d.request.NoHeaders {
		m := jsapi.DirectMessage{Stream: d.call.Stream, Subject: r.Subject, Sequence: r.Offset, Time: r.Time, Header: header}
		if pending != nil {
			m.Batch, m.Pending, m.Last = true, *pending, d.last
		}
		data = m.AppendHeader(data)
	}
	n := len(data)
	if d.server.tooLarge(n + len(payload)) {
		return jsapi.Status("500 Message Too Large With Its Headers")
	}
	d.messages = append(d.messages, protocol.Message{Subject: d.call.reply, Header: n, Data: append(data, payload...)})
	d.sent++
	d.size += len(r.Subject) + len(r.Data)
	d.last = r.Offset
	if d.bytes += n + len(payload); d.bytes >= batchBytes || len(d.messages) >= batchMessages {
		d.flush()
		d.behind.Wait() // what is sent waits in memory
	}
	return ""
}

// end sends the end of a batch. upTo is the last sequence that was looked at, or 0.
func (d *directAnswer) end(pending, upTo uint64) {
	data := jsapi.AppendEndOfBatch(nil, pending, d.last, upTo)
	d.messages = append(d.messages, protocol.Message{Subject: d.call.reply, Header: len(data), Data: data})
}

func (d *directAnswer) flush() {
	switch {
	case len(d.messages) == 0:
	case d.server.reads.Waiting() > 0: // the next answers can be written with this one
		d.behind.Join(d.server.config.Hub.SendSoon(d.messages))
	default:
		d.behind.Join(d.server.config.Hub.Send(d.messages))
	}
	clear(d.messages)
	d.messages, d.bytes = d.messages[:0], 0
}

// offsetAt returns the offset of the first message that is not older than a time, or the end.
func offsetAt(shard *topic.ShardLeader, t time.Time) (uint64, error) {
	start, end := shard.Offsets()
	since := jsapi.RecordTime(t).UnixNano()
	from := end
	for _, segment := range shard.Data().SegmentInfos() {
		if segment.End > segment.Base && segment.End > start && segment.Last.UnixNano() >= since {
			from = max(segment.Base, start)
			break
		}
	}
	found := end
	done, err := shard.Scan(from, end, directScanBytes, func(r *log.Record) bool {
		if r.Time >= since {
			found = r.Offset
		}
		return r.Time < since
	})
	if err == nil && !done {
		err = errors.New("too many messages to search for a time")
	}
	return found, err
}

func isNoRecord(err error) bool {
	var none *records.NoRecordError
	return errors.As(err, &none)
}

// tooMuchToSearch is the refusal of a search that reads too much of a log.
const tooMuchToSearch jsapi.Status = "500 Too Many Messages To Search (name a later seq)"

func failed(err error) jsapi.Status { return jsapi.Status("500 " + jsapi.OneLine(err.Error())) }
