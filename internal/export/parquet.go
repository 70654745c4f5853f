package export

import (
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/parquet-go/parquet-go"
)

// parquetNodes are the types that Parquet has for the kinds of columns. Texts that
// repeat are written once for each row group, as long as their dictionary is small.
var parquetNodes = [...]parquet.Node{
	text:     parquet.Encoded(parquet.String(), &parquet.RLEDictionary),
	raw:      parquet.Encoded(parquet.Leaf(parquet.ByteArrayType), &parquet.Plain),
	boolean:  parquet.Leaf(parquet.BooleanType),
	int32s:   parquet.Int(32),
	uint64s:  parquet.Uint(64),
	float64s: parquet.Leaf(parquet.DoubleType),
	times:    parquet.Timestamp(parquet.Nanosecond),
	headers: parquet.Map(parquet.Encoded(parquet.String(), &parquet.RLEDictionary),
		parquet.List(parquet.Encoded(parquet.String(), &parquet.RLEDictionary))),
}

// parquetEncoder writes a Parquet file.
type parquetEncoder struct {
	columns []column
	file    *parquet.GenericWriter[any]
	row     parquet.Row // reused
}

func newParquetEncoder(out io.Writer, columns []column) *parquetEncoder {
	options := []parquet.WriterOption{
		parquet.NewSchema("carillon", root{columns: columns}),
		parquet.Compression(&parquet.Zstd),
		parquet.DataPageVersion(1), // which every reader knows
		parquet.DictionaryMaxBytes(maxDictionary),
		// Pages have their least and greatest value in the column's index: before each page they
		// would be whole payloads.
		parquet.DataPageStatistics(false),
	}
	for _, c := range columns {
		switch c.kind {
		case text, raw: // else the least and the greatest payload are in the footer
			options = append(options, parquet.SkipPageBounds(c.name))
		case headers:
			options = append(options, parquet.SkipPageBounds(c.name, "key_value", "key"),
				parquet.SkipPageBounds(c.name, "key_value", "value", "list", "element"))
		}
	}
	return &parquetEncoder{columns: columns, file: parquet.NewGenericWriter[any](out, options...)}
}

// Definition and repetition levels say how the values of a column are nested. A value of headers
// has the repetition level 0 if it is the first of its row, 1 if it is the first of its header,
// and 2 otherwise.
const (
	headerLevel = 1 // a header; the definition level of a key, and of a header without values
	valueLevel  = 2 // one more of its values
)

// add buffers a row, which has a cell of the column's kind, or nil, for each column. It keeps
// nothing of the row's memory.
func (e *parquetEncoder) add(row []any) error {
	e.row = e.row[:0]
	at := 0 // the column of leaves
	for n, v := range row {
		present := 0 // the definition level of a value that isn't null
		if e.columns[n].optional {
			present = 1
		}
		if e.columns[n].kind == headers {
			e.addHeaders(v.(map[string][]string), at)
			at += 2
			continue
		}
		var value parquet.Value
		switch v := v.(type) {
		case nil:
			present = 0
		case string:
			value = parquet.ByteArrayValue([]byte(v))
		case []byte:
			value = parquet.ByteArrayValue(v)
		case bool:
			value = parquet.BooleanValue(v)
		case int32:
			value = parquet.Int32Value(v)
		case uint64:
			value = parquet.Int64Value(int64(v)) // the column's type says that it has no sign
		case float64:
			value = parquet.DoubleValue(v)
		case time.Time:
			value = parquet.Int64Value(v.UnixNano())
		}
		e.row = append(e.row, value.Level(0, present, at))
		at++
	}
	_, err := e.file.WriteRows([]parquet.Row{e.row})
	return err
}

// addHeaders appends the values of the columns of keys and of values, which is the next one.
func (e *parquetEncoder) addHeaders(all map[string][]string, keys int) {
	if len(all) == 0 {
		e.row = append(e.row, parquet.Value{}.Level(0, 0, keys), parquet.Value{}.Level(0, 0, keys+1))
		return
	}
	names := make([]string, 0, len(all))
	for name := range all {
		key := parquet.ByteArrayValue([]byte(name))
		e.row = append(e.row, key.Level(min(len(names), headerLevel), headerLevel, keys))
		names = append(names, name)
	}
	for n, name := range names { // in the order of the keys
		repetition := min(n, headerLevel)
		if len(all[name]) == 0 {
			e.row = append(e.row, parquet.Value{}.Level(repetition, headerLevel, keys+1))
		}
		for _, one := range all[name] {
			value := parquet.ByteArrayValue([]byte(one))
			e.row = append(e.row, value.Level(repetition, valueLevel, keys+1))
			repetition = valueLevel
		}
	}
}

// flush writes the buffered rows as one row group.
func (e *parquetEncoder) flush() error { return e.file.Flush() }

// close writes the end of the file, which stays open.
func (e *parquetEncoder) close() error { return e.file.Close() }

// root is the root of a schema. Unlike that of parquet.Group its columns keep their order, and may
// have any names.
type root struct {
	parquet.Group
	columns []column
}

func (r root) String() string { return fmt.Sprint(r.columns) }

// GoType returns a type without fields. The library looks for none, as rows of parquet.Value are
// written, and the names of columns needn't be such that fields can have them.
func (r root) GoType() reflect.Type { return reflect.TypeFor[struct{}]() }

func (r root) Fields() (all []parquet.Field) {
	for _, c := range r.columns {
		node := parquetNodes[c.kind]
		if c.optional {
			node = parquet.Optional(node)
		}
		all = append(all, field{node, c.name})
	}
	return all
}

// field is a column of the root.
type field struct {
	parquet.Node
	name string
}

func (f field) Name() string { return f.name }

// Value is for rows that are values of Go, which aren't written.
func (f field) Value(reflect.Value) reflect.Value { return reflect.Value{} }
