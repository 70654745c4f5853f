package users

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"

	"golang.org/x/crypto/bcrypt"
)

// hashes makes verifiers of the passwords of one Broker, and remembers of which passwords they are.
type hashes struct {
	key   [32]byte // of this process, so that what is remembered is no verifier itself
	known map[string][32]byte
	cost  int
	origins
}

func newHashes(cost int) *hashes {
	h := &hashes{known: map[string][32]byte{}, cost: cost}
	_, _ = rand.Read(h.key[:]) // never fails
	return h
}

// turns is how many more hashes a pass computes; each takes a tenth of a second of a core.
type turns int

func (t *turns) take() bool {
	if *t <= 0 {
		return false
	}
	*t--
	return true
}

// of returns the verifier of a password: one of those before if it is right, or a new one. It
// returns "" if no turns are left.
func (h *hashes) of(password string, before []string, left *turns) (string, error) {
	mac := hmac.New(sha256.New, h.key[:])
	mac.Write([]byte(password))
	sum := [32]byte(mac.Sum(nil))
	for _, hash := range before {
		if of, ok := h.known[hash]; ok && of == sum {
			return hash, nil
		}
	}
	for _, hash := range before {
		if _, ok := h.known[hash]; ok {
			continue // of another password
		}
		if !left.take() {
			return "", nil
		}
		if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
			h.known[hash] = sum
			return hash, nil
		}
	}
	if !left.take() {
		return "", nil
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), h.cost)
	if err != nil {
		return "", err
	}
	h.known[string(hash)] = sum
	return string(hash), nil
}

// keep forgets all verifiers but these.
func (h *hashes) keep(these map[string]bool) {
	for hash := range h.known {
		if !these[hash] {
			delete(h.known, hash)
		}
	}
}
