package stamping

const (
	// Most is the size of the largest stamp: that of a subject's attributes as JSON
	// (attribute.MaxBytes), with room for later versions.
	Most = 16 << 10
	// mostPlaces is how many texts of a batch a Writer keeps room for until the next one: emptying a
	// large map takes as long as filling it.
	mostPlaces = 256
)
