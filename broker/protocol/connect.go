package protocol

import (
	"bytes"
	"encoding/json"
)

// Connect is what a client says about itself and what it wants.
type Connect struct {
	Verbose      bool   `json:"verbose"`
	Pedantic     bool   `json:"pedantic"`
	Echo         bool   `json:"echo"` // false: the client's own messages are not delivered to it
	TLSRequired  bool   `json:"tls_required"`
	Name         string `json:"name"`
	Lang         string `json:"lang"`
	Version      string `json:"version"`
	Protocol     int    `json:"protocol"` // 0, or 1: understands INFO at any time
	Headers      bool   `json:"headers"`
	NoResponders bool   `json:"no_responders"`
	Token        string `json:"auth_token"`
	User         string `json:"user"`
	Password     string `json:"pass"`
	NKey         string `json:"nkey"`
	Signature    string `json:"sig"`
	JWT          string `json:"jwt"`
}

// DefaultConnect is how a client is treated that has not sent CONNECT, or has left these fields out.
var DefaultConnect = Connect{Verbose: true, Pedantic: true, Echo: true}

// ParseConnect reads the JSON of a CONNECT over the defaults; fields that it does not know are
// ignored. An error is always an *Error.
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
