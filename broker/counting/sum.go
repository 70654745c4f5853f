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

// Refusal returns why a message can't be kept by a Topic that counts, or that does not, or nil. A
// copy of another stream's message has the total there as its payload, and a Topic without counters
// keeps it as it is.
func Refusal(topic string, counts, copied bool, m *protocol.Message, c *publish.Conditions) error {
	var fault publish.CounterFault
	switch {
	case !counts && (copied || len(c.Increment) == 0):
		return nil
	case len(c.Increment) == 0:
		fault = publish.IncrementMissing
	case copied:
		return nil
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

// Origin is where a copied message is from.
type Origin struct{ Stream, Subject string }

// Copied returns what a copy adds to t: the origin's total without the total of the last copy from
// there, which t records. sources is what the sum says of other streams. ok is
// false if t says of them what can't be read.
//
//  1. So each record of an origin counts once: one that was deleted there, or passed as a duplicate
//     here, counts with the next one.
//  2. An origin that was purged or made anew has a smaller total, and so has the sum.
func (t Total) Copied(codec publish.Codec, from *Origin, total []byte) (increment string, sources []byte, ok bool) {
	var now, before big.Int
	now.SetString(string(total), 10)
	sources, was, ok := codec.CounterSource(t.Sources, from.Stream, from.Subject, now.String())
	before.SetString(was, 10) // zero if it is empty
	return now.Sub(&now, &before).String(), sources, ok
}

// Sum adds an increment to a total. It has more digits than most may be if ok is false.
func (t Total) Sum(increment []byte) (sum string, ok bool) {
	var a, b big.Int
	a.SetString(t.Value, 10) // zero if it is empty
	b.SetString(string(increment), 10)
	sum = a.Add(&a, &b).String()
	return sum, len(sum) <= maxDigits
}
