package subjectindex

import "fmt"

// MissingError reports that an answer depends on offsets that have no index: it is being made, or
// the records are damaged. The caller reads the log instead, or asks again later.
type MissingError struct {
	From, To uint64
	Damaged  bool // the records can't be read, so the index can't be made before they are repaired
}

func (e *MissingError) Error() string {
	if e.Damaged {
		return fmt.Sprintf("the subjects of the records from offset %d to %d are not known: the records are damaged", e.From, e.To)
	}
	return fmt.Sprintf("the subjects of the records from offset %d to %d are being indexed; ask again in a moment", e.From, e.To)
}

// FileError reports that an index file can't be used. The index drops such a file and makes it
// again.
type FileError struct {
	Path   string
	Pos    int64
	Reason string
}

func (e *FileError) Error() string {
	return fmt.Sprintf("index %s: byte %d: %s", e.Path, e.Pos, e.Reason)
}

// OrderError reports offsets or subjects that are not in order. It is a fault of the caller's.
type OrderError struct{ What string }

func (e *OrderError) Error() string { return "subject index: " + e.What }
