package session_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/session"
)

// keeper is a Taker that keeps the latest messages where they were read, and checks them before it
// releases their memory.
type keeper struct {
	t      *testing.T
	mu     sync.Mutex
	kept   []keptRead
	took   int // messages
	shared int // reads that could be kept
}

// keptRead is the messages of one read.
type keptRead struct {
	messages []session.Message
	memory   protocol.Memory
}

func (k *keeper) Take(messages []session.Message, memory protocol.Memory, _ bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i := range messages {
		k.check(&messages[i])
	}
	k.took += len(messages)
	if memory == nil {
		return false
	}
	k.shared++
	memory.Retain()
	k.kept = append(k.kept, keptRead{append([]session.Message(nil), messages...), memory})
	if len(k.kept) > 6 {
		k.release()
	}
	return false
}

func (k *keeper) Wait() {}

// release checks and releases the oldest read. mu is held.
func (k *keeper) release() {
	r := k.kept[0]
	k.kept = k.kept[1:]
	for i := range r.messages {
		k.check(&r.messages[i])
	}
	r.memory.Release()
}

// check compares a message with what content makes of its subject.
func (k *keeper) check(m *session.Message) {
	var number, size int
	if _, err := fmt.Sscanf(string(m.Subject), "large.%d.%d", &number, &size); err != nil || !bytes.Equal(m.Data, content(number, size)) {
		k.t.Errorf("the %d bytes of %s are not what was sent", len(m.Data), m.Subject)
	}
}

// content is what message number consists of.
func content(number, size int) []byte {
	data := bytes.Repeat(fmt.Appendf(nil, "%d,", number), size/2+1)
	return data[:size]
}

// TestMemoryThatATakerKeepsIsNotOverwritten: large and small messages of two connections follow
// each other in reads of any size. Nothing that is read later gets into the memory of messages that
// a Taker keeps: not the rest of the read, not the next operation, not another connection's.
func TestMemoryThatATakerKeepsIsNotOverwritten(t *testing.T) {
	h, address := newTestHub(t, nil)
	k := &keeper{t: t}
	h.Offer(k).Set([]string{"large.>"})
	clients := []*wire{dial(t, address, ""), dial(t, address, "")}
	sizes := []int{0, 1, 300, 5 << 10, 60 << 10, 64<<10 - 40, 64 << 10, 66 << 10, 128<<10 - 60, 200 << 10, 1 << 20}
	const messages = 300
	var waiting [2][]byte
	for number := range messages {
		size := sizes[rand.IntN(len(sizes))]
		i := rand.IntN(2)
		waiting[i] = fmt.Appendf(waiting[i], "PUB large.%d.%d %d\r\n", number, size, size)
		waiting[i] = append(append(waiting[i], content(number, size)...), "\r\n"...)
		if len(waiting[i]) > 256<<10 {
			n := rand.IntN(len(waiting[i]))
			clients[i].send("%s", waiting[i][:n])
			waiting[i] = append([]byte(nil), waiting[i][n:]...)
		}
	}
	for i, c := range clients {
		c.send("%s", waiting[i])
		c.sync()
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(k.kept) > 0 {
		k.release()
	}
	if k.took != messages || k.shared == 0 {
		t.Errorf("%d messages came, %d reads could be kept", k.took, k.shared)
	}
}
