package session_test

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// wants is a Condition that looks for a word in the headers and the payload.
type wants struct {
	word    string
	work    int // for each message
	judged  atomic.Int64
	tooSlow atomic.Int64
}

func (w *wants) Judge(subject, header, payload []byte) bool {
	w.judged.Add(1)
	return strings.Contains(string(subject)+" "+string(header)+" "+string(payload), w.word)
}

func (w *wants) Work(_, _ int) int { return w.work }
func (w *wants) TooSlow()          { w.tooSlow.Add(1) }

// TestAFeedDeliversWhatItsConditionAccepts: by its subject, headers and payload. Other Feeds of the
// client, and notices, are not judged.
func TestAFeedDeliversWhatItsConditionAccepts(t *testing.T) {
	for _, options := range []string{"", `,"echo":false`} {
		h, address := newTestHub(t, nil)
		sub, pub := dial(t, address, options), dial(t, address, "")
		sub.send("SUB inbox.1 7\r\nSUB inbox.2 8\r\n")
		sub.sync()
		f, all := openFeed(t, h, func() { t.Error("nothing has changed") }), otherFeed(t, h, "inbox.2")
		f.Only(&wants{word: "yes"})
		changeFeed(t, f, nil, "notice", "a", "b", "yes")
		changeFeed(t, all, nil, "", "b")
		sub.expect("MSG inbox.1 7 6", "notice")
		pub.send("PUB a 2\r\nno\r\nPUB b 2\r\nno\r\nPUB a 4\r\nyes1\r\nHPUB b 20 22\r\nNATS/1.0\r\nK: yes\r\n\r\nno\r\nPUB yes 0\r\n\r\n")
		pub.sync()
		lines := fed("inbox.2", "b", "", "no")
		lines[0] = strings.Replace(lines[0], " 7 ", " 8 ", 1)
		sub.expect(lines...)
		sub.expect(fed("inbox.1", "a", "", "yes1")...)
		both := [][]string{fed("inbox.1", "b", "K: yes\r\n", "no"), fed("inbox.2", "b", "K: yes\r\n", "no")}
		both[1][0] = strings.Replace(both[1][0], " 7 ", " 8 ", 1)
		if first := sub.line(); first == both[1][0] {
			both[0], both[1] = both[1], both[0]
		} else if first != both[0][0] {
			t.Fatalf("%q", first)
		}
		sub.expect(both[0][1:]...)
		sub.expect(both[1]...)
		sub.expect(fed("inbox.1", "yes", "", "")...)
	}
}

func otherFeed(t testing.TB, h *session.Hub, inbox string) *session.Feed {
	t.Helper()
	f, err := h.OpenFeed(1, inbox, func() {})
	testutil.Must(t, err)
	t.Cleanup(f.Close)
	return f
}

// TestConditionsOfOneClientAreBounded: a Feed whose condition takes too much of the loop is told so
// once, and delivers and judges nothing more. Other Feeds of the client deliver.
func TestConditionsOfOneClientAreBounded(t *testing.T) {
	h, address := newTestHub(t, nil)
	sub, pub := dial(t, address, ""), dial(t, address, "")
	sub.send("SUB inbox.1 7\r\nSUB inbox.2 8\r\n")
	sub.sync()
	costly, cheap := &wants{word: "none", work: 1 << 30}, &wants{word: "yes", work: 1}
	f, g := openFeed(t, h, func() {}), otherFeed(t, h, "inbox.2")
	f.Only(costly)
	g.Only(cheap)
	changeFeed(t, f, nil, "", "a")
	changeFeed(t, g, nil, "", "b")
	// Each message of a is a burst of its own. A machine that stands still between two of them makes
	// the bound wider, so there are many.
	for range 1000 {
		pub.send("PUB a 0\r\n\r\n")
		pub.sync()
		if costly.tooSlow.Load() > 0 {
			break
		}
	}
	before := costly.judged.Load()
	pub.send("PUB a 0\r\n\r\nPUB b 3\r\nyes\r\n")
	pub.sync()
	lines := fed("inbox.2", "b", "", "yes")
	lines[0] = strings.Replace(lines[0], " 7 ", " 8 ", 1)
	sub.expect(lines...)
	if costly.tooSlow.Load() != 1 || costly.judged.Load() != before || cheap.tooSlow.Load() != 0 {
		t.Errorf("told %d times; judged %d messages, and %d before", costly.tooSlow.Load(), costly.judged.Load(), before)
	}
}
