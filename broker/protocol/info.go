package protocol

import "encoding/json"

// Info is the JSON of an INFO, which the server sends first, after the first PONG, and whenever it
// changes. Fields are omitted where nats-server omits them.
type Info struct {
	ServerID     string   `json:"server_id"`
	ServerName   string   `json:"server_name"`
	Version      string   `json:"version"` // a version of nats-server: clients choose features by it
	Proto        int      `json:"proto"`
	GitCommit    string   `json:"git_commit,omitempty"`
	Go           string   `json:"go"`
	Host         string   `json:"host"`
	Port         int      `json:"port"`
	Headers      bool     `json:"headers"`
	AuthRequired bool     `json:"auth_required,omitempty"`
	TLSRequired  bool     `json:"tls_required,omitempty"`
	TLSVerify    bool     `json:"tls_verify,omitempty"`
	TLSAvailable bool     `json:"tls_available,omitempty"`
	MaxPayload   int      `json:"max_payload"`
	JetStream    bool     `json:"jetstream,omitempty"`
	IP           string   `json:"ip,omitempty"`
	ClientID     uint64   `json:"client_id,omitempty"`
	ClientIP     string   `json:"client_ip,omitempty"`
	Nonce        string   `json:"nonce,omitempty"`
	Cluster      string   `json:"cluster,omitempty"`
	Domain       string   `json:"domain,omitempty"`
	ConnectURLs  []string `json:"connect_urls,omitempty"`    // host:port of the brokers
	WSURLs       []string `json:"ws_connect_urls,omitempty"` // the same for WebSocket clients
	LameDuck     bool     `json:"ldm,omitempty"`
	ConnectInfo  bool     `json:"connect_info,omitempty"` // set in the INFO after the first PONG
	Account      string   `json:"remote_account,omitempty"`
	IsSystem     bool     `json:"acc_is_sys,omitempty"`
	APILevel     int      `json:"api_lvl,omitempty"` // JetStream API level
}

// AppendInfo appends an INFO line. It allocates, since INFO is rare.
func AppendInfo(dst []byte, info *Info) []byte {
	text, err := json.Marshal(info)
	if err != nil {
		// A struct of strings, numbers and booleans always marshals.
		panic("protocol: marshal INFO: " + err.Error())
	}
	dst = append(dst, "INFO "...)
	dst = append(dst, text...)
	return append(dst, " \r\n"...) // nats-server's line has the space, too
}
