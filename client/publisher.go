package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

// Publisher gathers records into messages and publishes them on one subject. Its methods may be
// called at the same time; the order that is kept is that of the calls.
//
// Each message has an id, and while one before it is not acknowledged, names that one's. So a
// broker keeps it once and behind the other, and whatever became of some of them, all that are not
// acknowledged can be sent again in their order.
type Publisher struct {
	nc      *nats.Conn
	subject string
	options PublisherOptions
	id      string
	inbox   string
	sub     *nats.Subscription
	wake    chan struct{}
	done    chan struct{} // the keeper has ended

	mu      sync.Mutex
	changed *sync.Cond // something was acknowledged, or the publisher has stopped
	last    uint64     // number of the last message
	filling *message   // or nil
	// under has the messages under way, oldest first. An acknowledged one stays until those before
	// it are.
	under   []*message
	spare   [][]byte
	err     error // why it has stopped
	closing bool

	ended   []*message // of which who published is to be told, in order
	telling bool
	told    uint64 // number of the last message of which that is done

	// again is when all messages under way are sent again; zero: none was refused or is late.
	again    time.Time
	backoff  time.Duration
	attempt  uint64
	lastWord error // the last answer that was not an acknowledgement
}

// message is one that is being filled, or under way.
type message struct {
	number uint64
	data   []byte
	count  int
	due    time.Time // when it is sent, full or not
	sent   time.Time // zero: not yet
	late   time.Time // when it is sent again
	acked  bool
	last   uint64 // offset of its last record, once it is acknowledged
	err    error  // why it never was
	tell   []listener
}

// listener is who wants to know of a record.
type listener struct {
	index int
	done  func(offset uint64, err error)
}

// NewPublisher makes a Publisher for a subject that a Topic keeps. Close ends it; the connection
// stays the program's.
func NewPublisher(nc *nats.Conn, subject string, options PublisherOptions) (*Publisher, error) {
	if err := options.complete(nc.MaxPayload()); err != nil {
		return nil, fmt.Errorf("make a publisher for %s: %w", subject, err)
	}
	p := &Publisher{nc: nc, subject: subject, options: options, id: rand.Text(), inbox: nc.NewInbox(), wake: make(chan struct{}, 1), done: make(chan struct{})}
	p.changed = sync.NewCond(&p.mu)
	var err error
	if p.sub, err = nc.Subscribe(p.inbox+".*.*", p.answered); err != nil {
		return nil, fmt.Errorf("make a publisher for %s: %w", subject, err)
	}
	go p.keep()
	return p, nil
}

// Publish adds a record, which it copies. It blocks while Window messages are under way and another
// is full. nil means that the record will be published, and Flush, or PublishFunc, says what became
// of it. An error is the one for which the Publisher has stopped, or a *[RecordTooLargeError],
// after which it goes on.
func (p *Publisher) Publish(record []byte) error { return p.PublishFunc(record, nil) }

// PublishFunc is Publish, and calls done, once, with the record's offset when it is as safe as the
// Topic asks for, or with the error for which the Publisher has stopped. done is called in the
// order of the records, must not block, and must not call the Publisher. It is not called if
// PublishFunc itself returns an error.
func (p *Publisher) PublishFunc(record []byte, done func(offset uint64, err error)) error {
	need := uvarintSize(len(record)) + len(record)
	if need > p.options.MaxBytes {
		return &RecordTooLargeError{Size: len(record), Max: p.options.MaxBytes - uvarintSize(len(record))}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		if p.err != nil {
			return p.err
		}
		if p.closing {
			return ErrClosed
		}
		m := p.filling
		if m == nil || m.count < p.options.MaxRecords && len(m.data)+need <= p.options.MaxBytes {
			break
		}
		if !p.send() {
			p.changed.Wait() // GiveUp bounds it
		}
	}
	m := p.filling
	if m == nil {
		p.last++
		m = &message{number: p.last, due: time.Now().Add(p.options.Linger)}
		if n := len(p.spare); n > 0 {
			m.data, p.spare = p.spare[n-1][:0], p.spare[:n-1]
		}
		p.filling = m
		p.poke()
	}
	m.data = append(binary.AppendUvarint(m.data, uint64(len(record))), record...)
	if done != nil {
		m.tell = append(m.tell, listener{m.count, done})
	}
	m.count++
	if m.count == p.options.MaxRecords || len(m.data) == p.options.MaxBytes {
		p.send()
	}
	return nil
}

// Flush sends what was gathered and waits until all records published before are as safe as the
// Topic asks. Its error is that of the context, after which it may be called again, or the one for
// which the Publisher has stopped.
func (p *Publisher) Flush(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changed.Broadcast()
	})
	defer stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	until := p.last
	for p.told < until && p.err == nil && ctx.Err() == nil {
		if p.filling != nil && p.filling.number <= until {
			p.filling.due = time.Time{}
			p.send()
		}
		p.changed.Wait()
	}
	switch {
	case p.err != nil:
		return p.err
	case p.told < until:
		return ctx.Err()
	}
	return nil
}

// Close flushes and ends the Publisher, also if flushing fails: what is not acknowledged then may
// or may not be kept.
func (p *Publisher) Close(ctx context.Context) error {
	p.mu.Lock()
	if p.closing {
		p.mu.Unlock()
		<-p.done
		return ErrClosed
	}
	p.closing = true
	p.mu.Unlock()
	err := p.Flush(ctx)
	p.mu.Lock()
	p.stop(ErrClosed)
	p.mu.Unlock()
	p.tell()
	<-p.done
	if unsubscribe := p.sub.Unsubscribe(); err == nil && p.nc.IsConnected() {
		err = unsubscribe
	}
	return err
}

// Err is why the Publisher has stopped, or nil.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

func (p *Publisher) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Publisher) idOf(number uint64) string { return p.id + "-" + strconv.FormatUint(number, 10) }

func uvarintSize(x int) (n int) {
	for n = 1; x >= 0x80; x >>= 7 {
		n++
	}
	return n
}
