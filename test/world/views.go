package world

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/producer"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/publish"
	"github.com/carillon-mq/carillon/broker/replica"
	"github.com/carillon-mq/carillon/broker/topic"
	"github.com/carillon-mq/carillon/broker/viewing"
	"github.com/carillon-mq/carillon/broker/work"
	"github.com/carillon-mq/carillon/test/recount"
)

// A Topic may have two Views: one with windows or sessions, and one of all messages. All Views of a
// world write into the same two Topics, which have no clients, and are never deleted: what a View
// does whose results were deleted depends on what was deleted. If a Topic is made again, so are its
// Views, under other names.
//
// The Views have no idle time. With one, a leader's clock decides what comes too late, and what it
// decided is known in the state log only, until a checkpoint takes its place.

const (
	resultsName, resultsNumber = "results", 13
	alertsName, alertsNumber   = "alerts", 14

	headerAt, headerRoom, headerNumber = "At", "Room", "N"
	rooms                              = 3
)

// savingEvery makes leaders write checkpoints of Views several times in a world.
const savingEvery = time.Second

// The triggers: hot is about windows, and the others are about all readings so far.
var (
	hot  = recount.Trigger{Name: "hot", When: func(s recount.Sum) bool { return s.Total > 15*s.Readings }, Until: func(s recount.Sum) bool { return s.Total < 12*s.Readings }}
	many = recount.Trigger{Name: "many", When: func(s recount.Sum) bool { return s.Readings > 200 }, Until: func(s recount.Sum) bool { return s.Readings <= 200 }}
	warm = recount.Trigger{Name: "warm", When: func(s recount.Sum) bool { return s.Total > 14*s.Readings }, Until: func(s recount.Sum) bool { return s.Total < 13*s.Readings }}
)

// viewed is what the Views of a Topic are.
type viewed struct {
	windowed, endless string // their names
	windows           recount.Windows
	stored            bool // the time of a reading is when it was stored
}

// newViewed chooses what the Views of a Topic are.
func (w *world) newViewed(d *declared) *viewed {
	v := &viewed{windowed: fmt.Sprintf("w%dx%d", d.number, d.again), endless: fmt.Sprintf("e%dx%d", d.number, d.again)}
	switch w.rng.IntN(4) {
	case 0:
		v.windows = recount.Windows{Size: 2 * time.Second, Every: time.Second}
	case 1:
		v.windows = recount.Windows{Session: w.between(20*time.Millisecond, 200*time.Millisecond)}
	default:
		v.windows = recount.Windows{Size: time.Second}
	}
	v.windows.Lateness = w.between(0, time.Second)
	v.stored = len(d.kinds) == 1 && w.chance(25) // a message without a room has the time of storing, too
	return v
}

// specs returns the Views by their names.
func (v *viewed) specs(of string) map[string]coordination.ViewSpec {
	values := map[string]string{"readings": "count()", "total": "sum(double(headers." + headerNumber + "))"}
	window := coordination.ViewWindow{Session: v.windows.Session, Lateness: v.windows.Lateness, Time: "headers." + headerAt}
	if v.stored {
		window.Time = ""
	}
	if v.windows.Every > 0 {
		window.Sliding = &coordination.ViewSliding{Size: v.windows.Size, Every: v.windows.Every}
	} else {
		window.Tumbling = v.windows.Size
	}
	by := "headers." + headerRoom
	return map[string]coordination.ViewSpec{
		v.windowed: {Topic: of, Output: resultsName, Alerts: map[string]string{hot.Name: alertsName}, Compute: coordination.ViewCompute{By: by, Values: values, Window: window,
			Triggers: []coordination.ViewTrigger{{Name: hot.Name, When: "total > 15.0 * readings", Until: "total < 12.0 * readings"}}}},
		v.endless: {Topic: of, Alerts: map[string]string{many.Name: alertsName, warm.Name: alertsName}, Compute: coordination.ViewCompute{By: by, Values: values,
			Triggers: []coordination.ViewTrigger{{Name: many.Name, When: "readings > 200.0"}, {Name: warm.Name, When: "total > 14.0 * readings", Until: "total < 13.0 * readings"}}}},
	}
}

// declareOutputs writes the Topics that Views write into to etcd.
func (w *world) declareOutputs() {
	w.outputs = []*declared{{name: resultsName, number: resultsNumber}, {name: alertsName, number: alertsNumber}}
	for i, d := range w.outputs {
		d.kinds, d.output = []string{d.name}, true
		w.makeUnused(d, 2-i)
	}
}

// reading returns what a message says to Views. Times are some milliseconds ago, and of one message
// in 20 so long that it is late. Numbers are low, middling, high and middling, some seconds each.
func (c *client) reading() *recount.Reading {
	at := c.w.now() - time.Duration(c.count%300)*time.Millisecond
	if c.count%20 == 0 {
		at -= 3 * time.Second
	}
	n := []int{2, 12, 22, 12}[c.w.now()/(3*time.Second)%4] + c.count%7
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.name))
	return &recount.Reading{At: c.w.began.Add(at).UnixNano(), Room: "room-" + strconv.Itoa((int(h.Sum32()%rooms)+c.count/5)%rooms), N: float64(n)}
}

// readingHeaders are the headers that Views read.
func readingHeaders(r *recount.Reading) []string {
	return []string{headerAt + ": " + time.Unix(0, r.At).UTC().Format(time.RFC3339Nano), headerRoom + ": " + r.Room, headerNumber + ": " + strconv.FormatFloat(r.N, 'f', -1, 64)}
}

// newOutputs returns what publishes results and alerts.
func (l *life) newOutputs() *producer.Producer {
	return producer.New(func(name string) producer.Topic {
		if found := l.service.Topic(name); found != nil {
			return found
		}
		return nil
	})
}

// jsonAnswers passes the answers to a Producer's messages on as JSON, which it reads.
type jsonAnswers struct{ publish.Hub }

func (a jsonAnswers) Send(messages []protocol.Message) work.Behind {
	messages = slices.Clone(messages)
	for i := range messages {
		if m := &messages[i]; strings.HasPrefix(string(m.Subject), "$CARILLON.STORED.") {
			m.Data = jsonAnswer(string(m.Data))
		}
	}
	return a.Hub.Send(messages)
}

// jsonAnswer returns an answer of codec as JetStream has it.
func jsonAnswer(text string) []byte {
	type refusal struct {
		Code        int    `json:"err_code"`
		Description string `json:"description"`
	}
	var answer struct {
		Error    *refusal `json:"error,omitempty"`
		Sequence uint64   `json:"seq,omitempty"`
	}
	verb, rest, _ := strings.Cut(text, " ")
	if _, number, _ := strings.Cut(rest, " "); verb == "ack" {
		answer.Sequence, _ = strconv.ParseUint(number, 10, 64)
	} else {
		answer.Error = &refusal{Code: 10071, Description: text}
	}
	data, _ := json.Marshal(&answer) // plain fields
	return data
}

// newViews returns the process's Views, as broker.Run assembles them.
func (l *life) newViews(outputs *producer.Producer) *viewing.Service[*topic.ShardLeader] {
	views := knownViews{known: map[string]knownView{}}
	return viewing.New(viewing.Config[*topic.ShardLeader]{Self: l.m.id, Hub: l.hub, Payload: maxPayload, Memory: 64 << 20, SaveEvery: savingEvery, Logger: l.log, Changed: l.service.Changed,
		Led: func() (led []*topic.ShardLeader) {
			for _, s := range l.service.Leaders() {
				if s.Shard().Led() == s {
					led = append(led, s)
				}
			}
			return led
		},
		Of: func(s *topic.ShardLeader) (viewing.Place, []*viewing.Declared) {
			of := s.Shard()
			place := viewing.Place{Topic: of.ID(), Name: of.Topic().Name(), Number: of.Number(), Shards: of.Topic().ShardCount()}
			if of.Desired().Deleting {
				return place, nil
			}
			return place, views.of(l.service.State(), place.Name)
		},
		Shard: func(id string, number int) (*topic.ShardLeader, bool, string) {
			if is := l.service.ByID(id); is != nil {
				led := is.ShardAt(number)
				return led, led != nil, is.LeaderOf(number)
			}
			return nil, false, ""
		},
		Locate: func(name string, subject []byte) (string, int, error) {
			is := l.service.Topic(name)
			if is == nil {
				return "", 0, errors.New("there is no such topic; create it")
			}
			return is.ID(), is.ShardFor(subject).Number(), nil
		},
		Append: func(_, name string, m *protocol.Message, done func(uint64, error)) {
			wrote := l.m.w.judge.writes(name, string(m.Subject), string(m.Data[m.Header:]))
			outputs.Append(name, m, func(offset uint64, err error) {
				if err == nil {
					wrote(offset)
				}
				done(offset, err)
			})
		},
		MayRead: func(string, string, []string) bool { return true },
		Durability: func(s *topic.ShardLeader) log.Durability {
			return replica.DurabilityOf(s.Shard().Desired().Spec.Durability)
		},
		Trim: func(s *topic.ShardLeader, bytes int64) { l.subscriptions.Rewrite(s, bytes) },
		Now:  func() (time.Time, bool) { return l.clock.Time(), !l.clock.InDoubt() }})
}

// knownViews are the Views of a State as package viewing has them. A View that has not changed is
// the same one again.
type knownViews struct {
	mu    sync.Mutex
	known map[string]knownView // by name
}

type knownView struct {
	of       *coordination.View
	declared *viewing.Declared
}

func (k *knownViews) of(state *coordination.State, name string) (all []*viewing.Declared) {
	if state == nil || !state.AllHave(coordination.FeatureViews) {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, v := range state.ViewsOf(name) {
		if k.known[v.Name].of != v {
			k.known[v.Name] = knownView{v, &viewing.Declared{Name: v.Name, Made: v.Made, Spec: v.Spec.Compute, Output: v.Spec.Output, Alerts: v.Spec.Alerts}}
		}
		all = append(all, k.known[v.Name].declared)
	}
	return all
}
