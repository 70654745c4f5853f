package session

import (
	"crypto/tls"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/env/testca"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestTheReaderMayWriteAtAnyTime: what a tls.Conn writes while it reads, such as the answer to a
// change of keys, is sent although no message is, also to a client that is behind.
func TestTheReaderMayWriteAtAnyTime(t *testing.T) {
	dir := t.TempDir()
	testca.New(t).Issue(t, dir)
	files, err := env.LoadServerTLS(dir, false)
	testutil.Must(t, err)
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, TLS: &TLS{Config: files.Server(), First: FirstYes}, Loops: 2})
	defer h.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	testutil.Must(t, err)
	var served sync.WaitGroup
	defer served.Wait()
	defer ln.Close()
	served.Go(func() { _ = h.Serve(ln) })

	nc, err := net.Dial("tcp", ln.Addr().String())
	testutil.Must(t, err)
	defer nc.Close()
	testutil.Must(t, nc.SetDeadline(time.Now().Add(testutil.Patience)))
	secure := tls.Client(nc, &tls.Config{InsecureSkipVerify: true})
	info := make([]byte, 1024)
	_, err = secure.Read(info)
	testutil.Must(t, err)

	c := h.list()[0]
	marker := []byte("as if it were a record")
	_, err = c.secure.Write(marker)
	testutil.Must(t, err)
	got := make([]byte, len(marker))
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != string(marker) {
		t.Fatalf("the client reads %q, %v", got, err)
	}

	const size = 16 << 20
	c.send(make([]byte, size), false)
	testutil.EventuallyTrue(t, "the client is behind", func() bool { return h.parked.Load() == 1 })
	_, err = c.secure.Write(marker)
	testutil.Must(t, err)
	rest := int64(size + size/recordPlaintext*22 + len(marker)) // TLS 1.3 adds 22 bytes to a record
	if n, err := io.CopyN(io.Discard, nc, rest); err != nil {
		t.Fatalf("the client read %d of %d bytes: %v", n, rest, err)
	}
	testutil.EventuallyTrue(t, "all is sent", func() bool { return h.parked.Load() == 0 && h.pending.Load() == 0 })

	// The loop is idle, so the test may encrypt.
	var o outbox
	o.write(make([]byte, size))
	taken, err := c.secure.seal(&o, false)
	if err != nil || taken < fullChunk-recordPlaintext || taken > fullChunk || o.size != size-taken {
		t.Errorf("%d bytes were encrypted at once, %d are left, %v", taken, o.size, err)
	}

	// A client that has the broker answer, and reads no answers, is a slow one.
	c.send(make([]byte, size), false)
	testutil.EventuallyTrue(t, "the client is behind again", func() bool { return h.parked.Load() == 1 })
	err = nil
	for sent := 0; err == nil && sent < 2*maxCipher; sent += len(marker) {
		_, err = c.secure.Write(marker)
	}
	if why := c.reason.Load(); err == nil || why == nil || *why != SlowPending {
		t.Errorf("it was answered on and on: %v, %v", err, why)
	}
	testutil.EventuallyTrue(t, "nothing is pending", func() bool { return h.pending.Load() == 0 && len(h.list()) == 0 })
}
