package sourcing

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Header is the name of the header that says where a copied message is from, as nats-server writes
// it: stream, sequence, filter, destination, subject there, and the stream's identity.
const Header = "Nats-Stream-Source"

// dropped are the beginnings of headers that a copy does not have: what they ask for was asked of
// the origin.
var dropped = [][]byte{[]byte(Header + ":"), []byte("Nats-Expected-"), []byte("Nats-Batch-"), []byte("Carillon-Records:"), []byte("Carillon-After:")}

// line is the first line of a header.
var line = []byte("NATS/1.0\r\n")

// copied returns the header and the payload of the copy of a message, and the length of the header.
func copied(m *protocol.Message, index string, sequence uint64, origin string) (data []byte, header int) {
	was, payload := m.Data[:m.Header], m.Data[m.Header:]
	dst := make([]byte, 0, len(m.Data)+len(line)+len(Header)+len(index)+len(m.Subject)+len(origin)+32)
	first, rest, ok := bytes.Cut(was, []byte("\r\n"))
	if !ok {
		dst = append(dst, line...)
	} else {
		dst = append(append(dst, first...), "\r\n"...)
	}
	for len(rest) > 0 {
		one, more, _ := bytes.Cut(rest, []byte("\r\n"))
		if rest = more; len(one) > 0 && !drops(one) {
			dst = append(append(dst, one...), "\r\n"...)
		}
	}
	name, others, _ := strings.Cut(index, " ")
	dst = append(append(dst, Header+": "...), name...)
	dst = strconv.AppendUint(append(dst, ' '), sequence, 10)
	dst = append(append(dst, ' '), others...)
	dst = append(append(dst, ' '), m.Subject...)
	dst = append(append(dst, ' '), origin...)
	dst = append(dst, "\r\n\r\n"...)
	header = len(dst)
	return append(dst, payload...), header
}

func drops(line []byte) bool {
	for _, prefix := range dropped {
		if len(line) >= len(prefix) && bytes.EqualFold(line[:len(prefix)], prefix) {
			return true
		}
	}
	return false
}
