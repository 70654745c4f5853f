package attribute

// Bounds of attributes, each with the reason for its value.
const (
	// MaxBytes is the size of the attributes of a subject as JSON. They say what a subject is about;
	// content belongs into messages.
	MaxBytes = 4 << 10
	// maxName is the size of a name in bytes. It stands in each subject's value and in queries.
	maxName = 64
)
