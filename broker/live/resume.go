package live

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/query"
)

// token says what a client knows of its query. Clients keep it as a string, and give it to any
// broker when they open the query again. The zero token is of nothing that a client knows.
type token struct {
	history  string // of etcd (attribute.Stats): what the revision counts in
	revision uint64 // the client knows all changes up to it,
	latest   uint64 // and perhaps some up to this one
	// query is a digest of the condition and of what the user may subscribe to. A difference is of
	// no use to who knew the members of another query, or with other rights.
	query uint64
}

// tokenVersion begins tokens of this form.
const tokenVersion = "1"

// String returns the token as clients get it.
func (t token) String() string {
	return fmt.Sprintf("%s.%s.%x.%x.%x", tokenVersion, t.history, t.revision, t.latest, t.query)
}

var errToken = errors.New("it is none that a notice of a query had (give the last one, or leave it out)")

// parseToken returns a client's token. One of another version is that of nothing.
func parseToken(text string) (t token, err error) {
	version, rest, more := strings.Cut(text, ".")
	if len(text) > maxToken || !more {
		return t, errToken
	}
	if version != tokenVersion {
		if _, err := strconv.ParseUint(version, 10, 16); err != nil {
			return t, errToken
		}
		return t, nil
	}
	parts := strings.Split(rest, ".")
	if len(parts) != 4 || parts[0] == "" {
		return t, errToken
	}
	t.history = parts[0]
	if t.revision, err = strconv.ParseUint(parts[1], 16, 63); err != nil {
		return token{}, errToken
	}
	if t.latest, err = strconv.ParseUint(parts[2], 16, 63); err != nil {
		return token{}, errToken
	}
	if t.query, err = strconv.ParseUint(parts[3], 16, 64); err != nil {
		return token{}, errToken
	}
	return t, nil
}

// digest returns that of a query for a user with some rights (identity.SubscribeDigest).
func digest(asks *query.Query, subjects string, rights uint64) uint64 {
	text := binary.BigEndian.AppendUint64(nil, rights)
	text = append(append(append(text, subjects...), '\n'), asks.Key()...)
	sum := sha256.Sum256(text)
	return binary.BigEndian.Uint64(sum[:])
}

// resumable returns the token with which a client goes on after what it is told now. It is empty if
// the client has not been told all members yet, or if nobody knows them. mu is held.
func (s *Server) resumable(q *live) string {
	if !q.whole || s.doubted || s.history == "" {
		return ""
	}
	revision := min(s.newest, s.set.Revision())
	return token{s.history, revision, max(revision, s.latest), digest(q.asks, q.of.Subjects, q.rights)}.String()
}

// ahead reports whether the token is of a broker that knows more than this one. Without that this
// one could take for a member what the client knows to have left. mu is held.
func (s *Server) ahead(t token) bool {
	return t.history == s.history && t.latest > s.set.Revision()
}

// resumes reports whether the difference since a token can be told, if changes since then are
// known. mu is held.
func (s *Server) resumes(t token, q *live) bool {
	return t.history != "" && t.history == s.history && !s.doubted && t.latest <= s.set.Revision() &&
		t.query == digest(q.asks, q.of.Subjects, q.rights)
}
