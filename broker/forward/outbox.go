package forward

import (
	"encoding/binary"
	"math/bits"
	"sync"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Outbox holds the messages for the leader of a shard that are not answered yet, in order. Each
// message has a sequence number for good. Numbers begin with 1 and have no gaps.
//
// It is pure: no clock, no I/O, no lock. Each new leader or link begins a round, in which all
// unanswered messages are sent again, in order, before new ones. An answered number is sent as
// void, so a round has no gaps.
type Outbox struct {
	First    uint64  // number of entries[head]
	entries  []entry // those before head are removed
	head     int
	sent     uint64 // all below were sent in this round
	Ever     uint64 // all below were sent in some round
	Until    uint64 // Run returns none from this number on; 0: there is no bound
	Bytes    int    // memory held, in bytes
	expected int    // expected size of the next messages, in bytes
	chunk    *Chunk // where the next message is written
	abandons bool   // some entry is abandoned
}

// entry is a message in an outbox. An answered one has no chunk and is sent as void.
type entry struct {
	in        *Chunk
	from, to  uint32 // position of its encoding in the chunk
	at        int64  // when it was added
	abandoned bool   // the next round sends it as void
}

// Chunk is a buffer of entries. It is reused when the last of them is removed.
type Chunk struct {
	refs  int
	class int
	buf   []byte

	// A large message has a chunk of its own, with data that stays where the message came.
	data   []byte
	memory protocol.Memory // of data; nil: buf has all
}

// size returns the memory that a chunk holds, in bytes.
func (c *Chunk) size() int {
	if c.memory == nil {
		return cap(c.buf)
	}
	return cap(c.buf) + c.memory.Size()
}

// idleEntries is the number of entries for which an outbox without messages keeps memory: 24 KiB.
const idleEntries = 1024

const (
	smallestChunk = 4 << 10
	chunkClasses  = 13 // up to 16 MiB; larger ones are not reused
)

var chunks [chunkClasses]sync.Pool

func newChunk(n int) *Chunk {
	class := 0
	if n > smallestChunk {
		class = bits.Len(uint(n-1)) - 12
	}
	if class >= chunkClasses {
		return &Chunk{class: -1, buf: make([]byte, 0, n)}
	}
	if c, ok := chunks[class].Get().(*Chunk); ok {
		return c
	}
	return &Chunk{class: class, buf: make([]byte, 0, smallestChunk<<class)}
}

func (c *Chunk) free() {
	if c.memory != nil {
		c.memory.Release()
		c.data, c.memory = nil, nil
	}
	if c.class >= 0 {
		c.buf = c.buf[:0]
		chunks[c.class].Put(c)
	}
}

// entryHead is the size of the head of an encoded message: u8 flags, u16 length of the subject,
// u16 of the reply, u32 of the header, u32 of the data including the header. Big-endian.
const (
	entryHead  = 1 + 2 + 2 + 4 + 4
	entryVoid  = 1 // no message: its number is settled
	entryBatch = 2 // an atomic batch: the subject is its id, the data are entries
	// entryBehind: behind the reply, and counted as part of it, is the number of a message without
	// which this one is not kept, as u64. So earlier versions can read it: their leaders don't look at
	// replies.
	entryBehind = 4
	behindSize  = 8
)

var void = append([]byte{entryVoid}, make([]byte, entryHead-1)...)

// EntrySize returns the size of a message's entry in bytes.
func EntrySize(m *protocol.Message) int {
	return entryHead + len(m.Subject) + replySize(m) + len(m.Data)
}

// replySize returns the size of a message's reply in its entry.
func replySize(m *protocol.Message) int {
	if m.Behind > 0 {
		return len(m.Reply) + behindSize
	}
	return len(m.Reply)
}

// AppendEntry appends the entry of a message.
func AppendEntry(dst []byte, m *protocol.Message) []byte {
	return append(appendEntryHead(dst, m), m.Data...)
}

// appendEntryHead appends an entry up to its data.
func appendEntryHead(dst []byte, m *protocol.Message) []byte {
	flags := byte(0)
	if len(m.To) > 0 {
		flags = entryBatch
	}
	if m.Behind > 0 {
		flags |= entryBehind
	}
	dst = append(dst, flags)
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(m.Subject)))
	dst = binary.BigEndian.AppendUint16(dst, uint16(replySize(m)))
	dst = binary.BigEndian.AppendUint32(dst, uint32(m.Header))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(m.Data)))
	dst = append(dst, m.Subject...)
	if dst = append(dst, m.Reply...); m.Behind > 0 {
		dst = binary.BigEndian.AppendUint64(dst, m.Behind)
	}
	return dst
}

// JoinEntry returns the message of an entry that this process encoded, whose data stands apart.
func JoinEntry(head, data []byte) protocol.Message {
	subject := entryHead + int(binary.BigEndian.Uint16(head[1:]))
	return protocol.Message{
		To: batchOf(head), Subject: head[entryHead:subject:subject], Reply: replyOf(head),
		Header: int(binary.BigEndian.Uint32(head[5:])), Data: data, Behind: behindOf(head),
	}
}

// ParseEntry decodes the first of several entries. A void one has no subject.
func ParseEntry(data []byte) (m protocol.Message, rest []byte, ok bool) {
	if len(data) < entryHead {
		return m, nil, false
	}
	subject := int(binary.BigEndian.Uint16(data[1:]))
	reply := int(binary.BigEndian.Uint16(data[3:]))
	header, body := binary.BigEndian.Uint32(data[5:]), binary.BigEndian.Uint32(data[9:])
	isVoid, isBatch, isBehind := data[0]&entryVoid != 0, data[0]&entryBatch != 0, data[0]&entryBehind != 0
	data = data[entryHead:]
	if header > body || isVoid != (subject == 0) || isBehind && reply < behindSize || uint64(subject+reply)+uint64(body) > uint64(len(data)) {
		return m, nil, false
	}
	end := subject + reply
	m.Subject, m.Reply = data[:subject:subject], data[subject:end:end]
	if isBatch {
		m.To = m.Subject
	}
	if isBehind {
		number := end - behindSize
		m.Reply, m.Behind = data[subject:number:number], binary.BigEndian.Uint64(data[number:])
	}
	m.Header, m.Data = int(header), data[end:end+int(body):end+int(body)]
	return m, data[end+int(body):], true
}

// batchOf returns the id of the atomic batch that an entry is, or nil.
func batchOf(data []byte) []byte {
	if data[0]&entryBatch == 0 {
		return nil
	}
	to := entryHead + int(binary.BigEndian.Uint16(data[1:]))
	return data[entryHead:to:to]
}

// replyOf returns the reply subject of an entry that this process encoded.
func replyOf(data []byte) []byte {
	from := entryHead + int(binary.BigEndian.Uint16(data[1:]))
	to := from + int(binary.BigEndian.Uint16(data[3:]))
	if data[0]&entryBehind != 0 {
		to -= behindSize
	}
	return data[from:to:to]
}

// behindOf returns the number without whose message an entry that this process encoded is not kept.
func behindOf(data []byte) uint64 {
	if data[0]&entryBehind == 0 {
		return 0
	}
	reply := replyOf(data)
	return binary.BigEndian.Uint64(data[entryHead+int(binary.BigEndian.Uint16(data[1:]))+len(reply):])
}

// NewOutbox returns an empty outbox, whose first message has the number 1.
func NewOutbox() Outbox { return Outbox{First: 1, sent: 1, Ever: 1} }

// Next returns the number of the next message.
func (o *Outbox) Next() uint64 { return o.First + uint64(len(o.entries)-o.head) }

// Empty reports whether all messages are answered.
func (o *Outbox) Empty() bool { return len(o.entries) == o.head }

// Went reports whether Run returned a message, so that a leader may have it.
func (o *Outbox) Went(seq uint64) bool { return seq < max(o.Ever, o.sent) }

// Expect sets the size of the messages that are about to be added, so that they share few chunks.
func (o *Outbox) Expect(size int) { o.expected = size }

// Lends reports whether the data of a message stays in the memory that it came in: it fills half of
// it, so little else is kept from being reused. An atomic batch was gathered elsewhere: memory has
// its last message only.
func Lends(m *protocol.Message, memory protocol.Memory) bool {
	return memory != nil && len(m.To) == 0 && 2*len(m.Data) >= memory.Size()
}

// Add puts a message at the end, and returns the message that the outbox holds, which is valid
// until it is settled and its chunk freed. The message is copied, or its data refers to memory, if
// that lends it. memory may be nil.
func (o *Outbox) Add(m *protocol.Message, memory protocol.Memory, now int64) (kept protocol.Message) {
	var l entry
	if Lends(m, memory) {
		l = o.lend(m, memory, now)
	} else {
		l = o.write(m, now)
	}
	if o.head > 64 && o.head > len(o.entries)/2 {
		left := copy(o.entries, o.entries[o.head:])
		clear(o.entries[left:])
		o.entries, o.head = o.entries[:left], 0
	}
	o.entries = append(o.entries, l)
	if l.in.memory != nil {
		return JoinEntry(l.in.buf, l.in.data)
	}
	subject := l.in.buf[l.from+entryHead : l.to : l.to]
	reply := subject[len(m.Subject):]
	data := reply[replySize(m):]
	kept = protocol.Message{Behind: m.Behind, Subject: subject[:len(m.Subject):len(m.Subject)], Reply: reply[:len(m.Reply):len(m.Reply)], Header: m.Header, Data: data}
	if len(m.To) > 0 {
		kept.To = kept.Subject
	}
	return kept
}

// write copies a message into a chunk.
func (o *Outbox) write(m *protocol.Message, now int64) entry {
	size := EntrySize(m)
	if o.chunk == nil || cap(o.chunk.buf)-len(o.chunk.buf) < size {
		o.releaseChunk()
		o.chunk = newChunk(max(size, min(o.expected, runBytes)))
		o.Bytes += cap(o.chunk.buf)
	}
	o.expected -= size
	c := o.chunk
	from := len(c.buf)
	c.buf = AppendEntry(c.buf, m)
	c.refs++
	return entry{in: c, from: uint32(from), to: uint32(len(c.buf)), at: now}
}

// lend makes a chunk for a message whose data stays where it is.
func (o *Outbox) lend(m *protocol.Message, memory protocol.Memory, now int64) entry {
	c := newChunk(EntrySize(m) - len(m.Data))
	memory.Retain()
	c.buf, c.data, c.memory, c.refs = appendEntryHead(c.buf, m), m.Data, memory, 1
	o.Bytes += c.size()
	return entry{in: c, to: uint32(len(c.buf)), at: now}
}

// releaseChunk releases the current chunk if it is unused.
func (o *Outbox) releaseChunk() {
	if c := o.chunk; c != nil && c.refs == 0 {
		o.Bytes -= c.size()
		c.free()
	}
	o.chunk = nil
}

// Abandon has the next round send a message as void, if it is unanswered until then. The leader of
// this round refuses it, if it was sent in it.
func (o *Outbox) Abandon(seq uint64) {
	if seq >= o.First && seq < o.Next() {
		o.entries[o.head+int(seq-o.First)].abandoned = true
		o.abandons = true
	}
}

// Begin begins another round. It returns the number of messages that are sent again. No leader
// reads messages of the outbox meanwhile.
func (o *Outbox) Begin() (again int) {
	o.Ever = max(o.Ever, o.sent)
	if o.abandons {
		o.abandons = false
		for seq := o.First; seq < o.Next(); seq = max(seq+1, o.First) {
			if !o.entries[o.head+int(seq-o.First)].abandoned {
				continue
			}
			if _, c, ok := o.Settle(seq); ok {
				o.Free(c, 1)
			}
		}
	}
	for i := o.head; i < len(o.entries) && o.First+uint64(i-o.head) < o.Ever; i++ {
		if o.entries[i].in != nil {
			again++
		}
	}
	o.sent = o.First
	return again
}

// Run returns the next messages of the round that are adjacent in memory: the number of the first,
// their count, and their entries. count is 0 if there are none. The data of a single large message
// may stand apart; then it follows entries.
func (o *Outbox) Run() (first uint64, count int, entries, data []byte) {
	o.sent = max(o.sent, o.First)
	i, end := o.head+int(o.sent-o.First), len(o.entries)
	if o.Until > 0 {
		end = min(end, o.head+int(max(o.Until, o.First)-o.First))
	}
	if i >= end {
		return 0, 0, nil, nil
	}
	first = o.sent
	l := &o.entries[i]
	if l.in == nil {
		o.sent++
		return first, 1, void, nil
	}
	if l.in.memory != nil {
		o.sent++
		return first, 1, l.in.buf, l.in.data
	}
	c, from, to := l.in, l.from, l.from
	for ; i < end; i++ {
		l := &o.entries[i]
		if l.in != c || l.from != to || count > 0 && l.to-from > runBytes {
			break
		}
		to = l.to
		count++
	}
	o.sent += uint64(count)
	return first, count, c.buf[from:to], nil
}

// Sent reports whether all messages were sent in this round.
func (o *Outbox) Sent() bool { return max(o.sent, o.First) == o.Next() }

// Send marks all messages as sent in this round. It is for messages whose copies, as Add returned
// them, reach the leader without Run.
func (o *Outbox) Send() { o.sent = o.Next() }

// Settle removes an answered message and returns to whom its answer goes. Those bytes are valid
// until Free is called for the message with its chunk.
func (o *Outbox) Settle(seq uint64) (reply []byte, c *Chunk, ok bool) {
	if seq < o.First || seq >= o.Next() {
		return nil, nil, false
	}
	l := &o.entries[o.head+int(seq-o.First)]
	if l.in == nil {
		return nil, nil, false
	}
	c = l.in
	reply = replyOf(c.buf[l.from:l.to])
	l.in = nil
	for o.head < len(o.entries) && o.entries[o.head].in == nil {
		o.head++
		o.First++
	}
	if o.Empty() {
		o.entries, o.head = o.entries[:0], 0
	}
	return reply, c, true
}

// Batch returns the id of the atomic batch that an unanswered message is, or nil. It is valid as
// what Settle returns.
func (o *Outbox) Batch(seq uint64) []byte {
	if seq < o.First || seq >= o.Next() {
		return nil
	}
	if l := &o.entries[o.head+int(seq-o.First)]; l.in != nil {
		return batchOf(l.in.buf[l.from:l.to])
	}
	return nil
}

// Shrink releases the memory of a busy time, if all messages are answered.
func (o *Outbox) Shrink() {
	if o.Empty() && cap(o.entries) > idleEntries {
		o.entries = nil
	}
}

// Free releases a chunk that Settle returned for so many messages.
func (o *Outbox) Free(c *Chunk, messages int) {
	if c.refs -= messages; c.refs == 0 && c != o.chunk {
		o.Bytes -= c.size()
		c.free()
	}
	if at := o.chunk; at != nil && at.refs == 0 {
		if o.Empty() {
			o.releaseChunk()
		} else {
			at.buf = at.buf[:0]
		}
	}
}

// Oldest returns the first unanswered message and when it was added.
func (o *Outbox) Oldest() (seq uint64, at int64, ok bool) {
	if o.Empty() {
		return 0, 0, false
	}
	return o.First, o.entries[o.head].at, true // the first one always has its message
}
