package session

import (
	"bytes"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Headers of a message that a stream is to publish later.
const (
	scheduleMark   = "\nNats-Schedule-"
	scheduleTarget = "Nats-Schedule-Target" // on this subject,
	scheduleSource = "Nats-Schedule-Source" // with the last message of that one
)

// maySchedule returns the right that a user lacks for what a message asks to be published later, or
// nil.
func maySchedule(is *identity.Identity, m *Message) *protocol.Error {
	if !bytes.Contains(m.Data[:m.Header], []byte(scheduleMark)) {
		return nil
	}
	for key, value := range protocol.Header(m.Data[:m.Header]).All() {
		switch {
		case string(key) == scheduleTarget && !is.MayPublish(value):
			return protocol.PublishViolation(value)
		case string(key) == scheduleSource && !(is.MaySubscribe(value, nil) && is.MayReceive(value, "")):
			return protocol.SubscribeViolation(value, nil)
		}
	}
	return nil
}
