package live

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/carillon-mq/carillon/broker/attribute"
	"github.com/carillon-mq/carillon/broker/coordination"
)

// announced is a change of attributes on its way to linked brokers, ahead of their watches.
type announced struct {
	History    string            `json:"history"` // of etcd (attribute.Stats)
	Subject    string            `json:"subject"`
	Revision   int64             `json:"revision"`
	Attributes string            `json:"attributes,omitempty"` // JSON; empty: the subject has none any more
	Holder     *attribute.Holder `json:"holder,omitempty"`
	User       string            `json:"user,omitempty"`
	Bytes      int               `json:"bytes,omitempty"`
	// Found is true if nothing was written: it was like that already.
	Found bool `json:"found,omitempty"`
}

// Spread has changes that etcd has answered, and that the Store has, reach the queries of this and
// of all linked brokers. It returns when that is done, or after a bounded time.
func (s *Server) Spread(ctx context.Context, changes []coordination.Outcome) {
	told := make([]made, len(changes))
	for i := range changes {
		told[i] = made{changes[i].Entry.Subject, changes[i].Entry.Revision}
	}
	s.flushMade(told...)
	if s.mesh == nil {
		return
	}
	history, some, left := s.store.Stats().History, false, 0
	for i := range changes {
		of := &changes[i]
		if of.Err != nil || of.Entry.Subject == "" {
			continue
		}
		a := announced{
			History: history, Subject: of.Entry.Subject, Revision: of.Entry.Revision, Attributes: of.Entry.Text,
			User: of.Entry.User, Bytes: of.Entry.Bytes, Found: !of.Written,
		}
		if of.Entry.Holder != (attribute.Holder{}) {
			a.Holder = &of.Entry.Holder
		}
		data, err := json.Marshal(a)
		if err != nil {
			s.log.Error("A change of attributes can't be encoded; other brokers learn of it from etcd", "subject", a.Subject, "error", err)
			continue
		}
		left += s.mesh.Notify(s.feature, data)
		some = true
	}
	if !some {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if s.mesh.Sync(ctx, s.feature)+left > 0 {
		s.late.Add(1)
	}
}

// Notice takes a change from a linked broker (route.Config.Notices).
func (s *Server) Notice(_ string, data []byte) error {
	var a announced
	if err := json.Unmarshal(data, &a); err != nil {
		return fmt.Errorf("a change of attributes: %w", err)
	}
	if a.Subject == "" || a.Revision <= 0 {
		return fmt.Errorf("a change of attributes of subject %.100q at revision %d", a.Subject, a.Revision)
	}
	// After a restore of etcd one of both brokers hears of it first. The watch brings what is so.
	if history := s.store.Stats().History; history != "" && history != a.History {
		return nil
	}
	if a.Attributes == "" {
		s.store.DeleteAhead(a.Subject, a.Revision, !a.Found)
	} else {
		e := attribute.Entry{Subject: a.Subject, Revision: a.Revision, Text: a.Attributes, User: a.User, Bytes: a.Bytes}
		if _, err := attribute.SetFromJSON([]byte(a.Attributes)); err != nil {
			s.log.Debug("A change of attributes can't be read; the watch brings it, too", "subject", a.Subject, "error", err)
			return nil
		}
		if a.Holder != nil {
			e.Holder = *a.Holder
		}
		s.store.PutAhead(e)
	}
	s.flushMade(made{a.Subject, a.Revision})
	return nil
}
