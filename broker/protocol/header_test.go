package protocol

import (
	"strings"
	"testing"
)

func TestHeaderReads(t *testing.T) {
	h := Header("NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3\r\nNats-Msg-Id:  x y \r\nempty:\r\nno colon\r\n: no key\r\n\r\nC: after the end\r\n")
	for _, c := range []struct {
		key, value string
		ok         bool
	}{
		{"A", "1", true}, {"B", "2", true}, {"Nats-Msg-Id", "x y", true}, {"empty", "", true},
		{"a", "", false}, {"C", "", false}, {"no colon", "", false}, {"", "", false}, {"NATS/1.0", "", false},
	} {
		value, ok := h.Get(c.key)
		if string(value) != c.value || ok != c.ok {
			t.Errorf("Get(%q) = %q, %v; want %q, %v", c.key, value, ok, c.value, c.ok)
		}
	}
	var all []string
	for k, v := range h.All() {
		all = append(all, string(k)+"="+string(v))
	}
	if got, want := strings.Join(all, "|"), "A=1|B=2|A=3|Nats-Msg-Id=x y|empty="; got != want {
		t.Errorf("All yields %s, want %s", got, want)
	}
}

func TestHeaderWithout(t *testing.T) {
	for block, want := range map[string]string{
		"NATS/1.0\r\nA: 1\r\nB:2\r\nA: 3\r\n\r\n": "NATS/1.0\r\nB:2\r\n\r\n",
		"NATS/1.0\r\nAB: 1\r\n\r\n":               "NATS/1.0\r\nAB: 1\r\n\r\n",
		"NATS/1.0\r\nB: x\nA:y\nC: z":             "NATS/1.0\r\nB: x\nC: z",
		"NATS/1.0\r\nA: 1\r\n\r\n":                "",
		"NATS/1.0\r\n\r\n":                        "",
		"":                                        "",
	} {
		if got := Header(block).Without("A"); string(got) != want {
			t.Errorf("%q without A is %q, want %q", block, got, want)
		}
	}
}

func TestHeaderStatus(t *testing.T) {
	for block, want := range map[string]struct {
		code int
		text string
	}{
		"NATS/1.0\r\n\r\n":                         {0, ""},
		"NATS/1.0 503\r\n\r\n":                     {503, ""},
		"NATS/1.0 408 Request Timeout\r\nA: b\r\n": {408, "Request Timeout"},
		"NATS/1.0 4o8\r\n\r\n":                     {0, ""},
		"NATS/1.0 40\r\n\r\n":                      {0, ""},
		"HTTP/1.1 200 OK\r\n\r\n":                  {0, ""},
		"":                                         {0, ""},
	} {
		code, text := Header(block).Status()
		if code != want.code || string(text) != want.text {
			t.Errorf("status of %q is %d %q, want %d %q", block, code, text, want.code, want.text)
		}
	}
}

func TestSplitData(t *testing.T) {
	data := []byte("NATS/1.0\r\n\r\nhi")
	h, payload := SplitData(data, 12)
	if string(h) != "NATS/1.0\r\n\r\n" || string(payload) != "hi" {
		t.Errorf("%q, %q", h, payload)
	}
	if h, payload = SplitData(data, 0); h != nil || len(payload) != len(data) {
		t.Errorf("without headers: %q, %q", h, payload)
	}
	if h, payload = SplitData(data, 100); h != nil || len(payload) != len(data) {
		t.Errorf("with a wrong size: %q, %q", h, payload)
	}
}

func TestHeaderGetAllocatesNothing(t *testing.T) {
	h := Header("NATS/1.0\r\nA: 1\r\nNats-Msg-Id: x\r\n\r\n")
	if allocs := testing.AllocsPerRun(100, func() { h.Get("Nats-Msg-Id"); h.Get("none"); h.Status() }); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

// FuzzHeader: arbitrary bytes can be read as headers without a panic, and every result is part of
// them.
func FuzzHeader(f *testing.F) {
	f.Add([]byte("NATS/1.0 503 x\r\nA: b\r\n\r\n"), "A")
	f.Add([]byte("NATS/1.0\nA\n:\n\n"), "")
	f.Fuzz(func(t *testing.T, block []byte, key string) {
		h := Header(block)
		if code, _ := h.Status(); code < 0 || code > 999 {
			t.Errorf("status %d", code)
		}
		value, ok := h.Get(key)
		if ok && (!strings.Contains(string(block), key) || !strings.Contains(string(block), string(value))) {
			t.Errorf("Get(%q) = %q is not in %q", key, value, block)
		}
	})
}
