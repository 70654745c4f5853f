package export

// column is a column of a table.
type column struct {
	name     string
	kind     kind
	optional bool // a cell may be nil
}

// kind is the type of a column's cells.
type kind int

const (
	text     kind = iota // string of UTF-8
	raw                  // []byte
	boolean              // bool
	int32s               // int32
	uint64s              // uint64
	float64s             // float64
	times                // time.Time, as nanoseconds of UTC
	headers              // map[string][]string, of UTF-8
)

// String returns how an error names a value of the kind.
func (k kind) String() string {
	return [...]string{"text", "bytes", "bool", "int32", "uint64", "float64", "time", "headers"}[k]
}
