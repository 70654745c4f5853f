package pki

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// Kind is a kind of connections between the processes of one Broker. Each has a CA of its own, so
// that a certificate of one kind opens no connection of another.
type Kind string

// The kinds. Their text is the prefix of keys in the Secret.
const (
	Peer Kind = "peer" // between etcd's members
	Etcd Kind = "etcd" // from brokers and the operator to etcd
	Link Kind = "link" // between brokers
)

// Kinds are all kinds.
var Kinds = []Kind{Peer, Etcd, Link}

// Phase is a step of the change from one CA for all kinds, which earlier versions made, to a CA for
// each. It is part of the stored data, and each step is one write.
type Phase string

const (
	// Shared: one CA signs for all kinds, and there is no other.
	Shared Phase = "shared"
	// Announced: the CA of each kind is trusted beside the shared one, and signs nothing yet.
	Announced Phase = "announced"
	// Signing: the CA of each kind signs, and the shared one is still trusted.
	Signing Phase = "signing"
	// Separate: the shared CA is gone.
	Separate Phase = "separate"
)

// keyPhase is the key of the phase, unless that is Shared. Its value decides, and not which keys
// are missing: keys that somebody else applied, too, as in a restored Secret, stay there for good.
const keyPhase = "phase"

// Roots are the CAs of one Broker's processes.
type Roots struct {
	phase  Phase
	shared *Authority // nil in the phase Separate
	kinds  map[Kind]*Authority
}

// EnsureRoots returns the roots in data, each CA renewed if due, and the data to store. Empty data
// creates new ones. With separate a shared CA gets one for each kind beside it (Announced);
// without, it stays the only one. Unreadable data is an error and never replaced.
func EnsureRoots(name string, data map[string][]byte, separate bool, now time.Time, random io.Reader) (*Roots, map[string][]byte, error) {
	r := &Roots{kinds: map[Kind]*Authority{}}
	var err error
	if r.phase, err = phaseOf(data, separate); err != nil {
		return nil, nil, err
	}
	wanted := map[string][]byte{}
	if r.phase != Shared {
		wanted[keyPhase] = []byte(r.phase)
	}
	if r.phase != Separate {
		kept := ofKind(data, "")
		if len(data) > 0 && len(kept) == 0 {
			return nil, nil, fmt.Errorf("reading the CA: the keys %s, %s and %s are missing (restore the Secret; or delete it to have new CAs made)", keyBundle, keyCert, keyKey)
		}
		var shared map[string][]byte
		if r.shared, shared, err = EnsureAuthority(name, kept, now, random); err != nil {
			return nil, nil, err
		}
		maps.Copy(wanted, shared)
	}
	if r.phase == Shared {
		return r, wanted, nil
	}
	fresh := !hasKinds(data) && len(data[keyPhase]) == 0
	for _, kind := range Kinds {
		kept := ofKind(data, kind)
		if !fresh && len(kept) == 0 {
			return nil, nil, fmt.Errorf("reading the CA: the keys %s-* are missing (restore the Secret; or delete it to have new CAs made)", kind)
		}
		authority, kept, err := EnsureAuthority(string(kind)+"."+name, kept, now, random)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", kind, err)
		}
		r.kinds[kind] = authority
		for key, value := range kept {
			wanted[string(kind)+"-"+key] = value
		}
	}
	return r, wanted, nil
}

// phaseOf returns the phase to which data belong or, if separate is wanted, that in which the
// change begins.
func phaseOf(data map[string][]byte, separate bool) (Phase, error) {
	phase := Phase(data[keyPhase])
	switch {
	case phase == Announced || phase == Signing || phase == Separate:
		return phase, nil
	case phase != "":
		return "", fmt.Errorf("reading the CA: %s is %.40q, which this version does not know (restore the Secret; or delete it to have new CAs made)", keyPhase, phase)
	case hasKinds(data) && len(ofKind(data, "")) > 0:
		return Announced, nil // the phase was lost: in this one everything that was signed is trusted
	case hasKinds(data) || len(data) == 0 && separate:
		return Separate, nil
	case separate:
		return Announced, nil
	}
	return Shared, nil
}

// hasKinds reports whether data have the CA of any kind.
func hasKinds(data map[string][]byte) bool {
	return slices.ContainsFunc(Kinds, func(kind Kind) bool { return len(ofKind(data, kind)) > 0 })
}

// ofKind returns the part of data that one CA has; kind "" is the shared one.
func ofKind(data map[string][]byte, kind Kind) map[string][]byte {
	part := map[string][]byte{}
	prefix := ""
	if kind != "" {
		prefix = string(kind) + "-"
	}
	for _, key := range []string{keyBundle, keyCert, keyKey, keyNextCert, keyNextKey} {
		if value, ok := data[prefix+key]; ok {
			part[key] = value
		}
	}
	return part
}

// Phase returns where the change to a CA for each kind is.
func (r *Roots) Phase() Phase { return r.phase }

// Of returns the CAs of a kind as they are in force: those to trust, and the one that signs.
func (r *Roots) Of(kind Kind) *Authority {
	switch own := r.kinds[kind]; r.phase {
	case Shared:
		return r.shared
	case Announced:
		return &Authority{bundle: slices.Concat(r.shared.bundle, own.bundle), signer: r.shared.signer}
	case Signing:
		return &Authority{bundle: slices.Concat(r.shared.bundle, own.bundle), signer: own.signer}
	default:
		return own
	}
}

// Trust returns an identifier of the CAs that coordinators trust, which they read at their start
// only.
func (r *Roots) Trust() string {
	if r.phase == Shared {
		return r.shared.Trust()
	}
	sum := sha256.Sum256(bytes.Join([][]byte{r.Of(Peer).Bundle(), r.Of(Etcd).Bundle()}, []byte("\n")))
	return hex.EncodeToString(sum[:8])
}

// Fingerprint returns a keyed hash of parts, see Authority.Fingerprint.
func (r *Roots) Fingerprint(parts ...[]byte) string {
	if r.phase == Shared {
		return r.shared.Fingerprint(parts...)
	}
	return r.kinds[Link].Fingerprint(parts...)
}

// Begins reports whether wanted begin a change to several CAs, or make the first CAs, which found
// don't have.
func Begins(found, wanted map[string][]byte) bool { return hasKinds(wanted) && !hasKinds(found) }

// Advance returns data with the phase that follows: Signing after Announced, and then Separate.
// Data in another phase stay as they are.
func Advance(data map[string][]byte) map[string][]byte {
	next := maps.Clone(data)
	switch Phase(data[keyPhase]) {
	case Announced:
		next[keyPhase] = []byte(Signing)
	case Signing:
		maps.DeleteFunc(next, func(key string, _ []byte) bool {
			return !slices.ContainsFunc(Kinds, func(kind Kind) bool { return strings.HasPrefix(key, string(kind)+"-") })
		})
		next[keyPhase] = []byte(Separate)
	}
	return next
}

// Retreat returns data with the phase Announced instead of Signing, for pods that an operator of an
// earlier version made meanwhile: they trust the shared CA only. Data in another phase stay as they
// are.
func Retreat(data map[string][]byte) map[string][]byte {
	if Phase(data[keyPhase]) != Signing {
		return data
	}
	back := maps.Clone(data)
	back[keyPhase] = []byte(Announced)
	return back
}

// LeafAge returns how long ago the certificate in data was made; 0: there is none.
func LeafAge(data map[string][]byte, now time.Time) time.Duration {
	certs, err := decodeCerts(data[keyCert])
	if err != nil {
		return 0
	}
	return now.Sub(certs[0].NotBefore.Add(backdate))
}
