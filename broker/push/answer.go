package push

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// kind is what an attempt came to.
type kind uint8

const (
	accepted    kind = iota // 2xx
	refusedIt               // the endpoint works and does not take the record
	unavailable             // the endpoint can't be reached, does not answer, or can't take anything now
	unsent                  // there is nothing to send it with: a header's value is missing
	kinds
)

// answer is what became of a request.
type answer struct {
	kind  kind
	took  bool          // there was a connection, so that it is the record that may have broken it
	gone  bool          // 410: it never will
	after time.Duration // how long the endpoint asks to wait; 0: it does not
	text  string        // for people
}

// judge judges an answer's status. It is pure.
func judge(status int, retryAfter string, now time.Time) answer {
	a := answer{kind: refusedIt, took: true, text: fmt.Sprintf("%d %s", status, http.StatusText(status))}
	switch {
	case status < 200: // another protocol: nobody has taken the record, and nobody has refused it
		a.kind = unavailable
	case status < 300:
		a.kind = accepted
	case status == http.StatusGone:
		a.kind, a.gone = unavailable, true
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		a.kind, a.after = unavailable, pauseAsked(retryAfter, now)
	case status == http.StatusRequestTimeout, status == http.StatusTooEarly, status == http.StatusBadGateway, status == http.StatusGatewayTimeout:
		a.kind = unavailable
	case status >= 300 && status < 400:
		a.text += ", a redirect, which is never followed"
	}
	return a
}

// pauseAsked returns the pause that a Retry-After header asks for: seconds or a date.
func pauseAsked(header string, now time.Time) time.Duration {
	header = strings.TrimSpace(header)
	if seconds, err := strconv.ParseUint(header, 10, 32); err == nil {
		return min(time.Duration(seconds)*time.Second, retryAfterLast)
	}
	if at, err := http.ParseTime(header); err == nil {
		return min(max(at.Sub(now), 0), retryAfterLast)
	}
	return 0
}

// withBody adds the beginning of an answer's body to its text.
func (a answer) withBody(body io.Reader) answer {
	if a.kind == accepted {
		_, _ = io.CopyN(io.Discard, body, answerBody) // so that the connection can be used again
		return a
	}
	text, _ := io.ReadAll(io.LimitReader(body, answerText))
	_, _ = io.CopyN(io.Discard, body, answerBody)
	a.text = oneLine(a.text, strings.ToValidUTF8(string(text), ""))
	return a
}

// oneLine joins texts from outside in one line of bounded length.
func oneLine(texts ...string) string {
	line := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.Join(texts, ": "))
	line = strings.Trim(strings.Join(strings.Fields(line), " "), ": ")
	if len(line) > answerText {
		line = strings.ToValidUTF8(line[:answerText], "")
	}
	return line
}
