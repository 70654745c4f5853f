package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Broker is the registration of a broker.
type Broker struct {
	ID string // random, kept on the broker's volume; independent of the pod's ordinal
	// Incarnation is the generation and the create revision of its key: greater for every later
	// registration.
	Incarnation int64

	Name   string // pod name, for messages
	Client string // host:port where NATS clients connect
	Route  string // host:port where other brokers connect; empty: it takes none
	HTTP   string // host:port of probes and metrics; may be empty
	// WebSocket is the host:port where NATS clients connect by WebSocket; empty: nowhere.
	WebSocket string
	Zone      string // may be empty
	Version   string

	// Since is the earliest incarnation since which the volume holds every write: an orderly end
	// passes it on to the next process. 0: only this one. Data that was in memory only is reported
	// separately (Client.Report).
	Since int64
	// Started is when the process started; zero: unknown.
	Started time.Time
	// Features are what the program understands; empty for versions that announce none.
	Features FeatureSet
}

// Replica returns the broker in this incarnation.
func (b Broker) Replica() Replica { return Replica{b.ID, b.Incarnation} }

// Holds reports whether everything that the broker wrote in the given incarnation, synced or not,
// is still there.
func (b Broker) Holds(incarnation int64) bool {
	return incarnation == b.Incarnation || b.Since != 0 && b.Since <= incarnation && incarnation < b.Incarnation
}

// maxBrokerID bounds the key. Generated ids have 32 characters.
const maxBrokerID = 64

// brokerValue is the JSON of a Broker. Fields may be added; a change of meaning needs a new
// version.
type brokerValue struct {
	V       int    `json:"v"`
	Name    string `json:"name"`
	Client  string `json:"client"`
	Route   string `json:"route"`
	HTTP    string `json:"http"`
	Zone    string `json:"zone"`
	Version string `json:"version"`
	Since   int64  `json:"since,omitempty"`

	Started  time.Time  `json:"started,omitzero"`
	Features FeatureSet `json:"features,omitempty"`
	// Generation is that of etcd at the registration. Earlier versions write none.
	Generation int64  `json:"generation,omitempty"`
	WebSocket  string `json:"websocket,omitempty"`
}

const brokerValueVersion = 1

func (b Broker) valid() error {
	if why := validBrokerID(b.ID); why != "" {
		return errors.New(why)
	}
	for field, address := range map[string]string{"client": b.Client, "route": b.Route, "http": b.HTTP, "websocket": b.WebSocket} {
		if address == "" && field != "client" {
			continue // a single broker needs no routes, and one on a laptop no HTTP
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return fmt.Errorf("broker %s: %s address %q: %w (want host:port)", b.ID, field, address, err)
		}
	}
	return nil
}

func validBrokerID(id string) string {
	if id == "" || len(id) > maxBrokerID || strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_')
	}) {
		return fmt.Sprintf("broker id %q: want 1 to %d letters, digits, - or _", id, maxBrokerID)
	}
	return ""
}

func (b Broker) encode() ([]byte, error) {
	if err := b.valid(); err != nil {
		return nil, err
	}
	value := brokerValue{brokerValueVersion, b.Name, b.Client, b.Route, b.HTTP, b.Zone, b.Version, b.Since, b.Started, b.Features, GenerationOf(b.Incarnation), b.WebSocket}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode broker %s: %w", b.ID, err)
	}
	return data, nil
}

func decodeBroker(id string, created int64, data []byte) (Broker, error) {
	var value brokerValue
	if err := json.Unmarshal(data, &value); err != nil {
		return Broker{}, fmt.Errorf("decode broker %s: %w", id, err)
	}
	if value.V != brokerValueVersion {
		return Broker{}, fmt.Errorf("decode broker %s: version %d of the value is unknown here (upgrade this program)", id, value.V)
	}
	if value.Generation < 0 || value.Generation > maxGeneration {
		return Broker{}, fmt.Errorf("decode broker %s: there is no generation %d", id, value.Generation)
	}
	b := Broker{
		ID: id, Incarnation: incarnation(value.Generation, created),
		Name: value.Name, Client: value.Client, Route: value.Route, HTTP: value.HTTP, WebSocket: value.WebSocket,
		Zone: value.Zone, Version: value.Version, Since: value.Since, Started: value.Started, Features: value.Features,
	}
	return b, b.valid()
}

func (c *Client) brokersPrefix() string      { return c.prefix + "brokers/" }
func (c *Client) brokerKey(id string) string { return c.brokersPrefix() + id }
func (c *Client) brokerID(key []byte) string {
	return strings.TrimPrefix(string(key), c.brokersPrefix())
}
