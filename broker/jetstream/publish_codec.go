package jetstream

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/topic"
)

// PublishCodec reads the publish headers of JetStream clients and encodes the answers to them.
type PublishCodec struct{}

var _ topic.PublishCodec = PublishCodec{}

// Conditions reads the headers of a published message.
func (PublishCodec) Conditions(header []byte) (topic.Conditions, error) {
	p, err := ParsePublish(protocol.Header(header))
	if err != nil {
		return topic.Conditions{}, err
	}
	return topic.Conditions{
		ID: p.ID, ExpectedTopic: p.ExpectedStream, ExpectedLastID: p.ExpectedLastID,
		ExpectedLast: p.ExpectedLast, ExpectsLast: p.ExpectsLast,
		ExpectedLastBySubject: p.ExpectedLastBySubject, ExpectsLastBySubject: p.ExpectsLastBySubject, ExpectedSubject: p.ExpectedSubject,
		Records: p.Records, After: p.After,
	}, nil
}

// AppendAck appends a PubAck.
func (PublishCodec) AppendAck(dst []byte, name string, offset uint64, records int, duplicate bool) []byte {
	return AppendPubAck(dst, name, offset, records, duplicate)
}

// AppendRefusal appends the answer to a message that was not kept.
func (PublishCodec) AppendRefusal(dst []byte, name string, err error) []byte {
	return AppendPubRefusal(dst, name, publishError(err))
}

// publishError is JetStream's word for why a message was not kept.
func publishError(err error) *Error {
	switch e := err.(type) { // what comes here is never wrapped
	case *Error:
		return e
	case *topic.RecordsError:
		return ErrRecords.With(e)
	case *topic.NotAfterError:
		return ErrNotAfter.With(e)
	case *topic.TooLargeError:
		return ErrStreamMessageExceedsMaximum
	case *topic.WrongTopicError:
		return ErrStreamNotMatch
	case *topic.WrongLastError:
		return ErrStreamWrongLastSequence.With(e.Last)
	case *topic.WrongLastIDError:
		return ErrStreamWrongLastMsgID.With(e.ID)
	case *topic.NotServedError:
		offline := *ErrStreamOffline
		offline.Description = oneLine(ErrStreamOffline.Description + ": " + e.Why)
		return &offline
	}
	return ErrStreamStoreFailed.With(err)
}
