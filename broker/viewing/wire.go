package viewing

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"time"

	"github.com/carillon-mq/carillon/broker/view"
)

// Subjects between brokers. They are accepted from links only.
const (
	prefix        = "$CARILLON.VIEW."
	askSubject    = prefix + "ASK"
	answerSubject = prefix + "ANSWER"
)

// Kinds of questions.
const (
	handOver = "handover" // closed windows from a position on
	present  = "present"  // all windows from a position on
	takeAck  = "ack"      // an acknowledgement
	lastOf   = "last"     // the last messages of subjects
	whyLate  = "trouble"  // why the results of a view are not up to date
)

// question is what a broker asks the leader of a shard.
type question struct {
	Kind  string `json:"kind"`
	Topic string `json:"topic"` // id
	Shard int    `json:"shard"`
	View  string `json:"view,omitempty"`
	Made  int64  `json:"made,omitempty"`
	// End and Key are the position.
	End int64  `json:"end,omitempty"`
	Key []byte `json:"key,omitempty"`
	// Bytes is how large a page may be, about; 0: as large as pages are.
	Bytes int `json:"bytes,omitempty"`
	// Subjects are those whose last messages are asked for.
	Subjects []string `json:"subjects,omitempty"`

	data []byte // of an acknowledgement
}

func (q *question) from() view.Position { return view.Position{End: q.End, Key: string(q.Key)} }

// answer has what was asked for, or an error.
type answer struct {
	Error string `json:"error,omitempty"`
	// Lasts are of the first of the subjects: as many as an answer has room for, at least one.
	Lasts []lastMessage `json:"lasts,omitempty"`
	// Removed, Lost, Left and Paused are about the part that hands over.
	Removed uint64 `json:"removed,omitempty"` // records that were gone before they were read
	Lost    uint64 `json:"lost,omitempty"`    // records that no replica can read
	Left    uint64 `json:"left,omitempty"`    // offsets that are not read yet
	Paused  string `json:"paused,omitempty"`  // why no record is added
	Size    int64  `json:"size,omitempty"`    // bytes of memory that the windows take
	// Trouble is why the results of a view are not up to date; empty: they are.
	Trouble string `json:"trouble,omitempty"`

	data []byte        // of a hand-over
	loan *loan         // that data have; nil: none
	took time.Duration // until it came
}

// lastMessage is the last message of a subject. Offset 0: there is none.
type lastMessage struct {
	Offset uint64 `json:"offset"`
	Data   []byte `json:"data,omitempty"`
}

var errWire = errors.New("a message of a view from another broker is malformed")

// framed returns the length of a head as JSON, the head, and data behind it.
func framed(head any, data []byte) []byte {
	text, _ := json.Marshal(head) // plain fields
	b := make([]byte, 0, binary.MaxVarintLen32+len(text)+len(data))
	return append(append(binary.AppendUvarint(b, uint64(len(text))), text...), data...)
}

// unframed is the reverse of framed. The data stay in b.
func unframed(b []byte, head any) (data []byte, err error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return nil, errWire
	}
	if err := json.Unmarshal(b[n:n+int(size)], head); err != nil {
		return nil, errWire
	}
	return b[n+int(size):], nil
}

// piece is the head of a message between brokers: large questions and answers have several.
type piece struct {
	From   string `json:"from"` // id of the broker that sends it
	Number uint64 `json:"number"`
	Index  int    `json:"index"`
	Count  int    `json:"count"`
}
