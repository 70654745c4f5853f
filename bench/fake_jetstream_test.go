package bench

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// fakeStreams is as much of JetStream as a durable run needs, and can be told to do wrong.
type fakeStreams struct {
	// fate decides what happens to each message that is not a probe.
	fate func(stamp) streamFate
	// refuse is the error that making a stream is answered with.
	refuse string
	// notYet is how many messages find nobody to answer them.
	notYet int
	// claims is how many messages more it says that it holds.
	claims int
	// handOut decides how the shared consumer of a consume run gets each message that is not a probe.
	handOut func(stamp) handOutFate
	// cluster says who leads, and whether each replica is current; without it the server is alone.
	cluster func() (leader string, replicas map[string]bool)

	mu      sync.Mutex
	name    string
	config  json.RawMessage
	slots   [][]byte // by sequence, from 1 on; nil is a hole
	late    *fakeMessage
	readers map[string]*fakeReader
	deleted []string
}

type fakeReader struct {
	config                 json.RawMessage
	next, delivered, acked int
	waiting                []fakePull // of the shared consumer: pulls that are not answered in full
}

type fakePull struct {
	reply string
	left  int
}

type handOutFate int

const (
	handOutOnce   handOutFate = iota
	handOutNever              // and it counts as acknowledged
	handOutTwice              // without a mark
	handOutMarked             // as a second attempt
	handOutAgain              // and then as a second attempt
	handOutDamaged
	handOutForgotten // its ack is ignored
)

type streamFate int

const (
	storeAndAck streamFate = iota
	storeOnly
	ackOnly // the sequence stays empty
	ackTwice
	ackAfterNext
	ackFromAnother
	ackSameSequence // as the message before
	ackTooHigh
	ackAsDuplicate
	ackNonsense
	refuseMessage
	storeTwice
	storeDamaged
	storeForeign // something that nobody published, after it
	storeBeforePrevious
	hangUp
)

func (j *fakeStreams) takes(subject string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	ours := strings.Replace(j.name, "-", ".", 1) + "."
	return strings.HasPrefix(subject, "$JS.API.") || strings.HasPrefix(subject, "$JS.ACK.") || j.name != "" && strings.HasPrefix(subject, ours)
}

func (j *fakeStreams) take(s *fakeServer, c *fakeConn, m fakeMessage) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if strings.HasPrefix(m.subject, "$JS.ACK.") {
		if r := j.readers[durableName]; r != nil && !strings.HasSuffix(m.subject, ".ignored") {
			r.acked++
		}
		return
	}
	call, isCall := strings.CutPrefix(m.subject, "$JS.API.")
	if !isCall {
		j.store(s, c, m)
		return
	}
	answer := func(text string) { s.route(fakeMessage{subject: m.reply, payload: []byte(text)}, false) }
	part := strings.Split(call, ".")
	switch {
	case call == "INFO":
		answer(`{"type":"io.nats.jetstream.api.v1.account_info_response"}`)
	case strings.HasPrefix(call, "STREAM.CREATE.") && j.refuse != "":
		answer(`{"error":{"code":400,"err_code":10052,"description":"` + j.refuse + `"}}`)
	case strings.HasPrefix(call, "STREAM.CREATE."):
		j.name, j.config, j.slots, j.readers = part[2], m.payload, nil, map[string]*fakeReader{}
		answer(j.info())
	case strings.HasPrefix(call, "STREAM.INFO."):
		answer(j.info())
	case strings.HasPrefix(call, "STREAM.DELETE."):
		j.deleted = append(j.deleted, part[2])
		answer(`{"success":true}`)
	case strings.HasPrefix(call, "CONSUMER.CREATE."):
		var request struct {
			Config json.RawMessage `json:"config"`
		}
		_ = json.Unmarshal(m.payload, &request)
		j.readers[part[3]] = &fakeReader{config: request.Config}
		answer(fmt.Sprintf(`{"stream_name":%q,"name":%q,"config":%s}`, j.name, part[3], request.Config))
	case strings.HasPrefix(call, "CONSUMER.INFO."):
		r := j.readers[part[3]]
		answer(fmt.Sprintf(`{"stream_name":%q,"name":%q,"config":%s,"num_pending":%d,"num_ack_pending":%d}`, j.name, part[3], r.config, len(j.slots)-r.next, r.delivered-r.acked))
	case strings.HasPrefix(call, "CONSUMER.MSG.NEXT.") && part[4] == durableName:
		var request struct{ Batch int }
		_ = json.Unmarshal(m.payload, &request)
		r := j.readers[durableName]
		r.waiting = append(r.waiting, fakePull{reply: m.reply, left: request.Batch})
		j.handOutAll(s)
	case strings.HasPrefix(call, "CONSUMER.DELETE."):
		answer(`{"success":true}`)
	case strings.HasPrefix(call, "CONSUMER.MSG.NEXT."):
		j.deliver(s, part[4], m)
	}
}

func (j *fakeStreams) info() string {
	messages := len(j.slots) - len(slices.DeleteFunc(slices.Clone(j.slots), func(p []byte) bool { return p != nil }))
	cluster := ""
	if j.cluster != nil {
		leader, replicas := j.cluster()
		var peers []string
		for name, current := range replicas {
			peers = append(peers, fmt.Sprintf(`{"name":%q,"current":%v}`, name, current))
		}
		cluster = fmt.Sprintf(`,"cluster":{"leader":%q,"replicas":[%s]}`, leader, strings.Join(peers, ","))
	}
	return fmt.Sprintf(`{"config":%s,"state":{"messages":%d,"first_seq":1,"last_seq":%d}%s}`, j.config, messages+j.claims, len(j.slots), cluster)
}

func (j *fakeStreams) deliver(s *fakeServer, name string, m fakeMessage) {
	var request struct{ Batch int }
	_ = json.Unmarshal(m.payload, &request)
	r := j.readers[name]
	if r == nil {
		return
	}
	for ; r.next < len(j.slots) && request.Batch > 0; r.next++ {
		if j.slots[r.next] == nil {
			continue
		}
		r.delivered++
		request.Batch--
		s.route(fakeMessage{
			subject: m.reply, payload: j.slots[r.next],
			reply: fmt.Sprintf("$JS.ACK.%s.%s.1.%d.%d.1.0", j.name, name, r.next+1, r.delivered),
		}, false)
	}
}

// handOutAll answers the pulls of the shared consumer, as far as there are messages.
func (j *fakeStreams) handOutAll(s *fakeServer) {
	r := j.readers[durableName]
	if r == nil {
		return
	}
	for ; r.next < len(j.slots) && len(r.waiting) > 0; r.next++ {
		payload, pull := j.slots[r.next], &r.waiting[0]
		send := func(attempt int, payload []byte, pending string) {
			s.route(fakeMessage{subject: pull.reply, payload: payload, reply: fmt.Sprintf("$JS.ACK.%s.%s.%d.%d.%d.1.%s", j.name, durableName, attempt, r.next+1, r.delivered, pending)}, false)
		}
		what := handOutOnce
		if st, _ := readStamp(payload); j.handOut != nil && st.kind == kindMessage {
			what = j.handOut(st)
		}
		r.delivered++
		switch what {
		case handOutOnce:
			send(1, payload, "0")
		case handOutNever:
			r.acked++
		case handOutTwice:
			send(1, payload, "0")
			r.delivered++
			send(1, payload, "0")
		case handOutMarked:
			send(2, payload, "0")
		case handOutAgain:
			send(1, payload, "0")
			r.delivered++
			send(2, payload, "0")
		case handOutDamaged:
			damaged := append([]byte(nil), payload...)
			damaged[len(damaged)-1] ^= 1
			send(1, damaged, "0")
		case handOutForgotten:
			send(1, payload, "ignored")
		}
		if pull.left--; pull.left <= 0 {
			r.waiting = r.waiting[1:]
		}
	}
}

func (j *fakeStreams) store(s *fakeServer, c *fakeConn, m fakeMessage) {
	st, _ := readStamp(m.payload)
	if j.notYet > 0 {
		j.notYet--
		s.routeHeaders(fakeMessage{subject: m.reply}, "NATS/1.0 503\r\n\r\n")
		return
	}
	what := storeAndAck
	if j.fate != nil && st.kind == kindMessage {
		what = j.fate(st)
	}
	j.slots = append(j.slots, m.payload)
	last := len(j.slots) - 1
	ack := func(stream string, sequence int, more string) fakeMessage {
		return fakeMessage{subject: m.reply, payload: fmt.Appendf(nil, `{"stream":"%s", "seq":%d%s}`, stream, sequence, more)}
	}
	right := ack(j.name, last+1, "")
	var answers []fakeMessage
	switch what {
	case storeAndAck:
		answers = []fakeMessage{right}
	case storeOnly:
	case ackOnly:
		j.slots[last] = nil
		answers = []fakeMessage{right}
	case ackTwice:
		answers = []fakeMessage{right, right}
	case ackAfterNext:
		j.late = &right
		return
	case ackFromAnother:
		answers = []fakeMessage{ack("another", last+1, "")}
	case ackSameSequence:
		answers = []fakeMessage{ack(j.name, last, "")}
	case ackTooHigh:
		answers = []fakeMessage{ack(j.name, last+1e6, "")}
	case ackAsDuplicate:
		answers = []fakeMessage{ack(j.name, last+1, `,"duplicate":true`)}
	case ackNonsense:
		answers = []fakeMessage{{subject: m.reply, payload: []byte("+OK")}}
	case refuseMessage:
		j.slots = j.slots[:last]
		answers = []fakeMessage{{subject: m.reply, payload: []byte(`{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`)}}
	case storeTwice:
		j.slots = append(j.slots, m.payload)
		answers = []fakeMessage{right}
	case storeDamaged:
		m.payload[headerBytes] ^= 1
		answers = []fakeMessage{right}
	case storeForeign:
		j.slots = append(j.slots, []byte("something else"))
		answers = []fakeMessage{right}
	case storeBeforePrevious:
		j.slots[last], j.slots[last-1] = j.slots[last-1], j.slots[last]
		answers = []fakeMessage{right}
	case hangUp:
		_ = c.Close()
	}
	if j.late != nil {
		answers = append(answers, *j.late)
		j.late = nil
	}
	for _, a := range answers {
		s.route(a, false)
	}
	j.handOutAll(s)
}

// left is the stream that was made and not deleted, if any.
func (j *fakeStreams) left() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if slices.Contains(j.deleted, j.name) {
		return ""
	}
	return j.name
}
