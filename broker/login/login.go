package login

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
)

// Login authenticates clients by a table of users. Its methods are safe for concurrent use.
type Login struct {
	table  atomic.Pointer[identity.Table]
	turns  turns
	secret [32]byte // key of known
	decoy  []byte   // compared if no user has a password
	behalf *identity.Behalf

	mu    sync.Mutex
	known map[string]*passwords // by user
}

// passwords are those of one user that were right.
type passwords struct {
	hashes [][]byte // what they were compared with
	right  []right  // at most maxKnown
}

// right is a password that a hash verified.
type right struct {
	sum [32]byte // keyed hash of the password
	by  *identity.Credential
}

// maxWait bounds how long a client waits for its turn. Until then it takes one of the broker's
// connections, also if it has left, and most clients leave after 2 s.
const maxWait = 10 * time.Second

// maxKnown is how many passwords of a user are remembered: an old and a new one in each form.
const maxKnown = 4

// New returns a Login with a table.
func New(t *identity.Table) (*Login, error) {
	l := &Login{turns: turns{free: max(1, runtime.GOMAXPROCS(0)/2)}, known: make(map[string]*passwords)}
	if _, err := rand.Read(l.secret[:]); err != nil {
		return nil, err
	}
	l.behalf = identity.NewBehalf(l.table.Load)
	var err error
	if l.decoy, err = bcrypt.GenerateFromPassword(l.secret[:], bcrypt.DefaultCost); err != nil {
		return nil, err
	}
	l.Set(t)
	return l, nil
}

// Set replaces the users. What is remembered of users whose passwords did not change stays.
func (l *Login) Set(t *identity.Table) {
	defer l.behalf.Changed()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.Store(t)
	for name, has := range l.known {
		if user := t.User(name); user == nil || !slices.EqualFunc(user.Passwords, has.hashes, slices.Equal[[]byte]) {
			delete(l.known, name)
		}
	}
}

// Behalf decides what a broker may do on behalf of the present users.
func (l *Login) Behalf() *identity.Behalf { return l.behalf }

// Nonce implements session.Authenticator.
func (l *Login) Nonce() bool { return l.table.Load().UsesKeys() }

// Again implements session.Authenticator.
func (l *Login) Again(is *identity.Identity, by *identity.Credential) *identity.Identity {
	return l.table.Load().Still(is.Name, by)
}

// The reasons of refusals, for the log.
var (
	errNothing  = errors.New("it gave no credentials")
	errJWT      = errors.New("it gave a JWT, which is not supported (use a password, a token, an nkey or a client certificate)")
	errKey      = errors.New("the nkey is unknown, or its signature is wrong")
	errToken    = errors.New("the token is unknown")
	errPassword = errors.New("there is no such user, or the password is wrong")
	errSingle   = errors.New("the user, its password or the token is wrong")
)

// Authenticate implements session.Authenticator.
func (l *Login) Authenticate(ctx context.Context, c *session.Credentials) (is *identity.Identity, by *identity.Credential, err error) {
	for t := (*identity.Table)(nil); l.table.Load() != t; { // the users may change meanwhile
		t = l.table.Load()
		is, by, err = l.identify(ctx, t, c)
	}
	if err == nil && !is.Expires.IsZero() && !time.Now().Before(is.Expires) {
		return nil, nil, session.ErrExpired
	}
	return is, by, err
}

func (l *Login) identify(ctx context.Context, t *identity.Table, c *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	switch {
	case c.NKey != "":
		return found(t.OfKey(c.NKey, c.Signature, c.Nonce), identity.ByKey(c.NKey), errKey)
	case c.JWT != "":
		return nil, nil, errJWT
	case c.Token != "":
		sum := sha256.Sum256([]byte(c.Token))
		return found(t.OfToken(sum), identity.ByToken(sum), errToken)
	case c.User != "" || c.Password != "":
		return l.byPassword(ctx, t, c)
	}
	all := names(c.Certificate)
	for _, name := range all {
		if is := t.OfCertificate(name); is != nil {
			return is, identity.ByCertificate(all), nil
		}
	}
	return found(t.Anonymous(), identity.ByNothing(), errNothing)
}

func found(is *identity.Identity, by *identity.Credential, or error) (*identity.Identity, *identity.Credential, error) {
	if is == nil {
		return nil, nil, or
	}
	return is, by, nil
}

// names returns the names in a certificate, as identity.User has them.
func names(of *x509.Certificate) (all []string) {
	if of == nil {
		return nil
	}
	for _, name := range of.EmailAddresses {
		all = append(all, "email:"+name)
	}
	for _, name := range of.DNSNames {
		all = append(all, "dns:"+name)
	}
	for _, uri := range of.URIs {
		all = append(all, "uri:"+uri.String())
	}
	return append(all, of.Subject.String())
}

// byPassword compares a password.
func (l *Login) byPassword(ctx context.Context, t *identity.Table, c *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	user := t.User(c.User)
	mac := hmac.New(sha256.New, l.secret[:])
	mac.Write([]byte(c.User))
	mac.Write([]byte{0})
	mac.Write([]byte(c.Password))
	sum := [32]byte(mac.Sum(nil))
	if by := l.knows(user, sum); by != nil {
		return user.Identity, by, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	if !l.turns.take(ctx, session.Network(c.Address)) {
		return nil, nil, session.ErrBusy
	}
	defer l.turns.leave()
	if by := l.knows(user, sum); by != nil { // another connection was first
		return user.Identity, by, nil
	}
	if user == nil || len(user.Passwords) == 0 {
		for _, hash := range l.decoys(t, c.User) {
			_ = bcrypt.CompareHashAndPassword(hash, []byte(c.Password))
		}
		return nil, nil, errPassword
	}
	for _, hash := range user.Passwords {
		if bcrypt.CompareHashAndPassword(hash, []byte(c.Password)) == nil {
			by := identity.ByPassword(hash)
			l.learn(user, right{sum, by})
			return user.Identity, by, nil
		}
	}
	return nil, nil, errPassword
}

// decoys returns what is compared for a name that has no passwords: the hashes of a user, so that
// their number and cost tell nothing, and always of the same one.
func (l *Login) decoys(t *identity.Table, name string) [][]byte {
	mac := hmac.New(sha256.New, l.secret[:])
	mac.Write([]byte(name))
	if user := t.Decoy(binary.BigEndian.Uint64(mac.Sum(nil))); user != nil {
		return user.Passwords
	}
	return [][]byte{l.decoy}
}

// knows returns what verified a password that is remembered; nil: it is not.
func (l *Login) knows(user *identity.Entry, sum [32]byte) *identity.Credential {
	if user == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	has := l.known[user.Name]
	if has == nil || !slices.EqualFunc(user.Passwords, has.hashes, slices.Equal[[]byte]) {
		return nil
	}
	for _, known := range has.right {
		if known.sum == sum {
			return known.by
		}
	}
	return nil
}

// learn remembers a right password, unless the user's hashes have changed meanwhile.
func (l *Login) learn(user *identity.Entry, r right) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.table.Load().User(user.Name)
	if now == nil || !slices.EqualFunc(user.Passwords, now.Passwords, slices.Equal[[]byte]) {
		return
	}
	has := l.known[user.Name]
	if has == nil {
		has = &passwords{hashes: user.Passwords}
		l.known[user.Name] = has
	}
	if len(has.right) == maxKnown {
		has.right = has.right[1:]
	}
	has.right = append(has.right, r)
}
