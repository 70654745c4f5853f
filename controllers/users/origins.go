package users

import (
	"crypto/sha256"
	"encoding/base64"

	corev1 "k8s.io/api/core/v1"
)

// origins are of which Secrets the verifiers of users are, so that they are not compared after a
// start. Each is a digest of the Secret's UID and resourceVersion and of the verifiers themselves,
// which are in etcd anyway: nothing in it is derived from a password but by way of its bcrypt hash.
// A change of the Secret, or of the verifiers in etcd, is another digest.
//
// Rejected: a digest of the password, even a keyed one. It would be as good as a verifier without
// bcrypt for whoever has the key.
type origins struct {
	from map[string]string // digest, by user
	seen map[string]string // version of the Secret that this process saw first, by user
}

// versionOf returns what changes with each change of a Secret; empty: it has no version.
func versionOf(s *corev1.Secret) string {
	if s.ResourceVersion == "" {
		return ""
	}
	return string(s.UID) + "/" + s.ResourceVersion
}

func digest(version string, verifiers []string) string {
	sum := sha256.New()
	sum.Write([]byte(version))
	for _, one := range verifiers {
		sum.Write([]byte{0})
		sum.Write([]byte(one))
	}
	return base64.RawURLEncoding.EncodeToString(sum.Sum(nil)[:12])
}

// hold reports whether the verifiers of a user were made from the Secret as it is.
func (o *origins) hold(c *candidate, verifiers []string) bool {
	return c.version != "" && len(verifiers) == len(c.hashes)+len(c.passwords) && o.from[c.user.Name] == digest(c.version, verifiers)
}

// changed reports whether the Secret is known to be another one than its user's verifiers are of.
func (o *origins) changed(c *candidate) bool {
	if _, known := o.from[c.user.Name]; known {
		return true // it does not hold
	}
	seen, ok := o.seen[c.user.Name]
	return ok && seen != c.version
}

// note remembers the Secrets of the users whose verifiers are right now, and forgets other users.
func (o *origins) note(candidates []*candidate, waiting map[*candidate]bool) {
	from, seen := map[string]string{}, map[string]string{}
	for _, c := range candidates {
		name := c.user.Name
		if first, ok := o.seen[name]; ok {
			seen[name] = first
		} else {
			seen[name] = c.version
		}
		if !waiting[c] {
			seen[name] = c.version
			if c.version != "" && len(c.user.Passwords) > 0 {
				from[name] = digest(c.version, c.user.Passwords)
			}
		} else if before, ok := o.from[name]; ok {
			from[name] = before
		}
	}
	o.from, o.seen = from, seen
}
