package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
)

// What a server offers beyond NATS: docs/attributes.md and docs/queries.md describe it.
const (
	attributesSet   = "$CARILLON.API.ATTRIBUTES.SET"
	queryOpen       = "$CARILLON.API.QUERY.OPEN"
	headerSubject   = "Carillon-Subject"
	headerQuery     = "Carillon-Query"
	noticeMembers   = "Members"
	noticeChange    = "Change"
	changesAtOnce   = 100 // in a request
	attributesBytes = 4 << 10
)

// removeTimeout bounds how long deleting attributes may take, also while coordinators elect a
// leader.
const removeTimeout = time.Minute

// ErrNoQueries marks a server that does not know attributes of subjects.
var ErrNoQueries = errors.New("knows no attributes and no live queries")

// A refusal is what a server answers to a request that it does not carry out.
type refusal struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

func (r *refusal) Error() string { return r.Code + ": " + r.Text }

// passes tells refusals that a repetition may avoid. After Unavailable nobody knows whether a
// change was made; those of this package may be made again.
func (r *refusal) passes() bool {
	return r.Code == "Busy" || r.Code == "NotReady" || r.Code == "Unavailable"
}

// attributeChange is a change of the attributes of one subject.
type attributeChange struct {
	Subject string         `json:"subject"`
	Set     map[string]any `json:"set,omitempty"`
	Replace bool           `json:"replace,omitempty"`
	Bound   *bool          `json:"bound,omitempty"`
}

// askLive makes a request of $CARILLON.API, again for as long as the server is busy or not ready.
func askLive(ctx context.Context, nc *nats.Conn, subject string, request, answer any) error {
	data, err := json.Marshal(request)
	if err != nil {
		return err
	}
	for {
		once, cancel := context.WithTimeout(ctx, connectTimeout)
		m, err := nc.RequestWithContext(once, subject, data)
		cancel()
		switch {
		case errors.Is(err, nats.ErrNoResponders):
			return ErrNoQueries
		case err != nil:
			return err
		}
		err = readAnswer(m.Data, answer)
		var refused *refusal
		if !errors.As(err, &refused) || !refused.passes() || sleep(ctx, askAgain) != nil {
			return err
		}
	}
}

// readAnswer decodes an answer; nil: only whether it is a refusal is asked.
func readAnswer(data []byte, answer any) error {
	var found struct {
		Error *refusal `json:"error"`
	}
	if err := json.Unmarshal(data, &found); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	if found.Error != nil {
		return found.Error
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("read an answer: %w", err)
	}
	return nil
}

// setAttributes makes changes, in requests of a hundred. All have to succeed.
func setAttributes(ctx context.Context, nc *nats.Conn, changes []attributeChange) error {
	for len(changes) > 0 {
		part := changes[:min(len(changes), changesAtOnce)]
		changes = changes[len(part):]
		var answer struct {
			Results []struct {
				Subject string   `json:"subject"`
				Error   *refusal `json:"error"`
			} `json:"results"`
		}
		request := map[string]any{"changes": part}
		if err := askLive(ctx, nc, attributesSet, request, &answer); err != nil {
			return fmt.Errorf("set attributes of %s and others: %w", part[0].Subject, err)
		}
		for _, result := range answer.Results {
			if result.Error != nil {
				return fmt.Errorf("set the attributes of %s: %w", result.Subject, result.Error)
			}
		}
	}
	return nil
}

// removeAttributes deletes all attributes of subjects. Those that a run leaves behind are bound to
// its connections, and go with them.
func removeAttributes(ctx context.Context, nc *nats.Conn, subjects []string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	changes := make([]attributeChange, len(subjects))
	for i, subject := range subjects {
		changes[i] = attributeChange{Subject: subject, Replace: true}
	}
	if err := setAttributes(ctx, nc, changes); err != nil {
		return fmt.Errorf("delete what this run has set (it goes 10 s after the connection): %w",
			err)
	}
	return nil
}

// A liveMember is a subject that a notice tells of.
type liveMember struct {
	Subject    string `json:"subject"`
	Attributes struct {
		Generation int `json:"generation"`
	} `json:"attributes"`
}

// A liveNotice is what a server tells of the members of a query.
type liveNotice struct {
	Kind    string       `json:"-"`
	Members []liveMember `json:"members"`
	Done    bool         `json:"done"`
	New     []liveMember `json:"new"`
	Del     []string     `json:"del"`
	Error   *refusal     `json:"error"`
}

// joined returns the subjects that became members.
func (n *liveNotice) joined() []liveMember { return append(n.Members, n.New...) }

// A liveQuery is what is asked for.
type liveQuery struct {
	Where    string `json:"where"`
	Subjects string `json:"subjects,omitempty"`
	Inbox    string `json:"inbox"`
	Messages bool   `json:"messages"`
}

// A liveInbox takes what comes to the inbox of a query, in order, on a goroutine of the query.
type liveInbox struct {
	notice  func(n *liveNotice, at int64)
	message func(subject string, m *nats.Msg, at int64) // or nil
	failed  func(error)
}

// openLive opens a query on a connection, and returns when the server has answered. The query ends
// with the connection.
func openLive(ctx context.Context, nc *nats.Conn, q liveQuery, inbox liveInbox) error {
	q.Inbox, q.Messages = nats.NewInbox(), inbox.message != nil
	s, err := nc.Subscribe(q.Inbox, func(m *nats.Msg) { inbox.take(m, now()) })
	if err != nil {
		return fmt.Errorf("subscribe to the inbox of a query: %w", err)
	}
	// The client must not drop what the server delivered; the plan bounds how much that is.
	if err := s.SetPendingLimits(-1, -1); err != nil {
		return fmt.Errorf("lift the pending limits of a query: %w", err)
	}
	if err := askLive(ctx, nc, queryOpen, q, nil); err != nil {
		return fmt.Errorf("open the query %q: %w", q.Where, err)
	}
	return nil
}

func (i liveInbox) take(m *nats.Msg, at int64) {
	if subject := m.Header[headerSubject]; len(subject) > 0 {
		if i.message != nil {
			i.message(subject[0], m, at)
			return
		}
		i.failed(fmt.Errorf("a message of %s came to a query that asked for none", subject[0]))
		return
	}
	n := liveNotice{Kind: m.Header.Get(headerQuery)}
	if err := json.Unmarshal(m.Data, &n); err != nil {
		i.failed(fmt.Errorf("read a notice: %w", err))
		return
	}
	switch {
	case n.Error != nil:
		i.failed(fmt.Errorf("the server ended a query: %w", n.Error))
	case n.Kind == noticeMembers || n.Kind == noticeChange:
		i.notice(&n, at)
	}
}

// hasQueries asks a target for live queries.
func (t Target) hasQueries(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, settling)
	defer cancel()
	nc, err := t.address(0).connect(ctx, "carillon-bench", nil)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", t.Name, err)
	}
	defer nc.Close()
	err = askLive(ctx, nc, "$CARILLON.API.QUERY.LIST", map[string]any{"limit": 1}, nil)
	if errors.Is(err, ErrNoQueries) {
		return fmt.Errorf("%s %w: give the address of a Carillon broker", t.Name, ErrNoQueries)
	}
	if err != nil {
		return fmt.Errorf("ask %s for live queries: %w", t.Name, err)
	}
	return nil
}

// awaitDue sleeps until a time, and is as little late as it can.
func awaitDue(ctx context.Context, due int64, spin time.Duration) error {
	for left := due - now(); left > 0; left = due - now() {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if rest := time.Duration(left) - spin; rest > 0 {
			nap(min(rest, longestNap))
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// numberBehind returns the number that a subject has behind a prefix, or -1 if it is another one.
func numberBehind(prefix, subject string) int {
	text, ours := strings.CutPrefix(subject, prefix)
	n, err := strconv.Atoi(text)
	if !ours || err != nil {
		return -1
	}
	return n
}
