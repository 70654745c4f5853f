package session

import (
	"crypto/sha256"
	"crypto/subtle"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// Auth decides which clients may connect: any client (the zero value), one user, or the bearer of a
// token.
type Auth struct {
	User, Password string
	Token          string
}

// Required reports whether clients must authenticate.
func (a Auth) Required() bool { return a.User != "" || a.Token != "" }

// Allows reports whether the credentials are right. Its duration does not depend on them.
func (a Auth) Allows(c *protocol.Connect) bool {
	if !a.Required() {
		return true
	}
	byUser := a.User != "" && same(a.User, c.User)&same(a.Password, c.Password) == 1
	byToken := a.Token != "" && same(a.Token, c.Token) == 1
	return byUser || byToken
}

func same(want, got string) int {
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(w[:], g[:])
}
