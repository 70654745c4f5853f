package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// The subjects of requests about what is set aside on one broker's volume. The broker's id follows.
const (
	BrokerSetAsideSubject       = Prefix + "BROKER.SETASIDE."
	BrokerDeleteSetAsideSubject = Prefix + "BROKER.DELETESETASIDE."
)

const (
	// volumeTasksAtOnce bounds the requests that read or change the volume: people and scripts make
	// them, and the disk has other things to do.
	volumeTasksAtOnce = 4
	// volumePage is the most pieces that one request lists: each costs some operations on the disk.
	volumePage = 64
	// maxPieceName is more than the name of a Topic's log takes.
	maxPieceName = 255
)

// Volume is the part of log.Disk that these requests use.
type Volume interface {
	Pieces(after string, limit int) (pieces []log.Piece, more bool, err error)
	DeleteAside(name string, since time.Time) error
}

// SetAsideList is one page of what is set aside on one broker's volume, sorted by name.
type SetAsideList struct {
	Error  *Error  `json:"error,omitempty"`
	Broker *Broker `json:"broker,omitempty"`
	Pieces []Piece `json:"pieces"`
	Next   string  `json:"next,omitempty"` // set if there is more: request the page after this name
}

// Piece is something that was set aside: a directory of the volume.
type Piece struct {
	Name string        `json:"name"`
	Kind log.PieceKind `json:"kind"` // log, segments or torn
	// Topic is the name of the Topic, if known, and TopicID its id. Exists means that the cluster
	// has the Topic.
	Topic   string `json:"topic,omitempty"`
	TopicID string `json:"topicId"`
	Exists  bool   `json:"exists"`
	Shard   int    `json:"shard"`
	// Cursors means that the log is that of Subscriptions' cursors, and not of messages.
	Cursors bool   `json:"cursors,omitempty"`
	Reason  string `json:"reason,omitempty"` // empty: unknown
	// From and Next bound the offsets of the records, as far as known; 0: unknown. A whole log may
	// go beyond Next.
	From  uint64    `json:"from,omitempty"`
	Next  uint64    `json:"next,omitempty"`
	Bytes int64     `json:"bytes"`
	Since time.Time `json:"since,omitzero"` // by the broker's machine
	// Age is how many nanoseconds ago that was, by the same clock.
	Age time.Duration `json:"age,omitempty"`
}

// DeleteSetAsideRequest names a piece to delete.
type DeleteSetAsideRequest struct {
	Name string `json:"name"`
	// Since is that of the piece that the client saw; zero: whatever has the name now.
	Since time.Time `json:"since,omitzero"`
}

// SetAsideDeleted is the answer to the deletion of a piece.
type SetAsideDeleted struct {
	Error   *Error  `json:"error,omitempty"`
	Broker  *Broker `json:"broker,omitempty"`
	Deleted bool    `json:"deleted"` // false: there was none of that name
}

// Volume sets the volume of requests. Call it before the first request.
func (s *Server) Volume(v Volume) *Server {
	s.volume = v
	return s
}

// answerAside answers for this broker's volume, later. It returns what it answers at once, or nil.
func (s *Server) answerAside(r *request, m *protocol.Message, by origin) []byte {
	if data, elsewhere := s.elsewhere(r.broker, m, by); elsewhere {
		return data
	}
	if s.volume == nil {
		return encodeError(notReady())
	}
	reply, what := bytes.Clone(m.Reply), *r
	do := func() []byte { return encode(s.setAside(&what)) }
	if what.kind == brokerDeleteSetAside {
		do = func() []byte { return encode(s.deleteAside(&what)) }
	}
	busy := refuse(Busy, "more than %d requests about the volume of broker %s are under way, and %d wait (ask again in a moment)", volumeTasksAtOnce, r.broker, tasksWaiting)
	if !s.volumeTasks.submit(by, 0, func(context.Context) {
		s.send(protocol.Message{Subject: reply, Data: do()})
	}, func() { s.refuse(reply, busy) }) {
		return encodeError(busy)
	}
	return nil
}

// setAside lists a page of pieces.
func (s *Server) setAside(r *request) SetAsideList {
	list := SetAsideList{Pieces: []Piece{}}
	pieces, more, err := s.volume.Pieces(r.page.After, min(r.page.Limit, volumePage))
	if err != nil {
		list.Error = refuse(Failed, "list what is set aside on broker %s: %v", r.broker, err)
		return list
	}
	v := s.view()
	broker, now := v.broker(r.broker), time.Now()
	list.Broker = &broker
	for i := range pieces {
		list.Pieces = append(list.Pieces, v.piece(&pieces[i], now))
	}
	if more {
		list.Next = pieces[len(pieces)-1].Name
	}
	return list
}

// piece describes a piece at a time of the machine's clock.
func (v view) piece(p *log.Piece, now time.Time) Piece {
	out := Piece{Name: p.Name, Kind: p.Kind, TopicID: p.Log.Topic, Shard: p.Log.Shard, Cursors: p.Log.Part != "",
		Reason: p.Reason, From: p.From, Next: p.Next, Bytes: p.Bytes, Since: p.Since}
	if !p.Since.IsZero() {
		out.Age = max(now.Sub(p.Since), 0)
	}
	var kept struct {
		Name string `json:"name"`
	}
	if t := v.state.TopicByID(p.Log.Topic); t != nil {
		out.Topic, out.Exists = t.Name, true
	} else if json.Unmarshal(p.Spec, &kept) == nil {
		out.Topic = kept.Name
	}
	return out
}

// deleteAside deletes a piece.
func (s *Server) deleteAside(r *request) SetAsideDeleted {
	broker := s.view().broker(r.broker)
	err := s.volume.DeleteAside(r.aside.Name, r.aside.Since)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return SetAsideDeleted{Broker: &broker}
	case errors.Is(err, log.ErrPieceBusy), errors.Is(err, log.ErrPieceChanged):
		return SetAsideDeleted{Error: refuse(Refused, "broker %s: %v", r.broker, err)}
	case err != nil:
		return SetAsideDeleted{Error: refuse(Failed, "broker %s: %v", r.broker, err)}
	}
	s.log.Info("A client deleted what was set aside", "name", r.aside.Name)
	return SetAsideDeleted{Broker: &broker, Deleted: true}
}
