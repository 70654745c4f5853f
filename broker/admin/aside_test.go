package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/broker/log"
	"github.com/carillon-mq/carillon/broker/protocol"
	"github.com/carillon-mq/carillon/broker/work"
)

// shelf is a volume on which pieces are set aside.
type shelf struct {
	mu     sync.Mutex
	pieces []log.Piece
	fault  error
	gate   chan struct{} // not nil: a listing waits for it
	listed chan struct{} // not nil: a listing announces itself
}

func (s *shelf) Pieces(after string, limit int) ([]log.Piece, bool, error) {
	if s.gate != nil {
		s.listed <- struct{}{}
		<-s.gate
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	rest := slices.DeleteFunc(slices.Clone(s.pieces), func(p log.Piece) bool { return p.Name <= after })
	return rest[:min(limit, len(rest))], len(rest) > limit, s.fault
}

func (s *shelf) DeleteAside(name string, since time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.pieces, func(p log.Piece) bool { return p.Name == name })
	switch {
	case s.fault != nil:
		return s.fault
	case at < 0:
		return &fs.PathError{Op: "stat", Path: name, Err: fs.ErrNotExist}
	case !since.IsZero() && !since.Equal(s.pieces[at].Since):
		return log.ErrPieceChanged
	}
	s.pieces = slices.Delete(s.pieces, at, at+1)
	return nil
}

func newShelf() (*Server, *shelf, *mailbox) {
	state := coordination.NewState(3, []coordination.Broker{{ID: "a", Incarnation: 1, Name: "main-0"}, {ID: "b", Incarnation: 2, Name: "main-1"}},
		[]*coordination.Topic{{Name: "orders", ID: "id1", Spec: coordination.TopicSpec{Subjects: []string{"orders"}, Shards: 1}}}, nil, nil)
	box, volume := newMailbox(), &shelf{}
	return New("a", known{state}, box, slog.New(slog.DiscardHandler)).Volume(volume), volume, box
}

// TestSetAsidePiecesAreListedAndDeleted: pieces are listed with the Topics that they are of, page
// by page, and deleted by name. A repeated deletion succeeds.
func TestSetAsidePiecesAreListedAndDeleted(t *testing.T) {
	s, volume, _ := newShelf()
	defer s.Close()
	since := time.Now().Add(-time.Hour).UTC()
	volume.pieces = []log.Piece{
		{Name: "id1-0.1", Kind: log.PieceSegments, Log: log.Identity{Topic: "id1"}, Reason: "why", From: 3, Next: 9, Bytes: 100, Since: since},
		{Name: "id2-7.state.1", Kind: log.PieceLog, Log: log.Identity{Topic: "id2", Shard: 7, Part: "state"}},
		{Name: "id3-0.1", Kind: log.PieceLog, Log: log.Identity{Topic: "id3"}, Spec: []byte(`{"v":1,"name":"bills"}`)},
	}
	got := change[SetAsideList](t, s, BrokerSetAsideSubject+"a", "")
	if got.Error != nil || got.Broker == nil || got.Broker.Name != "main-0" || got.Next != "" || len(got.Pieces) != 3 {
		t.Fatalf("listed are %+v, %v", got, got.Error)
	}
	one, two, three := got.Pieces[0], got.Pieces[1], got.Pieces[2]
	if one.Age < time.Hour || one.Age > 2*time.Hour {
		t.Errorf("it is %s old", one.Age)
	}
	one.Age = 0
	if one != (Piece{Name: "id1-0.1", Kind: log.PieceSegments, Topic: "orders", TopicID: "id1", Exists: true, Reason: "why", From: 3, Next: 9, Bytes: 100, Since: since}) {
		t.Errorf("a piece of a Topic is %+v", one)
	}
	if two.Topic != "" || two.Exists || two.Shard != 7 || !two.Cursors || two.Age != 0 || three.Topic != "bills" || three.Exists {
		t.Errorf("pieces of deleted Topics are %+v and %+v", two, three)
	}
	first := change[SetAsideList](t, s, BrokerSetAsideSubject+"a", `{"limit":2}`)
	rest := change[SetAsideList](t, s, BrokerSetAsideSubject+"a", fmt.Sprintf(`{"limit":2,"after":%q}`, first.Next))
	if len(first.Pieces) != 2 || first.Next != "id2-7.state.1" || len(rest.Pieces) != 1 || rest.Next != "" {
		t.Errorf("in pages: %+v, %+v", first, rest)
	}

	if got := change[SetAsideDeleted](t, s, BrokerDeleteSetAsideSubject+"a", `{"name":"id1-0.1","since":"2026-01-31T12:00:00Z"}`).Error; got == nil || got.Code != Refused || len(volume.pieces) != 3 {
		t.Errorf("another piece of that name: %+v", got)
	}
	for _, there := range []bool{true, false} {
		got := change[SetAsideDeleted](t, s, BrokerDeleteSetAsideSubject+"a", fmt.Sprintf(`{"name":"id1-0.1","since":%q}`, since.Format(time.RFC3339Nano)))
		if got.Error != nil || got.Deleted != there || got.Broker == nil || len(volume.pieces) != 2 {
			t.Errorf("deleted: %+v, %v", got, got.Error)
		}
	}
	for fault, code := range map[error]Code{log.ErrPieceBusy: Refused, errors.New("a bad disk"): Failed} {
		volume.fault = fault
		if got := change[SetAsideDeleted](t, s, BrokerDeleteSetAsideSubject+"a", `{"name":"id2-7.state.1"}`).Error; got == nil || got.Code != code || !strings.Contains(got.Text, fault.Error()) {
			t.Errorf("%v is answered %+v", fault, got)
		}
	}
	if got := change[SetAsideList](t, s, BrokerSetAsideSubject+"a", "").Error; got == nil || got.Code != Failed {
		t.Errorf("a list that fails is answered %+v", got)
	}
}

// TestRequestsAboutAVolumeGoToItsBroker: another broker's volume is asked there, once, and wrong
// requests are refused.
func TestRequestsAboutAVolumeGoToItsBroker(t *testing.T) {
	s, _, box := newShelf()
	defer s.Close()
	for _, subject := range []string{BrokerSetAsideSubject, BrokerDeleteSetAsideSubject} {
		box.forwarded = nil
		request := protocol.Message{Subject: []byte(subject + "b"), Reply: []byte("r"), Data: []byte(`{"name":"x"}`)}
		if subject == BrokerSetAsideSubject {
			request.Data = nil
		}
		s.Take([]protocol.Message{request}, nil, false)
		if !slices.Equal(box.forwarded, []string{"b " + subject + "b"}) {
			t.Errorf("it forwarded %q", box.forwarded)
		}
		s.Take([]protocol.Message{request}, nil, true)
		if answer := string(<-box.answers); !strings.Contains(answer, string(Unavailable)) || len(box.forwarded) != 1 {
			t.Errorf("forwarded again, it is answered %s", answer)
		}
	}
	for _, tc := range []struct {
		subject, payload string
		code             Code
	}{
		{BrokerSetAsideSubject + "z", "", NotFound},
		{BrokerDeleteSetAsideSubject + "a", "", BadRequest},
		{BrokerDeleteSetAsideSubject + "a", "{}", BadRequest},
		{BrokerDeleteSetAsideSubject + "a", `{"name":"x","force":true}`, BadRequest},
		{BrokerDeleteSetAsideSubject + "a", fmt.Sprintf(`{"name":%q}`, strings.Repeat("x", maxPieceName+1)), BadRequest},
		{BrokerDeleteSetAsideSubject + "a.x", `{"name":"x"}`, BadRequest},
	} {
		if got := change[onlyError](t, s, tc.subject, tc.payload).Error; got == nil || got.Code != tc.code {
			t.Errorf("%s %s is answered %+v", tc.subject, tc.payload, got)
		}
	}
	without, box2 := newServer(s.topics.State())
	if got := ask[onlyError](t, without, box2, BrokerSetAsideSubject+"a", "").Error; got == nil || got.Code != NotReady {
		t.Errorf("without a volume it is answered %+v", got)
	}
}

// TestConcurrentVolumeRequestsAreBounded: requests that wait for a slow disk are bounded, and hold
// up no other.
func TestConcurrentVolumeRequestsAreBounded(t *testing.T) {
	s, volume, box := newShelf()
	volume.gate, volume.listed = make(chan struct{}), make(chan struct{}, volumeTasksAtOnce)
	list := protocol.Message{Subject: []byte(BrokerSetAsideSubject + "a"), Reply: []byte("r")}
	s.Accounts(ownAccounts)
	for client := range uint64(volumeTasksAtOnce) {
		s.TakeOf(1+client, []protocol.Message{list}, nil, &work.Behind{})
	}
	for range volumeTasksAtOnce {
		<-volume.listed
	}
	for range tasksWaiting {
		s.Take([]protocol.Message{list}, nil, false)
	}
	if got := change[onlyError](t, s, BrokerSetAsideSubject+"a", "").Error; got == nil || got.Code != Busy {
		t.Errorf("one more is answered %+v", got)
	}
	if got := change[BrokerList](t, s, BrokerListSubject, ""); got.Error != nil || len(got.Brokers) != 2 {
		t.Errorf("meanwhile the list of brokers is %+v", got)
	}
	ended := make(chan struct{})
	go func() { defer close(ended); s.Close() }()
	<-s.volumeTasks.ctx.Done()
	close(volume.gate)
	<-ended
	served := 0
	for range volumeTasksAtOnce + tasksWaiting {
		if strings.Contains(string(<-box.answers), `"pieces":[]`) {
			served++
		}
	}
	if served != volumeTasksAtOnce {
		t.Errorf("%d requests were served, and the others refused", served)
	}
}
