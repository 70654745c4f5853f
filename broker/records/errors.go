package records

import "fmt"

// NoRecordError reports that a shard has no such record.
type NoRecordError struct {
	Topic   string
	Offset  uint64 // that was asked for; 0: a subject was
	Subject string
}

func (e *NoRecordError) Error() string {
	if e.Subject == "" {
		return fmt.Sprintf("topic %s keeps no record at offset %d", e.Topic, e.Offset)
	}
	return fmt.Sprintf("topic %s keeps no record of subject %s from offset %d on", e.Topic, e.Subject, e.Offset)
}

// ScanError reports that looking for a record would take reading more than a bound.
type ScanError struct {
	Topic, Subject string
	Bytes          int64
}

func (e *ScanError) Error() string {
	return fmt.Sprintf("topic %s: no record of subject %s in the %d bytes that one search reads; ask for one by its offset", e.Topic, e.Subject, e.Bytes)
}

// OffsetError reports that a shard doesn't hold an offset, now or yet.
type OffsetError struct {
	Topic               string
	Offset, Start, High uint64 // what is held begins at Start and ends before High
}

func (e *OffsetError) Error() string {
	if e.Offset < e.Start {
		return fmt.Sprintf("topic %s: offset %d is gone; what is kept begins at %d", e.Topic, e.Offset, e.Start)
	}
	return fmt.Sprintf("topic %s: offset %d is beyond the high watermark, which is %d", e.Topic, e.Offset, e.High)
}

// SizeError is a record that doesn't fit an answer.
type SizeError struct {
	Topic      string
	Offset     uint64
	Size, Most int
}

func (e *SizeError) Error() string {
	return fmt.Sprintf("topic %s: the record at offset %d takes %d bytes in this form, and an answer has room for %d (get it by itself, or ask for the plain form)", e.Topic, e.Offset, e.Size, e.Most)
}
