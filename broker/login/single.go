package login

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/session"
)

// Single is the only user of a broker, who may do everything, or the bearer of its only token.
type Single struct {
	User, Password string
	Token          string
}

// Given reports whether there is one.
func (s Single) Given() bool { return s.User != "" || s.Token != "" }

// Nonce implements session.Authenticator.
func (s Single) Nonce() bool { return false }

// Again implements session.Authenticator.
func (s Single) Again(is *identity.Identity, _ *identity.Credential) *identity.Identity { return is }

// Authenticate implements session.Authenticator. Its duration does not depend on the credentials.
func (s Single) Authenticate(_ context.Context, c *session.Credentials) (*identity.Identity, *identity.Credential, error) {
	byUser := s.User != "" && same(s.User, c.User)&same(s.Password, c.Password) == 1
	byToken := s.Token != "" && same(s.Token, c.Token) == 1
	switch {
	case byUser:
		return identity.Single(s.User), nil, nil
	case byToken:
		return identity.Single("token"), nil, nil
	}
	return nil, nil, errSingle
}

func same(want, got string) int {
	w, g := sha256.Sum256([]byte(want)), sha256.Sum256([]byte(got))
	return subtle.ConstantTimeCompare(w[:], g[:])
}
