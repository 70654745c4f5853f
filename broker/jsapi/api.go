package jsapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"
)

// APIPrefix begins the subject of every API call. That of another domain is not ours.
const APIPrefix = "$JS.API."

// APISubjects is the pattern of all API calls.
const APISubjects = APIPrefix + ">"

// APILevel is the JetStream API level that is served: what nats-server had before it
// counted. A stream or request that needs more is refused.
const APILevel = 0

// RequiredLevelHeader is how a client says that its request needs an API level.
const RequiredLevelHeader = "Nats-Required-Api-Level"

// Call is what an API subject asks for.
type Call uint8

// The calls. Unknown is also what nats-server knows and Carillon doesn't.
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
	DirectGet       // by its payload
	DirectGetLast   // of Request.Filter
	ConsumerCreate  // Consumer is empty if the client lets the broker choose the name
	ConsumerDurable // the former way, always with a durable name
	ConsumerInfoCall
	ConsumerDelete
	ConsumerNames
	ConsumerList
	ConsumerNext
)

// responseTypes are how jsm.go and the nats command line tell answers apart. A direct get and a pull
// are answered by messages, not by JSON.
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
}

// ResponseType is the "type" of the answer to the call; empty for calls that are answered by messages.
func (c Call) ResponseType() string {
	if int(c) >= len(responseTypes) || responseTypes[c] == "" {
		return ""
	}
	return "io.nats.jetstream.api.v1." + responseTypes[c]
}

// Request is an API subject, taken apart. Its slices point into the subject.
type Request struct {
	Call     Call
	Stream   []byte
	Consumer []byte
	Filter   []byte // of a ConsumerCreate, or the subject of a DirectGetLast
}

// ParseSubject takes an API subject apart. It is not ok if it isn't one. What is one and is not
// served is Unknown, and is answered with ErrBadRequest, as nats-server does.
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
	}
	return Request{}
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

// Decode reads the payload of a request. A field that is not known is refused and named, as a
// nats-server in its default mode does: a setting that was not understood must not look as if it held.
// An empty payload leaves all at zero; which calls need one is theirs to say.
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

// Response begins every answer in JSON.
type Response struct {
	Type  string `json:"type"`
	Error *Error `json:"error,omitempty"`
}

// Answer begins the answer to the call.
func (c Call) Answer() Response { return Response{Type: c.ResponseType()} }

// Refuse is the whole answer to a call that failed.
func (c Call) Refuse(err *Error) []byte {
	data, _ := json.Marshal(Response{c.ResponseType(), err}) // plain fields: it can't fail
	return data
}

// Paged is the part of a long answer that was asked for.
type Paged struct {
	Total  int `json:"total"`
	Offset int `json:"offset"`
	Limit  int `json:"limit"`
}

// Page lengths are nats-server's: names are short, details are not.
const (
	NamesPage = 1024
	ListPage  = 256
)

// Page cuts the page that begins at offset out of all, which must be in the same order each time.
func Page[T any](all []T, offset, limit int) ([]T, Paged) {
	offset = min(max(offset, 0), len(all))
	end := min(offset+limit, len(all))
	page := slices.Clone(all[offset:end])
	if page == nil {
		page = []T{} // clients read a list, not null
	}
	return page, Paged{len(all), offset, limit}
}

// DropMissing tells of the last page that it is the last, though some of it are missing: clients go on
// asking until they have got Total, and would for ever.
func (p *Paged) DropMissing(missing, listed int) {
	if p.Offset+listed+missing >= p.Total {
		p.Total = p.Offset + listed
	}
}

// PageRequest asks for a page of streams or consumers; Subject keeps streams that may have it.
type PageRequest struct {
	Offset  int    `json:"offset,omitempty"`
	Limit   int    `json:"limit,omitempty"` // sent by nats.go; the broker decides
	Subject string `json:"subject,omitempty"`
}

// StreamInfoRequest says which details of a stream are wanted.
type StreamInfoRequest struct {
	Offset         int    `json:"offset,omitempty"`
	DeletedDetails bool   `json:"deleted_details,omitempty"`
	SubjectsFilter string `json:"subjects_filter,omitempty"`
}

// PurgeRequest says what goes: all below Sequence, or all but the newest Keep; of Subject, if it is set.
type PurgeRequest struct {
	Sequence uint64 `json:"seq,omitempty"`
	Subject  string `json:"filter,omitempty"`
	Keep     uint64 `json:"keep,omitempty"`
}

// Check says what is contradictory in the request.
func (r *PurgeRequest) Check() *Error {
	if r.Sequence > 0 && r.Keep > 0 {
		return ErrBadRequest
	}
	return nil
}

// MessageDeleteRequest names a message that is to go.
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

	// Many messages in one direct get are not served yet.
	Batch        int        `json:"batch,omitempty"`
	MaxBytes     int        `json:"max_bytes,omitempty"`
	MultiLastFor []string   `json:"multi_last,omitempty"`
	UpToSequence uint64     `json:"up_to_seq,omitempty"`
	UpToTime     *time.Time `json:"up_to_time,omitempty"`
}

// Check says that the request names no message, or is contradictory, or asks for many.
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

// MayWait says whether the call waits for etcd or for other brokers. Of those for one stream, the others
// find out for themselves.
func (c Call) MayWait() bool {
	switch c {
	case AccountInfo, StreamCreate, StreamUpdate, StreamDelete, StreamList:
		return true
	}
	return false
}

// OfOneStream says whether the call is for the stream's leader. Deletions are not: a stream
// whose broker is away must be free to go.
func (c Call) OfOneStream() bool {
	switch c {
	case Unknown, AccountInfo, StreamCreate, StreamDelete, StreamNames, StreamList:
		return false
	}
	return true
}
