package jetstream

import (
	"time"

	"github.com/carillon-mq/carillon/broker/jsapi"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/scheduling"
)

// PublishCodec decodes the publish headers of JetStream clients and encodes the answers to them.
type PublishCodec struct{}

var (
	_ publish.Codec     = PublishCodec{}
	_ publish.FastCodec = PublishCodec{}
)

// Conditions decodes the headers of a published message.
func (PublishCodec) Conditions(header []byte) (publish.Conditions, error) {
	p, err := jsapi.ParsePublish(protocol.Header(header))
	if err != nil {
		return publish.Conditions{}, err
	}
	return publish.Conditions{
		ID: p.ID, ExpectedTopic: p.ExpectedStream, ExpectedLastID: p.ExpectedLastID,
		ExpectedLast: p.ExpectedLast, ExpectsLast: p.ExpectsLast,
		ExpectedLastBySubject: p.ExpectedLastBySubject, ExpectsLastBySubject: p.ExpectsLastBySubject, ExpectedSubject: p.ExpectedSubject,
		Records: p.Records, After: p.After, Rollup: p.Rollup,
		TTL: p.TTL, Marks: p.Marks, Copied: p.Copied, Part: p.Part, Schedule: p.Schedule, Fires: p.Fires, Increment: p.Increment,
	}, nil
}

// AppendAck appends a PubAck.
func (PublishCodec) AppendAck(dst []byte, name string, a publish.Ack) []byte {
	return jsapi.AppendPubAck(dst, name, a)
}

// Part decodes how a message belongs to an atomic batch.
func (PublishCodec) Part(header []byte) (publish.Part, bool) {
	return jsapi.ParsePart(protocol.Header(header))
}

// AppendCommit appends a header with the mark of a commit.
func (PublishCodec) AppendCommit(dst, header []byte) []byte {
	return jsapi.AppendCommit(dst, protocol.Header(header))
}

// IsFast reports whether a message may be of a fast batch.
func (PublishCodec) IsFast(reply []byte) bool { return jsapi.IsFast(reply) }

// Fast decodes how a message belongs to a fast batch.
func (PublishCodec) Fast(reply, header []byte) (publish.FastPart, bool) {
	return jsapi.ParseFast(reply, protocol.Header(header))
}

// AppendFlow appends a BatchFlowAck.
func (PublishCodec) AppendFlow(dst []byte, sequence uint64, every uint16) []byte {
	return jsapi.AppendFlowAck(dst, sequence, every)
}

// AppendGap appends a BatchFlowGap.
func (PublishCodec) AppendGap(dst []byte, expected, came uint64) []byte {
	return jsapi.AppendFlowGap(dst, expected, came)
}

// AppendFailed appends a BatchFlowErr.
func (PublishCodec) AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte {
	return jsapi.AppendFlowError(dst, sequence, refusal)
}

// Counter decodes a message of a counter.
func (PublishCodec) Counter(header, payload []byte) (total, sources []byte, ok bool) {
	return jsapi.ParseCounter(protocol.Header(header), payload)
}

// CounterSource changes what a message of a counter says of another stream.
func (PublishCodec) CounterSource(sources []byte, stream, subject, total string) (updated []byte, before string, ok bool) {
	return jsapi.CounterSource(sources, stream, subject, total)
}

// AppendCounter appends a message of a counter.
func (PublishCodec) AppendCounter(dst, header []byte, total, increment string, sources []byte) ([]byte, int) {
	return jsapi.AppendCounter(dst, protocol.Header(header), total, increment, sources)
}

// AppendMarker appends the header of a marker.
func (PublishCodec) AppendMarker(dst []byte, ttl time.Duration, last uint64) []byte {
	return jsapi.AppendMarker(dst, ttl, last)
}

// AppendRefusal appends the answer to a rejected message.
func (PublishCodec) AppendRefusal(dst []byte, name string, err error) []byte {
	return jsapi.AppendPubRefusal(dst, name, publishError(err))
}

// publishError translates the reason of a rejection to JetStream's error.
func publishError(err error) *jsapi.Error {
	switch e := err.(type) { // errors are never wrapped here
	case *jsapi.Error:
		return e
	case *publish.RecordsError:
		return jsapi.ErrRecords.With(e)
	case *publish.NotAfterError:
		return jsapi.ErrNotAfter.With(e)
	case *publish.TooLargeError:
		return jsapi.ErrStreamMessageExceedsMaximum
	case *publish.TTLError:
		return jsapi.ErrMessageTTLDisabled
	case *publish.BatchError:
		return batchError(e)
	case *publish.CopyError:
		return jsapi.ErrMessageSourceHdrNotAllowed
	case *scheduling.Error:
		return jsapi.ScheduleError(e.Reason)
	case *publish.CounterError:
		return counterErrors[e.Fault]
	case *publish.SealedError:
		return jsapi.ErrStreamSealed
	case *publish.FullError:
		return jsapi.ErrStreamStoreFailed.With("maximum " + e.Of + " exceeded")
	case *publish.RollupError:
		return jsapi.ErrStreamRollupFailed.With(e)
	case *publish.WrongTopicError:
		return jsapi.ErrStreamNotMatch
	case *publish.WrongLastError:
		return jsapi.ErrStreamWrongLastSequence.With(e.Last)
	case *publish.WrongLastIDError:
		return jsapi.ErrStreamWrongLastMsgID.With(e.ID)
	case *publish.NotServedError:
		return offlineBecause(e.Why)
	case *publish.UnconfirmedError:
		return offlineBecause(e.Why)
	}
	return jsapi.ErrStreamStoreFailed.With(err)
}

// counterErrors are JetStream's errors for increments that are refused.
var counterErrors = [...]*jsapi.Error{
	publish.CountersDisabled: jsapi.ErrMessageIncrDisabled, publish.IncrementMissing: jsapi.ErrMessageIncrMissing,
	publish.IncrementInvalid: jsapi.ErrMessageIncrInvalid, publish.CounterPayload: jsapi.ErrMessageIncrPayload, publish.CounterBroken: jsapi.ErrMessageCounterBroken,
}

// batchErrors are JetStream's errors for messages of batches that are refused, but for those that
// say what.
var batchErrors = [...]*jsapi.Error{
	publish.BatchesDisabled: jsapi.ErrAtomicPublishDisabled, publish.BatchIncomplete: jsapi.ErrAtomicPublishIncomplete,
	publish.BatchInvalidID: jsapi.ErrAtomicPublishInvalidID, publish.BatchNoSequence: jsapi.ErrAtomicPublishMissingSequence,
	publish.BatchInvalidCommit: jsapi.ErrAtomicPublishInvalidCommit, publish.BatchUnserved: jsapi.ErrRequiredAPILevel,
	publish.BatchDuplicate: jsapi.ErrAtomicPublishDuplicate, publish.BatchRewritten: jsapi.ErrStreamWrongLastSequenceConstant,
	publish.BatchesOpen: jsapi.ErrAtomicPublishTooManyInflight, publish.FastDisabled: jsapi.ErrBatchPublishDisabled,
	publish.FastInvalid: jsapi.ErrBatchPublishInvalidPattern, publish.FastInvalidID: jsapi.ErrBatchPublishInvalidBatchID,
	publish.FastUnknown: jsapi.ErrBatchPublishUnknownBatchID, publish.FastBehind: jsapi.ErrBatchPublishUnknownBatchID,
	publish.FastsOpen: jsapi.ErrBatchPublishTooManyInflight,
}

// batchError translates the fault of a batch.
func batchError(e *publish.BatchError) *jsapi.Error {
	switch e.Fault {
	case publish.BatchTooLarge:
		return jsapi.ErrAtomicPublishTooLarge.With(e.What)
	case publish.BatchUnsupported:
		return jsapi.ErrAtomicPublishUnsupported.With(e.What)
	}
	return batchErrors[e.Fault]
}

// offlineBecause is JetStream's error for a stream that is not served, with the reason.
func offlineBecause(why string) *jsapi.Error {
	offline := *jsapi.ErrStreamOffline
	offline.Description = jsapi.OneLine(jsapi.ErrStreamOffline.Description + ": " + why)
	return &offline
}
