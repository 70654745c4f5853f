package websocket

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"fmt"
	"net/http"
	"strings"
)

// version is the only version of the protocol.
const version = "13"

var headEnd = []byte("\r\n\r\n")

// HeadSize returns the size of the request at the beginning of b, or 0 if it has not ended yet.
// There was no end in the first seen bytes.
func HeadSize(b []byte, seen int) int {
	from := max(seen-len(headEnd)+1, 0)
	if at := bytes.Index(b[from:], headEnd); at >= 0 {
		return from + at + len(headEnd)
	}
	return 0
}

// Refusal is a request that is not upgraded. The connection is closed.
type Refusal struct {
	Status int // of HTTP
	Text   string
}

// Error returns the text.
func (r *Refusal) Error() string { return "websocket: " + r.Text }

// Answer returns the answer to the client.
func (r *Refusal) Answer() []byte {
	more := ""
	switch r.Status {
	case http.StatusUpgradeRequired:
		more = "Upgrade: websocket\r\n"
	case http.StatusMethodNotAllowed:
		more = "Allow: GET\r\n"
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nConnection: close\r\nSec-WebSocket-Version: %s\r\n%sContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\n\r\n%s\n",
		r.Status, http.StatusText(r.Status), version, more, len(r.Text)+1, r.Text)
}

// The refusals of what is no complete request.
var (
	ErrTooLong    = &Refusal{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("the request is longer than %d bytes", MaxHead)}
	ErrTooLate    = &Refusal{http.StatusRequestTimeout, "the request did not come in time"}
	ErrPlaintext  = &Refusal{http.StatusBadRequest, "this port takes TLS only: use wss:// or https://"}
	ErrNotHTTP    = &Refusal{http.StatusBadRequest, "this port takes WebSocket connections: use ws://, and no TLS"}
	ErrImpatient  = &Refusal{http.StatusBadRequest, "frames came before the answer to the upgrade"}
	ErrTooMany    = &Refusal{http.StatusServiceUnavailable, "maximum connections exceeded"}
	errNoUpgrade  = &Refusal{http.StatusUpgradeRequired, "this port takes WebSocket connections of NATS clients"}
	errNoVersion  = &Refusal{http.StatusUpgradeRequired, "Sec-WebSocket-Version: only " + version + " is served"}
	errNotGET     = &Refusal{http.StatusMethodNotAllowed, "the method of an upgrade is GET"}
	errMalformed  = &Refusal{http.StatusBadRequest, "the request is malformed"}
	errBody       = &Refusal{http.StatusBadRequest, "an upgrade has no body"}
	errOldHTTP    = &Refusal{http.StatusBadRequest, "an upgrade needs HTTP/1.1"}
	errNoHost     = &Refusal{http.StatusBadRequest, "Host is missing"}
	errConnection = &Refusal{http.StatusBadRequest, "Connection: does not say Upgrade"}
	errKey        = &Refusal{http.StatusBadRequest, "Sec-WebSocket-Key: want 16 bytes in base64, once"}
	errOrigin     = &Refusal{http.StatusForbidden, "pages of this origin may not connect; see --websocket-origins"}
)

// BeginsRequest reports whether the first byte of input may begin a request: methods are in
// capitals.
func BeginsRequest(first byte) bool { return first >= 'A' && first <= 'Z' }

// Upgrade judges a complete request, and returns the answer that upgrades the connection, or a
// *Refusal. secure: it came over TLS.
func Upgrade(head []byte, origins *Origins, secure bool) (answer []byte, err error) {
	r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(head)))
	if err != nil {
		return nil, errMalformed
	}
	if refused := judge(r, origins, secure); refused != nil {
		return nil, refused
	}
	answer = append(answer, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "...)
	answer = append(answer, accept(r.Header.Get("Sec-Websocket-Key"))...)
	return append(answer, headEnd...), nil
}

// judge returns why a request is not upgraded, or nil.
func judge(r *http.Request, origins *Origins, secure bool) *Refusal {
	keys := r.Header["Sec-Websocket-Key"]
	switch {
	case r.Method != http.MethodGet:
		return errNotGET
	case !r.ProtoAtLeast(1, 1):
		return errOldHTTP
	case r.ContentLength != 0 || len(r.TransferEncoding) > 0:
		return errBody
	case r.Host == "":
		return errNoHost
	case !has(r.Header["Upgrade"], "websocket"):
		return errNoUpgrade
	case !has(r.Header["Connection"], "upgrade"):
		return errConnection
	case !has(r.Header["Sec-Websocket-Version"], version):
		return errNoVersion
	case len(keys) != 1 || !validKey(keys[0]):
		return errKey
	case len(r.Header["Origin"]) > 1 || !origins.allows(r.Header.Get("Origin"), r.Host, secure):
		return errOrigin
	}
	return nil
}

// has reports whether a list of tokens has this one.
func has(values []string, token string) bool {
	for _, value := range values {
		for part := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.Trim(part, " \t"), token) {
				return true
			}
		}
	}
	return false
}

func validKey(key string) bool {
	decoded, err := base64.StdEncoding.DecodeString(key)
	return err == nil && len(decoded) == 16
}

// accept returns the Sec-WebSocket-Accept for a key. The constant is RFC 6455's.
func accept(key string) string {
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	return base64.StdEncoding.EncodeToString(sum[:])
}
