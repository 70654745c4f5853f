package export

import (
	"fmt"
	"time"
)

// Results is a table of results, whose columns have names, and values that are nil, or of the types
// bool, uint64, float64, string and time.Time. A column has the type of its values in the first
// rows; of different types it is text.
type Results struct {
	*File
	name    string
	columns []string
	types   []column // once they are known
	pending [][]any  // the rows before
}

// typingRows are the rows in which the types of columns are looked for.
const typingRows = 10_000

// CreateResults begins a file, whose name ends with .parquet.
func CreateResults(name string, columns []string) (*Results, error) {
	return &Results{name: name, columns: columns}, Valid(name)
}

// Rows returns how many rows were added.
func (t *Results) Rows() int {
	if t.File == nil {
		return len(t.pending)
	}
	return t.File.Rows()
}

// Append adds a row, and keeps it.
func (t *Results) Append(row []any) error {
	if t.File != nil {
		return t.append(row)
	}
	if t.pending = append(t.pending, row); len(t.pending) < typingRows {
		return nil
	}
	return t.begin()
}

// begin decides the types of the columns.
func (t *Results) begin() (err error) {
	t.types = make([]column, len(t.columns))
	for n, name := range t.columns {
		t.types[n] = column{name: name, kind: t.kindOf(n), optional: true}
	}
	if t.File, err = create(t.name, t.types); err != nil {
		return err
	}
	for _, row := range t.pending {
		if err := t.append(row); err != nil {
			return err
		}
	}
	t.pending = nil
	return nil
}

// kindOf returns the kind of a column's values in the first rows: text if there are several kinds
// or none.
func (t *Results) kindOf(column int) kind {
	found := kind(-1)
	for _, row := range t.pending {
		one := kindOf(row[column])
		if row[column] == nil || one == found {
			continue
		}
		if found >= 0 {
			return text
		}
		found = one
	}
	return max(found, text)
}

func kindOf(v any) kind {
	switch v.(type) {
	case bool:
		return boolean
	case uint64:
		return uint64s
	case float64:
		return float64s
	case time.Time:
		return times
	}
	return text
}

// append adds a row to the file.
func (t *Results) append(row []any) error {
	size := 8 * len(row)
	cells := make([]any, len(row))
	for n, v := range row {
		want := t.types[n].kind
		switch {
		case v == nil:
		case want == text:
			s := asText(v)
			size += len(s)
			cells[n] = s
		case want == kindOf(v):
			cells[n] = v
		default:
			return t.failed(fmt.Errorf("column %q has the value %v, which is no %s as those of the"+
				" first %d rows are: make all texts with string(…)", t.columns[n], v, want, typingRows))
		}
	}
	return t.add(cells, size)
}

func asText(v any) string {
	switch is := v.(type) {
	case string:
		return valid(is)
	case time.Time:
		return is.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(v)
}

// Finish writes what is left, and gives the file its name: one that had it is replaced.
func (t *Results) Finish() error {
	if t.File == nil {
		if err := t.begin(); err != nil {
			return err
		}
	}
	return t.File.Finish()
}

// Abort removes what was written.
func (t *Results) Abort() error {
	if t.File == nil {
		return nil
	}
	return t.File.Abort()
}
