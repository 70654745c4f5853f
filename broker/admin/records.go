package admin

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/records"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/work"
)

// RecordsSubject is the prefix of requests for records. The Topic and the shard's number follow.
const RecordsSubject = Prefix + "RECORDS."

// Bounds of one answer with records.
const (
	// MaxRecords and MaxRecordsBytes bound one answer. The bytes are the largest payload of every
	// broker, less room for headers.
	MaxRecords      = 1 << 16
	MaxRecordsBytes = 8<<20 - 4<<10
	// usualRecordsBytes is the default size of an answer: small compared with what a client may
	// have pending, and large compared with the cost of a request.
	usualRecordsBytes = 1 << 20
	// MaxRecordsWait bounds how long a request waits for records. A client detects the death of its
	// broker no later.
	MaxRecordsWait = 30 * time.Second
	// headerRoom is more than the size of an answer's header.
	headerRoom = 256
)

// The headers of an answer with records.
const (
	headerRecords = "Carillon-Records"
	headerOffset  = "Carillon-Offset"
	headerNext    = "Carillon-Next"
	headerHigh    = "Carillon-High"
	headerTime    = "Carillon-Time"
	headerGaps    = "Carillon-Gaps"
)

// RecordsRequest requests records of a shard.
type RecordsRequest struct {
	Offset  uint64 `json:"offset,omitempty"`    // of the first record; 0: the oldest
	Bytes   int    `json:"max_bytes,omitempty"` // approximate; 0: 1 MiB
	Records int    `json:"max_records,omitempty"`
	Wait    int    `json:"wait_ms,omitempty"` // if there are no records yet
	Form    Form   `json:"form,omitempty"`
	Gaps    bool   `json:"gaps,omitempty"` // the answer may skip offsets, and says so
	// Snapshot is the id of a snapshot to read; reading renews it. Empty: the current log.
	Snapshot string `json:"snapshot,omitempty"`

	// Where is a condition, and Subjects are patterns: only records that match both are returned. The
	// answer has gaps. Empty: all match.
	Where    string   `json:"where,omitempty"`
	Subjects []string `json:"subjects,omitempty"`
	End      uint64   `json:"end,omitempty"` // records from here on are not looked at; 0: all are

	// Attributes: records in the full form have those of their subject that they were stored with.
	Attributes bool `json:"attributes,omitempty"`
}

// Form is the encoding of records in an answer.
type Form string

// The forms.
const (
	Plain Form = "plain" // payloads only
	Full  Form = "full"  // with subjects, times and headers
)

// check checks the request and fills in defaults.
func (r *RecordsRequest) check() *Error {
	switch {
	case r.Bytes < 0 || r.Bytes > MaxRecordsBytes:
		return refuse(BadRequest, "max_bytes of %d (use 1 to %d, or leave it out)", r.Bytes, MaxRecordsBytes)
	case r.Records < 0 || r.Records > MaxRecords:
		return refuse(BadRequest, "max_records of %d (use 1 to %d, or leave it out)", r.Records, MaxRecords)
	case r.Wait < 0 || r.Wait > int(MaxRecordsWait/time.Millisecond):
		return refuse(BadRequest, "wait_ms of %d (use 0 to %d)", r.Wait, MaxRecordsWait/time.Millisecond)
	case r.Form != "" && r.Form != Plain && r.Form != Full:
		return refuse(BadRequest, "form %.20q (use plain or full)", r.Form)
	}
	if r.Attributes && r.Form != Full {
		return refuse(BadRequest, "attributes without the form full (add it)")
	}
	if refusal := r.checkJudged(); refusal != nil {
		return refusal
	}
	if r.Bytes == 0 {
		r.Bytes = usualRecordsBytes
	}
	if r.Records == 0 {
		r.Records = MaxRecords
	}
	return nil
}

// ofShard parses "<topic>.<shard>".
func ofShard(rest []byte) (name string, number int, ok bool) {
	topicName, digits, found := bytes.Cut(rest, []byte{'.'})
	number, err := strconv.Atoi(string(digits))
	if !found || err != nil || number < 0 || len(topicName) == 0 || strconv.Itoa(number) != string(digits) {
		return "", 0, false
	}
	return string(topicName), number, true
}

// read is one request for records.
type read struct {
	reply    []byte
	by       work.Client // as pools tell clients apart
	user     string      // on whose behalf, see reader
	subject  string      // of the request; empty if that is nobody
	topic    string
	number   int
	chooses  bool // records may have to be left out, since the user may not read all
	request  RecordsRequest
	deadline time.Time // zero: it does not wait
	timer    *time.Timer
	waits    *work.Queued[*read] // its place among the reads that wait; nil: none
	polls    *topic.ShardLeader  // for whose records it waits
	lonely   bool                // nobody waited for its answer at the last look
}

// takeRead forwards a request for records to the shard's leader, or queues it here.
func (s *Server) takeRead(m *protocol.Message, by origin) *Error {
	name, number, ok := ofShard(m.Subject[len(RecordsSubject):])
	if !ok {
		return refuse(BadRequest, "there is no request %.100q (use RECORDS.<topic>.<shard>, shards count from 0)", m.Subject[len(Prefix):])
	}
	payload := m.Data[m.Header:]
	if len(payload) > maxRecordsRequest {
		return refuse(BadRequest, "a request of %d bytes (use at most %d)", len(payload), maxRecordsRequest)
	}
	by.user = s.reader(m, by)
	if !by.forwarded {
		m = identity.Sign(m, by.user)
	}
	_, shard, refusal := s.shard(name, number, m, by)
	if refusal != nil || shard == nil {
		return refusal
	}
	if refusal = s.unsigned(s.topics.State(), name, by.user, by); refusal != nil {
		return refusal
	}
	r := &read{reply: bytes.Clone(m.Reply), by: by.by, user: by.user, topic: name, number: number}
	if by.user != "" {
		r.subject = string(m.Subject)
	}
	if len(bytes.TrimSpace(payload)) > 0 {
		if err := decode(payload, &r.request); err != nil {
			return refuse(BadRequest, `the request is not one for records (write for example {"offset":1,"max_bytes":1048576}): %v`, err)
		}
	}
	if refusal := r.request.check(); refusal != nil {
		return refusal
	}
	if r.request.Wait > 0 {
		r.deadline = time.Now().Add(time.Duration(r.request.Wait) * time.Millisecond)
	}
	if !s.submit(r) {
		return s.tooMany(r)
	}
	return nil
}

// tooMany refuses a request for records for which there is no turn soon.
func (s *Server) tooMany(r *read) *Error {
	s.refused.Add(1)
	of := s.poolOf(r)
	return refuse(Busy, "too many requests for records are under way on this broker: %d are served, %d wait for that, and this client has as many as any (ask again in a moment, and for more at once)", of.most, of.queued)
}

// tooManyWait refuses a request that would have to wait for records.
func (s *Server) tooManyWait() *Error {
	s.refused.Add(1)
	return refuse(Busy, "%d requests wait for records on this broker, and this client has as many as any (ask again in a moment, or in fewer requests)", readsPolling)
}

// shard returns a shard that is led here. If the result and the refusal are nil, m was forwarded to
// the leader.
func (s *Server) shard(name string, number int, m *protocol.Message, by origin) (*topic.Topic, *topic.ShardLeader, *Error) {
	state := s.topics.State()
	if state == nil {
		return nil, nil, notReady()
	}
	desired := state.Topic(name)
	if desired == nil {
		return nil, nil, noTopic(name)
	}
	if number >= desired.Spec.Shards {
		return nil, nil, refuse(NotFound, "topic %s has no shard %d (its shards are 0 to %d)", name, number, desired.Spec.Shards-1)
	}
	t := s.topics.ByID(desired.ID)
	if t == nil {
		return nil, nil, notReady()
	}
	if shard := t.ShardAt(number); shard != nil {
		return t, shard, nil
	}
	// A forwarded request is not forwarded again, so two brokers that disagree about the leader
	// refuse it.
	if leader := t.LeaderOf(number); m != nil && leader != "" {
		if refusal := s.unfiltered(state, leader, desired, string(m.Subject), by); refusal != nil {
			return t, nil, refusal
		}
		if s.pass(leader, m, by) {
			return t, nil, nil
		}
	}
	return t, nil, notServed(name, t.WhyNotAt(number))
}

func notReady() *Error {
	return refuse(NotReady, "this broker has not read the Topics yet (ask again in a second)")
}

func notServed(name string, err error) *Error {
	refusal := refuse(NotServed, "topic %s is being opened (ask again in a second)", name)
	var why *publish.NotServedError
	if errors.As(err, &why) {
		refusal.Text, refusal.Reason = why.Error(), string(why.Reason)
	} else if err != nil {
		refusal.Text = err.Error()
	}
	return refusal
}

// serve answers a request, or makes it wait for new records.
func (s *Server) serve(w *worker, r *read) {
	need := len(r.reply) + headerRoom + judgedRoom + r.request.Bytes + records.ReadRoom
	if w.loan != nil && (len(w.out) == gatheredAnswers || w.used+need > len(w.loan.Bytes())) {
		s.flush(w)
	}
	_, shard, refusal := s.shard(r.topic, r.number, nil, origin{})
	if refusal != nil {
		s.refuse(r.reply, refusal)
		return
	}
	may, refusal := s.sight(r.user, r.subject, shard.Shard().Desired(), r.request.Subjects)
	if refusal != nil {
		s.refuse(r.reply, refusal)
		return
	}
	if !may.likely && !r.judged() {
		s.choose(r)
		return
	}
	var pin *records.Pin
	if id := r.request.Snapshot; id != "" {
		if pin = s.snapshots.of(shard, id); pin == nil {
			s.refuse(r.reply, refuse(Expired, "topic %s: the snapshot %.64q is not held on this broker, or no more (ask for it again, with its start and high)", r.topic, id))
			return
		}
	}
	if w.loan == nil {
		w.loan = session.Borrow(max(need, gatheredBytes))
	}
	memory := w.loan.Bytes()
	begin := w.used + len(r.reply) + headerRoom
	full := r.request.Form == Full
	q := records.Query{
		Offset: r.request.Offset, Records: r.request.Records, Bytes: r.request.Bytes, Most: MaxRecordsBytes, Full: full, Attributes: r.request.Attributes, Gaps: r.request.Gaps, Pin: pin, Sees: may.sees,
	}
	if r.judged() {
		s.serveJudged(w, r, shard, q, may)
		return
	}
	data, got, err := w.Read(&shard.Reader, q, memory[:begin])
	if err != nil {
		s.refuse(r.reply, unreadable(r, err))
		return
	}
	if got.Hidden && got.Count == 0 {
		s.choose(r)
		return
	}
	if got.Count == 0 && pin == nil && s.waits(r, shard, got.Next) {
		return
	}
	w.header = appendRecordsHeader(w.header[:0], &got, full)
	s.gather(w, r.reply, data)
}

// choose has a request served again, by those that look at each record: some must not be returned.
func (s *Server) choose(r *read) {
	r.chooses = true
	s.resume(r)
}

// gather adds an answer: the worker's header, and records. The records are in the worker's memory
// with room before them, or in memory of their own if they exceed the requested size.
func (s *Server) gather(w *worker, reply, records []byte) {
	front := len(reply) + len(w.header)
	memory := w.loan.Bytes()
	begin := w.used + front
	if len(records) > 0 {
		// If both are in the same memory, they end at the same byte.
		begin = len(memory) - cap(records)
		if begin < 0 || &memory[begin] != &records[0] {
			if len(w.out) > 0 {
				s.flush(w)
			} else {
				w.release()
			}
			w.loan = session.Borrow(front + len(records))
			memory, begin = w.loan.Bytes(), front
			copy(memory[begin:], records)
		}
	}
	at := begin - front
	data, end := memory[at+len(reply):], begin+len(records)
	copy(data, w.header)
	w.used = end
	w.out = append(w.out, protocol.Message{
		Subject: memory[at : at+copy(memory[at:], reply)], Header: len(w.header), Data: data[:len(w.header)+len(records)],
	})
}

// flush sends the gathered answers, and waits until there is room for more: what is sent waits in
// memory.
func (s *Server) flush(w *worker) {
	var behind work.Behind
	if len(w.out) > 0 {
		behind = s.hub.SendLent(w.loan, w.out)
		w.loan = nil
	}
	w.release()
	behind.Wait()
}

// release releases the worker's memory.
func (w *worker) release() {
	if w.loan != nil {
		w.loan.Return()
	}
	clear(w.out)
	w.loan, w.used, w.out = nil, 0, w.out[:0]
}

func appendRecordsHeader(dst []byte, got *records.Range, full bool) []byte {
	return append(appendRecordsLines(dst, got, full), "\r\n"...)
}

// appendRecordsLines appends a header without the line that ends it.
func appendRecordsLines(dst []byte, got *records.Range, full bool) []byte {
	dst = append(dst, "NATS/1.0\r\n"...)
	dst = appendLine(dst, headerRecords, uint64(got.Count))
	dst = appendLine(dst, headerOffset, got.First)
	dst = appendLine(dst, headerNext, got.Next)
	dst = appendLine(dst, headerHigh, got.High)
	if full {
		dst = appendLine(dst, headerTime, uint64(got.Time))
	}
	if got.Gapped {
		dst = appendLine(dst, headerGaps, 1)
	}
	return dst
}

func appendLine(dst []byte, key string, value uint64) []byte {
	dst = append(append(dst, key...), ": "...)
	return append(strconv.AppendUint(dst, value, 10), "\r\n"...)
}

// unreadable translates the error of a read.
func unreadable(r *read, err error) *Error {
	switch e := err.(type) {
	case *records.OffsetError:
		return &Error{Code: OutOfRange, Text: e.Error(), Start: e.Start, High: e.High}
	case *records.SizeError:
		return &Error{Code: TooLarge, Text: e.Error(), Offset: e.Offset}
	case *publish.NotServedError:
		return notServed(r.topic, e)
	case *log.CorruptError:
		return &Error{Code: Damaged, Text: fmt.Sprintf("topic %s: %v", r.topic, e), Offset: e.From, Next: e.Next}
	}
	return refuse(Failed, "topic %s: shard %d can't be read: %v (ask again; if it stays so, look at its broker)", r.topic, r.number, err)
}

// busyPrefix begins an encoded answer that refuses since too much is under way.
var busyPrefix = []byte(`{"error":{"code":"` + string(Busy) + `"`)

func encodeError(e *Error) []byte {
	return encode(struct {
		Error *Error `json:"error"`
	}{e})
}
