package identity

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	"golang.org/x/crypto/bcrypt"
)

// Document describes the users of a broker. It has verifiers of secrets, and no secrets.
type Document struct {
	Users []User `json:"users"`
	// Default are the permissions of users without any; nil: everything.
	Default *Permissions `json:"defaultPermissions,omitempty"`
	// Anonymous is the name of the user that a client is which gives no credentials; empty: such
	// clients are refused.
	Anonymous string `json:"anonymous,omitempty"`
}

// User is one user. It authenticates by any of what is given.
type User struct {
	Name string `json:"name"`
	// Passwords are bcrypt hashes. During a rotation there are two.
	Passwords []string `json:"passwords,omitempty"`
	// Tokens are hashes of tokens, "sha256:" and 64 hexadecimal digits each.
	Tokens []string `json:"tokens,omitempty"`
	// NKeys are public keys of users, which begin with U.
	NKeys []string `json:"nkeys,omitempty"`
	// Certificates are names in client certificates: a subject such as "CN=ann,O=acme", or
	// "dns:NAME", "email:ADDRESS" or "uri:URI".
	Certificates []string     `json:"certificates,omitempty"`
	Roles        []Role       `json:"roles,omitzero"` // nil: publisher and subscriber
	Permissions  *Permissions `json:"permissions,omitempty"`
	Limits       Limits       `json:"limits,omitzero"`
	Expires      time.Time    `json:"expires,omitzero"`
}

// Bounds of a Document.
const (
	// MaxDocument is the largest document in bytes: 10,000 users with a few patterns each.
	MaxDocument = 8 << 20
	// MaxUsers bounds the memory of a Table.
	MaxUsers = 10_000
	maxName  = 256
	// MaxVerifiers bounds the hashes of passwords of one user, since each costs a tenth of a second.
	MaxVerifiers = 4
	// maxCost bounds the cost of a hash: 12 takes a quarter of a second of a core.
	maxCost = 12
)

// Table is a checked Document. It never changes.
type Table struct {
	anonymous *Identity
	byName    map[string]*Entry
	guarded   []*Entry // users with passwords
	byToken   map[[32]byte]*Identity
	byKey     map[string]*Identity
	byCert    map[string]*Identity
	limited   bool // a user has a limit of what it makes
}

// Entry is a user who authenticates by a password.
type Entry struct {
	*Identity
	Passwords [][]byte // bcrypt hashes
}

// Parse reads a document as JSON. An error names the user and the field, and no verifier.
func Parse(text []byte) (*Document, error) {
	if len(text) > MaxDocument {
		return nil, fmt.Errorf("%d bytes; at most %d are read", len(text), MaxDocument)
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	var doc Document
	if err := d.Decode(&doc); err != nil {
		return nil, fmt.Errorf("not a document of users: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("not a document of users: there is more behind it")
	}
	return &doc, nil
}

// UserError is a mistake in the description of a user. It shows no verifier.
type UserError struct {
	User string
	Err  error
}

func (e *UserError) Error() string { return fmt.Sprintf("user %q: %v", e.User, e.Err) }

// Unwrap returns the mistake.
func (e *UserError) Unwrap() error { return e.Err }

// Table checks and compiles the document. It returns the first mistake.
func (d *Document) Table() (*Table, error) {
	t, mistakes := d.Valid()
	if len(mistakes) > 0 {
		return nil, mistakes[0]
	}
	return t, nil
}

// Valid compiles what is right of the document, and returns all mistakes, those of users as a
// *UserError. A wrong user is left out. Of two users with one name or credential, the first is
// right. With wrong default permissions, users without permissions have no rights.
func (d *Document) Valid() (t *Table, mistakes []error) {
	users := d.Users
	if len(users) > MaxUsers {
		mistakes = append(mistakes, fmt.Errorf("%d users; at most %d are possible", len(users), MaxUsers))
		users = users[:MaxUsers]
	}
	t = &Table{
		byName: make(map[string]*Entry, len(users)), byToken: make(map[[32]byte]*Identity),
		byKey: make(map[string]*Identity), byCert: make(map[string]*Identity),
	}
	fallback, err := d.Default.compile()
	if err != nil {
		mistakes = append(mistakes, fmt.Errorf("defaultPermissions: %w", err))
		fallback = noRights()
	}
	for i := range users {
		u := &users[i]
		if u.Name == "" || len(u.Name) > maxName || u.Name == Unknown {
			mistakes = append(mistakes, fmt.Errorf("user %d: a name has 1 to %d bytes", i+1, maxName))
		} else if err := t.add(u, fallback, d.Default); err != nil {
			mistakes = append(mistakes, &UserError{u.Name, err})
		}
	}
	if d.Anonymous != "" {
		if entry := t.byName[d.Anonymous]; entry != nil {
			t.anonymous = entry.Identity
		} else {
			mistakes = append(mistakes, fmt.Errorf("anonymous: there is no user %q", d.Anonymous))
		}
	}
	return t, mistakes
}

// add adds a user. fallback are the rights of one without permissions, and shown is where they are
// from. After an error the table is as before.
func (t *Table) add(u *User, fallback *rights, shown *Permissions) (err error) {
	if t.byName[u.Name] != nil {
		return errors.New("is there twice")
	}
	is := &Identity{Name: u.Name, Expires: u.Expires, Limits: u.Limits, Permissions: shown, rights: fallback}
	if err := u.Limits.check(); err != nil {
		return err
	}
	if is.Roles, err = parseRoles(u.Roles); err != nil {
		return err
	}
	if u.Permissions != nil {
		if is.rights, err = u.Permissions.compile(); err != nil {
			return err
		}
		is.Permissions = u.Permissions
	}
	entry := &Entry{Identity: is}
	if len(u.Passwords) > MaxVerifiers {
		return fmt.Errorf("passwords: %d; give at most %d", len(u.Passwords), MaxVerifiers)
	}
	for _, hash := range u.Passwords {
		cost, err := bcrypt.Cost([]byte(hash))
		if err != nil {
			return errors.New("passwords: not a bcrypt hash, which begins with $2a$ (make one with: carillon user hash)")
		}
		if cost > maxCost {
			return fmt.Errorf("passwords: a hash of cost %d; use at most %d", cost, maxCost)
		}
		entry.Passwords = append(entry.Passwords, []byte(hash))
	}
	var tokens [][32]byte
	for _, text := range u.Tokens {
		sum, err := parseToken(text)
		if err != nil {
			return err
		}
		if err := free(t.byToken, sum, "token"); err != nil {
			return err
		}
		tokens = append(tokens, sum)
	}
	for _, key := range u.NKeys {
		if !nkeys.IsValidPublicUserKey(key) {
			return fmt.Errorf("nkeys: %.60q is not a user's public key, which begins with U", key)
		}
		if err := free(t.byKey, key, "nkey"); err != nil {
			return err
		}
	}
	for _, name := range u.Certificates {
		if name == "" {
			return errors.New("certificates: an empty name")
		}
		if err := free(t.byCert, name, "name of a certificate"); err != nil {
			return err
		}
	}
	t.byName[u.Name] = entry
	t.limited = t.limited || u.Limits.Streams > 0 || u.Limits.Consumers > 0 || u.Limits.StoredBytes > 0
	if len(entry.Passwords) > 0 {
		t.guarded = append(t.guarded, entry)
	}
	claim(t.byToken, tokens, is)
	claim(t.byKey, u.NKeys, is)
	claim(t.byCert, u.Certificates, is)
	return nil
}

// free returns an error if another user has the credential.
func free[K comparable](in map[K]*Identity, key K, what string) error {
	if other := in[key]; other != nil {
		return fmt.Errorf("has the same %s as user %q", what, other.Name)
	}
	return nil
}

// claim notes whose credentials they are.
func claim[K comparable](in map[K]*Identity, keys []K, is *Identity) {
	for _, key := range keys {
		in[key] = is
	}
}

// tokenPrefix begins the verifier of a token.
const tokenPrefix = "sha256:"

// parseToken returns the SHA-256 in the verifier of a token.
func parseToken(verifier string) (sum [32]byte, err error) {
	digits, found := strings.CutPrefix(verifier, tokenPrefix)
	decoded, err := hex.DecodeString(digits)
	if !found || err != nil || len(decoded) != len(sum) {
		return sum, errors.New("tokens: not sha256: and 64 hexadecimal digits (make one with: carillon user token)")
	}
	return [32]byte(decoded), nil
}

// User returns the user of that name with its passwords, or nil.
func (t *Table) User(name string) *Entry { return t.byName[name] }

// Decoy returns the user with passwords that a number chooses; nil: there is none.
func (t *Table) Decoy(number uint64) *Entry {
	if len(t.guarded) == 0 {
		return nil
	}
	return t.guarded[number%uint64(len(t.guarded))]
}

// Len returns the number of users.
func (t *Table) Len() int { return len(t.byName) }

// Anonymous returns who a client without credentials is; nil: it is refused.
func (t *Table) Anonymous() *Identity { return t.anonymous }

// OfToken returns the bearer of a token with that SHA-256, or nil.
func (t *Table) OfToken(sum [32]byte) *Identity { return t.byToken[sum] }

// OfCertificate returns the user with a name in a certificate, or nil.
func (t *Table) OfCertificate(name string) *Identity { return t.byCert[name] }

// UsesKeys reports whether a client may have to sign a nonce.
func (t *Table) UsesKeys() bool { return len(t.byKey) > 0 }

// OfKey returns the owner of the public key, if it signed the nonce. A signature is in base64.
func (t *Table) OfKey(public, signature, nonce string) *Identity {
	is := t.byKey[public]
	if is == nil || nonce == "" {
		return nil
	}
	sig, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		if sig, err = base64.StdEncoding.DecodeString(signature); err != nil {
			return nil
		}
	}
	key, err := nkeys.FromPublicKey(public)
	if err != nil || key.Verify([]byte(nonce), sig) != nil {
		return nil
	}
	return is
}
