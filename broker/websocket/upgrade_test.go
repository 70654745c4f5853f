package websocket

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// request returns the request of RFC 6455, section 1.3, with changed headers. An empty value
// removes one.
func request(change ...string) string {
	headers := []string{"Host", "server.example.com", "Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version", "13"}
	text := "GET /chat HTTP/1.1\r\n"
	for i := 0; i < len(change); i += 2 {
		at := -1
		for j := 0; j < len(headers); j += 2 {
			if headers[j] == change[i] {
				at = j
			}
		}
		if at < 0 {
			headers = append(headers, change[i], change[i+1])
		} else {
			headers[at+1] = change[i+1]
		}
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i+1] != "" {
			text += headers[i] + ": " + headers[i+1] + "\r\n"
		}
	}
	return text + "\r\n"
}

func origins(t testing.TB, list ...string) *Origins {
	t.Helper()
	o, err := ParseOrigins(list)
	if err != nil {
		t.Fatal(err)
	}
	return &o
}

func TestTheUpgradeOfTheRFC(t *testing.T) {
	want := "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"
	for _, text := range []string{
		request(),
		request("Connection", "keep-alive, Upgrade"),
		request("Upgrade", "h2c, WebSocket"),
		request("Sec-WebSocket-Version", "8, 13"),
		request("Sec-WebSocket-Extensions", "permessage-deflate; client_max_window_bits", "Sec-WebSocket-Protocol", "nats, other"),
		request("Origin", "https://anywhere.example.com", "Cookie", "a=b"),
		strings.Replace(request(), "GET /chat", "GET http://server.example.com/any?x=y", 1),
	} {
		if got, err := Upgrade([]byte(text), origins(t), false); err != nil || string(got) != want {
			t.Errorf("%q was answered with %q, %v", text, got, err)
		}
	}
}

func TestAMistakeInAnUpgradeIsNamed(t *testing.T) {
	for name, tc := range map[string]struct {
		text   string
		status int
	}{
		"POST":             {strings.Replace(request(), "GET", "POST", 1), 405},
		"HTTP/1.0":         {strings.Replace(request(), "HTTP/1.1", "HTTP/1.0", 1), 400},
		"not HTTP":         {"HELLO\r\n\r\n", 400},
		"no host":          {request("Host", ""), 400},
		"a page":           {request("Upgrade", "", "Connection", "keep-alive"), 426},
		"HTTP/2":           {request("Upgrade", "h2c"), 426},
		"no Connection":    {request("Connection", "keep-alive"), 400},
		"version 8":        {request("Sec-WebSocket-Version", "8"), 426},
		"no version":       {request("Sec-WebSocket-Version", ""), 426},
		"no key":           {request("Sec-WebSocket-Key", ""), 400},
		"a short key":      {request("Sec-WebSocket-Key", "c2hvcnQ="), 400},
		"not base64":       {request("Sec-WebSocket-Key", "!!!!"), 400},
		"two keys":         {request("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="), 400},
		"a body":           {request("Content-Length", "3"), 400},
		"chunks":           {request("Transfer-Encoding", "chunked"), 400},
		"another's page":   {request("Origin", "https://evil.example.com"), 403},
		"a page of a file": {request("Origin", "null"), 403},
		"two origins":      {request("Origin", "https://app.example.com", "origin", "https://app.example.com"), 403},
	} {
		_, err := Upgrade([]byte(tc.text), origins(t, "https://app.example.com"), false)
		refused := (*Refusal)(nil)
		if !errors.As(err, &refused) || refused.Status != tc.status {
			t.Errorf("%s: %v", name, err)
			continue
		}
		answer, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(refused.Answer())), nil)
		if err != nil || answer.StatusCode != tc.status || !answer.Close {
			t.Errorf("%s: the answer %q is malformed: %v", name, refused.Answer(), err)
			continue
		}
		if body, err := io.ReadAll(answer.Body); err != nil || string(body) != refused.Text+"\n" {
			t.Errorf("%s: the body is %q, %v", name, body, err)
		}
		if answer.StatusCode == 426 && (answer.Header.Get("Upgrade") != "websocket" || answer.Header.Get("Sec-WebSocket-Version") != "13") {
			t.Errorf("%s: 426 without the upgrade: %v", name, answer.Header)
		}
	}
}

func TestOriginsThatMayConnect(t *testing.T) {
	for _, tc := range []struct {
		list, origin, host string
		secure, want       bool
	}{
		{"", "https://anything", "h", false, true},
		{"same", "", "h", false, true}, // no browser
		{"same", "http://h:9222", "h:9222", false, true},
		{"same", "http://H", "h:80", false, true},
		{"same", "https://h", "h", true, true},
		{"same", "https://h", "h:443", true, true},
		{"same", "https://h", "h", false, true}, // a proxy ends TLS
		{"same", "http://h", "h", true, false},
		{"same", "http://h", "h:9222", false, false},
		{"same", "http://other", "h", false, false},
		{"same", "http://[::1]:9222", "[::1]:9222", false, true},
		{"same", "http://[::1]", "[::1]", false, true},
		{"same", "null", "h", false, false},
		{"https://app.example.com", "https://app.example.com", "h", true, true},
		{"https://app.example.com/", "https://APP.example.com:443", "h", true, true},
		{"https://app.example.com", "http://app.example.com", "h", true, false},
		{"https://app.example.com", "https://app.example.com:8443", "h", true, false},
		{"https://app.example.com", "https://app.example.com.evil.com", "h", true, false},
		{"https://app.example.com", "https://app.example.com@evil.com", "h", true, false},
		{"https://app.example.com", "https://h", "h", true, false},
		{"same,https://app.example.com:8443", "https://app.example.com:8443", "h", true, true},
		{"same,https://app.example.com:8443", "https://h", "h", true, true},
	} {
		var list []string
		if tc.list != "" {
			list = strings.Split(tc.list, ",")
		}
		if got := origins(t, list...).allows(tc.origin, tc.host, tc.secure); got != tc.want {
			t.Errorf("%+v: %v", tc, got)
		}
	}
	for _, text := range []string{"", "app.example.com", "ftp://app.example.com", "https://", "https://a/path", "https://user@a", "https://a?x", "*"} {
		if _, err := ParseOrigins([]string{text}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestTheEndOfARequestIsFoundInPieces(t *testing.T) {
	text := []byte(request() + "\r\n\r\n")
	size := len(request())
	for n := range text {
		want := 0
		if n >= size {
			want = size
		}
		if got := HeadSize(text[:n], max(min(n, size)-1, 0)); got != want {
			t.Errorf("%d bytes: the request has %d", n, got)
		}
	}
}

// FuzzUpgrade judges anything: it is upgraded with the answer to its key, or refused with an answer
// that HTTP clients understand.
func FuzzUpgrade(f *testing.F) {
	for _, text := range []string{request(), request("Origin", "https://h"), request("Upgrade", ""), request("Connection", "a,b,upgrade"), "GET / HTTP/1.1\r\n\r\n", "\r\n\r\n", "GET  HTTP/1.1\r\nHost\r\n\r\n"} {
		f.Add([]byte(text), true)
	}
	allowed := origins(f, "same", "https://h")
	f.Fuzz(func(t *testing.T, head []byte, secure bool) {
		answer, err := Upgrade(head, allowed, secure)
		refused := (*Refusal)(nil)
		if errors.As(err, &refused) {
			answer = refused.Answer()
		} else if err != nil {
			t.Fatal(err)
		}
		is, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(answer)), nil)
		switch {
		case err != nil:
			t.Fatalf("%q: %v", answer, err)
		case refused != nil && is.StatusCode != refused.Status:
			t.Fatalf("refused with %d as %d", refused.Status, is.StatusCode)
		case refused == nil && (is.StatusCode != 101 || len(is.Header.Get("Sec-WebSocket-Accept")) != 28):
			t.Fatalf("upgraded with %q", answer)
		}
	})
}
