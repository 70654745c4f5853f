package coordination

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Broker is one member of the cluster.
type Broker struct {
	ID          string // random, kept on the broker's volume; never derived from its ordinal
	Incarnation int64  // create revision of its key: greater for every later life

	Name    string // pod name, for people
	Client  string // host:port where NATS clients connect
	Route   string // host:port where other brokers connect; empty: it takes none
	HTTP    string // host:port of health and metrics; may be empty
	Zone    string // may be empty
	Version string

	// Since is the earliest incarnation of this broker whose every write its volume still holds: a life that
	// ended in order hands it on to the next. 0: this one only. What was kept in memory alone, and is gone
	// though its life ended in order, is for the broker's report.
	Since int64
	// Started is when its process did; zero: it doesn't say.
	Started time.Time
	// Features are what its program understands; none: it is of a version that announces nothing.
	Features FeatureSet
}

// Replica is the broker in this life.
func (b Broker) Replica() Replica { return Replica{b.ID, b.Incarnation} }

// Holds says whether what the broker had written in that earlier life is still there in this one,
// whether or not it was synced.
func (b Broker) Holds(incarnation int64) bool {
	return incarnation == b.Incarnation || b.Since != 0 && b.Since <= incarnation && incarnation < b.Incarnation
}

// maxBrokerID bounds the key; ids that we make are 32 characters long.
const maxBrokerID = 64

// brokerValue is a Broker as it stands in etcd. Fields may be added; a change of meaning
// takes a new number.
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
}

const brokerValueVersion = 1

func (b Broker) valid() error {
	if why := validBrokerID(b.ID); why != "" {
		return errors.New(why)
	}
	for field, address := range map[string]string{"client": b.Client, "route": b.Route, "http": b.HTTP} {
		if address == "" && field != "client" {
			continue // a broker that is alone needs no routes, and one on a laptop may serve no HTTP
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
	value := brokerValue{brokerValueVersion, b.Name, b.Client, b.Route, b.HTTP, b.Zone, b.Version, b.Since, b.Started, b.Features}
	data, err := json.Marshal(value)
	if err != nil {
		return nil, fmt.Errorf("encode broker %s: %w", b.ID, err)
	}
	return data, nil
}

func decodeBroker(id string, incarnation int64, data []byte) (Broker, error) {
	var value brokerValue
	if err := json.Unmarshal(data, &value); err != nil {
		return Broker{}, fmt.Errorf("decode broker %s: %w", id, err)
	}
	if value.V != brokerValueVersion {
		return Broker{}, fmt.Errorf("decode broker %s: version %d of the value is unknown here (upgrade this program)", id, value.V)
	}
	b := Broker{
		ID: id, Incarnation: incarnation,
		Name: value.Name, Client: value.Client, Route: value.Route, HTTP: value.HTTP,
		Zone: value.Zone, Version: value.Version, Since: value.Since, Started: value.Started, Features: value.Features,
	}
	return b, b.valid()
}

func (c *Client) brokersPrefix() string      { return c.prefix + "brokers/" }
func (c *Client) brokerKey(id string) string { return c.brokersPrefix() + id }
func (c *Client) brokerID(key []byte) string {
	return strings.TrimPrefix(string(key), c.brokersPrefix())
}
