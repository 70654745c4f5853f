package advisory

import (
	"crypto/rand"
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// Hub is the clients and Topics of this broker and of linked ones. *session.Hub implements it.
type Hub interface {
	// Reaches reports whether a message on the subject would have a subscriber or a Topic.
	Reaches(subject []byte) bool
	// Publish publishes messages to subscribers and Topics. It never waits. It returns the sender
	// loops and links that are behind, of those that the messages went to.
	Publish(messages []protocol.Message) work.Behind
}

// Publisher publishes advisories. Its methods never block and are safe for concurrent use. A nil
// Publisher publishes nothing.
type Publisher struct {
	hub       Hub
	server    string
	queue     *work.Jobs
	published atomic.Uint64
	dropped   atomic.Uint64
}

// Stats are counters of a Publisher.
type Stats struct {
	Published uint64
	Dropped   uint64 // for want of room in the queue
}

// NewPublisher returns a Publisher for a broker with the given name. Close ends it.
func NewPublisher(hub Hub, server string) *Publisher {
	// One goroutine keeps the order.
	return &Publisher{hub: hub, server: server, queue: work.NewJobs(1, waiting, waitingBytes)}
}

// Close drops what is queued.
func (p *Publisher) Close() {
	if p != nil {
		p.queue.Close()
	}
}

// Stats returns the counters.
func (p *Publisher) Stats() Stats {
	if p == nil {
		return Stats{}
	}
	return Stats{p.published.Load(), p.dropped.Load()}
}

// publish queues an advisory of about size bytes, if it would reach somebody. event is called in
// the background.
func (p *Publisher) publish(subject string, size int, event func(head) any) {
	if p == nil || !p.hub.Reaches([]byte(subject)) {
		return
	}
	h := head{ID: rand.Text(), Time: time.Now().UTC()}
	if !p.queue.Submit(func() { p.send(subject, event(h)) }, size+len(subject)) {
		p.dropped.Add(1)
	}
}

func (p *Publisher) send(subject string, event any) {
	data, err := json.Marshal(event)
	if err != nil {
		return // cannot be: the fields are plain
	}
	p.published.Add(1)
	behind := p.hub.Publish([]protocol.Message{{Subject: []byte(subject), Data: data}})
	behind.Wait()
}

// of returns h with a type.
func (h head) of(kind string) head {
	h.Type = kind
	return h
}
