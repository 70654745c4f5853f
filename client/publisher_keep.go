package client

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// firstBackoff and lastBackoff bound how long after a refusal messages are sent again: soon,
	// since a shard that changes its leader is served again within a second, and no more often than
	// a broker in trouble can stand.
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = 500 * time.Millisecond
	// notKeptWait is how long a Topic that was just made may take to be known to every broker.
	notKeptWait = 5 * time.Second
	// codeNotAfter is the refusal of a message behind one that isn't there.
	codeNotAfter = 40002
)

// send sends the message that is being filled, if there is room for it under way. mu is held.
func (p *Publisher) send() bool {
	if p.filling == nil || len(p.under) >= p.options.Window || !p.again.IsZero() {
		return false
	}
	m := p.filling
	p.filling = nil
	p.under = append(p.under, m)
	p.changed.Broadcast()
	m.sent = time.Now()
	p.transmit(m, len(p.under)-1)
	p.poke()
	return true
}

// transmit gives a message to the connection. What goes wrong there is as if it were lost on the
// way. mu is held.
func (p *Publisher) transmit(m *message, at int) {
	m.late = time.Now().Add(p.options.AckWait)
	header := nats.Header{"Carillon-Records": {strconv.Itoa(m.count)}, "Nats-Msg-Id": {p.idOf(m.number)}}
	if at > 0 {
		header["Carillon-After"] = []string{p.idOf(m.number - 1)}
	}
	reply := p.inbox + "." + strconv.FormatUint(m.number, 10) + "." + strconv.FormatUint(p.attempt, 10)
	if err := p.nc.PublishMsg(&nats.Msg{Subject: p.subject, Reply: reply, Header: header, Data: m.data}); err != nil {
		p.lastWord = err
		p.later(firstBackoff)
	}
}

// later has all that is under way sent again. mu is held.
func (p *Publisher) later(in time.Duration) {
	if p.again.IsZero() {
		p.again = time.Now().Add(in)
		p.poke()
	}
}

// keep sees to everything that time brings, until the Publisher has stopped.
func (p *Publisher) keep() {
	defer close(p.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		p.mu.Lock()
		next := p.look(time.Now())
		stopped := p.err != nil
		p.mu.Unlock()
		p.tell()
		if stopped {
			return
		}
		timer.Reset(time.Until(next))
		select {
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// look does what is due, and says when to look again. mu is held.
func (p *Publisher) look(now time.Time) (next time.Time) {
	next = now.Add(time.Hour)
	sooner := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	if len(p.under) > 0 {
		oldest := p.under[0]
		switch end := oldest.sent.Add(p.options.GiveUp); {
		case p.nc.IsClosed():
			p.stop(p.unknown(now, nats.ErrConnectionClosed))
			return next
		case !now.Before(end):
			p.stop(p.unknown(now, p.lastWord))
			return next
		default:
			sooner(end)
		}
		if p.again.IsZero() && !now.Before(oldest.late) {
			p.again = now
		}
		switch {
		case p.again.IsZero():
			sooner(oldest.late)
		case now.Before(p.again):
			sooner(p.again)
		case !p.nc.IsConnected():
			p.again = now.Add(firstBackoff) // what is sent now would only wait for the connection, twice
			sooner(p.again)
		default:
			p.repeat()
			sooner(p.under[0].late)
		}
	}
	if m := p.filling; m != nil && p.again.IsZero() {
		if !now.Before(m.due) && p.send() {
			sooner(p.under[0].late)
		} else if len(p.under) < p.options.Window {
			sooner(m.due)
		}
	}
	return next
}

// repeat sends again what is under way and not acknowledged, in its order. mu is held.
func (p *Publisher) repeat() {
	p.attempt++
	p.again = time.Time{}
	for i, m := range p.under {
		if !m.acked {
			p.transmit(m, i)
		}
	}
}

// unknown is the error for what was not acknowledged. mu is held.
func (p *Publisher) unknown(now time.Time, because error) error {
	e := &UnknownError{Subject: p.subject, After: now.Sub(p.under[0].sent), Err: because}
	for _, m := range p.under {
		e.Records += m.count
	}
	return e
}

// stop ends the Publisher. mu is held; tell is to follow.
func (p *Publisher) stop(err error) {
	if p.err != nil {
		return
	}
	p.err = err
	if p.filling != nil {
		p.under = append(p.under, p.filling)
	}
	for _, m := range p.under {
		if !m.acked {
			m.err = err
		}
	}
	p.ended = append(p.ended, p.under...)
	p.under, p.filling, p.spare = nil, nil, nil
	p.changed.Broadcast()
	p.poke()
}

// tell tells who published what became of it, in order.
func (p *Publisher) tell() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.telling {
		return
	}
	p.telling = true
	for len(p.ended) > 0 {
		m := p.ended[0]
		p.ended = p.ended[1:]
		p.mu.Unlock()
		for _, l := range m.tell {
			if m.err != nil {
				l.done(0, m.err)
			} else {
				l.done(m.last-uint64(m.count-1-l.index), nil)
			}
		}
		p.mu.Lock()
		p.told = m.number
		p.changed.Broadcast()
	}
	p.telling = false
}

// pubAck is what a broker answers.
type pubAck struct {
	Error *struct {
		Code        int    `json:"code"`
		ErrCode     int    `json:"err_code"`
		Description string `json:"description"`
	} `json:"error"`
	Sequence  uint64 `json:"seq"`
	Count     int    `json:"count"`
	Duplicate bool   `json:"duplicate"`
}

// answered takes one answer. The connection calls it, one at a time.
func (p *Publisher) answered(answer *nats.Msg) {
	number, attempt, ok := strings.Cut(strings.TrimPrefix(answer.Subject, p.inbox+"."), ".")
	n, err := strconv.ParseUint(number, 10, 64)
	a, err2 := strconv.ParseUint(attempt, 10, 64)
	if !ok || err != nil || err2 != nil {
		return
	}
	p.mu.Lock()
	p.judge(n, a, answer)
	p.mu.Unlock()
	p.tell()
}

// judge takes over what an answer says of a message. mu is held.
func (p *Publisher) judge(number, attempt uint64, answer *nats.Msg) {
	var m *message
	for _, one := range p.under {
		if one.number == number {
			m = one
		}
	}
	if m == nil || m.acked {
		return
	}
	if answer.Header.Get("Status") == "503" && len(answer.Data) == 0 {
		e := &NotKeptError{Subject: p.subject, Why: "no topic keeps this subject (make one: carillon topic create)"}
		if time.Since(m.sent) > min(notKeptWait, p.options.GiveUp) {
			p.stop(e)
		} else {
			p.refused(attempt, e)
		}
		return
	}
	var ack pubAck
	if err := json.Unmarshal(answer.Data, &ack); err != nil || ack.Error == nil && ack.Sequence == 0 {
		p.stop(&NotKeptError{Subject: p.subject, Why: "it was answered by something that is no topic"})
		return
	}
	if e := ack.Error; e != nil {
		refusal := &RefusedError{Subject: p.subject, Records: m.count, Code: e.Code, ErrCode: e.ErrCode, Text: e.Description}
		if e.Code < 500 && e.ErrCode != codeNotAfter && attempt == p.attempt {
			p.stop(refusal)
		} else {
			p.refused(attempt, refusal)
		}
		return
	}
	if ack.Count != m.count && !ack.Duplicate {
		p.stop(&NotKeptError{Subject: p.subject, Why: "what keeps this subject doesn't know of batches of records, and kept a message as it was (publish to a Carillon broker)"})
		return
	}
	m.acked, m.last, p.backoff = true, ack.Sequence, 0
	p.settle()
}

// refused has messages sent again, unless that was done since they were refused. mu is held.
func (p *Publisher) refused(attempt uint64, why error) {
	if attempt != p.attempt {
		return
	}
	if e, ok := why.(*RefusedError); !ok || e.ErrCode != codeNotAfter || p.lastWord == nil {
		p.lastWord = why // that of the first tells more than that those behind it could not be kept
	}
	if p.again.IsZero() {
		p.backoff = min(max(2*p.backoff, firstBackoff), lastBackoff)
		p.later(p.backoff)
	}
}

// settle takes what is acknowledged, with all before it, from what is under way. mu is held.
func (p *Publisher) settle() {
	for len(p.under) > 0 && p.under[0].acked {
		m := p.under[0]
		p.under = p.under[1:]
		if len(p.spare) < p.options.Window {
			p.spare = append(p.spare, m.data)
		}
		m.data = nil
		p.ended = append(p.ended, m)
	}
	if len(p.under) == 0 {
		p.again, p.lastWord = time.Time{}, nil
	}
	p.changed.Broadcast()
	p.poke()
}
