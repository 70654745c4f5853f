package users

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nkeys"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/carillon-mq/carillon/broker/identity"
)

// OperatorName is the user that the operator itself is, which no Secret may be.
const OperatorName = "carillon-operator-alerts"

// The keys of a user's Secret.
const (
	keyUsername         = "username"
	keyPassword         = "password"
	keyPreviousPassword = "previousPassword"
	keyPasswordHash     = "passwordHash"
	keyToken            = "token"
	keyPreviousToken    = "previousToken"
	keyNKey             = "nkey"
	keyCertificate      = "certificate"
	keyRights           = "user.yaml"
)

// maxPassword is the longest password that bcrypt looks at, in bytes.
const maxPassword = 72

// candidate is what one Secret says. Its user has no verifiers of passwords yet.
type candidate struct {
	secret    string
	version   string // of the Secret
	user      identity.User
	passwords []string // to be hashed
	hashes    []string // given as hashes
}

// rights is the content of user.yaml.
type rights struct {
	Roles       []identity.Role       `json:"roles"`
	Permissions *identity.Permissions `json:"permissions"`
	Limits      identity.Limits       `json:"limits"`
	Expires     time.Time             `json:"expires"`
}

// read reads a Secret. Its errors show no value of it but those of user.yaml, which has no secrets.
func read(s *corev1.Secret) (c candidate, err error) {
	c = candidate{secret: s.Name, version: versionOf(s), user: identity.User{Name: s.Name}}
	if name, ok := s.Data[keyUsername]; ok {
		if c.user.Name = strings.TrimSpace(string(name)); c.user.Name == "" {
			return c, errors.New("username is empty: write a name, or leave the key out for that of the Secret")
		}
	}
	for _, key := range []string{keyPassword, keyPreviousPassword} {
		password, ok := s.Data[key]
		switch {
		case !ok:
			continue
		case len(password) == 0:
			return c, fmt.Errorf("%s is empty: write one, or leave the key out", key)
		case len(password) > maxPassword:
			return c, fmt.Errorf("%s has more than %d bytes, and bcrypt looks at no more: write a shorter one", key, maxPassword)
		}
		c.passwords = append(c.passwords, string(password))
	}
	if len(c.passwords) == 2 && c.passwords[0] == c.passwords[1] {
		c.passwords = c.passwords[:1]
	}
	for _, key := range []string{keyToken, keyPreviousToken} {
		token, ok := s.Data[key]
		if !ok {
			continue
		}
		if len(token) == 0 {
			return c, fmt.Errorf("%s is empty: write one, or leave the key out", key)
		}
		sum := sha256.Sum256(token)
		c.user.Tokens = append(c.user.Tokens, "sha256:"+hex.EncodeToString(sum[:]))
	}
	c.hashes, c.user.NKeys, c.user.Certificates = lines(s.Data[keyPasswordHash]), lines(s.Data[keyNKey]), lines(s.Data[keyCertificate])
	for _, key := range c.user.NKeys {
		if !nkeys.IsValidPublicUserKey(key) { // it may be a seed, so that no message shows it
			return c, errors.New("nkey has a line that is not a user's public key, which begins with U")
		}
	}
	if text, ok := s.Data[keyRights]; ok {
		var r rights
		if err := yaml.UnmarshalStrict(text, &r); err != nil {
			return c, fmt.Errorf("user.yaml: %s", strings.ReplaceAll(err.Error(), "\n", " "))
		}
		c.user.Roles, c.user.Permissions, c.user.Limits, c.user.Expires = r.Roles, r.Permissions, r.Limits, r.Expires
	}
	return c, nil
}

// authenticates reports whether the user can prove itself.
func (c *candidate) authenticates() bool {
	return len(c.passwords)+len(c.hashes)+len(c.user.Tokens)+len(c.user.NKeys)+len(c.user.Certificates) > 0
}

func lines(text []byte) (all []string) {
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}
