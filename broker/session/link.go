package session

// Message is one published message on its way through this broker. Its slices point into
// memory that is only valid during the call that hands it over: whoever keeps any of it
// longer copies it.
type Message struct {
	Subject []byte
	Reply   []byte // empty: none
	Header  int    // bytes at the start of Data that are headers, their blank line included
	Data    []byte // headers and payload, without the closing CRLF
}

// Link is the way to one other broker, as this node sees it; package route implements it.
// Neither method may block, call back into the Hub or keep what it is given.
type Link interface {
	// Forward queues the message for that broker. It is called at most once per message and
	// link, and in each publisher's order. If plain, the broker delivers it to all of its
	// matching plain subscriptions; for each of queues, to one member of that group.
	Forward(m *Message, plain bool, queues []string)
	// Announce queues a change of this node's interest. It precedes, on the link, whatever the
	// client that caused it publishes later.
	Announce(change Interest)
}

// Interest says how many subscriptions of one broker's own clients share a pattern and
// queue group. Announced when a plain one begins or ends (Count 1 or 0), and whenever a
// group's size changes; Count 0 ends it.
type Interest struct {
	Pattern string
	Queue   string // empty: plain
	Count   int
}
