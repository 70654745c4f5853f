package users

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"slices"

	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker/identity"
)

// maxRefuted bounds the passwords that one verifier is remembered not to be of: a Secret has two at
// a time, and those of before are of no use.
const maxRefuted = 8

// hashes makes verifiers of the passwords of one Broker, and remembers of which passwords they are,
// and of which not. Passwords are remembered as keyed sums.
type hashes struct {
	key     [32]byte // of this process, so that what is remembered is no verifier itself
	known   map[string][32]byte
	refuted map[string]map[[32]byte]bool
	// found are the verifiers of the present passwords, by user. etcd has them only once they are
	// written, and never if the user is refused. Without this, each pass would make them again.
	found map[string][]string
	cost  int
	line  line
	origins
}

func newHashes(cost int) *hashes {
	h := &hashes{known: map[string][32]byte{}, refuted: map[string]map[[32]byte]bool{}, cost: cost}
	_, _ = rand.Read(h.key[:]) // never fails
	return h
}

func (h *hashes) sum(password string) [32]byte {
	mac := hmac.New(sha256.New, h.key[:])
	mac.Write([]byte(password))
	return [32]byte(mac.Sum(nil))
}

func (h *hashes) refute(hash string, sum [32]byte) {
	if h.refuted[hash] == nil || len(h.refuted[hash]) == maxRefuted {
		h.refuted[hash] = map[[32]byte]bool{}
	}
	h.refuted[hash][sum] = true
}

// keep forgets all verifiers but these.
func (h *hashes) keep(these map[string]bool) {
	for hash := range h.known {
		if !these[hash] {
			delete(h.known, hash)
		}
	}
	for hash := range h.refuted {
		if !these[hash] {
			delete(h.refuted, hash)
		}
	}
}

// verifiers are those of one Secret's passwords, as far as they are known.
type verifiers struct {
	c    *candidate
	was  []string   // in etcd
	sums [][32]byte // of the passwords
	of   []string   // of each password; "": not known
	open []string   // of was: they may be of a password whose verifier is not known
}

// look returns what is known of a Secret's passwords without computing a hash.
func (h *hashes) look(c *candidate, was []string) *verifiers {
	v := &verifiers{c: c, was: was, of: make([]string, len(c.passwords))}
	for i, password := range c.passwords {
		v.sums = append(v.sums, h.sum(password))
		for _, hash := range slices.Concat(was, h.found[c.user.Name]) {
			if sum, ok := h.known[hash]; ok && sum == v.sums[i] && !slices.Contains(c.hashes, hash) {
				v.of[i] = hash
				break
			}
		}
	}
	for _, hash := range was {
		if !slices.Contains(c.hashes, hash) {
			v.open = append(v.open, hash)
		}
	}
	v.settle(h)
	return v
}

// settle closes verifiers of which it is known whether they are of a password.
func (v *verifiers) settle(h *hashes) {
	v.open = slices.DeleteFunc(v.open, func(hash string) bool {
		if _, known := h.known[hash]; known {
			return true
		}
		for i, of := range v.of {
			if of == "" && !h.refuted[hash][v.sums[i]] {
				return false
			}
		}
		return true
	})
}

// compare looks for verifiers of the passwords among the open ones, while there are turns.
func (h *hashes) compare(v *verifiers, left *turns) {
	defer v.settle(h)
	for i, password := range v.c.passwords {
		for _, hash := range v.open {
			if _, known := h.known[hash]; known || v.of[i] != "" || h.refuted[hash][v.sums[i]] {
				continue
			}
			if !left.take() {
				return
			}
			if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) == nil {
				h.known[hash], v.of[i] = v.sums[i], hash
			} else {
				h.refute(hash, v.sums[i])
			}
		}
	}
}

// complete finds or makes the verifiers of all passwords, while there are turns.
func (h *hashes) complete(v *verifiers, left *turns) {
	if h.compare(v, left); len(v.open) > 0 {
		return // one of them may be right, and clients have proved themselves by it
	}
	for i, password := range v.c.passwords {
		if v.of[i] != "" {
			continue
		}
		if !left.take() {
			return
		}
		hash, err := bcrypt.GenerateFromPassword([]byte(password), h.cost)
		if err != nil {
			return // it waits for a later pass
		}
		h.known[string(hash)], v.of[i] = v.sums[i], string(hash)
	}
}

// list returns the verifiers of the user, and whether these are of all its passwords. If not, those
// in etcd that hold or may hold go first: there may be more than brokers take.
func (v *verifiers) list() (all []string, whole bool) {
	if !slices.Contains(v.of, "") {
		return append(slices.Clone(v.c.hashes), v.of...), true
	}
	for _, hash := range v.was {
		if slices.Contains(v.c.hashes, hash) || slices.Contains(v.of, hash) || slices.Contains(v.open, hash) {
			all = append(all, hash)
		}
	}
	for _, hash := range slices.Concat(v.c.hashes, v.of) {
		if hash != "" && !slices.Contains(all, hash) && len(all) < identity.MaxVerifiers {
			all = append(all, hash)
		}
	}
	return all, false
}
