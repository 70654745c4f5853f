package acking

// Kind is the kind of an answer to a publisher.
type Kind uint8

const (
	Kept Kind = iota
	Duplicate
	Refusal
)

// Answer answers messages of one publisher when the record at its offset is as durable as the Topic
// asks.
type Answer struct {
	Offset  uint64
	Kind    Kind
	Records uint32 // carried by the message; 0: it is one record itself
	More    uint32 // messages that follow with the next numbers and the next offsets
	Seq     uint64 // the number of the message
	Total   string // of the counter that the message incremented; empty: none
	Again   bool   // the message was sent before, perhaps to another leader
	Err     error  // of a refusal
}
