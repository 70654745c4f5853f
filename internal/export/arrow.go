package export

import (
	"encoding/binary"
	"io"

	flatbuffers "github.com/google/flatbuffers/go"
	"github.com/klauspost/compress/zstd"
)

// arrowEncoder writes an Arrow IPC file: a schema, record batches, and a footer that says where
// they are. It is written here because arrow-go's writer would add 5 MB to the binary that each
// broker runs. The format: https://arrow.apache.org/docs/format/Columnar.html
type arrowEncoder struct {
	columns []column
	out     io.Writer
	written int64
	batch   []*arrowArray // a column's rows each
	zstd    *zstd.Encoder
	batches []arrowBlock
}

// arrowBlock says where a record batch is in the file.
type arrowBlock struct {
	offset   int64
	metadata int32
	body     int64
}

const (
	arrowMagic   = "ARROW1"
	arrowAlign   = 8
	arrowVersion = 4 // V5 of the metadata
)

var arrowPadding [arrowAlign]byte

func newArrowEncoder(out io.Writer, columns []column) (encoder, error) {
	// One goroutine: a query isn't faster by more of them, and each would keep a window.
	compressor, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	e := &arrowEncoder{columns: columns, out: out, zstd: compressor}
	e.begin()
	if err := e.write([]byte(arrowMagic)); err != nil {
		return nil, err
	}
	b := flatbuffers.NewBuilder(1 << 10)
	_, err = e.message(b, arrowSchemaHeader, e.schema(b), 0)
	return e, err
}

// begin begins a record batch.
func (e *arrowEncoder) begin() {
	e.batch = nil
	for _, c := range e.columns {
		e.batch = append(e.batch, newArrowArray(c.kind))
	}
}

func (e *arrowEncoder) add(row []any) error {
	for n, v := range row {
		e.batch[n].add(v)
	}
	return nil
}

func (e *arrowEncoder) flush() error {
	var body arrowBody
	for _, a := range e.batch {
		body.add(a)
	}
	for n, buffer := range body.buffers {
		if len(buffer) > 0 {
			raw := binary.LittleEndian.AppendUint64(nil, uint64(len(buffer)))
			body.buffers[n] = e.zstd.EncodeAll(buffer, raw)
		}
	}
	rows := body.nodes[0].length
	e.begin()
	b := flatbuffers.NewBuilder(1 << 10)
	header, length := body.metadata(b, rows)
	block, err := e.message(b, arrowBatchHeader, header, length)
	for _, buffer := range body.buffers {
		if err == nil {
			err = e.write(buffer)
		}
	}
	e.batches = append(e.batches, block)
	return err
}

func (e *arrowEncoder) close() error {
	b := flatbuffers.NewBuilder(1 << 10)
	schema := e.schema(b)
	b.StartVector(24, len(e.batches), arrowAlign)
	for n := len(e.batches) - 1; n >= 0; n-- {
		b.Prep(arrowAlign, 24)
		b.PrependInt64(e.batches[n].body)
		b.Pad(4)
		b.PrependInt32(e.batches[n].metadata)
		b.PrependInt64(e.batches[n].offset)
	}
	batches := b.EndVector(len(e.batches))
	b.StartObject(5)
	b.PrependInt16Slot(0, arrowVersion, 0)
	b.PrependUOffsetTSlot(1, schema, 0)
	b.PrependUOffsetTSlot(3, batches, 0)
	b.Finish(b.EndObject())
	footer := b.FinishedBytes()
	end := binary.LittleEndian.AppendUint32(nil, 1<<32-1) // no more messages
	end = append(binary.LittleEndian.AppendUint32(end, 0), footer...)
	end = binary.LittleEndian.AppendUint32(end, uint32(len(footer)))
	_, err := e.out.Write(append(end, arrowMagic...))
	return err
}

// write writes bytes and what aligns the next ones.
func (e *arrowEncoder) write(bytes []byte) error {
	for _, part := range [][]byte{bytes, arrowPadding[:arrowPad(len(bytes))]} {
		n, err := e.out.Write(part)
		e.written += int64(n)
		if err != nil {
			return err
		}
	}
	return nil
}

func arrowPad(length int) int { return -length & (arrowAlign - 1) }

// Types of messages.
const (
	arrowSchemaHeader = 1
	arrowBatchHeader  = 3
)

// message writes a message, of which the body follows.
func (e *arrowEncoder) message(
	b *flatbuffers.Builder, kind byte, header flatbuffers.UOffsetT, body int64,
) (arrowBlock, error) {
	b.StartObject(5)
	b.PrependInt16Slot(0, arrowVersion, 0)
	b.PrependByteSlot(1, kind, 0)
	b.PrependUOffsetTSlot(2, header, 0)
	b.PrependInt64Slot(3, body, 0)
	b.Finish(b.EndObject())
	metadata := b.FinishedBytes()
	length := len(metadata) + arrowPad(len(metadata))
	head := binary.LittleEndian.AppendUint32(nil, 1<<32-1)
	head = binary.LittleEndian.AppendUint32(head, uint32(length))
	block := arrowBlock{e.written, int32(len(head) + length), body}
	return block, e.write(append(head, metadata...))
}

// schema appends the schema.
func (e *arrowEncoder) schema(b *flatbuffers.Builder) flatbuffers.UOffsetT {
	fields := make([]flatbuffers.UOffsetT, len(e.columns))
	for n, c := range e.columns {
		fields[n] = arrowField(b, c.name, arrowTypes[c.kind], c.optional)
	}
	all := b.CreateVectorOfTables(fields)
	b.StartObject(4)
	b.PrependUOffsetTSlot(1, all, 0)
	return b.EndObject()
}

// arrowType is a type of Arrow.
type arrowType struct {
	id       byte
	build    func(b *flatbuffers.Builder) // sets the fields of the type's table
	timezone string
	children []arrowChild
}

type arrowChild struct {
	name string
	is   arrowType
}

func arrowInt(bits int32, signed bool) arrowType {
	return arrowType{id: 2, build: func(b *flatbuffers.Builder) {
		b.PrependInt32Slot(0, bits, 0)
		b.PrependBoolSlot(1, signed, false)
	}}
}

// The types that Arrow has for the kinds of columns.
var (
	arrowText  = arrowType{id: 5}
	arrowTexts = arrowType{id: 12, children: []arrowChild{{"item", arrowText}}}
	arrowPairs = arrowType{id: 13, children: []arrowChild{{"key", arrowText}, {"value", arrowTexts}}}
	arrowTypes = [...]arrowType{
		text:     arrowText,
		raw:      {id: 4},
		boolean:  {id: 6},
		int32s:   arrowInt(32, true),
		uint64s:  arrowInt(64, false),
		float64s: {id: 3, build: func(b *flatbuffers.Builder) { b.PrependInt16Slot(0, 2, 0) }},
		times: {id: 10, timezone: "UTC", build: func(b *flatbuffers.Builder) {
			b.PrependInt16Slot(0, 3, 0) // nanoseconds
		}},
		headers: {id: 17, children: []arrowChild{{"entries", arrowPairs}}},
	}
)

// arrowField appends a field of a schema.
func arrowField(
	b *flatbuffers.Builder, name string, is arrowType, optional bool,
) flatbuffers.UOffsetT {
	children := make([]flatbuffers.UOffsetT, len(is.children))
	for n, c := range is.children {
		children[n] = arrowField(b, c.name, c.is, false)
	}
	below := b.CreateVectorOfTables(children)
	called := b.CreateString(name)
	var timezone flatbuffers.UOffsetT
	if is.timezone != "" {
		timezone = b.CreateString(is.timezone)
	}
	b.StartObject(2)
	if is.build != nil {
		is.build(b)
	}
	if timezone != 0 {
		b.PrependUOffsetTSlot(1, timezone, 0)
	}
	table := b.EndObject()
	b.StartObject(7)
	b.PrependUOffsetTSlot(0, called, 0)
	b.PrependBoolSlot(1, optional, false)
	b.PrependByteSlot(2, is.id, 0)
	b.PrependUOffsetTSlot(3, table, 0)
	b.PrependUOffsetTSlot(5, below, 0)
	return b.EndObject()
}
