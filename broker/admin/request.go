package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/jsapi"
)

// Prefix begins the subject of every request.
const Prefix = "$CARILLON.API."

// Subjects are the patterns of all requests, and of what brokers ask each other.
var Subjects = []string{Prefix + ">", holdPrefix + ">"}

// The subjects of requests; what they are about is appended.
const (
	TopicListSubject        = Prefix + "TOPIC.LIST"
	TopicInfoSubject        = Prefix + "TOPIC.INFO."
	SubscriptionListSubject = Prefix + "SUBSCRIPTION.LIST."
	SubscriptionInfoSubject = Prefix + "SUBSCRIPTION.INFO."
	TopicCreateSubject      = Prefix + "TOPIC.CREATE."
	BrokerListSubject       = Prefix + "BROKER.LIST"
	BrokerDrainSubject      = Prefix + "BROKER.DRAIN."
	BrokerUndrainSubject    = Prefix + "BROKER.UNDRAIN."
)

// Bounds of requests and answers.
const (
	// maxRequest is more than a list request with the longest name takes, however it is escaped.
	maxRequest = 4 << 10
	// maxCreate is as much as etcd keeps of one Topic.
	maxCreate = 256 << 10
	// MaxPage is how many are listed at once if the request doesn't ask for fewer.
	MaxPage = 256
	// maxAnswer is about where a page ends before it is full: one value may have a quarter of a
	// mebibyte, and an answer must be small beside the largest payload and what a client may leave unread.
	maxAnswer = 512 << 10
)

// ListRequest asks for a page of a list, which is in the order of names.
type ListRequest struct {
	After string `json:"after,omitempty"` // begin behind this name; empty: with the first
	Limit int    `json:"limit,omitempty"` // 0: MaxPage, which is also the most
}

// CreateRequest asks for a Topic.
type CreateRequest struct {
	// Stream is the Topic as JetStream has it, and judged as there; but num_replicas: 0 leaves their
	// number to the brokers. The name may be left out, since the subject has it.
	Stream          jsapi.StreamConfig      `json:"stream"`
	MinInSync       int                     `json:"minInSync,omitempty"`       // 0: a majority
	UncleanElection bool                    `json:"uncleanElection,omitempty"` // false: forbidden
	Shards          int                     `json:"shards,omitempty"`          // 0: 1
	Compaction      coordination.Compaction `json:"compaction,omitempty"`      // empty: None
	// PartitionTokens are the positions in a subject, from 1, that decide its shard; none: all of it does.
	PartitionTokens []int `json:"partitionTokens,omitempty"`
}

// DrainRequest says what a broker is to be relieved of.
type DrainRequest struct {
	Mode coordination.DrainMode `json:"mode,omitempty"` // empty: All
}

// Error says why there is no answer.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"` // for people, with the way out
	// Reason is why a Topic is not served: one of topic.NotServedReason.
	Reason string `json:"reason,omitempty"`
	// Shard is the one on whose account a whole Topic can't be had; nil: it is not for a single one.
	Shard *int `json:"shard,omitempty"`
	// Of records that can't be had: which, what there is, and where to go on.
	Offset uint64 `json:"offset,omitempty"`
	Start  uint64 `json:"start,omitempty"`
	High   uint64 `json:"high,omitempty"`
	Next   uint64 `json:"next,omitempty"`
}

func (e *Error) Error() string { return e.Text }

// Code is from a closed list.
type Code string

// The codes.
const (
	BadRequest Code = "BadRequest" // the subject or the payload is wrong
	NotFound   Code = "NotFound"   // there is no such Topic or Subscription
	NotReady   Code = "NotReady"   // this broker has not yet read what there is
	Busy       Code = "Busy"       // too many requests at once
	NotServed  Code = "NotServed"  // the shard has no leader that can be reached now
	OutOfRange Code = "OutOfRange" // the shard doesn't hold that offset, any more or yet
	TooLarge   Code = "TooLarge"   // the record doesn't fit an answer
	Damaged    Code = "Damaged"    // the disk has something else in the place of these records
	Failed     Code = "Failed"     // the disk couldn't be read
	Expired    Code = "Expired"    // a snapshot that was not renewed in time, or is held by a former leader: ask for it again, with its start and high
	Exists     Code = "Exists"     // there is one of that name already, with other settings
	Refused    Code = "Refused"    // it can't be as things are, as when another Topic keeps the same subjects
	// Unavailable: what was asked for couldn't be written, or it is not known whether it was; ask again.
	Unavailable Code = "Unavailable"
)

func refuse(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

type kind uint8

const (
	topicList kind = iota
	topicInfo
	subscriptionList
	subscriptionInfo
	brokerList
	// These write.
	topicCreate
	brokerDrain
	brokerUndrain
)

// request is what was asked, taken apart.
type request struct {
	kind                kind
	topic, subscription string
	broker              string // id
	page                ListRequest
	create              CreateRequest
	drain               DrainRequest
}

func (r *request) writes() bool { return r.kind >= topicCreate }

// parse takes a subject and its payload apart.
func parse(subject, payload []byte) (request, *Error) {
	r, ok := parseSubject(subject)
	if !ok {
		return request{}, refuse(BadRequest, "there is no request %.100q (use TOPIC.LIST, TOPIC.INFO.<topic>, SUBSCRIPTION.LIST.<topic>, SUBSCRIPTION.INFO.<topic>.<name>, TOPIC.CREATE.<topic>, BROKER.LIST, BROKER.DRAIN.<id>, BROKER.UNDRAIN.<id>, RECORDS.<topic>.<shard>, SNAPSHOT.<topic> or SNAPSHOT.<topic>.<shard>)",
			bytes.TrimPrefix(subject, []byte(Prefix)))
	}
	payload = bytes.TrimSpace(payload)
	most := maxRequest
	var into any
	var example string
	switch r.kind {
	case topicList, subscriptionList, brokerList:
		into, example = &r.page, `a list's (write for example {"after":"orders","limit":100})`
	case topicCreate:
		most, into, example = maxCreate, &r.create, `a new topic's (write for example {"stream":{"subjects":["orders.>"],"num_replicas":3},"minInSync":2})`
	case brokerDrain:
		into, example = &r.drain, `a drain's (write {"mode":"All"} or {"mode":"Leadership"})`
	}
	switch {
	case len(payload) == 0 && r.kind == topicCreate:
		return request{}, refuse(BadRequest, "the request is not %s: it is empty", example)
	case len(payload) == 0:
	case into == nil:
		return request{}, refuse(BadRequest, "a request for one takes no payload (leave it empty)")
	case len(payload) > most:
		return request{}, refuse(BadRequest, "a request of %d bytes (use at most %d)", len(payload), most)
	default:
		if err := decode(payload, into); err != nil {
			return request{}, refuse(BadRequest, "the request is not %s: %.200v", example, err)
		}
	}
	if r.page.Limit < 0 || r.page.Limit > MaxPage {
		return request{}, refuse(BadRequest, "a page of %d (use 1 to %d)", r.page.Limit, MaxPage)
	}
	if r.page.Limit == 0 {
		r.page.Limit = MaxPage
	}
	return r, nil
}

// decode refuses what it doesn't know: a wish that was not understood must not look as if it were met.
func decode(payload []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(payload))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}

func parseSubject(subject []byte) (r request, ok bool) {
	rest, ok := bytes.CutPrefix(subject, []byte(Prefix))
	if !ok {
		return r, false
	}
	tokens := bytes.Split(rest, []byte{'.'})
	for _, token := range tokens {
		if len(token) == 0 {
			return r, false
		}
	}
	if len(tokens) < 2 {
		return r, false
	}
	names := tokens[2:]
	switch string(tokens[0]) + "." + string(tokens[1]) {
	case "TOPIC.LIST":
		return request{kind: topicList}, len(names) == 0
	case "TOPIC.INFO":
		r.kind = topicInfo
		ok = len(names) == 1
	case "BROKER.LIST":
		return request{kind: brokerList}, len(names) == 0
	case "BROKER.DRAIN", "BROKER.UNDRAIN":
		if len(names) != 1 {
			return r, false
		}
		if r.kind = brokerDrain; len(tokens[1]) > len("DRAIN") {
			r.kind = brokerUndrain
		}
		r.broker = string(names[0])
		return r, true
	case "TOPIC.CREATE":
		r.kind = topicCreate
		ok = len(names) == 1
	case "SUBSCRIPTION.LIST":
		r.kind = subscriptionList
		ok = len(names) == 1
	case "SUBSCRIPTION.INFO":
		r.kind = subscriptionInfo
		ok = len(names) == 2
	default:
		return r, false
	}
	if !ok {
		return request{}, false
	}
	r.topic = string(names[0])
	if len(names) == 2 {
		r.subscription = string(names[1])
	}
	return r, true
}
