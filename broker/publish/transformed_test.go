package publish

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/transform"
)

// TestTransformed: the stored subjects are new, those that don't match stay, and the messages,
// which may come again, do not change.
func TestTransformed(t *testing.T) {
	by, err := transform.New("a.*", "b.$1")
	if err != nil {
		t.Fatal(err)
	}
	messages := []protocol.Message{{Subject: []byte("a.1"), Data: []byte("1")}, {Subject: []byte("c")}, {}, {Subject: []byte("a.22")}}
	for range 2 {
		stored := Transformed(by, messages)
		for i, want := range []string{"b.1", "c", "", "b.22"} {
			if got := string(stored[i].Subject); got != want {
				t.Errorf("message %d is stored under %q, want %q", i, got, want)
			}
		}
		if string(stored[0].Data) != "1" {
			t.Error("a payload is missing")
		}
	}
	if got := Transformed(nil, messages); &got[0] != &messages[0] {
		t.Error("without a transform messages are copied")
	}
}
