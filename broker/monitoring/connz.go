package monitoring

import (
	"cmp"
	"net/http"
	"strconv"
	"time"

	"github.com/carillon-mq/carillon/broker/session"
)

type conn struct {
	ID            uint64    `json:"cid"`
	Kind          string    `json:"kind"`
	Type          string    `json:"type"`
	Account       string    `json:"account"`
	User          string    `json:"authorized_user,omitempty"`
	IP            string    `json:"ip"`
	Port          int       `json:"port"`
	Uptime        string    `json:"uptime"`
	Idle          string    `json:"idle"`
	Address       string    `json:"address"`
	Name          string    `json:"name,omitempty"`
	Lang          string    `json:"lang,omitempty"`
	Version       string    `json:"version,omitempty"`
	TLSVersion    string    `json:"tls_version,omitempty"`
	TLSCipher     string    `json:"tls_cipher_suite,omitempty"`
	Start         time.Time `json:"start"`
	LastActivity  time.Time `json:"last_activity"`
	Subscriptions int64     `json:"subscriptions"`
	PendingBytes  int64     `json:"pending_bytes"`
	InMsgs        uint64    `json:"in_msgs"`
	InBytes       uint64    `json:"in_bytes"`
	OutMsgs       uint64    `json:"out_msgs"`
	OutBytes      uint64    `json:"out_bytes"`
}

// connzLimit is the default number of connections per page, and connzMost the maximum.
const (
	connzLimit = 1024
	connzMost  = 10_000
)

var connzOrder = map[string]func(a, b session.ConnStats) int{
	"cid":        func(a, b session.ConnStats) int { return cmp.Compare(a.ID, b.ID) },
	"subs":       func(a, b session.ConnStats) int { return cmp.Compare(b.Subscriptions, a.Subscriptions) },
	"pending":    func(a, b session.ConnStats) int { return cmp.Compare(b.PendingBytes, a.PendingBytes) },
	"msgs_to":    func(a, b session.ConnStats) int { return cmp.Compare(b.OutMsgs, a.OutMsgs) },
	"msgs_from":  func(a, b session.ConnStats) int { return cmp.Compare(b.InMsgs, a.InMsgs) },
	"bytes_to":   func(a, b session.ConnStats) int { return cmp.Compare(b.OutBytes, a.OutBytes) },
	"bytes_from": func(a, b session.ConnStats) int { return cmp.Compare(b.InBytes, a.InBytes) },
	"idle":       func(a, b session.ConnStats) int { return a.Active.Compare(b.Active) },
}

func (c *Config) connz(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, err1 := number(query.Get("limit"), connzLimit)
	offset, err2 := number(query.Get("offset"), 0)
	page := c.Connz(ConnzQuery{query.Get("sort"), limit, offset})
	if err := cmp.Or(err1, err2); err != nil || page == nil {
		http.Error(w, "connz: limit and offset are numbers; sort is one of cid, subs, pending, msgs_to, msgs_from, bytes_to, bytes_from, idle", http.StatusBadRequest)
		return
	}
	reply(w, page)
}

func number(text string, otherwise int) (int, error) {
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.ParseUint(text, 10, 31)
	return int(n), err
}
