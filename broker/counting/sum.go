package counting

import (
	"math/big"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
)

// Total is a counter as a record has it.
type Total struct {
	Value   string // decimal; empty: zero
	Sources []byte // what its header says of other streams; empty: nothing
}

// Refusal returns why a message can't be kept by a Topic that counts, or that does not, or nil.
func Refusal(topic string, counts bool, m *protocol.Message, c *publish.Conditions) error {
	var fault publish.CounterFault
	switch {
	case len(c.Increment) == 0 && !counts:
		return nil
	case len(c.Increment) == 0:
		fault = publish.IncrementMissing
	case !counts:
		fault = publish.CountersDisabled
	case len(m.Data) > m.Header:
		fault = publish.CounterPayload
	case c.Rollup != publish.NoRollup, len(c.ExpectedTopic) > 0, len(c.ExpectedLastID) > 0, len(c.ExpectedSubject) > 0,
		c.ExpectsLast, c.ExpectsLastBySubject, c.Records > 0, len(c.Increment) > maxDigits:
		fault = publish.IncrementInvalid
	default:
		return nil
	}
	return &publish.CounterError{Topic: topic, Fault: fault}
}

// Sum adds an increment to a total. It has more digits than most may be if ok is false.
func (t Total) Sum(increment []byte) (sum string, ok bool) {
	var a, b big.Int
	a.SetString(t.Value, 10) // zero if it is empty
	b.SetString(string(increment), 10)
	sum = a.Add(&a, &b).String()
	return sum, len(sum) <= maxDigits
}
