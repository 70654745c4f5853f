package protocol

// Message is one message on its way through a broker. Its slices are valid only during the call
// that passes it: a callee that keeps them copies them, or retains their Memory.
type Message struct {
	// To is the subject that routes the message; empty means Subject. They differ for a record of a
	// Topic that is sent to an inbox and shows the subject that it was published on. On its way to the
	// leader of a shard, a message with To is an atomic batch, whose id To is.
	To      []byte
	Subject []byte
	Reply   []byte // empty: none
	Header  int    // size in bytes of the header block at the start of Data
	Data    []byte // headers and payload
	// Behind is the number of the message before this one in its batch, on the way to the leader of a
	// shard, which refuses this one if it refused that one; 0: none.
	Behind uint64
}

// Route returns the subject that routes the message.
func (m *Message) Route() []byte {
	if len(m.To) > 0 {
		return m.To
	}
	return m.Subject
}

// Memory is the buffer that the slices of messages alias. A call that receives messages may keep
// them without a copy if it retains their memory, and releases it once for each time. Nobody
// writes to a buffer that is retained.
type Memory interface {
	Retain()
	Release()
	// Size returns the size of the whole buffer in bytes. A reference keeps all of it in use.
	Size() int
}
