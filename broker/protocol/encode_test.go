package protocol

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

func TestMessageLines(t *testing.T) {
	deliver := func(prefix, suffix []byte, data string) string {
		return string(prefix) + "7" + string(suffix) + data + CRLF
	}
	for _, c := range []struct{ name, got, want string }{
		{
			"plain",
			deliver(AppendMsgPrefix(nil, []byte("a.b")), AppendMsgSuffix(nil, nil, 5), "hello"),
			"MSG a.b 7 5\r\nhello\r\n",
		},
		{
			"with a reply",
			deliver(AppendMsgPrefix(nil, []byte("a.b")), AppendMsgSuffix(nil, []byte("r"), 0), ""),
			"MSG a.b 7 r 0\r\n\r\n",
		},
		{
			"with headers",
			deliver(AppendHMsgPrefix(nil, []byte("a")), AppendHMsgSuffix(nil, nil, 12, 14), "NATS/1.0\r\n\r\nhi"),
			"HMSG a 7 12 14\r\nNATS/1.0\r\n\r\nhi\r\n",
		},
		{
			"with headers and a reply",
			deliver(AppendHMsgPrefix(nil, []byte("a")), AppendHMsgSuffix(nil, []byte("r"), 12, 12), "NATS/1.0\r\n\r\n"),
			"HMSG a 7 r 12 12\r\nNATS/1.0\r\n\r\n\r\n",
		},
		{"an error", string(AppendErr(nil, ErrInvalidSubject.Text())), "-ERR 'Invalid Subject'\r\n"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

// TestNoRespondersBlock: the sizes in the HMSG line of the no-responders status are those of
// nats-server.
func TestNoRespondersBlock(t *testing.T) {
	block := AppendNoResponders(nil, []byte("orders.new"))
	if want := "NATS/1.0 503\r\nNats-Subject: orders.new\r\n\r\n"; string(block) != want {
		t.Errorf("block %q, want %q", block, want)
	}
	if len(block) != 32+len("orders.new") {
		t.Errorf("the block has %d bytes", len(block))
	}
	h := Header(block)
	if code, _ := h.Status(); code != 503 {
		t.Errorf("status %d", code)
	}
	if s, _ := h.Get("Nats-Subject"); string(s) != "orders.new" {
		t.Errorf("subject %q", s)
	}
}

func TestMessageLinesAllocateNothing(t *testing.T) {
	buf := make([]byte, 0, 1024)
	subject, reply := []byte("a.b.c"), []byte("_INBOX.x.y")
	if allocs := testing.AllocsPerRun(100, func() {
		b := AppendMsgPrefix(buf, subject)
		b = AppendMsgSuffix(b, reply, 1234)
		b = AppendHMsgPrefix(b, subject)
		b = AppendHMsgSuffix(b, reply, 12, 1234)
		b = AppendNoResponders(b, subject)
		_ = AppendErr(b, "Invalid Subject")
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestInfoOmitsUnsetFields(t *testing.T) {
	got := string(AppendInfo(nil, &Info{ServerID: "id", ServerName: "main-0", Version: "2.12.0", Proto: 1, Go: "go1.26", Host: "0.0.0.0", Port: 4222, Headers: true, MaxPayload: 1024}))
	want := `INFO {"server_id":"id","server_name":"main-0","version":"2.12.0","proto":1,"go":"go1.26","host":"0.0.0.0","port":4222,"headers":true,"max_payload":1024} ` + "\r\n"
	if got != want {
		t.Errorf("\n got %q\nwant %q", got, want)
	}
}

func TestInfoContainsAllSetFields(t *testing.T) {
	line := string(AppendInfo([]byte("before "), &Info{
		ClientID: 7, ClientIP: "10.0.0.1", AuthRequired: true, TLSRequired: true, TLSVerify: true, TLSAvailable: true, Nonce: "n", Cluster: "c",
		ConnectURLs: []string{"a:4222", "b:4222"}, LameDuck: true, JetStream: true, GitCommit: "abc", ConnectInfo: true, Domain: "d", Account: "$G", IP: "i", APILevel: 1, IsSystem: true, WSURLs: []string{"w"},
	}))
	text, ok := strings.CutPrefix(line, "before INFO ")
	if !ok {
		t.Fatalf("line %q", line)
	}
	var got map[string]any
	if err := json.Unmarshal([]byte(text), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"client_id", "client_ip", "auth_required", "tls_required", "tls_verify", "tls_available", "nonce", "cluster", "connect_urls", "ldm", "jetstream", "git_commit",
		"connect_info", "domain", "remote_account", "ip", "api_lvl", "acc_is_sys", "ws_connect_urls",
	} {
		if _, ok := got[key]; !ok {
			t.Errorf("%q is missing in %s", key, text)
		}
	}
}

// TestAMessageOnAnotherSubjectNamesItsOwn: before all headers of the publisher, also where these
// are no headers. What a client could take for one that the broker sets is left out of these.
func TestAMessageOnAnotherSubjectNamesItsOwn(t *testing.T) {
	const own = "Carillon-Subject: a.b\r\n"
	long := strings.Repeat("x", keptLines)
	for _, tc := range []struct{ block, want string }{
		{"", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nK: V\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\r\n\r\n"},
		{"NATS/1.0 503\r\n\r\n", "NATS/1.0 503\r\n" + own + "\r\n"},
		{"NATS/1.0\r\n\r\n" + own[:16] + ": forged\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n\r\n"},
		{"NATS/1.0\n\n", "NATS/1.0\n" + own + "\n"},
		{"NATS/1.0\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0", "NATS/1.0\r\n" + own + "\r\n"},
		{"x", "NATS/1.0\r\n" + own + "\r\n"},
		{"\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"K: V\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\n .c\r\nK: V\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\n\t.c\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r" + own[:16] + ": forged\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nCarillon-Subject: x\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nCarillon-Query: End\r\nK: V\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\r\n\r\n"},
		{"NATS/1.0\r\nK: V\r\nCARILLON-subject : x\r\n y\r\n\tz\r\nL: W\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\r\nL: W\r\n\r\n"},
		{"NATS/1.0\r\nCarillon-Subject: x\r\n y\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nK: V\rCarillon-Query:x\rL: W\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\rL: W\r\n\r\n"},
		{"NATS/1.0\r\nK: V\r\n  Carillon-Subject: x\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\r\n\r\n"},
		{"NATS/1.0\r\n\u00a0Carillon-Subject\x00: x\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nK: V\r\nCarillon-Query: x", "NATS/1.0\r\n" + own + "K: V\r\n"},
		{"NATS/1.0\r\nCarillon-Queries: x\r\nMy-Carillon-Query: y\r\nK: Carillon-Query: z\r\n\r\n", "NATS/1.0\r\n" + own + "Carillon-Queries: x\r\nMy-Carillon-Query: y\r\nK: Carillon-Query: z\r\n\r\n"},
		{"NATS/1.0\r\nK: " + long + "\r\n\r\n", "NATS/1.0\r\n" + own + "K: " + long + "\r\n\r\n"},
		{"NATS/1.0\r\nCarillon-Query: " + long + "\r\nK: V\r\n\r\n", "NATS/1.0\r\n" + own + "K: V\r\n\r\n"},
		{"NATS/1.0\r\nCarillon-Query: x\r\nK: " + long + "\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
		{"NATS/1.0\r\nK: " + long + "\r\nCarillon-Query: x\r\n\r\n", "NATS/1.0\r\n" + own + "\r\n"},
	} {
		for _, payload := range []string{"", "payload"} {
			got, rest := AppendHMsgOn([]byte("HMSG inbox 1"), []byte("a.b"), []byte("r"), []byte(tc.block+payload), len(tc.block))
			want := fmt.Sprintf("HMSG inbox 1 r %d %d\r\n%s%s", len(tc.want), len(tc.want)+len(payload), tc.want, payload)
			if whole := string(got) + string(rest); whole != want {
				t.Errorf("%q with %q: %q, want %q", tc.block, payload, whole, want)
			}
		}
	}
}
