package export

import (
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Message is a row of a Messages table.
type Message struct {
	Shard   int
	Offset  uint64
	Time    time.Time
	Subject string
	Headers map[string][]string
	Data    []byte
}

// Messages is a table of messages.
type Messages struct {
	*File
	row []any // reused
}

var messages = []column{
	{name: "shard", kind: int32s},
	{name: "offset", kind: uint64s},
	{name: "time", kind: times},
	{name: "subject", kind: text},
	{name: "headers", kind: headers},
	{name: "json", kind: text, optional: true},
	{name: "data", kind: raw, optional: true},
}

// CreateMessages begins a file, whose name ends with .parquet.
func CreateMessages(name string) (*Messages, error) {
	f, err := create(name, messages)
	return &Messages{File: f, row: make([]any, len(messages))}, err
}

// Append adds a row, and keeps nothing of the message. The payload is in the column json if it is
// that, and else in data.
func (t *Messages) Append(m *Message) error {
	size := 40 + len(m.Subject) + len(m.Data)
	for name, all := range m.Headers {
		size += 16 + len(name)
		for _, v := range all {
			size += 8 + len(v)
		}
	}
	t.row = append(t.row[:0], int32(m.Shard), m.Offset, m.Time, valid(m.Subject), validAll(m.Headers))
	// json.Valid lets bytes pass that are no UTF-8, for which readers refuse the file.
	if utf8.Valid(m.Data) && json.Valid(m.Data) {
		t.row = append(t.row, string(m.Data), nil)
	} else {
		t.row = append(t.row, nil, m.Data)
	}
	return t.add(t.row, size)
}

// valid returns a text as UTF-8, since readers refuse a file with another one.
func valid(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// validAll returns headers as UTF-8: the same ones if they are that.
func validAll(all map[string][]string) map[string][]string {
	sound := true
	for name, values := range all {
		sound = sound && utf8.ValidString(name)
		for _, v := range values {
			sound = sound && utf8.ValidString(v)
		}
	}
	if sound {
		return all
	}
	changed := map[string][]string{}
	for name, values := range all {
		to := changed[valid(name)]
		for _, v := range values {
			to = append(to, valid(v))
		}
		changed[valid(name)] = to
	}
	return changed
}
