package protocol

// Verb is the kind of an operation that a client sends.
type Verb uint8

// The verbs that Next tells apart. HPUB is VerbPub with Op.HasHeader.
const (
	VerbNone Verb = iota
	VerbConnect
	VerbPub
	VerbSub
	VerbUnsub
	VerbPing
	VerbPong
	VerbOK   // +OK: tolerated from clients, means nothing
	VerbErr  // -ERR: its text is in Op.Data; servers close the connection that sends it
	VerbInfo // INFO: its JSON is in Op.JSON; tolerated from clients, means nothing
)

var verbNames = [...]string{"NONE", "CONNECT", "PUB", "SUB", "UNSUB", "PING", "PONG", "+OK", "-ERR", "INFO"}

// String is the verb as it stands on the wire.
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "UNKNOWN"
}

// Op is one operation of a client. Its slices point into the buffer that Next was given; fields that
// the verb does not have are zero.
type Op struct {
	Verb      Verb
	HasHeader bool   // an HPUB, even one whose header block is empty
	Max       int    // UNSUB: messages after which the subscription ends, counted from SUB; 0: it ends now
	Header    int    // HPUB: bytes at the start of Data that are headers
	Subject   []byte // PUB, HPUB, SUB
	Reply     []byte // PUB, HPUB; empty: none
	Queue     []byte // SUB; empty: none
	SID       []byte // SUB, UNSUB
	Data      []byte // PUB, HPUB: headers and payload, without the closing CRLF; -ERR: its text
	JSON      []byte // CONNECT, INFO
}

// Limits bounds what one operation may take.
type Limits struct {
	ControlLine int // bytes of a control line after its verb, line end excluded; 0: limits.ControlLine
	Payload     int // bytes of a message, headers included; INFO tells it to clients
}

// A size has at most so many digits, leading zeros included, as in nats-server. It keeps every size far
// from overflow, also where int has 32 bits.
const maxSizeDigits = 9
