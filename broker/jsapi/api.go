package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"
)

// APIPrefix is the prefix of the subjects of API calls. Prefixes of JetStream domains are not
// supported.
const APIPrefix = "$JS.API."

// APISubjects is the pattern of all API calls.
const APISubjects = APIPrefix + ">"

// Call is the kind of an API call.
type Call uint8

// The calls. Unknown ones are not answered, as with nats-server.
const (
	Unknown Call = iota
	AccountInfo
	StreamCreate
	StreamUpdate
	StreamInfoCall
	StreamDelete
	StreamPurge
	StreamNames
	StreamList
	MessageGet
	MessageDelete
	DirectGet       // the payload names the message
	DirectGetLast   // the last message of Request.Filter
	ConsumerCreate  // Consumer is empty if the client lets the broker choose the name
	ConsumerDurable // the old form of ConsumerCreate, always with a durable name
	ConsumerInfoCall
	ConsumerDelete
	ConsumerNames
	ConsumerList
	ConsumerNext
	ConsumerPause
	ConsumerReset
	ConsumerUnpin

	// Calls that are declined, see Declined.
	StreamStepDown
	StreamPeerRemove
	StreamPeerEvacuate
	StreamCancelMove
	StreamSnapshot
	StreamRestore
	ConsumerStepDown
	ConsumerPeerRemove
	ConsumerPeerEvacuate
	MetaStepDown
	ServerRemove
)

// responseTypes are the types by which jsm.go and the nats command line tell answers apart. Direct
// gets and pulls are answered by messages and not by JSON.
var responseTypes = [...]string{
	Unknown:          "system_response",
	AccountInfo:      "account_info_response",
	StreamCreate:     "stream_create_response",
	StreamUpdate:     "stream_update_response",
	StreamInfoCall:   "stream_info_response",
	StreamDelete:     "stream_delete_response",
	StreamPurge:      "stream_purge_response",
	StreamNames:      "stream_names_response",
	StreamList:       "stream_list_response",
	MessageGet:       "stream_msg_get_response",
	MessageDelete:    "stream_msg_delete_response",
	DirectGet:        "",
	DirectGetLast:    "",
	ConsumerCreate:   "consumer_create_response",
	ConsumerDurable:  "consumer_create_response",
	ConsumerInfoCall: "consumer_info_response",
	ConsumerDelete:   "consumer_delete_response",
	ConsumerNames:    "consumer_names_response",
	ConsumerList:     "consumer_list_response",
	ConsumerNext:     "",

	StreamStepDown:       "stream_leader_stepdown_response",
	StreamPeerRemove:     "stream_remove_peer_response",
	StreamPeerEvacuate:   "stream_evacuate_peer_response",
	StreamCancelMove:     "stream_cancel_move_response",
	StreamSnapshot:       "stream_snapshot_response",
	StreamRestore:        "stream_restore_response",
	ConsumerStepDown:     "consumer_leader_stepdown_response",
	ConsumerPeerRemove:   "consumer_remove_peer_response",
	ConsumerPeerEvacuate: "consumer_evacuate_peer_response",
	ConsumerPause:        "consumer_pause_response",
	ConsumerReset:        "consumer_reset_response",
	ConsumerUnpin:        "consumer_unpin_response",
	MetaStepDown:         "meta_leader_stepdown_response",
	ServerRemove:         "meta_server_remove_response",
}

// Calls yields all calls but Unknown.
func Calls(yield func(Call) bool) {
	for c := Unknown + 1; int(c) < len(responseTypes); c++ {
		if !yield(c) {
			return
		}
	}
}

// ResponseType returns the "type" of the answer to the call. It is empty for calls that are
// answered by messages.
func (c Call) ResponseType() string {
	if int(c) >= len(responseTypes) || responseTypes[c] == "" {
		return ""
	}
	return "io.nats.jetstream.api.v1." + responseTypes[c]
}

// Request is a parsed API subject. Its slices alias the subject.
type Request struct {
	Call     Call
	Stream   []byte
	Consumer []byte
	Filter   []byte // of a ConsumerCreate, or the subject of a DirectGetLast
}

// ParseSubject parses an API subject. It reports false for other subjects. An API subject that
// nats-server does not know either is Unknown.
func ParseSubject(subject []byte) (r Request, ok bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(APIPrefix))
	if !ok || len(rest) == 0 {
		return Request{}, false
	}
	group, rest, _ := bytes.Cut(rest, dot)
	switch string(group) {
	case "INFO":
		if len(rest) == 0 {
			r.Call = AccountInfo
		}
	case "STREAM":
		r = parseStream(rest)
	case "DIRECT":
		r = parseDirect(rest)
	case "CONSUMER":
		r = parseConsumer(rest)
	case "META":
		if string(rest) == "LEADER.STEPDOWN" {
			r.Call = MetaStepDown
		}
	case "SERVER":
		if string(rest) == "REMOVE" {
			r.Call = ServerRemove
		}
	}
	return r, true
}

func parseStream(rest []byte) Request {
	verb, rest, more := bytes.Cut(rest, dot)
	switch string(verb) {
	case "NAMES":
		return ifNothing(StreamNames, more)
	case "LIST":
		return ifNothing(StreamList, more)
	case "CREATE":
		return ofStream(StreamCreate, rest)
	case "UPDATE":
		return ofStream(StreamUpdate, rest)
	case "INFO":
		return ofStream(StreamInfoCall, rest)
	case "DELETE":
		return ofStream(StreamDelete, rest)
	case "PURGE":
		return ofStream(StreamPurge, rest)
	case "MSG":
		verb, rest, _ = bytes.Cut(rest, dot)
		switch string(verb) {
		case "GET":
			return ofStream(MessageGet, rest)
		case "DELETE":
			return ofStream(MessageDelete, rest)
		}
	case "SNAPSHOT":
		return ofStream(StreamSnapshot, rest)
	case "RESTORE":
		return ofStream(StreamRestore, rest)
	case "CANCEL_MOVE":
		return ofStream(StreamCancelMove, rest)
	case "LEADER":
		return ofStream(after(rest, "STEPDOWN.", StreamStepDown))
	case "PEER":
		if call, rest := after(rest, "REMOVE.", StreamPeerRemove); call != Unknown {
			return ofStream(call, rest)
		}
		return ofStream(after(rest, "EVACUATE.", StreamPeerEvacuate))
	}
	return Request{}
}

// after returns the call and what follows the verb, or Unknown if it is another verb.
func after(rest []byte, verb string, call Call) (Call, []byte) {
	if of, ok := bytes.CutPrefix(rest, []byte(verb)); ok {
		return call, of
	}
	return Unknown, nil
}

func parseDirect(rest []byte) Request {
	verb, rest, _ := bytes.Cut(rest, dot)
	if string(verb) != "GET" {
		return Request{}
	}
	stream, key, more := bytes.Cut(rest, dot)
	switch {
	case len(stream) == 0, more && len(key) == 0:
		return Request{}
	case more:
		return Request{Call: DirectGetLast, Stream: stream, Filter: key}
	}
	return Request{Call: DirectGet, Stream: stream}
}

func parseConsumer(rest []byte) Request {
	verb, rest, _ := bytes.Cut(rest, dot)
	switch string(verb) {
	case "CREATE":
		stream, rest, more := bytes.Cut(rest, dot)
		consumer, filter, filtered := bytes.Cut(rest, dot)
		if len(stream) == 0 || more && len(consumer) == 0 || filtered && len(filter) == 0 {
			return Request{}
		}
		return Request{ConsumerCreate, stream, consumer, filter}
	case "DURABLE":
		if rest, ok := bytes.CutPrefix(rest, []byte("CREATE.")); ok {
			return ofConsumer(ConsumerDurable, rest)
		}
	case "INFO":
		return ofConsumer(ConsumerInfoCall, rest)
	case "DELETE":
		return ofConsumer(ConsumerDelete, rest)
	case "NAMES":
		return ofStream(ConsumerNames, rest)
	case "LIST":
		return ofStream(ConsumerList, rest)
	case "MSG":
		if rest, ok := bytes.CutPrefix(rest, []byte("NEXT.")); ok {
			return ofConsumer(ConsumerNext, rest)
		}
	case "PAUSE":
		return ofConsumer(ConsumerPause, rest)
	case "RESET":
		return ofConsumer(ConsumerReset, rest)
	case "UNPIN":
		return ofConsumer(ConsumerUnpin, rest)
	case "LEADER":
		return ofConsumer(after(rest, "STEPDOWN.", ConsumerStepDown))
	case "PEER":
		if call, rest := after(rest, "REMOVE.", ConsumerPeerRemove); call != Unknown {
			return ofConsumer(call, rest)
		}
		return ofConsumer(after(rest, "EVACUATE.", ConsumerPeerEvacuate))
	}
	return Request{}
}

func ifNothing(call Call, more bool) Request {
	if more {
		return Request{}
	}
	return Request{Call: call}
}

func ofStream(call Call, rest []byte) Request {
	if len(rest) == 0 || bytes.IndexByte(rest, '.') >= 0 {
		return Request{}
	}
	return Request{Call: call, Stream: rest}
}

func ofConsumer(call Call, rest []byte) Request {
	stream, consumer, _ := bytes.Cut(rest, dot)
	if len(stream) == 0 || len(consumer) == 0 || bytes.IndexByte(consumer, '.') >= 0 {
		return Request{}
	}
	return Request{Call: call, Stream: stream, Consumer: consumer}
}

// Decode decodes the payload of a request. It refuses and names an unknown field, as nats-server
// does by default: a setting that was not understood must not seem to be in effect. An empty
// payload yields the zero value; calls that need a payload check for that themselves.
func Decode[T any](payload []byte) (request T, _ *Error) {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(&request); errors.Is(err, io.EOF) {
		return request, nil
	} else if err != nil {
		return request, ErrInvalidJSON.With(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return request, ErrInvalidJSON.With("more than one value")
	}
	return request, nil
}

// Response is the head of every answer in JSON.
type Response struct {
	Type  string `json:"type"`
	Error *Error `json:"error,omitempty"`
}

// Answer returns the head of the answer to the call.
func (c Call) Answer() Response { return Response{Type: c.ResponseType()} }

// Refuse returns the complete answer to a call that failed.
func (c Call) Refuse(err *Error) []byte {
	data, _ := json.Marshal(Response{c.ResponseType(), err}) // cannot fail: the fields are plain
	return data
}

// Paged describes the page of a list in its answer.
type Paged struct {
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// Page lengths of nats-server. Names are short, and infos are not.
const (
	NamesPage    = 1024
	ListPage     = 256
	SubjectsPage = 100_000
)

// Page returns the page of all that begins at offset. all must be in the same order each time.
func Page[T any](all []T, offset, limit int) ([]T, Paged) {
	offset = min(max(offset, 0), len(all))
	end := min(offset+limit, len(all))
	page := slices.Clone(all[offset:end])
	if page == nil {
		page = []T{} // clients expect a list and not null
	}
	return page, Paged{len(all), offset, limit}
}

// DropMissing sets Total to the number of listed entries on the last page if entries are missing.
// Clients request pages until they have Total entries, and would never stop.
func (p *Paged) DropMissing(missing, listed int) {
	if p.Offset+listed+missing >= p.Total {
		p.Total = p.Offset + listed
	}
}

// PageRequest requests a page of streams or consumers. Subject selects streams that may have
// messages on it.
type PageRequest struct {
	Offset  int    `json:"offset,omitempty"`
	Limit   int    `json:"limit,omitempty"` // sent by nats.go and ignored
	Subject string `json:"subject,omitempty"`
}

// StreamInfoRequest selects the details of a stream's info.
type StreamInfoRequest struct {
	Offset         int    `json:"offset,omitempty"`
	DeletedDetails bool   `json:"deleted_details,omitempty"`
	SubjectsFilter string `json:"subjects_filter,omitempty"`
}

// PurgeRequest selects the messages to purge: all below Sequence, or all but the newest Keep; of
// Subject only, if set.
type PurgeRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	Subject  string `json:"filter,omitempty"`
	Keep     uint64 `json:"keep,omitempty"`
}

// Check reports a contradiction in the request.
func (r *PurgeRequest) Check() *Error {
	if r.Sequence > 0 && r.Keep > 0 {
		return ErrBadRequest
	}
	return nil
}

// MessageDeleteRequest names a message to delete.
type MessageDeleteRequest struct {
	Sequence uint64 `json:"seq"`
	NoErase  bool   `json:"no_erase,omitempty"`
}

// GetRequest names a message: by its sequence, as the last of a subject, or as the next of a
// subject from a sequence or a time on.
type GetRequest struct {
	Sequence  uint64     `json:"seq,omitempty"`
	LastFor   string     `json:"last_by_subj,omitempty"`
	NextFor   string     `json:"next_by_subj,omitempty"`
	StartTime *time.Time `json:"start_time,omitempty"`
	NoHeaders bool       `json:"no_hdr,omitempty"`

	// Of direct gets of several messages.
	Batch        int        `json:"batch,omitempty"`
	MaxBytes     int        `json:"max_bytes,omitempty"`
	MultiLastFor []string   `json:"multi_last,omitempty"`
	UpToSequence uint64     `json:"up_to_seq,omitempty"`
	UpToTime     *time.Time `json:"up_to_time,omitempty"`
}

// IsEmpty reports whether the request names nothing but the form of the answer.
func (r *GetRequest) IsEmpty() bool {
	return r.Sequence == 0 && r.LastFor == "" && r.NextFor == "" && r.StartTime == nil && r.Batch == 0 &&
		len(r.MultiLastFor) == 0 && r.UpToSequence == 0 && r.UpToTime == nil
}

// CheckDirect returns the refusal of a direct get that names no message or contradicts itself, or
// nothing.
func (r *GetRequest) CheckDirect() Status {
	last, many := r.LastFor != "", len(r.MultiLastFor) > 0
	switch {
	case r.Sequence == 0 && !last && r.NextFor == "" && !many && r.StartTime == nil:
		return EmptyRequest
	case r.Sequence > 0 && (last || r.StartTime != nil),
		last && (r.StartTime != nil || r.NextFor != "" || r.Batch > 0 || many),
		r.NextFor != "" && many, r.UpToSequence > 0 && r.UpToTime != nil:
		return BadRequest
	}
	return ""
}

// Check reports a request that names no message, contradicts itself, or selects several messages.
func (r *GetRequest) Check() *Error {
	many := r.Batch != 0 || r.MaxBytes != 0 || len(r.MultiLastFor) > 0 || r.UpToSequence != 0 || r.UpToTime != nil
	none := r.Sequence == 0 && r.LastFor == "" && r.NextFor == "" && r.StartTime == nil
	if many || none ||
		r.LastFor != "" && (r.Sequence > 0 || r.StartTime != nil || r.NextFor != "") ||
		r.Sequence > 0 && r.StartTime != nil {
		return ErrBadRequest
	}
	return nil
}

// MayWait reports whether the call always waits for etcd or for other brokers. Other calls that
// turn out to wait move to the slow pool themselves.
func (c Call) MayWait() bool {
	switch c {
	case AccountInfo, StreamCreate, StreamUpdate, StreamDelete, StreamList:
		return true
	}
	return false
}

// MayCount reports whether the call may count messages or subjects by an index, which may take
// seconds.
func (c Call) MayCount() bool {
	switch c {
	case StreamInfoCall, ConsumerCreate, ConsumerDurable, ConsumerInfoCall, ConsumerList:
		return true
	}
	return false
}

// OfOneStream reports whether the call is served by the stream's leader. Deletions are not: a
// stream without a reachable leader must be deletable.
func (c Call) OfOneStream() bool {
	switch c {
	case Unknown, AccountInfo, StreamCreate, StreamDelete, StreamNames, StreamList:
		return false
	}
	return c < StreamStepDown
}

// Declined returns the refusal of a call that Carillon does not serve, or nil. standalone is a
// broker that links to no others, where nats-server refuses calls about replicas.
func (c Call) Declined(standalone bool) *Error {
	switch c {
	case StreamSnapshot, StreamRestore:
		return ErrStreamGeneral.With("backups of streams in nats-server's format are not supported yet")
	case StreamStepDown, StreamPeerRemove, StreamPeerEvacuate, StreamCancelMove, ConsumerStepDown, ConsumerPeerRemove, ConsumerPeerEvacuate,
		MetaStepDown, ServerRemove:
		if standalone {
			return ErrClusterRequired
		}
	}
	switch c {
	case StreamStepDown, ConsumerStepDown:
		return ErrStreamGeneral.With("brokers elect the leaders of streams themselves (carillon brokers drain BROKER --leadership moves all that one leads)")
	case StreamPeerRemove, StreamPeerEvacuate, StreamCancelMove, ConsumerPeerRemove, ConsumerPeerEvacuate:
		return ErrStreamGeneral.With("brokers place replicas themselves (carillon brokers drain BROKER moves all of one's)")
	case MetaStepDown:
		return ErrStreamGeneral.With("there is no meta leader: brokers elect their controller themselves")
	case ServerRemove:
		return ErrStreamGeneral.With("brokers leave by themselves when their registration ends (carillon brokers drain BROKER moves what one has)")
	}
	return nil
}
