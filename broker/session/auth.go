package session

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"math"
	"net"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/protocol"
)

// Authenticator decides who clients are. It is safe for concurrent use.
type Authenticator interface {
	// Nonce reports whether INFO carries a nonce for clients to sign.
	Nonce() bool
	// Authenticate returns who gives the credentials, and by which of them, or why it is refused:
	// for the log, since the client is told only that it is. The caller holds no lock, and waits.
	Authenticate(ctx context.Context, c *Credentials) (*identity.Identity, *identity.Credential, error)
	// Again returns what a connected user may do now who proved itself by the credential that
	// Authenticate returned; nil: its access has ended.
	Again(is *identity.Identity, by *identity.Credential) *identity.Identity
}

// Credentials are what a client proves itself by.
type Credentials struct {
	*protocol.Connect
	Nonce       string            // from INFO; empty: there was none
	Address     string            // IP address of the client
	Certificate *x509.Certificate // verified, of the client; nil: none
}

// ErrBusy is the error of Authenticate for a client that waited too long for its turn, or when the
// broker ends. Such a client may try again, which many do not after an Authorization Violation.
var ErrBusy = errors.New("there was no turn to compare its password in time")

// ErrExpired is the error of Authenticate for a user whose access has ended.
var ErrExpired = errors.New("the user's access has expired")

// newNonce returns what a client signs, as long as nats-server's.
func newNonce() string {
	var b [11]byte
	_, _ = rand.Read(b[:]) // it never fails
	return base64.RawURLEncoding.EncodeToString(b[:])
}

// authenticate finds out who the client is, and counts it as a connection of that user. While it
// waits, the time for CONNECT stands still.
func (c *Conn) authenticate(about *protocol.Connect) error {
	credentials := Credentials{Connect: about, Nonce: c.nonce}
	credentials.Address, _, _ = net.SplitHostPort(c.nc.RemoteAddr().String())
	if c.secure != nil {
		if state := c.secure.tls.ConnectionState(); len(state.VerifiedChains) > 0 {
			credentials.Certificate = state.PeerCertificates[0]
		}
	}
	c.opened.Store(math.MaxInt64)
	is, by, err := c.hub.auth.Authenticate(c.hub.alive, &credentials)
	if err != nil {
		c.hub.refusals.Add(1)
		c.hub.notable.Info("Refused a client", "user", about.User, "address", c.nc.RemoteAddr().String(), "client", c.id, "reason", err)
		switch {
		case errors.Is(err, ErrExpired):
			return protocol.ErrUserExpired
		case errors.Is(err, ErrBusy):
			return protocol.ErrAuthTimeout
		}
		return protocol.ErrAuthorization
	}
	if !c.hub.enter(c, is, by) {
		return protocol.ErrMaxUserConnections
	}
	// The users may have changed since; Recheck may have passed this connection before.
	if e := c.recheck(); e != nil {
		return e
	}
	return nil
}

// enter counts the connection as one of its user, which proved itself by the credential, and gives
// it the user's rights. It reports false if the user has too many connections.
func (h *Hub) enter(c *Conn, is *identity.Identity, by *identity.Credential) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if before := c.identity.Load(); before == nil || before.Name != is.Name {
		u := h.users[is.Name]
		if most := is.Limits.Connections; most > 0 && u != nil && u.connections >= most {
			return false
		}
		h.leave(c)
		if u == nil {
			u = h.newUser(is.Name)
			h.users[is.Name] = u
		}
		u.connections++
		c.user = u
		c.replies.Store(nil) // they were another user's
	}
	c.by = by
	c.become(is)
	return true
}

// leave ends what enter began. mu is held.
func (h *Hub) leave(c *Conn) {
	if c.user != nil {
		c.user.connections--
		c.user = nil
	}
}

// forget forgets users without connections, once they have all room below their limits again: a
// client that connects anew gets no more than one that stays.
func (h *Hub) forget(now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, u := range h.users {
		if u.connections == 0 && u.rate.full(now) {
			delete(h.users, name)
		}
	}
}

// become gives the connection the rights of a user. mu of the hub is held.
func (c *Conn) become(is *identity.Identity) {
	c.identity.Store(is)
	most, within := is.Responses()
	switch open := c.replies.Load(); {
	case most == 0:
		c.replies.Store(nil)
	case open == nil:
		c.replies.Store(&replies{most: most, within: within})
	default:
		open.bound(most, within)
	}
}

// Identity returns who the client with that number is; nil: it is gone, or there are no users.
func (h *Hub) Identity(client uint64) *identity.Identity {
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := h.conns[client]; c != nil {
		return c.identity.Load()
	}
	return nil
}

// Account returns on whose account a client works: its user's, or its network's if there are
// no users. Nothing: the client is gone.
func (h *Hub) Account(client uint64) string {
	h.mu.Lock()
	c := h.conns[client]
	h.mu.Unlock()
	if c == nil {
		return ""
	}
	is := c.identity.Load()
	known := c.account.Load()
	if known == nil || known.of != is {
		known = &accountAs{is, c.accountOf(is)}
		c.account.Store(known)
	}
	return known.name
}

// accountAs is the account of a connection as an identity, or as nobody.
type accountAs struct {
	of   *identity.Identity
	name string
}

func (c *Conn) accountOf(is *identity.Identity) string {
	if is != nil {
		return "user " + is.Name
	}
	host, _, err := net.SplitHostPort(c.nc.RemoteAddr().String())
	if err != nil {
		return ""
	}
	return Network(host)
}

// Recheck applies the present users to the connected clients. It closes the connections of users
// whose access has ended, and those whose credential is removed from its user, and ends
// subscriptions that their users have lost the right to.
func (h *Hub) Recheck() {
	if h.auth == nil {
		return
	}
	for _, c := range h.list() {
		if e := c.recheck(); e != nil {
			c.closeWithError(e.Text(), reasonFor(e))
		}
	}
	h.settle()
}

// settle waits for the batches under way. Each holds the read lock of the index from the check of a
// message to its match, so whatever was checked by former rights is matched then.
func (h *Hub) settle() {
	h.lock.Lock()
	defer h.lock.Unlock()
}

// recheck applies the present rights of the connection's user. It returns an error if there are
// none; the caller closes the connection, and meanwhile it may do nothing.
func (c *Conn) recheck() *protocol.Error {
	h := c.hub
	h.mu.Lock()
	before := c.identity.Load()
	if before == nil || h.conns[c.id] != c {
		h.mu.Unlock()
		return nil
	}
	var e *protocol.Error
	is := h.auth.Again(before, c.by)
	switch {
	case is == nil:
		e = protocol.ErrUserRevoked
	case expired(is, time.Now()):
		e = protocol.ErrUserExpired
	}
	if e != nil {
		is = before.Revoked()
	}
	if is != before {
		c.become(is)
	}
	h.mu.Unlock()
	switch {
	case e != nil:
		h.drop(c)
	case is != before:
		h.reduce(c, is)
	}
	return e
}

// reduce ends the subscriptions that the user has no right to any more, and filters those that
// reach denied subjects. New subscriptions are checked already.
func (h *Hub) reduce(c *Conn, is *identity.Identity) {
	h.lock.RLock()
	subs := make([]*Sub, 0, len(c.subs))
	for _, s := range c.subs {
		subs = append(subs, s)
	}
	h.lock.RUnlock()
	var lost, filtered []*Sub
	for _, s := range subs {
		switch {
		case !is.MaySubscribe([]byte(s.pattern), []byte(s.queue)):
			lost = append(lost, s)
		case is.Filters(s.pattern, s.queue):
			filtered = append(filtered, s)
		}
	}
	for len(filtered) > 0 {
		n := min(len(filtered), dropChunk)
		h.lock.Lock()
		for _, s := range filtered[:n] {
			h.filter(s)
		}
		h.lock.Unlock()
		filtered = filtered[n:]
	}
	for len(lost) > 0 {
		n := min(len(lost), dropChunk)
		h.retire(lost[:n])
		for _, s := range lost[:n] {
			c.send(protocol.AppendErr(nil, protocol.SubscribeViolation([]byte(s.pattern), []byte(s.queue)).Text()), false)
		}
		lost = lost[n:]
	}
	h.reduceFeeds(c)
}

// mayPublish reports whether the client may publish on the subject.
func (c *Conn) mayPublish(to []byte) bool {
	is := c.identity.Load()
	if is.MayPublish(to) {
		return true
	}
	open := c.replies.Load()
	return open != nil && is.MayRespond(to) && open.take(to)
}

// violate logs and returns a violation of the client's rights.
func (c *Conn) violate(e *protocol.Error) error {
	c.hub.violations.Add(1)
	user := ""
	if is := c.identity.Load(); is != nil {
		user = is.Name
	}
	c.hub.notable.Info("A client has no right to this", "user", user, "address", c.nc.RemoteAddr().String(), "client", c.id, "violation", e.Text())
	return e
}

// expired reports whether the user's access has ended.
func expired(is *identity.Identity, now time.Time) bool {
	return is != nil && !is.Expires.IsZero() && !now.Before(is.Expires)
}
