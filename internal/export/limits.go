package export

// Bounds of a row group, which is in memory until it is written. Readers skip and decompress whole
// ones, so they shouldn't be small, either.
const (
	maxRows  = 128 << 10
	maxBytes = 32 << 20
)

// maxDictionary bounds the bytes of a column's different texts in a row group. A column
// that has more is written text by text: a dictionary of texts that hardly repeat only costs.
const maxDictionary = 1 << 20
