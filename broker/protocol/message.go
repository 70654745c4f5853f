package protocol

// Message is one message on its way through a broker. Its slices point into memory that is only
// valid during the call that hands it over: whoever keeps any of it longer copies it.
type Message struct {
	// To is the subject by which it is routed; empty: Subject. They differ where a record of a Topic
	// is sent to the inbox of who asked for it, and shows the subject that it was published on.
	To      []byte
	Subject []byte
	Reply   []byte // empty: none
	Header  int    // bytes at the start of Data that are headers, their blank line included
	Data    []byte // headers and payload, without the closing CRLF
}

// Route is the subject by which the message is routed.
func (m *Message) Route() []byte {
	if len(m.To) > 0 {
		return m.To
	}
	return m.Subject
}
