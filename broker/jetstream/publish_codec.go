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

var _ publish.Codec = PublishCodec{}

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
		TTL: p.TTL, Marks: p.Marks, Schedule: p.Schedule, Fires: p.Fires,
	}, nil
}

// AppendAck appends a PubAck.
func (PublishCodec) AppendAck(dst []byte, name string, offset uint64, records int, duplicate bool) []byte {
	return jsapi.AppendPubAck(dst, name, offset, records, duplicate)
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
	case *scheduling.Error:
		return jsapi.ScheduleError(e.Reason)
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

// offlineBecause is JetStream's error for a stream that is not served, with the reason.
func offlineBecause(why string) *jsapi.Error {
	offline := *jsapi.ErrStreamOffline
	offline.Description = jsapi.OneLine(jsapi.ErrStreamOffline.Description + ": " + why)
	return &offline
}
