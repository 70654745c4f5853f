package bench

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// A pubAck is a server's answer to a message for a stream: where it stands there, or why not.
type pubAck struct {
	stream    []byte // valid only as long as what it was read from
	sequence  uint64
	duplicate bool // the server took it for one that it had
}

var errEmptyAck = errors.New("nobody answers for the stream, or the answer is empty")

// readPubAck takes the shape that servers send for a message that was stored without
// allocating; whatever else comes goes through encoding/json.
func readPubAck(payload []byte) (pubAck, error) {
	if len(payload) == 0 {
		return pubAck{}, errEmptyAck
	}
	if a, ok := scanPubAck(payload); ok {
		return a, nil
	}
	var answer struct {
		Stream    string `json:"stream"`
		Sequence  uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(payload, &answer); err != nil {
		return pubAck{}, fmt.Errorf("the answer can't be read: %w: %.64q", err, payload)
	}
	if answer.Error != nil {
		return pubAck{}, fmt.Errorf("%s (%d)", answer.Error.Description, answer.Error.Code)
	}
	return pubAck{stream: []byte(answer.Stream), sequence: answer.Sequence, duplicate: answer.Duplicate}, nil
}

var (
	keyStream = []byte(`"stream"`)
	keySeq    = []byte(`"seq"`)
)

// scanPubAck knows {"stream":"NAME","seq":N} with blanks anywhere between, and nothing more.
func scanPubAck(p []byte) (a pubAck, ok bool) {
	take := func(token []byte) bool {
		p = skipBlanks(p)
		if !bytes.HasPrefix(p, token) {
			return false
		}
		p = p[len(token):]
		return true
	}
	if !take([]byte("{")) || !take(keyStream) || !take([]byte(":")) || !take([]byte(`"`)) {
		return a, false
	}
	end := bytes.IndexByte(p, '"')
	if end < 0 || bytes.IndexByte(p[:end], '\\') >= 0 {
		return a, false
	}
	a.stream, p = p[:end], p[end+1:]
	if !take([]byte(",")) || !take(keySeq) || !take([]byte(":")) {
		return a, false
	}
	p = skipBlanks(p)
	digits := 0
	for digits < len(p) && p[digits] >= '0' && p[digits] <= '9' {
		a.sequence = a.sequence*10 + uint64(p[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 18 {
		return a, false
	}
	p = p[digits:]
	return a, take([]byte("}")) && len(skipBlanks(p)) == 0
}

func skipBlanks(p []byte) []byte {
	for len(p) > 0 && (p[0] == ' ' || p[0] == '\n' || p[0] == '\t' || p[0] == '\r') {
		p = p[1:]
	}
	return p
}
