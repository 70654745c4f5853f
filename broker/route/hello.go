package route

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/carillon-mq/carillon/broker/coordination"
)

const (
	helloMagic = "carillon-route"

	// Kinds of connections: a link, or one on which a follower fetches shards (package replica).
	kindCore        = "core"
	kindReplication = "replication"
)

// hello is the first frame in each direction. Unknown fields are ignored, so that later versions
// may add fields.
type hello struct {
	Magic      string `json:"magic"`
	Newest     int    `json:"version"`
	Oldest     int    `json:"oldestVersion"`
	Kind       string `json:"kind"`
	Cluster    string `json:"cluster"` // namespace/name of the Broker
	ID         string `json:"id"`
	Name       string `json:"name"`
	Session    string `json:"session"` // random, new with each process
	MaxPayload int    `json:"maxPayload"`
	// Features lists what the sender understands beyond the protocol version.
	Features coordination.FeatureSet `json:"features,omitempty"`
}

// Cause is the reason of a refusal, from a closed list, for logs and metrics.
type Cause string

// The causes of a refusal.
const (
	CauseMalformed Cause = "malformed" // not the link protocol, or a broken frame
	CauseVersion   Cause = "version"   // no common version of the protocol
	CauseCluster   Cause = "cluster"   // a broker of another cluster
	CauseSelf      Cause = "self"      // the peer has this broker's own id
	CauseIdentity  Cause = "identity"  // another broker than the one expected at that address
	CauseMember    Cause = "member"    // the peer is not registered
	CauseLinked    Cause = "linked"    // a live link exists
	CauseClosing   Cause = "closing"   // this broker is shutting down
	CauseTLS       Cause = "tls"       // no TLS, or no certificate of this cluster
	CauseTimeout   Cause = "timeout"   // no hello in time
	CauseEvicted   Cause = "evicted"   // no hello yet, and too many newer connections
)

// Refusal is the error for a connection that one of the two brokers rejected.
type Refusal struct {
	Cause Cause  `json:"cause"`
	Text  string `json:"text"`
}

func (r *Refusal) Error() string { return r.Text }

func refuse(cause Cause, format string, args ...any) *Refusal {
	return &Refusal{Cause: cause, Text: fmt.Sprintf(format, args...)}
}

// parseHello decodes the body of a hello frame.
func parseHello(body []byte) (hello, *Refusal) {
	var h hello
	if err := json.Unmarshal(body, &h); err != nil {
		return hello{}, refuse(CauseMalformed, "the first frame is no hello: %v", err)
	}
	if h.Magic != helloMagic {
		return hello{}, refuse(CauseMalformed, "the first frame is no hello: it starts with %.40q", h.Magic)
	}
	return h, nil
}

// judge returns why own and peer may not connect for one of the given kinds, or nil.
func (own hello) judge(peer hello, kinds ...string) *Refusal {
	switch {
	case min(own.Newest, peer.Newest) < max(own.Oldest, peer.Oldest):
		return refuse(CauseVersion, "broker %q speaks versions %d to %d of the link protocol, broker %q speaks %d to %d: upgrade one release at a time",
			own.Name, own.Oldest, own.Newest, peer.Name, peer.Oldest, peer.Newest)
	case !slices.Contains(kinds, peer.Kind):
		return refuse(CauseVersion, "broker %q asks for a connection of kind %.40q, which broker %q does not serve", peer.Name, peer.Kind, own.Name)
	case peer.Cluster != own.Cluster:
		return refuse(CauseCluster, "broker %q belongs to cluster %q, not to %q: check --cluster and the route addresses", peer.Name, peer.Cluster, own.Cluster)
	case peer.ID == own.ID:
		return refuse(CauseSelf, "broker %q has this broker's own id %q: an address points back here, or two brokers share one data directory", peer.Name, peer.ID)
	case peer.ID == "" || peer.Session == "":
		return refuse(CauseMalformed, "the hello names no broker")
	case peer.MaxPayload < 0 || peer.MaxPayload > maxPayloadCeiling:
		return refuse(CauseMalformed, "broker %q announces a maximal payload of %d bytes", peer.Name, peer.MaxPayload)
	}
	return nil
}

// jsonFrame encodes a hello or a refusal.
func jsonFrame(t frameType, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body)+1 > maxHello {
		return nil, fmt.Errorf("a hello of %d bytes exceeds %d: shorten the broker's name or cluster", len(body), maxHello)
	}
	frame := make([]byte, headerSize, headerSize+len(body))
	binary.BigEndian.PutUint32(frame, uint32(1+len(body)))
	frame[lengthSize] = byte(t)
	return append(frame, body...), nil
}

// parseRefusal decodes the body of a refusal. A body that is not valid becomes a Refusal, too.
func parseRefusal(body []byte) *Refusal {
	var r Refusal
	if err := json.Unmarshal(body, &r); err != nil {
		return refuse(CauseMalformed, "the peer refuses without a reason")
	}
	switch r.Cause {
	case CauseVersion, CauseCluster, CauseSelf, CauseIdentity, CauseLinked, CauseClosing, CauseMalformed:
	default:
		r.Cause = CauseMalformed
	}
	r.Text = fmt.Sprintf("the peer refuses: %.300s", r.Text)
	return &r
}
