package bench

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// fakeServer speaks just enough of the protocol to be measured, and can be told to do wrong.
type fakeServer struct {
	listener net.Listener
	// fate decides what happens to each message that is not a probe.
	fate func(stamp) fate
	// floodFate decides the same for messages of floods, whose payloads have no stamp.
	floodFate func(publisher uint16, sequence uint64) fate
	// deafFor is how many probes of each publisher get lost before its interest "arrives".
	deafFor int
	// dribble writes every byte by itself.
	dribble bool
	// name is what it calls itself.
	name string
	// streams answers what is sent to JetStream; without it nobody does.
	streams *fakeStreams

	wg     sync.WaitGroup
	mu     sync.Mutex
	conns  map[*fakeConn]bool
	held   map[uint32]fakeMessage
	probes map[uint32]int
}

type fate int

const (
	deliverOnce fate = iota
	drop
	deliverTwice
	deliverAgainLater // when everything else has come
	swapWithNext
	damage
	misroute
	cutOff // one subscriber that should get it is disconnected instead
)

type fakeMessage struct {
	subject string
	payload []byte
	reply   string
}

type fakeConn struct {
	net.Conn
	mu   sync.Mutex
	subs map[string]string // sid to subject
}

func startFakeServer(t *testing.T, s *fakeServer) Target {
	t.Helper()
	var err error
	if s.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	s.conns, s.held, s.probes = map[*fakeConn]bool{}, map[uint32]fakeMessage{}, map[uint32]int{}
	s.wg.Go(func() {
		for {
			c, err := s.listener.Accept()
			if err != nil {
				return
			}
			fc := &fakeConn{Conn: c, subs: map[string]string{}}
			s.mu.Lock()
			s.conns[fc] = true
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(fc) })
		}
	})
	t.Cleanup(func() {
		_ = s.listener.Close()
		s.mu.Lock()
		for c := range s.conns {
			_ = c.Close()
		}
		s.mu.Unlock()
		s.wg.Wait()
	})
	target, err := ParseTarget("fake", s.listener.Addr().String(), "", "", "")
	if err != nil {
		t.Fatal(err)
	}
	return target
}

func (s *fakeServer) serve(c *fakeConn) {
	defer func() {
		_ = c.Close()
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
	}()
	s.write(c, `INFO {"server_id":"FAKE","server_name":"`+cmp.Or(s.name, "fake")+`","version":"2.12.0","proto":1,"headers":true,"max_payload":1048576}`+"\r\n")
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		f := strings.Fields(line)
		switch f[0] {
		case "PING":
			s.write(c, "PONG\r\n")
		case "SUB":
			s.mu.Lock()
			c.subs[f[len(f)-1]] = f[1]
			s.mu.Unlock()
		case "PUB", "HPUB":
			size, _ := strconv.Atoi(f[len(f)-1])
			payload := make([]byte, size+2)
			if _, err := io.ReadFull(in, payload); err != nil {
				return
			}
			m := fakeMessage{subject: f[1], payload: payload[:size]}
			if f[0] == "HPUB" {
				head, _ := strconv.Atoi(f[len(f)-2])
				m.payload, f = m.payload[head:], f[:len(f)-1]
			}
			if len(f) == 4 {
				m.reply = f[2]
			}
			switch {
			case s.streams != nil && s.streams.takes(m.subject):
				s.streams.take(s, c, m)
			case strings.HasPrefix(m.subject, "$JS."), strings.HasPrefix(m.subject, "$CARILLON."):
				s.routeHeaders(fakeMessage{subject: m.reply}, "NATS/1.0 503\r\n\r\n")
			default:
				s.publish(m)
			}
		}
	}
}

func (s *fakeServer) write(c *fakeConn, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !s.dribble {
		_, _ = io.WriteString(c, text)
		return
	}
	for i := range len(text) {
		_, _ = io.WriteString(c, text[i:i+1])
	}
}

func (s *fakeServer) publish(m fakeMessage) {
	if s.floodFate != nil {
		both := binary.LittleEndian.Uint64(m.payload[4:])
		if uint16(both)&floodProbe == 0 {
			s.deliver(m, s.floodFate(uint16(both), both>>16))
			return
		}
	}
	st, ours := readStamp(m.payload)
	if !ours || s.fate == nil && s.deafFor == 0 {
		s.route(m, false)
		return
	}
	if st.kind == kindProbe {
		s.mu.Lock()
		s.probes[st.publisher]++
		deaf := s.probes[st.publisher] <= s.deafFor
		s.mu.Unlock()
		if !deaf {
			s.route(m, false)
		}
		return
	}
	what := deliverOnce
	if s.fate != nil {
		what = s.fate(st)
	}
	s.mu.Lock()
	held, swapped := s.held[st.publisher]
	delete(s.held, st.publisher)
	if what == swapWithNext {
		s.held[st.publisher] = m
	}
	s.mu.Unlock()
	s.deliver(m, what)
	if swapped {
		s.route(held, false)
	}
}

func (s *fakeServer) deliver(m fakeMessage, what fate) {
	switch what {
	case deliverOnce:
		s.route(m, false)
	case deliverTwice:
		s.route(m, false)
		s.route(m, false)
	case deliverAgainLater:
		s.route(m, false)
		s.wg.Go(func() {
			time.Sleep(100 * time.Millisecond) // the limits of tests have a far longer grace
			s.route(m, false)
		})
	case damage:
		m.payload[floodHeaderBytes-4] ^= 1
		s.route(m, false)
	case misroute:
		s.route(m, true)
	case cutOff:
		if all := s.receivers(m, false); len(all) > 0 {
			_ = all[0].conn.Close()
		}
	}
}

type fakeReceiver struct {
	conn *fakeConn
	sid  string
}

func (s *fakeServer) receivers(m fakeMessage, everybody bool) (list []fakeReceiver) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		for sid, subject := range c.subs {
			if everybody || subject == m.subject ||
				strings.HasSuffix(subject, ".*") && strings.HasPrefix(m.subject, strings.TrimSuffix(subject, "*")) {
				list = append(list, fakeReceiver{c, sid})
			}
		}
	}
	return list
}

func (s *fakeServer) route(m fakeMessage, everybody bool) {
	for _, r := range s.receivers(m, everybody) {
		s.write(r.conn, fmt.Sprintf("MSG %s %s %s %d\r\n%s\r\n", m.subject, r.sid, m.reply, len(m.payload), m.payload))
	}
}

func (s *fakeServer) routeHeaders(m fakeMessage, headers string) {
	for _, r := range s.receivers(m, false) {
		s.write(r.conn, fmt.Sprintf("HMSG %s %s %d %d\r\n%s%s\r\n", m.subject, r.sid, len(headers), len(headers)+len(m.payload), headers, m.payload))
	}
}

// stallOnce returns a fate that holds the server up, when it meets one message, until the channel
// is closed.
func stallOnce(publisher, sequence uint32, until <-chan struct{}) func(stamp) fate {
	return func(s stamp) fate {
		if s.publisher == publisher && s.sequence == sequence {
			select {
			case <-until:
			case <-time.After(testutil.Patience):
			}
		}
		return deliverOnce
	}
}
