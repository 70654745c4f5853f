package protocol

import (
	"bytes"
	"encoding/json"
)

// Connect is the JSON of a CONNECT.
type Connect struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"` // false: do not deliver the client's own messages to it
	TLSRequired  bool   `json:"tls_required"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"` // 1: the client accepts INFO at any time
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
	Token        string `json:"auth_token"`
	User         string `json:"user"`
	Password     string `json:"pass"`
	NKey         string `json:"nkey"`
	Signature    string `json:"sig"`
	JWT          string `json:"jwt"`
}

// DefaultConnect are the values of fields that CONNECT leaves out, and those before CONNECT.
var DefaultConnect = Connect{Verbose: true, Pedantic: true, Echo: true}

// ParseConnect decodes the JSON of a CONNECT over the defaults. It ignores unknown fields. An error
// is always an *Error.
func ParseConnect(text []byte) (Connect, error) {
	c := DefaultConnect
	if len(bytes.TrimSpace(text)) == 0 {
		return Connect{}, errConnectEmpty
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return Connect{}, errConnectJSON
	}
	return c, nil
}
