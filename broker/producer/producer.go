package producer

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/subject"
	"github.com/carillon-mq/carillon/broker/work"
)

// tooLarge is the error code of an answer that a message is larger than its Topic, or the broker,
// accepts.
const tooLarge = 10054

// answerPrefix is the prefix of the reply subjects. A number follows.
var answerPrefix = []byte("$CARILLON.STORED.")

// Topic is a Topic that is published into. *topic.Topic implements it.
type Topic interface {
	Desired() *coordination.Topic
	Publish(messages []protocol.Message)
}

// Producer publishes messages of this broker. Its methods are safe for concurrent use.
type Producer struct {
	find func(name string) Topic

	mu   sync.Mutex
	last uint64
	open map[uint64]func(offset uint64, err error)
}

// New returns a Producer. find returns the Topic of a name, or nil.
func New(find func(name string) Topic) *Producer {
	return &Producer{find: find, open: map[uint64]func(uint64, error){}}
}

// Store publishes a message into the Topic of that name; see subscription.DeadLetters.
func (p *Producer) Store(name string, m *protocol.Message, done func(error)) {
	p.Append(name, m, func(_ uint64, err error) { done(err) })
}

// Append is Store that tells the offset of the message in its shard.
func (p *Producer) Append(name string, m *protocol.Message, done func(offset uint64, err error)) {
	t := p.find(name)
	if t == nil {
		done(0, errors.New("there is no such topic; create it"))
		return
	}
	if why := refusal(name, t.Desired(), m.Subject); why != nil {
		done(0, why)
		return
	}
	p.mu.Lock()
	p.last++
	number := p.last
	p.open[number] = done
	p.mu.Unlock()
	sent := *m
	sent.Reply = strconv.AppendUint(slices.Clip(answerPrefix), number, 10)
	t.Publish([]protocol.Message{sent})
}

// refusal returns why a Topic would give no answer to a message, or nil.
func refusal(name string, t *coordination.Topic, of []byte) error {
	switch {
	case t.Deleting:
		return errors.New("it is being deleted")
	case t.Spec.Stream.NoAck:
		return errors.New("it acknowledges nothing (no_ack); name a topic that does")
	}
	for _, pattern := range t.Spec.Subjects {
		if subject.Matches([]byte(pattern), of) {
			return nil
		}
	}
	return fmt.Errorf("its subjects (%.200s) don't take %.200s; add %s.>", strings.Join(t.Spec.Subjects, ", "), of, name)
}

// Hub returns the hub for the Topics, which takes the answers to p's messages out of what they
// send.
func (p *Producer) Hub(hub publish.Hub) publish.Hub { return answers{hub, p} }

type answers struct {
	publish.Hub
	producer *Producer
}

func ours(m *protocol.Message) bool { return bytes.HasPrefix(m.Subject, answerPrefix) }

// Send sends messages to clients, and gives the answers to the Producer's own messages to it.
func (a answers) Send(messages []protocol.Message) (behind work.Behind) {
	first := 0
	for first < len(messages) && !ours(&messages[first]) {
		first++
	}
	if first == len(messages) {
		return a.Hub.Send(messages)
	}
	others := slices.Clone(messages[:first])
	for i := range messages[first:] {
		if m := &messages[first+i]; ours(m) {
			a.producer.answered(m)
		} else {
			others = append(others, *m)
		}
	}
	if len(others) > 0 {
		return a.Hub.Send(others)
	}
	return behind
}

// answered passes an answer on.
func (p *Producer) answered(m *protocol.Message) {
	number, err := strconv.ParseUint(string(m.Subject[len(answerPrefix):]), 10, 64)
	if err != nil {
		return
	}
	p.mu.Lock()
	done := p.open[number]
	delete(p.open, number)
	p.mu.Unlock()
	if done != nil {
		done(judge(m.Data))
	}
}

// judge returns where a message was stored, by the answer of its Topic, or why it was not.
func judge(answer []byte) (offset uint64, err error) {
	var said struct {
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
		Sequence uint64 `json:"seq"`
	}
	switch err := json.Unmarshal(answer, &said); {
	case err != nil:
		return 0, fmt.Errorf("its answer can't be read: %w", err)
	case said.Error != nil && said.Error.Code == tooLarge:
		return 0, fmt.Errorf("%w: %s", publish.ErrTooLarge, said.Error.Description)
	case said.Error != nil:
		return 0, errors.New(said.Error.Description)
	case said.Sequence == 0:
		return 0, errors.New("its answer names no offset")
	}
	return said.Sequence, nil
}
