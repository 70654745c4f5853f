package live

import (
	"encoding/json"
	"strconv"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
)

// Header says what a message in an inbox is that was not published. No publisher sets it on a
// member.
const Header = protocol.QueryHeader

// kind is a value of Header.
type kind string

const (
	members kind = "Members" // the members when the query was opened, or a piece of them
	change  kind = "Change"  // members that came and went
	ended   kind = "End"     // nothing follows
)

// notice is what a client is sent beside messages. It is encoded as it grows.
type notice struct {
	kind     kind
	revision uint64
	resume   string // a token; empty: none
	done     bool   // all members are known, and in the feed
	joined   []string
	left     []string
	body     []byte // the members that have joined, as JSON
}

// join adds a member. attributes are JSON.
func (n *notice) join(subject, attributes string) {
	n.joined = append(n.joined, subject)
	if len(n.body) > 0 {
		n.body = append(n.body, ',')
	}
	n.body = append(append(n.body, `{"subject":`...), quoted(subject)...)
	n.body = append(append(append(n.body, `,"attributes":`...), attributes...), '}')
}

// full reports whether the notice is to be sent before more is added.
func (n *notice) full() bool {
	return len(n.joined)+len(n.left) >= session.FeedChunk || len(n.body) >= noticeBytes
}

func (n *notice) empty() bool { return len(n.joined)+len(n.left) == 0 && !n.done }

// data returns the notice as a message with that many bytes of headers.
func (n *notice) data() (data []byte, header int) {
	data, header = begin(n.kind)
	data = strconv.AppendUint(append(data, `{"revision":`...), n.revision, 10)
	switch {
	case n.kind == members:
		data = append(append(append(data, `,"members":[`...), n.body...), ']')
	default:
		if len(n.joined) > 0 {
			data = append(append(append(data, `,"new":[`...), n.body...), ']')
		}
		for i, subject := range n.left {
			if i == 0 {
				data = append(data, `,"del":[`...)
			} else {
				data = append(data, ',')
			}
			data = append(data, quoted(subject)...)
		}
		if len(n.left) > 0 {
			data = append(data, ']')
		}
	}
	if n.done {
		data = append(data, `,"done":true`...)
	}
	if n.resume != "" {
		data = append(append(append(data, `,"resume":"`...), n.resume...), '"')
	}
	return append(data, '}'), header
}

// endOf returns the last notice of a query.
func endOf(why *Error) (data []byte, header int) {
	data, header = begin(ended)
	return append(data, encode(answer{Error: why})...), header
}

func begin(k kind) (data []byte, header int) {
	data = append(data, "NATS/1.0\r\n"+Header+": "+k+"\r\n\r\n"...)
	return data, len(data)
}

func quoted(s string) []byte {
	b, err := json.Marshal(s)
	if err != nil {
		return []byte(`""`) // never: a string is encoded always
	}
	return b
}
