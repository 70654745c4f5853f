package export

import (
	"encoding/binary"
	"math"
	"time"

	flatbuffers "github.com/google/flatbuffers/go"
)

// arrowArray are the rows of a column, or what is nested in them, as Arrow has them in memory.
type arrowArray struct {
	length, nulls int
	validity      []byte // a bit for each row: set unless it is null
	offsets       []byte // of texts, bytes and lists: where each begins, and the last one ends
	end           int32  // the last offset
	data          []byte
	bits          bool // data has a bit for each row
	width         int  // of a row in data
	children      []*arrowArray
}

func newArrowArray(k kind) *arrowArray {
	offset := make([]byte, 4)
	switch k {
	case text, raw:
		return &arrowArray{offsets: offset}
	case boolean:
		return &arrowArray{bits: true}
	case int32s:
		return &arrowArray{width: 4}
	case headers:
		values := &arrowArray{offsets: make([]byte, 4), children: []*arrowArray{newArrowArray(text)}}
		pairs := &arrowArray{children: []*arrowArray{newArrowArray(text), values}}
		return &arrowArray{offsets: offset, children: []*arrowArray{pairs}}
	}
	return &arrowArray{width: 8}
}

// add adds a cell.
func (a *arrowArray) add(v any) {
	switch v := v.(type) {
	case nil:
		a.null()
	case string:
		a.data = append(a.data, v...)
		a.grow(len(v))
	case []byte:
		a.data = append(a.data, v...)
		a.grow(len(v))
	case bool:
		a.data = withBit(a.data, a.length, v)
		a.valid()
	case int32:
		a.data = binary.LittleEndian.AppendUint32(a.data, uint32(v))
		a.valid()
	case uint64:
		a.number(v)
	case float64:
		a.number(math.Float64bits(v))
	case time.Time:
		a.number(uint64(v.UnixNano()))
	case map[string][]string:
		pairs := a.children[0]
		keys, values := pairs.children[0], pairs.children[1]
		for name, all := range v {
			keys.add(name)
			for _, one := range all {
				values.children[0].add(one)
			}
			values.grow(len(all))
			pairs.valid()
		}
		a.grow(len(v))
	}
}

func (a *arrowArray) number(v uint64) {
	a.data = binary.LittleEndian.AppendUint64(a.data, v)
	a.valid()
}

// grow ends a row that has so many bytes, or so many elements.
func (a *arrowArray) grow(by int) {
	a.end += int32(by) // maxBytes and the largest message are far below 2 GiB
	a.offsets = binary.LittleEndian.AppendUint32(a.offsets, uint32(a.end))
	a.valid()
}

// valid ends a row that isn't null.
func (a *arrowArray) valid() {
	a.validity = withBit(a.validity, a.length, true)
	a.length++
}

// null adds a row that is null, whose place in data is zero.
func (a *arrowArray) null() {
	a.validity = withBit(a.validity, a.length, false)
	if a.bits {
		a.data = withBit(a.data, a.length, false)
	}
	a.data = append(a.data, arrowPadding[:a.width]...)
	if a.offsets != nil {
		a.offsets = binary.LittleEndian.AppendUint32(a.offsets, uint32(a.end))
	}
	a.nulls++
	a.length++
}

// withBit appends the bit at an index.
func withBit(bits []byte, index int, set bool) []byte {
	if index%8 == 0 {
		bits = append(bits, 0)
	}
	if set {
		bits[index/8] |= 1 << (index % 8)
	}
	return bits
}

// arrowBody is the body of a record batch.
type arrowBody struct {
	nodes   []*arrowArray // in depth-first order
	buffers [][]byte
}

// add adds an array and its children.
func (body *arrowBody) add(a *arrowArray) {
	body.nodes = append(body.nodes, a)
	validity := a.validity
	if a.nulls == 0 {
		validity = nil // all are valid
	}
	body.buffers = append(body.buffers, validity)
	if a.offsets != nil {
		body.buffers = append(body.buffers, a.offsets)
	}
	if a.children == nil {
		body.buffers = append(body.buffers, a.data)
	}
	for _, c := range a.children {
		body.add(c)
	}
}

// metadata appends the description of a batch, and returns the body's length.
func (body *arrowBody) metadata(
	b *flatbuffers.Builder, rows int,
) (header flatbuffers.UOffsetT, length int64) {
	b.StartVector(16, len(body.nodes), arrowAlign)
	for n := len(body.nodes) - 1; n >= 0; n-- {
		b.Prep(arrowAlign, 16)
		b.PrependInt64(int64(body.nodes[n].nulls))
		b.PrependInt64(int64(body.nodes[n].length))
	}
	nodes := b.EndVector(len(body.nodes))
	offsets := make([]int64, len(body.buffers))
	for n, buffer := range body.buffers {
		offsets[n] = length
		length += int64(len(buffer) + arrowPad(len(buffer)))
	}
	b.StartVector(16, len(body.buffers), arrowAlign)
	for n := len(body.buffers) - 1; n >= 0; n-- {
		b.Prep(arrowAlign, 16)
		b.PrependInt64(int64(len(body.buffers[n])))
		b.PrependInt64(offsets[n])
	}
	buffers := b.EndVector(len(body.buffers))
	b.StartObject(2)
	b.PrependByteSlot(0, 1, 0) // zstd, of each buffer
	compression := b.EndObject()
	b.StartObject(5)
	b.PrependInt64Slot(0, int64(rows), 0)
	b.PrependUOffsetTSlot(1, nodes, 0)
	b.PrependUOffsetTSlot(2, buffers, 0)
	b.PrependUOffsetTSlot(3, compression, 0)
	return b.EndObject(), length
}
