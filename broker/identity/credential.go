package identity

import (
	"encoding/hex"
	"slices"
)

// Credential is what a client proved itself by, as users list it: a verifier or a name, and never a
// secret. It never changes. The zero value is that of a client that gave nothing.
type Credential struct {
	kind kind
	// listed has one element; those of a certificate are all names in it.
	listed []string
}

type kind uint8

const (
	nothing kind = iota
	password
	token
	key
	certificate
)

// ByPassword returns the credential of a client whose password the bcrypt hash verified.
func ByPassword(hash []byte) *Credential { return &Credential{password, []string{string(hash)}} }

// ByToken returns the credential of the bearer of a token with that SHA-256.
func ByToken(sum [32]byte) *Credential {
	return &Credential{token, []string{tokenPrefix + hex.EncodeToString(sum[:])}}
}

// ByKey returns the credential of the owner of a public key.
func ByKey(public string) *Credential { return &Credential{key, []string{public}} }

// ByCertificate returns the credential of a client with these names in its certificate.
func ByCertificate(names []string) *Credential { return &Credential{certificate, names} }

// ByNothing returns the credential of a client that gave nothing.
func ByNothing() *Credential { return &Credential{} }

// Still returns the present identity of the user who proved itself by the credential; nil: there is
// no such user, or it does not list the credential any more. A certificate counts as listed while
// any name in it is.
func (t *Table) Still(user string, by *Credential) *Identity {
	entry := t.byName[user]
	if entry == nil || !t.lists(entry, by) {
		return nil
	}
	return entry.Identity
}

func (t *Table) lists(user *Entry, by *Credential) bool {
	if by.kind == nothing {
		return t.anonymous == user.Identity
	}
	return slices.ContainsFunc(by.listed, func(one string) bool {
		switch by.kind {
		case password:
			return slices.ContainsFunc(user.Passwords, func(hash []byte) bool { return string(hash) == one })
		case token:
			sum, err := parseToken(one)
			return err == nil && t.byToken[sum] == user.Identity
		case key:
			return t.byKey[one] == user.Identity
		}
		return t.byCert[one] == user.Identity
	})
}
