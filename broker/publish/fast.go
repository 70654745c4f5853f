package publish

// FastCodec is a Codec whose publishers may send fast batches. A Codec that is none has no fast
// batches. Its methods may be called by several goroutines.
type FastCodec interface {
	// IsFast reports whether a message may belong to a fast batch. It is asked of every message.
	IsFast(reply []byte) bool
	// Fast reads how a message belongs to a fast batch. ok is false if it belongs to none.
	Fast(reply, header []byte) (p FastPart, ok bool)
	// AppendFlow appends the answer that all messages up to a sequence are settled, and that such an
	// answer follows after so many more.
	AppendFlow(dst []byte, sequence uint64, every uint16) []byte
	// AppendGap appends the answer that another sequence came than the expected one.
	AppendGap(dst []byte, expected, came uint64) []byte
	// AppendFailed appends the answer that the message with a sequence is not kept. refusal is what
	// AppendRefusal has written for it.
	AppendFailed(dst []byte, sequence uint64, refusal []byte) []byte
}

// FastPart says how a message belongs to a fast batch. Its slice points into the reply.
type FastPart struct {
	Batch    []byte // id
	Sequence uint64 // from 1
	Flow     uint16 // the most messages between two answers that the publisher allows, at least 1
	GapOK    bool   // the batch goes on without what is missing or refused
	Op       FastOp
	Invalid  bool // it can't be understood
	Unserved bool // it requires what this version does not have
	// Strip names a header that is not kept; empty: none.
	Strip string
}

// FastOp is what a message is to its fast batch.
type FastOp uint8

// The kinds of FastOp.
const (
	FastMessage FastOp = iota // one of its messages
	FastCommit                // the last one of them
	FastEnd                   // no message: the batch ended before it
	FastPing                  // no message: it asks for the last answer again
)
