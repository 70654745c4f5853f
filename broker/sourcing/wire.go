package sourcing

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// question asks the leader of an origin for records.
type question struct {
	From   string    `json:"from,omitempty"` // id of the broker that asks
	Number uint64    `json:"number"`
	Origin string    `json:"origin"` // identity of the stream
	Next   uint64    `json:"next"`   // offset of the first record; 0: the first one
	Since  time.Time `json:"since,omitzero"`
	// Filters are patterns of subjects: at least one matches each record. None: all records match.
	Filters []string `json:"filters,omitempty"`
	// Share is what one of several shards copies. Earlier brokers answer with all that Filters match.
	Share *share `json:"share,omitempty"`
	Bytes int    `json:"bytes"`
	// Exact reports whether an answer has no more bytes of records than Bytes: if the first one is
	// larger, the answer says what it needs. Otherwise the first one may have any size.
	Exact bool `json:"exact,omitempty"`
	// Stamps asks for the attributes that records were stored with. Earlier brokers ignore it.
	Stamps bool `json:"stamps,omitempty"`
	// Last is up to where the records of the stream were seen before. It has not ended before that.
	Last uint64 `json:"last,omitempty"`
	// LastEpoch is the epoch of the record at Last; 0: not known.
	LastEpoch uint64        `json:"lastEpoch,omitempty"`
	Wait      time.Duration `json:"wait"`
}

// answer has records, or none if there is none yet, or an error. Records below Next that it lacks
// don't match, or are gone.
type answer struct {
	Number uint64 `json:"number"`
	Next   uint64 `json:"next,omitempty"`
	// Lag is how many records there are from Next on: at most, if there are filters.
	Lag  uint64 `json:"lag,omitempty"`
	More bool   `json:"more,omitempty"` // there may be more at once
	// Needs is how many bytes the next record takes if the question is for less.
	Needs int `json:"needs,omitempty"`
	// Skipped is how many records below Next were passed over, because no answer carries them.
	Skipped uint64 `json:"skipped,omitempty"`
	// Epochs are those of the records, and of the last offset before Next. Earlier brokers write none.
	Epochs []epoch `json:"epochs,omitempty"`
	// Diverged is the first offset of a record that is later than the one that was seen at Last,
	// although it is not behind that. The answer has no records. 0: the stream has what was seen.
	Diverged uint64 `json:"diverged,omitempty"`
	Error    string `json:"error,omitempty"`
	// Stamped reports whether records have their attributes.
	Stamped bool `json:"stamped,omitempty"`

	records []byte
	stamp   []byte // of the last record that has some
}

// epoch is that of the offsets of a stream from one on.
type epoch struct {
	From  uint64 `json:"from"`
	Epoch uint64 `json:"epoch"`
}

// epochAt returns the epoch of an offset; 0: not known.
func (a *answer) epochAt(offset uint64) (at uint64) {
	for _, e := range a.Epochs {
		if e.From <= offset {
			at = e.Epoch
		}
	}
	return at
}

var errAnswer = errors.New("the answer of an origin is malformed")

// encode returns a as a message's payload: the length of the JSON as a uvarint, the JSON, records.
func (a *answer) encode() []byte {
	head, _ := json.Marshal(a) // plain fields
	dst := make([]byte, 0, binary.MaxVarintLen32+len(head)+len(a.records))
	dst = binary.AppendUvarint(dst, uint64(len(head)))
	return append(append(dst, head...), a.records...)
}

// parseAnswer is the reverse of encode. The records stay in data.
func parseAnswer(data []byte) (a *answer, err error) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, errAnswer
	}
	a = &answer{}
	if err := json.Unmarshal(data[n:n+int(size)], a); err != nil {
		return nil, errAnswer
	}
	a.records = data[n+int(size):]
	return a, nil
}

// appendRecord appends a record: its offset as a uvarint, its time as a varint, and its subject,
// its header and all data behind their lengths.
func appendRecord(dst []byte, r *log.Record) []byte {
	dst = binary.AppendUvarint(dst, r.Offset)
	dst = binary.AppendVarint(dst, r.Time)
	dst = append(binary.AppendUvarint(dst, uint64(len(r.Subject))), r.Subject...)
	dst = binary.AppendUvarint(dst, uint64(r.Header))
	return append(binary.AppendUvarint(dst, uint64(len(r.Data))), r.Data...)
}

// appendStamp appends the attributes of a record behind it: 0 for none, 1 for those of the last
// record that had some, or their length, which is greater, and their bytes.
func (a *answer) appendStamp(stamp []byte) {
	switch {
	case len(stamp) < 2:
		a.records = append(a.records, 0)
	case string(stamp) == string(a.stamp):
		a.records = append(a.records, 1)
	default:
		a.stamp = append(a.stamp[:0], stamp...)
		a.records = append(binary.AppendUvarint(a.records, uint64(len(stamp))), stamp...)
	}
}

// recordBytes is how many bytes appendRecord takes at most, with a byte for a stamp.
func recordBytes(r *log.Record) int {
	return 5*binary.MaxVarintLen64 + len(r.Subject) + len(r.Data)
}

// message returns the message with an answer whose payload is as large as those of clients at most.
// The end of a record of that size is in the field of the reply's subject.
func message(data []byte, payload int) *protocol.Message {
	n := min(len(data), payload)
	return &protocol.Message{Subject: []byte(answerSubject), Reply: data[n:], Data: data[:n:n]}
}

// dataOf is the reverse of message, in memory of its own.
func dataOf(m *protocol.Message) []byte {
	return append(append(make([]byte, 0, len(m.Data)+len(m.Reply)), m.Data...), m.Reply...)
}

// each calls f with the records of a. They stay in its memory.
func (a *answer) each(f func(r *log.Record)) error {
	data, ok := a.records, true
	number := func() uint64 {
		v, n := binary.Uvarint(data)
		if n <= 0 {
			ok = false
			return 0
		}
		data = data[n:]
		return v
	}
	field := func() []byte {
		size := number()
		if !ok || size > uint64(len(data)) {
			ok = false
			return nil
		}
		b := data[:size:size]
		data = data[size:]
		return b
	}
	var last []byte
	for len(data) > 0 {
		r := log.Record{Offset: number()}
		at, n := binary.Varint(data)
		if n <= 0 {
			return errAnswer
		}
		r.Time, data = at, data[n:]
		r.Subject = field()
		header := number()
		r.Data = field()
		if a.Stamped && ok {
			switch size := number(); {
			case !ok || size > 1 && size > uint64(len(data)):
				return errAnswer
			case size > 1:
				last, data = data[:size:size], data[size:]
				r.Stamp = last
			case size == 1:
				r.Stamp = last
			}
		}
		if !ok || header > uint64(len(r.Data)) {
			return errAnswer
		}
		r.Header = int(header)
		f(&r)
	}
	return nil
}
