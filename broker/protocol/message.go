package protocol

// Message is one message on its way through a broker. Its slices are valid only during the call
// that passes it: a callee that keeps them copies them.
type Message struct {
	// To is the subject that routes the message; empty means Subject. They differ for a record of a
	// Topic that is sent to an inbox and shows the subject that it was published on.
	To      []byte
	Subject []byte
	Reply   []byte // empty: none
	Header  int    // size in bytes of the header block at the start of Data
	Data    []byte // headers and payload
}

// Route returns the subject that routes the message.
func (m *Message) Route() []byte {
	if len(m.To) > 0 {
		return m.To
	}
	return m.Subject
}
