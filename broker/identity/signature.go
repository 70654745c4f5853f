package identity

import (
	"bytes"
	"net/url"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// userHeader names the user of a request, escaped as a query is. The client's own broker writes it
// into what it passes on, in place of whatever the client wrote there.
const userHeader = "Carillon-User"

const headerVersion = "NATS/1.0"

// Sign returns the message with the name of its user or, if that is empty, without any.
func Sign(m *protocol.Message, user string) *protocol.Message {
	return withHeader(m, userHeader, url.QueryEscape(user))
}

// withHeader returns the message with a header that only brokers set, in place of whatever the
// client wrote there. Without a value, there is none. The header comes first: no blank line and no
// missing line end of the client's hides it.
func withHeader(m *protocol.Message, key, value string) *protocol.Message {
	header, payload := protocol.SplitData(m.Data, m.Header)
	if _, forged := header.Get(key); forged {
		header = header.Without(key)
	} else if value == "" {
		return m
	}
	data := make([]byte, 0, len(headerVersion)+len(header)+len(key)+len(value)+len("\r\n: \r\n\r\n")+len(payload))
	if value == "" {
		data = append(data, header...)
	} else {
		version, rest, _ := bytes.Cut(header, []byte{'\n'})
		if !bytes.HasPrefix(version, []byte(headerVersion)) {
			version, rest = []byte(headerVersion), nil // nobody could read anything of it
		}
		if len(rest) == 0 {
			rest = []byte("\r\n")
		}
		data = append(append(data, bytes.TrimSuffix(version, []byte{'\r'})...), "\r\n"...)
		data = append(append(append(append(data, key...), ": "...), value...), "\r\n"...)
		data = append(data, rest...)
	}
	signed := *m
	signed.Header = len(data)
	signed.Data = append(data, payload...)
	return &signed
}

// SignedBy returns the user whom a signed header names; empty: none.
func SignedBy(header protocol.Header) string { return valueOf(header, userHeader) }

func valueOf(header protocol.Header, key string) string {
	value, _ := header.Get(key)
	name, err := url.QueryUnescape(string(value))
	if err != nil {
		return string(value) // no user has such a name, so this one has no right
	}
	return name
}
