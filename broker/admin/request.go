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

// Prefix is the prefix of all request subjects.
const Prefix = "$CARILLON.API."

// Subjects are the patterns of all requests, and of requests between brokers.
var Subjects = []string{Prefix + ">", holdPrefix + ">"}

// The subjects of requests. Their object follows.
const (
	TopicListSubject        = Prefix + "TOPIC.LIST"
	TopicInfoSubject        = Prefix + "TOPIC.INFO."
	SubscriptionListSubject = Prefix + "SUBSCRIPTION.LIST."
	SubscriptionInfoSubject = Prefix + "SUBSCRIPTION.INFO."
	TopicCreateSubject      = Prefix + "TOPIC.CREATE."
	// SubscriptionCreateSubject is followed by the names of a Topic and a Subscription.
	SubscriptionCreateSubject = Prefix + "SUBSCRIPTION.CREATE."
	// SubscriptionResetSubject is followed by the same.
	SubscriptionResetSubject = Prefix + "SUBSCRIPTION.RESET."

	BrokerListSubject    = Prefix + "BROKER.LIST"
	BrokerDrainSubject   = Prefix + "BROKER.DRAIN."
	BrokerUndrainSubject = Prefix + "BROKER.UNDRAIN."
)

// Bounds of requests and answers.
const (
	// maxRequest is more than a list request with the longest name takes, with any escaping.
	maxRequest = 4 << 10
	// maxCreate is the largest value of a Topic in etcd.
	maxCreate = 256 << 10
	// MaxPage is the largest and the default number of entries of a page.
	MaxPage = 256
	// maxAnswer is the size in bytes at which a page ends early: one value may have 256 KiB, and an
	// answer must be small compared with the largest payload and with what a client may have
	// pending.
	maxAnswer = 512 << 10
)

// ListRequest requests a page of a list, in the order of names.
type ListRequest struct {
	After string `json:"after,omitempty"` // begin after this name; empty: with the first
	Limit int    `json:"limit,omitempty"` // 0: MaxPage, which is also the maximum
}

// CreateRequest requests a Topic.
type CreateRequest struct {
	// Stream is the Topic as a JetStream stream, checked as such, except that num_replicas 0 leaves
	// the number to the brokers. The name may be left out, since the subject has it.
	Stream          jsapi.StreamConfig      `json:"stream"`
	MinInSync       int                     `json:"minInSync,omitempty"`       // 0: a majority
	UncleanElection bool                    `json:"uncleanElection,omitempty"` // false: forbidden
	Shards          int                     `json:"shards,omitempty"`          // 0: 1, or as many as the origin of a mirror
	Compaction      coordination.Compaction `json:"compaction,omitempty"`      // empty: None
	// PartitionTokens are the positions of the tokens, from 1, that decide a subject's shard; none:
	// all of the subject.
	PartitionTokens []int `json:"partitionTokens,omitempty"`
}

// BeyondJetStream reports whether JetStream's API has no word for some of the settings.
func (r *CreateRequest) BeyondJetStream() bool {
	return r.MinInSync > 0 || r.UncleanElection || r.Shards > 1 || len(r.PartitionTokens) > 0 || r.Compaction != ""
}

// CreateSubscriptionRequest requests a Subscription whose settings JetStream's API lacks.
type CreateSubscriptionRequest struct {
	Start       coordination.Start `json:"start,omitzero"`       // none: Latest
	Subjects    []string           `json:"subjects,omitempty"`   // filter; none: all
	Where       string             `json:"where,omitempty"`      // condition, in CEL; empty: none
	Ack         coordination.Ack   `json:"ack,omitzero"`         // durations in nanoseconds
	DeadLetter  string             `json:"deadLetter,omitempty"` // name of a Topic; empty: none
	Description string             `json:"description,omitempty"`
	// Push is where records are sent; nil: clients pull. Brokers refuse it unless they were started
	// to permit it.
	Push *coordination.Push `json:"push,omitempty"`
}

// ResetRequest moves the cursor of a Subscription.
type ResetRequest struct {
	To coordination.Start `json:"to"`
}

// DrainRequest is the drain mode of a broker.
type DrainRequest struct {
	Mode coordination.DrainMode `json:"mode,omitempty"` // empty: All
}

// Error is why a request failed.
type Error struct {
	Code Code   `json:"code"`
	Text string `json:"text"` // a sentence with the way out
	// Reason is why a Topic is not served: a publish.NotServedReason.
	Reason string `json:"reason,omitempty"`
	// Shard is the shard that made a request for a whole Topic fail; nil: not a single one.
	Shard *int `json:"shard,omitempty"`
	// For records: the offset, the range that is there, and the offset to continue with.
	Offset uint64 `json:"offset,omitempty"`
	Start  uint64 `json:"start,omitempty"`
	High   uint64 `json:"high,omitempty"`
	Next   uint64 `json:"next,omitempty"`
}

func (e *Error) Error() string { return e.Text }

// Code is the kind of an error, from a closed list.
type Code string

// The codes.
const (
	BadRequest Code = "BadRequest" // the subject or the payload is wrong
	NotFound   Code = "NotFound"   // no such Topic, Subscription, View or broker
	NotReady   Code = "NotReady"   // this broker has not read the State yet
	Busy       Code = "Busy"       // too many concurrent requests
	NotServed  Code = "NotServed"  // the shard has no reachable leader
	OutOfRange Code = "OutOfRange" // the shard does not have that offset, any more or yet
	TooLarge   Code = "TooLarge"   // the record exceeds the size of an answer
	Damaged    Code = "Damaged"    // the records are damaged on the disk
	Failed     Code = "Failed"     // the disk could not be read
	// Expired: a snapshot that was not renewed in time or is held by a former leader. Request it
	// again with its start and high.
	Expired Code = "Expired"
	Exists  Code = "Exists"  // it exists with other settings
	Changed Code = "Changed" // it is at another revision than the request names
	// Forbidden: the user has no right to it.
	Forbidden Code = "Forbidden"
	Refused   Code = "Refused" // not possible now, for example because another Topic claims the subjects
	// Unavailable: the write failed, or its result is unknown. Try again.
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
	brokerClock
	brokerConfirmClock
	brokerSetAside
	brokerDeleteSetAside
	subscriptionStates
	topicCopies
	attributesGet
	attributesList
	attributesSet // of their own way to etcd, as attributesDelete
	attributesDelete
	viewList
	viewInfo
	viewGet
	// These write to etcd.
	topicCreate
	subscriptionCreate
	subscriptionReset
	brokerDrain
	brokerUndrain
	viewCreate
	viewUpdate
	viewDelete
)

// request is a parsed request.
type request struct {
	kind                kind
	topic, subscription string
	broker              string // id
	page                ListRequest
	create              CreateRequest
	createSubscription  CreateSubscriptionRequest
	reset               ResetRequest
	drain               DrainRequest
	confirm             ConfirmClockRequest
	aside               DeleteSetAsideRequest
	states              StatesRequest
	attributes          *attributesRequest // nil: of another kind
	view                *viewRequest       // nil: of another kind
}

func (r *request) writes() bool { return r.kind >= topicCreate }

// parse parses a subject and its payload.
func parse(subject, payload []byte) (request, *Error) {
	r, ok := parseSubject(subject)
	if !ok {
		return request{}, refuse(BadRequest, "there is no request %.80q (use TOPIC.LIST, TOPIC.INFO or .CREATE.<topic>, TOPIC.COPIES or SUBSCRIPTION.STATES.<topic>.<broker id>, SUBSCRIPTION.LIST.<topic>, SUBSCRIPTION.INFO, .CREATE or .RESET.<topic>.<name>, BROKER.LIST, BROKER.DRAIN, .UNDRAIN, .CLOCK, .CONFIRMCLOCK, .SETASIDE or .DELETESETASIDE.<id>, RECORDS.<topic>.<shard>, SNAPSHOT.<topic>[.<shard>], ATTRIBUTES.SET, .GET, .DELETE or .LIST, VIEW.CREATE, .UPDATE, .DELETE, .LIST, .INFO or .GET)",
			bytes.TrimPrefix(subject, []byte(Prefix)))
	}
	payload = bytes.TrimSpace(payload)
	most := maxRequest
	var into any
	var example string
	if r.kind.ofAttributes() {
		r.attributes = new(attributesRequest)
	}
	if r.kind.ofViews() {
		r.view = new(viewRequest)
		most, into, example = r.view.payload(r.kind)
	}
	switch r.kind {
	case attributesSet:
		most, into, example = maxAttributes, &r.attributes.set, `a change's (write for example {"subject":"sensors.7","set":{"room":"410"}})`
	case attributesGet, attributesDelete:
		into, example = &r.attributes.one, `one for a subject (write for example {"subject":"sensors.7"})`
	case attributesList:
		into, example = &r.attributes.list, `a list's (write for example {"subjects":"sensors.>","limit":100})`
	case topicList, subscriptionList, brokerList, brokerSetAside:
		into, example = &r.page, `a list's (write for example {"after":"orders","limit":100})`
	case topicCreate:
		most, into, example = maxCreate, &r.create, `a new topic's (write for example {"stream":{"subjects":["orders.>"],"num_replicas":3},"minInSync":2})`
	case subscriptionCreate:
		most, into, example = maxCreate, &r.createSubscription, `a new subscription's (write for example {"ack":{"maxDeliver":5},"deadLetter":"orders-dead"})`
	case subscriptionReset:
		into, example = &r.reset, `a reset's (write for example {"to":{"from":"Time","time":"2026-01-31T00:00:00Z"}})`
	case subscriptionStates:
		into, example = &r.states, `one for states (write for example {"name":"billing"})`
	case brokerDrain:
		into, example = &r.drain, `a drain's (write {"mode":"All"} or {"mode":"Leadership"})`
	case brokerConfirmClock:
		into, example = &r.confirm, `a confirmation's (write the time that it is, as {"time":"2026-01-31T12:00:00Z"})`
	case brokerDeleteSetAside:
		into, example = &r.aside, `a deletion's (write {"name":"NAME"}, as BROKER.SETASIDE lists it)`
	}
	switch {
	case len(payload) == 0 && (r.kind.ofAttributes() && r.kind != attributesList || r.kind.ofViews() && r.kind != viewList || r.kind == topicCreate || r.kind == subscriptionCreate || r.kind == subscriptionReset || r.kind == brokerConfirmClock || r.kind == brokerDeleteSetAside):
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
	if r.kind == brokerConfirmClock && r.confirm.Time.IsZero() {
		return request{}, refuse(BadRequest, "the request is not %s: there is no time in it", example)
	}
	if r.kind == brokerDeleteSetAside && (r.aside.Name == "" || len(r.aside.Name) > maxPieceName) {
		return request{}, refuse(BadRequest, "the request is not %s: a name has 1 to %d bytes", example, maxPieceName)
	}
	if r.kind == subscriptionStates {
		r.page = r.states.ListRequest
	}
	if r.attributes != nil {
		if refusal := r.parseAttributes(); refusal != nil {
			return request{}, refusal
		}
	}
	if r.view != nil {
		if refusal := r.parseViews(); refusal != nil {
			return request{}, refusal
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

// decode refuses unknown fields: a setting that was not understood must not seem to be in effect.
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
	if kind, ok := attributeKinds[string(tokens[1])]; ok && string(tokens[0]) == "ATTRIBUTES" {
		return request{kind: kind}, len(names) == 0
	}
	if kind, ok := viewKinds[string(tokens[1])]; ok && string(tokens[0]) == "VIEW" {
		return request{kind: kind}, len(names) == 0
	}
	switch string(tokens[0]) + "." + string(tokens[1]) {
	case "TOPIC.LIST":
		return request{kind: topicList}, len(names) == 0
	case "TOPIC.INFO":
		r.kind = topicInfo
		ok = len(names) == 1
	case "TOPIC.COPIES":
		if len(names) != 2 {
			return r, false
		}
		return request{kind: topicCopies, topic: string(names[0]), broker: string(names[1])}, true
	case "SUBSCRIPTION.STATES":
		if len(names) != 2 {
			return r, false
		}
		return request{kind: subscriptionStates, topic: string(names[0]), broker: string(names[1])}, true
	case "BROKER.LIST":
		return request{kind: brokerList}, len(names) == 0
	case "BROKER.DRAIN":
		return ofBroker(brokerDrain, names)
	case "BROKER.UNDRAIN":
		return ofBroker(brokerUndrain, names)
	case "BROKER.CLOCK":
		return ofBroker(brokerClock, names)
	case "BROKER.CONFIRMCLOCK":
		return ofBroker(brokerConfirmClock, names)
	case "BROKER.SETASIDE":
		return ofBroker(brokerSetAside, names)
	case "BROKER.DELETESETASIDE":
		return ofBroker(brokerDeleteSetAside, names)
	case "TOPIC.CREATE":
		r.kind = topicCreate
		ok = len(names) == 1
	case "SUBSCRIPTION.LIST":
		r.kind = subscriptionList
		ok = len(names) == 1
	case "SUBSCRIPTION.CREATE":
		r.kind = subscriptionCreate
		ok = len(names) == 2
	case "SUBSCRIPTION.RESET":
		r.kind = subscriptionReset
		ok = len(names) == 2
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

// ofBroker is a request about one broker, by its id.
func ofBroker(kind kind, names [][]byte) (r request, ok bool) {
	if len(names) != 1 {
		return request{}, false
	}
	return request{kind: kind, broker: string(names[0])}, true
}
