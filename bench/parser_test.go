package bench

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// transcript writes down what the parser says.
type transcript []string

func (t *transcript) onMessage(subject, sid, payload []byte) {
	*t = append(*t, fmt.Sprintf("msg %s %s %q", subject, sid, payload))
}
func (t *transcript) onInfo(json []byte)  { *t = append(*t, "info "+string(json)) }
func (t *transcript) onPing()             { *t = append(*t, "ping") }
func (t *transcript) onPong()             { *t = append(*t, "pong") }
func (t *transcript) onError(text []byte) { *t = append(*t, "error "+string(text)) }

const serverTalk = "INFO {\"a\":1}\r\nPING\r\n+OK\r\npong\r\nMSG a.b 1 3\r\nxyz\r\nMSG\ta.b  22 reply.to 0\r\n\r\n" +
	"HMSG a 3 12 15\r\nNATS/1.0\r\n\r\nabc\r\nHMSG a 4 r 12 12\r\nNATS/1.0\r\n\r\n\r\nmsg a 5 9\r\nMSG a 1 0\r\n-ERR 'Stale Connection'\r\nPING\n"

var serverTalkFrames = transcript{
	`info {"a":1}`, "ping", "pong", `msg a.b 1 "xyz"`, `msg a.b 22 ""`, `msg a 3 "abc"`, `msg a 4 ""`, `msg a 5 "MSG a 1 0"`, "error Stale Connection", "ping",
}

// feedPieces gives data to the parser in pieces, as a connection would.
func feedPieces(pieces ...[]byte) (transcript, []byte, error) {
	var got transcript
	var held []byte
	for _, piece := range pieces {
		held = append(held, piece...)
		used, err := parseFrames(held, &got)
		held = held[used:]
		if err != nil {
			return got, held, err
		}
	}
	return got, held, nil
}

func TestFramesAreTheSameHoweverTheyAreSplit(t *testing.T) {
	data := []byte(serverTalk)
	for i := 0; i <= len(data); i++ {
		for j := i; j <= len(data); j += 7 {
			got, rest, err := feedPieces(data[:i], data[i:j], data[j:])
			if err != nil || len(rest) > 0 || !slices.Equal(got, serverTalkFrames) {
				t.Fatalf("split at %d and %d: %q, rest %q, error %v", i, j, got, rest, err)
			}
		}
	}
}

func TestWrongFramesAreRefused(t *testing.T) {
	for data, want := range map[string]string{
		"GET / HTTP/1.1\r\n":                "unknown operation",
		"\r\n":                              "unknown operation",
		"MSG a 1\r\n":                       "2 fields",
		"MSG a 1 r x 3\r\nabc\r\n":          "5 fields",
		"MSG a 1 2 3 4 5 6\r\n":             "too many fields",
		"MSG a 1 -3\r\n":                    "wrong size",
		"MSG a 1 99999999999999999\r\n":     "wrong size",
		"MSG a 1 8388609\r\n":               "wrong size",
		"HMSG a 1 9 3\r\nabc\r\n":           "wrong size",
		"MSG a 1 3\r\nabcd\r\n":             "end is not where",
		strings.Repeat("x", maxLineBytes+2): "more than",
	} {
		if _, _, err := feedPieces([]byte(data)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want something about %q", data, err, want)
		}
	}
}

// FuzzParseFrames: whatever a server sends and however it is split, the parser sees the same
// frames, and neither panics nor takes more than it was given.
func FuzzParseFrames(f *testing.F) {
	f.Add([]byte(serverTalk), 10)
	f.Add([]byte("MSG a 1 3\r\nab"), 3)
	f.Add([]byte("HMSG a 1 9 3\r\n"), 1)
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		at = min(max(at, 0), len(data))
		var whole transcript
		used, err := parseFrames(data, &whole)
		if used > len(data) {
			t.Fatalf("took %d of %d bytes", used, len(data))
		}
		pieces, rest, splitErr := feedPieces(data[:at], data[at:])
		if (err == nil) != (splitErr == nil) || !slices.Equal(whole, pieces) {
			t.Fatalf("whole %q (%v), split at %d %q (%v)", whole, err, at, pieces, splitErr)
		}
		if err == nil && len(rest) != len(data)-used {
			t.Fatalf("left %d bytes, split %d", len(data)-used, len(rest))
		}
	})
}
