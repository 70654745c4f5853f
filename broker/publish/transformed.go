package publish

import (
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/transform"
)

// Transformed returns messages with the subjects under which they are stored. by may be nil. The
// messages themselves stay as they are: they may come again.
func Transformed(by *transform.Transform, messages []protocol.Message) []protocol.Message {
	if by == nil {
		return messages
	}
	var names []byte
	stored := make([]protocol.Message, len(messages))
	for i, m := range messages {
		if len(m.To) > 0 { // a batch: its messages have subjects
			stored[i] = m
			continue
		}
		begin, ok := len(names), false
		if names, ok = by.Apply(names, m.Subject); ok {
			m.Subject = names[begin:len(names):len(names)]
		}
		stored[i] = m
	}
	return stored
}
