package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// A floodPublisher writes the same frames again and again, with new headers in them.
type floodPublisher struct {
	flood     *flood
	number    int
	conn      *wire
	frames    []byte
	frame     int // bytes of one
	header    int // where its payload begins
	sequence  uint64
	mark      uint64 // what was written before the measurement began
	begun     int64  // when the server had taken that
	confirmed int64  // when it had taken everything
	failed    atomic.Bool
	pongs     chan int64             // when they came
	refused   atomic.Pointer[string] // the last -ERR
}

func newFloodPublisher(f *flood, conn *wire, number int) *floodPublisher {
	line := fmt.Sprintf("PUB %s %d\r\n", f.subject, f.size)
	p := &floodPublisher{flood: f, number: number, conn: conn, header: len(line), frame: len(line) + f.size + len(crlf), pongs: make(chan int64, 2)}
	one := append([]byte(line), make([]byte, floodHeaderBytes)...)
	one = append(append(one, f.filler...), crlf...)
	for range max(1, floodWriteBytes/p.frame) {
		p.frames = append(p.frames, one...)
	}
	return p
}

// stamp writes the header of the n-th frame.
func (p *floodPublisher) stamp(n int, publisher uint16, sequence uint64) {
	floodStamp{run: uint32(p.flood.id), publisher: publisher, sequence: sequence}.put(p.frames[n*p.frame+p.header:])
}

func (p *floodPublisher) probe() error {
	p.stamp(0, uint16(p.number)|floodProbe, 0)
	return p.conn.out.write(p.frames[:p.frame])
}

// publish writes until the flood's time is over. When the measurement begins it sends a PING, so
// that messages in the buffers of sockets are not taken for messages that the server took. A write
// that fails ends it; what it wrote in part does not count as published.
func (p *floodPublisher) publish(ctx context.Context) error {
	count := len(p.frames) / p.frame
	p.begun = now()
	marked := false
	for at := now(); at < p.flood.to.Load() && ctx.Err() == nil; at = now() {
		if at >= p.flood.from.Load() && !marked {
			marked, p.mark = true, p.sequence
			p.begun = 0 // until its PONG comes
			if err := p.conn.out.write([]byte("PING\r\n")); err != nil {
				return p.fail(err)
			}
		}
		for n := range count {
			p.stamp(n, uint16(p.number), p.sequence+uint64(n))
		}
		if err := p.conn.out.write(p.frames); err != nil {
			return p.fail(err)
		}
		p.sequence += uint64(count)
	}
	return nil
}

func (p *floodPublisher) fail(err error) error {
	p.failed.Store(true)
	if said := p.refused.Load(); said != nil {
		err = errors.New(*said)
	}
	return fmt.Errorf("publisher %d: %w", p.number+1, err)
}

// flush returns when the server has taken everything.
func (p *floodPublisher) flush(within time.Duration) error {
	if err := p.conn.out.write([]byte("PING\r\n")); err != nil {
		return fmt.Errorf("flush publisher %d: %w", p.number+1, err)
	}
	late := time.After(within)
	for {
		select {
		case at := <-p.pongs:
			if p.begun == 0 {
				p.begun = at
				continue
			}
			p.confirmed = at
			return nil
		case <-late:
			return fmt.Errorf("flush publisher %d: the server did not take everything within %v", p.number+1, within)
		}
	}
}

// read answers the server until the connection ends, which is always an error.
func (p *floodPublisher) read() {
	err := p.conn.read(p, 4<<10, 0, func() error { return nil })
	if !errors.Is(err, net.ErrClosed) && p.refused.Load() == nil {
		p.refused.Store(new(err.Error()))
	}
	_ = p.conn.socket.Close() // so that who writes learns of it, too
}

func (p *floodPublisher) onMessage(_, _, _ []byte) {}
func (p *floodPublisher) onInfo([]byte)            {}
func (p *floodPublisher) onPing()                  { _ = p.conn.out.write(pong) }
func (p *floodPublisher) onError(text []byte)      { p.refused.Store(new(string(text))) }
func (p *floodPublisher) onPong() {
	select {
	case p.pongs <- now():
	default:
	}
}
