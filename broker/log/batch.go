package log

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/stamping"
)

// Record is one message as the log keeps it. Decoded, its slices point into the batch.
type Record struct {
	Offset  uint64 // given by the log
	Time    int64  // nanoseconds since 1970
	Subject []byte
	// Header is the length of the message's header block, with which Data begins.
	Header int
	Data   []byte
	// Attributes are opaque to the log; empty for most.
	Attributes []byte
	// Stamp has the attributes of the subject when the record was stored, as JSON; nil: none. It is
	// decoded from an extension of the batch (package stamping), which the appender gives. A rewrite
	// of the batch keeps it.
	Stamp []byte
}

// Extension is metadata of a batch, for example the message numbers that make publishing
// idempotent. The log keeps extensions of unknown types.
type Extension struct {
	Type uint16
	Data []byte
}

// Batch is an encoded batch with its header: the same bytes in the segment, on the way to followers
// and for readers. All integers are little-endian.
//
//	 0 u32 length, of everything         24 u64 base offset
//	 4 u32 CRC-32C of what follows       32 i64 time of the first record
//	 8 u8  kind: 1                       40 i64 greatest time
//	 9 u8  version: 1, or 2 if sparse    48 u32 length of the extensions
//	10 u16 flags                         52 u32 number of records if sparse, or zero
//	12 u32 span: offsets that it covers  56 extensions: u16 type, u32 length, bytes
//	16 u64 epoch                            records
//
// A record is: uvarint length of the rest, u8 flags, varint nanoseconds after the first record,
// then the fields that the flags announce (uvarint number of offsets without a record before it;
// uvarint length and subject; uvarint length of the header; uvarint length and attributes), then
// header and payload.
//
// A sparse batch replaces one or more neighbouring batches in a compaction. It covers all of their
// offsets, and has records for some of them, or for none. Any other batch has a record for every
// offset.
type Batch []byte

const (
	batchHeader     = 56
	batchVersion    = 1
	extensionHeader = 6

	sparseVersion = 2 // so that older brokers refuse sparse batches by name

	flagPacked = 1 << 0
	flagSparse = 1 << 1
)

// Flags of a record: which fields it has. A record without a subject has the subject of the record
// before it.
const (
	recordSubject    = 1 << 0
	recordHeader     = 1 << 1
	recordAttributes = 1 << 2
	recordGap        = 1 << 3 // in sparse batches only
	recordKnown      = recordSubject | recordHeader | recordAttributes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var le = binary.LittleEndian

// Base is the first offset that the batch covers: the offset of its first record, unless it is
// sparse.
func (b Batch) Base() uint64 { return le.Uint64(b[24:]) }

// Span is the number of offsets that the batch covers.
func (b Batch) Span() uint64 { return uint64(le.Uint32(b[12:])) }

// Count is the number of records. It equals Span unless the batch is sparse.
func (b Batch) Count() int {
	if b.Sparse() {
		return int(le.Uint32(b[52:]))
	}
	return int(le.Uint32(b[12:]))
}

// Sparse reports whether the batch may cover offsets without a record.
func (b Batch) Sparse() bool { return b.Flags()&flagSparse != 0 }

// End is the offset after the last one that the batch covers.
func (b Batch) End() uint64 { return b.Base() + b.Span() }

// Epoch is the epoch of the leader that appended the batch.
func (b Batch) Epoch() uint64 { return le.Uint64(b[16:]) }

// Flags say how the records are encoded; 0: one by one.
func (b Batch) Flags() uint16 { return le.Uint16(b[10:]) }

// Time is the time of the first record, in nanoseconds since 1970.
func (b Batch) Time() int64 { return int64(le.Uint64(b[32:])) }

// LastTime is the greatest time of all records, in nanoseconds since 1970.
func (b Batch) LastTime() int64 { return int64(le.Uint64(b[40:])) }

// ParseBatch returns the batch at the beginning of data. It checks length, checksum, version and
// header fields. It is for bytes that another process sent.
func ParseBatch(data []byte) (Batch, error) {
	f, err := parseFrame(data)
	if err != nil {
		return nil, err
	}
	if f.kind() != kindBatch {
		return nil, fmt.Errorf("a frame of kind %d is no batch", f.kind())
	}
	b := Batch(f)
	if err := b.check(); err != nil {
		return nil, err
	}
	if err := b.checkRecords(); err != nil {
		return nil, err
	}
	for ext := b.Extensions(); ; {
		if _, ok := ext.Next(); !ok {
			return b, ext.err
		}
	}
}

func (b Batch) checkRecords() error {
	if b.Flags() == flagPacked {
		_, records, ok := b.Packed()
		if !ok {
			return fmt.Errorf("the batch at offset %d has no subject", b.Base())
		}
		stamps := b.Stamps()
		if _, err := stamps.At(b.End() - 1); err != nil {
			return fmt.Errorf("the batch at offset %d: %w", b.Base(), err)
		}
		return checkPacked(records, b.Count())
	}
	it := b.Records()
	for r := (Record{}); it.Next(&r); {
	}
	return it.Err()
}

// body returns the encoded records, which follow the header and the extensions.
func (b Batch) body() []byte { return b[batchHeader+int(le.Uint32(b[48:])):] }

// check validates the header fields that readers rely on. The caller has verified the checksum.
func (b Batch) check() error {
	switch {
	case len(b) < batchHeader:
		return fmt.Errorf("a batch of %d bytes is shorter than its header", len(b))
	case b.Span() == 0:
		return fmt.Errorf("a batch without records")
	case b.Sparse() != (b[9] == sparseVersion) || uint64(b.Count()) > b.Span():
		return fmt.Errorf("a batch of version %d with flags %#x and %d records on %d offsets", b[9], b.Flags(), b.Count(), b.Span())
	case b.Base() == 0 || b.Base() > math.MaxUint64-b.Span():
		return fmt.Errorf("a batch with base offset %d", b.Base())
	case uint64(le.Uint32(b[48:])) > uint64(len(b)-batchHeader):
		return fmt.Errorf("a batch with %d bytes of extensions in %d", le.Uint32(b[48:]), len(b))
	}
	return nil
}

func uvarintLen(x uint64) int {
	n := 1
	for ; x >= 0x80; x >>= 7 {
		n++
	}
	return n
}

func zigzag(x int64) uint64 { return uint64(x<<1) ^ uint64(x>>63) }

// recordSize returns the encoded length of a record without its length prefix.
func recordSize(r *Record, first int64, same bool) (size int, flags byte) {
	size = 1 + uvarintLen(zigzag(r.Time-first)) + len(r.Data)
	if !same {
		flags |= recordSubject
		size += uvarintLen(uint64(len(r.Subject))) + len(r.Subject)
	}
	if r.Header > 0 {
		flags |= recordHeader
		size += uvarintLen(uint64(r.Header))
	}
	if len(r.Attributes) > 0 {
		flags |= recordAttributes
		size += uvarintLen(uint64(len(r.Attributes))) + len(r.Attributes)
	}
	return size, flags
}

func sameSubject(records []Record, i int) bool {
	return i > 0 && string(records[i].Subject) == string(records[i-1].Subject)
}

// batchSize returns the length of a batch of these records, or an error if there can't be one.
func batchSize(records []Record, extensions []Extension) (int, error) {
	if len(records) == 0 {
		return 0, fmt.Errorf("nothing to append")
	}
	size := batchHeader
	for _, e := range extensions {
		size += extensionHeader + len(e.Data)
	}
	for i := range records {
		r := &records[i]
		if r.Header < 0 || r.Header > len(r.Data) {
			return 0, fmt.Errorf("record %d announces a header of %d bytes in %d", i, r.Header, len(r.Data))
		}
		n, _ := recordSize(r, records[0].Time, sameSubject(records, i))
		if size += uvarintLen(uint64(n)) + n; size > limits.BatchBytes {
			return 0, fmt.Errorf("a batch may have %d bytes; append fewer records at once", limits.BatchBytes)
		}
	}
	if size > limits.BatchBytes {
		return 0, fmt.Errorf("a batch may have %d bytes; append fewer records at once", limits.BatchBytes)
	}
	return size, nil
}

// appendBatch appends a batch of the records to dst, which has the capacity.
func appendBatch(dst []byte, epoch, base uint64, records []Record, extensions []Extension) []byte {
	start := len(dst)
	dst = appendExtensions(dst[:start+batchHeader], extensions)
	extended := len(dst) - start - batchHeader
	first, last := records[0].Time, records[0].Time
	for i := range records {
		r := &records[i]
		last = max(last, r.Time)
		dst = appendRecord(dst, r, first, sameSubject(records, i), 0)
	}
	sealBatch(dst[start:], head{count: len(records), epoch: epoch, base: base, first: first, last: last, extended: extended})
	return dst
}

// appendRecord appends an encoded record to dst. gap is the number of offsets without a record
// before it.
func appendRecord(dst []byte, r *Record, first int64, same bool, gap uint64) []byte {
	n, flags := recordSize(r, first, same)
	if gap > 0 {
		flags |= recordGap
		n += uvarintLen(gap)
	}
	dst = binary.AppendUvarint(dst, uint64(n))
	dst = append(dst, flags)
	dst = binary.AppendVarint(dst, r.Time-first)
	if gap > 0 {
		dst = binary.AppendUvarint(dst, gap)
	}
	if flags&recordSubject != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Subject)))
		dst = append(dst, r.Subject...)
	}
	if flags&recordHeader != 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Header))
	}
	if flags&recordAttributes != 0 {
		dst = binary.AppendUvarint(dst, uint64(len(r.Attributes)))
		dst = append(dst, r.Attributes...)
	}
	return append(dst, r.Data...)
}

func appendExtensions(dst []byte, extensions []Extension) []byte {
	for _, e := range extensions {
		dst = le.AppendUint16(dst, e.Type)
		dst = le.AppendUint32(dst, uint32(len(e.Data)))
		dst = append(dst, e.Data...)
	}
	return dst
}

// head holds the fields of a batch's header other than length and checksum.
type head struct {
	flags           uint16
	count, extended int    // records, and bytes of extensions
	span            uint64 // of a sparse batch; other batches have count
	epoch, base     uint64
	first, last     int64
}

// sealBatch fills in the header of a batch whose extensions and records are complete.
func sealBatch(b []byte, h head) {
	b[8], b[9] = kindBatch, batchVersion
	le.PutUint16(b[10:], h.flags)
	le.PutUint32(b[12:], uint32(h.count))
	le.PutUint32(b[52:], 0)
	if h.flags&flagSparse != 0 {
		b[9] = sparseVersion
		le.PutUint32(b[12:], uint32(h.span))
		le.PutUint32(b[52:], uint32(h.count))
	}
	le.PutUint64(b[16:], h.epoch)
	le.PutUint64(b[24:], h.base)
	le.PutUint64(b[32:], uint64(h.first))
	le.PutUint64(b[40:], uint64(h.last))
	le.PutUint32(b[48:], uint32(h.extended))
	seal(b)
}

// RecordIter walks the records of a batch.
type RecordIter struct {
	rest    []byte
	next    uint64
	end     uint64
	left    int
	first   int64
	subject []byte
	packed  bool
	known   byte // flags that a record may have
	stamps  stamping.Reader
	err     error
}

// Records returns an iterator over the batch's records.
func (b Batch) Records() RecordIter {
	if err := b.check(); err != nil {
		return RecordIter{err: err}
	}
	it := RecordIter{rest: b.body(), next: b.Base(), end: b.End(), left: b.Count(), first: b.Time(), known: recordKnown, stamps: b.Stamps()}
	switch b.Flags() {
	case 0:
	case flagSparse:
		it.known |= recordGap
	case flagPacked:
		it.packed = true
		var ok bool
		if it.subject, it.rest, ok = cutLength(it.rest); !ok {
			it.bad()
		}
	default:
		it.err = fmt.Errorf("batch at offset %d is encoded in a way (flags %#x) that this version doesn't know", b.Base(), b.Flags())
	}
	return it
}

// Next decodes the next record into r and reports whether there was one.
func (it *RecordIter) Next(r *Record) bool {
	if it.left == 0 || it.err != nil {
		if it.err == nil && len(it.rest) > 0 {
			it.err = fmt.Errorf("%d bytes follow the last record", len(it.rest))
		}
		return false
	}
	body, rest, ok := cutLength(it.rest)
	if it.packed {
		if !ok {
			return it.bad()
		}
		*r = Record{Offset: it.next, Time: it.first, Subject: it.subject, Data: body}
		return it.move(r, rest)
	}
	if !ok || len(body) < 2 || body[0]&^it.known != 0 {
		return it.bad()
	}
	flags := body[0]
	delta, n := binary.Varint(body[1:])
	if n <= 0 {
		return it.bad()
	}
	body = body[1+n:]
	if flags&recordGap != 0 {
		gap, n := binary.Uvarint(body)
		if n <= 0 || gap >= it.end-it.next {
			return it.bad()
		}
		it.next += gap
		body = body[n:]
	}
	if it.next >= it.end {
		return it.bad()
	}
	if flags&recordSubject != 0 {
		if it.subject, body, ok = cutLength(body); !ok {
			return it.bad()
		}
	}
	header := uint64(0)
	if flags&recordHeader != 0 {
		if header, n = binary.Uvarint(body); n <= 0 {
			return it.bad()
		}
		body = body[n:]
	}
	var attributes []byte
	if flags&recordAttributes != 0 {
		if attributes, body, ok = cutLength(body); !ok {
			return it.bad()
		}
	}
	if header > uint64(len(body)) {
		return it.bad()
	}
	*r = Record{Offset: it.next, Time: it.first + delta, Subject: it.subject, Header: int(header), Data: body, Attributes: attributes}
	return it.move(r, rest)
}

// move moves behind a record, and adds its stamp.
func (it *RecordIter) move(r *Record, rest []byte) bool {
	if it.stamps.Any() {
		var err error
		if r.Stamp, err = it.stamps.At(r.Offset); err != nil {
			it.err = fmt.Errorf("the record at offset %d: %w", r.Offset, err)
			return false
		}
	}
	it.rest = rest
	it.next++
	it.left--
	return true
}

func (it *RecordIter) bad() bool {
	it.err = fmt.Errorf("the record at offset %d is malformed", it.next)
	return false
}

// Err is why Next stopped early, or nil.
func (it *RecordIter) Err() error { return it.err }

// cutLength splits a length-prefixed piece (a uvarint, that many bytes) off data.
func cutLength(data []byte) (piece, rest []byte, ok bool) {
	size, n := binary.Uvarint(data)
	if n <= 0 || size > uint64(len(data)-n) {
		return nil, nil, false
	}
	return data[n : n+int(size) : n+int(size)], data[n+int(size):], true
}

// ExtensionIter walks the extensions of a batch.
type ExtensionIter struct {
	rest []byte
	err  error
}

// Extensions returns an iterator over the batch's extensions.
func (b Batch) Extensions() ExtensionIter {
	if err := b.check(); err != nil {
		return ExtensionIter{err: err}
	}
	return ExtensionIter{rest: b[batchHeader : batchHeader+int(le.Uint32(b[48:]))]}
}

// Next returns the next extension; false at the end.
func (it *ExtensionIter) Next() (Extension, bool) {
	if len(it.rest) == 0 {
		return Extension{}, false
	}
	if len(it.rest) < extensionHeader || uint64(le.Uint32(it.rest[2:])) > uint64(len(it.rest)-extensionHeader) {
		it.rest, it.err = nil, fmt.Errorf("an extension is malformed")
		return Extension{}, false
	}
	end := extensionHeader + int(le.Uint32(it.rest[2:]))
	e := Extension{Type: le.Uint16(it.rest), Data: it.rest[extensionHeader:end]}
	it.rest = it.rest[end:]
	return e, true
}

// Err is why Next stopped early, or nil.
func (it *ExtensionIter) Err() error { return it.err }

// Stamps returns a reader of the stamps of the batch's records, for those who read packed records
// themselves.
func (b Batch) Stamps() stamping.Reader {
	for it := b.Extensions(); ; {
		e, ok := it.Next()
		if !ok {
			return stamping.Reader{}
		}
		if e.Type == stamping.ExtensionType {
			return stamping.NewReader(e.Data, b.Base())
		}
	}
}
