package route

import (
	"bytes"
	"io"
	"testing"

	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestChangesDuringTheExchangeFollowTheSnapshot(t *testing.T) {
	o := newOutbox(1 << 20)
	// After the snapshot was read, before it is queued.
	o.announce(session.Interest{Pattern: "a", Count: 0})
	o.release([]session.Interest{{Pattern: "a", Count: 1}, {Pattern: "b", Count: 1}})
	o.announce(session.Interest{Pattern: "c", Count: 1})
	var order []string
	in := newReader(bytes.NewReader(flat(&o.queued)))
	for {
		typ, body, err := in.one()
		if err != nil {
			break
		}
		if typ == frameInterestEnd {
			order = append(order, "end")
			continue
		}
		change, err := parseInterest(body)
		if err != nil {
			t.Fatal(err)
		}
		order = append(order, change.Pattern+string(rune('0'+change.Count)))
	}
	want := []string{"a1", "b1", "end", "a0", "c1"}
	if len(order) != len(want) {
		t.Fatalf("got %v, want %v", order, want)
	}
	for i := range want {
		if order[i] != want[i] {
			t.Fatalf("got %v, want %v", order, want)
		}
	}
}

func TestAReleasedOutboxKeepsNothing(t *testing.T) {
	o := newOutbox(1 << 20)
	o.release(nil)
	m := session.Message{Subject: []byte("s"), Data: make([]byte, 100<<10)}
	for range 10 {
		o.forward(&m, session.Reach{Plain: true})
	}
	o.close(nil)
	for range 10 {
		o.forward(&m, session.Reach{Plain: true})
		o.announce(session.Interest{Pattern: "a", Count: 1})
		o.control(func(f *frames) { f.empty(frameReady) })
	}
	o.wait()
	if o.pending() != 0 || o.queued.head != nil || o.lostMessages() != 20 {
		t.Errorf("after the end: %d pending, %d lost", o.pending(), o.lostMessages())
	}
}

func TestForwardingAllocatesNothing(t *testing.T) {
	o := newOutbox(1 << 20)
	o.release(nil)
	m := session.Message{Subject: []byte("orders.eu.1"), Reply: []byte("_INBOX.abc"), Header: 0, Data: make([]byte, 128)}
	queues := []string{"workers"}
	forward := func() {
		for range 100 {
			o.forward(&m, session.Reach{Plain: true, Queues: queues})
		}
		for c := o.take(); c != nil; {
			next := c.next
			o.wrote(c.used)
			c.free()
			c = next
		}
	}
	forward()
	// A garbage collection may empty the pool of chunks, so one allocation per hundred messages is
	// allowed.
	if n := testutil.LeastAllocs(100, 1, forward); n > 1 {
		t.Errorf("%v allocations per 100 messages", n)
	}
}

func TestReceivingAllocatesNothing(t *testing.T) {
	var f frames
	m := session.Message{Subject: []byte("orders.eu.1"), Reply: []byte("_INBOX.abc"), Data: make([]byte, 128)}
	for range 100 {
		f.message(&m, session.Reach{Plain: true, Queues: []string{"workers", "others"}}, 1<<20)
	}
	wire := flat(&f)
	source := bytes.NewReader(wire)
	in := newReader(source)
	in.limit = 1 << 20
	var d decoder
	receive := func() {
		source.Reset(wire)
		for {
			_, body, err := in.one()
			if err == io.EOF {
				return
			}
			if _, reach, err := d.decode(body); err != nil || len(reach.Queues) != 2 {
				t.Fatal(reach, err)
			}
		}
	}
	receive()
	if n := testutil.LeastAllocs(100, 0, receive); n > 0 {
		t.Errorf("%v allocations per 100 messages", n)
	}
}

func TestTheTableOfNamesIsBounded(t *testing.T) {
	var d decoder
	name := make([]byte, 4)
	for i := range 3 * maxInterned {
		name[0], name[1], name[2] = byte(i), byte(i>>8), byte(i>>16)
		if d.intern(name) != string(name) {
			t.Fatal("another name")
		}
	}
	if len(d.names) > maxInterned {
		t.Errorf("%d names", len(d.names))
	}
}
