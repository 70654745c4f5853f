package protocol

// Verb is the kind of an operation of a client.
type Verb uint8

// The verbs of Next. HPUB is VerbPub with Op.HasHeader.
const (
	VerbNone Verb = iota
	VerbConnect
	VerbPub
	VerbSub
	VerbUnsub
	VerbPing
	VerbPong
	VerbOK   // +OK; ignored
	VerbErr  // -ERR with its text in Op.Data; servers close the connection that sends it
	VerbInfo // INFO with its JSON in Op.JSON; ignored
)

var verbNames = [...]string{"NONE", "CONNECT", "PUB", "SUB", "UNSUB", "PING", "PONG", "+OK", "-ERR", "INFO"}

// String returns the verb as on the wire.
func (v Verb) String() string {
	if int(v) < len(verbNames) {
		return verbNames[v]
	}
	return "UNKNOWN"
}

// Op is one operation of a client. Its slices alias the buffer passed to Next. Fields that the verb
// does not have are zero.
type Op struct {
	Verb      Verb
	HasHeader bool   // HPUB, even with an empty header block
	Max       int    // UNSUB: messages after which the subscription ends, counted from SUB; 0: now
	Header    int    // HPUB: size in bytes of the header block at the start of Data
	Subject   []byte // PUB, HPUB, SUB
	Reply     []byte // PUB, HPUB; empty: none
	Queue     []byte // SUB; empty: none
	SID       []byte // SUB, UNSUB
	Data      []byte // PUB, HPUB: headers and payload, without the closing CRLF; -ERR: its text
	JSON      []byte // CONNECT, INFO
}

// Limits bounds one operation.
type Limits struct {
	ControlLine int // bytes of a control line after its verb, without line end; 0: limits.ControlLine
	Payload     int // bytes of a message, including headers; INFO announces it
}

// maxSizeDigits is the most digits of a size, including leading zeros, as in nats-server. It keeps
// sizes far from overflow, even if int has 32 bits.
const maxSizeDigits = 9
