package alerting

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestWhatBrokersSendIsPassedOn: whatever parts it comes in.
func TestWhatBrokersSendIsPassedOn(t *testing.T) {
	sent := []byte("INFO {\"a\":\"" + strings.Repeat("x", maxLine) + "\"}\r\n+OK\r\nPONG\r\n" +
		"MSG a 1 5\r\nINFO \r\nMSG a.b 1 reply 0\r\n\r\nHMSG a 1 4 6\r\nab\r\ncd\r\nHMSG a 12 re.ply 2 2\r\n\r\n\r\n-ERR 'Stale Connection'\r\nPING\r\n" +
		fmt.Sprintf("MSG a 1 %d\r\n%s\r\n", maxMessage, strings.Repeat("\n", maxMessage)) + "INFO {}\r\n")
	for _, size := range []int{1, 2, 3, 7, 1000, len(sent)} {
		var s scanner
		for rest := sent; len(rest) > 0; {
			n := min(size, len(rest))
			if err := s.scan(rest[:n]); err != nil {
				t.Fatalf("in parts of %d bytes, at %d: %v", size, len(sent)-len(rest), err)
			}
			rest = rest[n:]
		}
		if s.left != 0 || len(s.line) != 0 {
			t.Errorf("in parts of %d bytes, it waits for %d bytes after %q", size, s.left, s.line)
		}
	}
}

// TestWhatNoBrokerSendsEndsTheConnection: nats.go does not see the end of a line that is refused.
func TestWhatNoBrokerSendsEndsTheConnection(t *testing.T) {
	for what, sent := range map[string]string{
		"size":              fmt.Sprintf("MSG a 1 %d\r\n", maxMessage+1),
		"size with header":  fmt.Sprintf("HMSG a 1 10 %d\r\n", maxMessage+1),
		"header":            fmt.Sprintf("HMSG a 1 %d 10\r\n", maxMessage+1),
		"endless number":    "MSG a 1 r " + strings.Repeat("9", 30) + "\r\n",
		"overflow":          "MSG a 1 18446744073709551621\r\n",
		"negative":          "MSG a 1 -1\r\n",
		"header beyond":     "HMSG a 1 11 10\r\n",
		"no size":           "MSG a 1\r\n",
		"many words":        "MSG a 1 r 1 1\r\n",
		"two blanks":        "MSG a  1 1\r\n",
		"blank at the end":  "MSG a 1 1 \r\n",
		"tab":               "MSG a 1\t1 1\r\n",
		"carriage return":   "MSG a 1 1\r0000000\r\n",
		"line without it":   "MSG a 1 1\n",
		"payload too long":  "MSG a 1 1\r\nabMSG a 1 99999999999\r\n",
		"half an end":       "MSG a 1 1\r\na\rM",
		"lower case":        "msg a 1 99999999999\r\n",
		"other":             "PUB a 1\r\n",
		"ping with more":    "PING 1\r\n",
		"empty":             "\r\n",
		"long INFO":         "INFO {" + strings.Repeat("a", maxInfo),
		"long error":        "-ERR '" + strings.Repeat("a", maxLine),
		"long line":         strings.Repeat("a", maxLine+1),
		"more than is read": strings.Repeat("PING\r\n", maxSpent/lineCost),
		"many bytes":        strings.Repeat(fmt.Sprintf("MSG a 1 %d\r\n%s\r\n", maxMessage, make([]byte, maxMessage)), maxSpent/maxMessage+1),
	} {
		for _, parts := range []bool{true, false} {
			var s scanner
			err := error(nil)
			if parts {
				for i := 0; i < len(sent) && err == nil; i++ {
					err = s.scan([]byte{sent[i]})
				}
			} else {
				err = s.scan([]byte(sent))
			}
			if err == nil {
				t.Errorf("%s: it is passed on, in parts: %v", what, parts)
			}
			if large := strings.HasPrefix(what, "size") || what == "header" || what == "overflow"; large != errors.Is(err, errMessage) && what != "endless number" {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// FuzzScanner: what is passed on does not depend on the parts that it comes in, and no message that
// a simple reading finds in it is larger than the bound.
func FuzzScanner(f *testing.F) {
	f.Add([]byte("INFO {}\r\nMSG a 1 5\r\nhello\r\nHMSG a 1 r 2 4\r\n\r\nab\r\nPING\r\n"), uint8(3))
	f.Add([]byte("MSG a 1 99999999999\r\n"), uint8(1))
	f.Add([]byte("MSG a 1 1\r0\r\n\r\n-ERR 'x'\r\n+OK\r\nPONG\r\n"), uint8(200))
	f.Fuzz(func(t *testing.T, sent []byte, size uint8) {
		var whole, parts scanner
		all := whole.scan(bytes.Clone(sent))
		var err error
		for rest := sent; len(rest) > 0 && err == nil; {
			n := min(int(size)+1, len(rest))
			err = parts.scan(bytes.Clone(rest[:n]))
			rest = rest[n:]
		}
		if (all == nil) != (err == nil) {
			t.Fatalf("whole: %v, in parts of %d: %v", all, int(size)+1, err)
		}
		if all != nil {
			return
		}
		if parts.left != whole.left || !bytes.Equal(parts.line, whole.line) {
			t.Fatalf("whole it waits for %d after %q, in parts for %d after %q", whole.left, whole.line, parts.left, parts.line)
		}
		for rest := sent; ; {
			line, after, ended := bytes.Cut(rest, []byte("\n"))
			if !ended {
				return
			}
			rest = after
			if words := bytes.Fields(line); len(words) > 1 && bytes.HasSuffix(bytes.ToUpper(words[0]), []byte("MSG")) {
				size := 0
				_, err := fmt.Sscan(string(words[len(words)-1]), &size)
				testutil.Must(t, err)
				if size < 0 || size > maxMessage {
					t.Fatalf("a message of %d bytes is passed on", size)
				}
				if size+2 > len(rest) {
					return
				}
				rest = rest[size+2:]
			}
		}
	})
}
