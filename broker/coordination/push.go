package coordination

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Push is an HTTP endpoint that the records of a Subscription are sent to. Only written if all
// brokers announce FeaturePush: an earlier version can't read it, and serves no such Subscription.
type Push struct {
	URL         string        `json:"url"`
	Format      PushFormat    `json:"format,omitempty"`      // empty: CloudEventsBinary
	Batch       *PushBatch    `json:"batch,omitempty"`       // nil: one record in each request
	Concurrency int           `json:"concurrency,omitempty"` // requests under way for each shard; 0: 8
	Timeout     time.Duration `json:"timeout,omitempty"`     // of a request, in nanoseconds; 0: 10 s
	Headers     []PushHeader  `json:"headers,omitempty"`
	TLS         *PushTLS      `json:"tls,omitempty"` // nil: the system's CAs, the URL's host
}

// PushTLS is how an https endpoint is known, and how brokers are known to it. Files are in the
// brokers' folder of secrets, in PEM. Certificate and Key are only written if all brokers announce
// FeaturePushCertificates.
type PushTLS struct {
	CA          string `json:"ca,omitempty"`          // file of CAs; empty: the system's
	ServerName  string `json:"serverName,omitempty"`  // in its certificate; empty: the URL's host
	Certificate string `json:"certificate,omitempty"` // file of the client certificate and what leads to its CA; empty: none is given
	Key         string `json:"key,omitempty"`         // file of its key
}

// PushFormat is how records become requests.
type PushFormat string

// The formats of requests.
const (
	CloudEventsBinary     PushFormat = "CloudEventsBinary"     // attributes in headers, the payload as body
	CloudEventsStructured PushFormat = "CloudEventsStructured" // all in one JSON object
	RawPush               PushFormat = "Raw"                   // the payload and the record's headers
)

// PushBatch bounds the records of a request.
type PushBatch struct {
	MaxRecords int           `json:"maxRecords"`
	MaxBytes   int           `json:"maxBytes,omitempty"` // of subjects and payloads; 0: 1 MiB
	MaxWait    time.Duration `json:"maxWait,omitempty"`  // for more records, in nanoseconds; 0: none
}

// PushHeader is a header of each request.
type PushHeader struct {
	Name  string `json:"name"`
	Value string `json:"value,omitempty"`
	File  string `json:"file,omitempty"` // with the value, in the brokers' folder of secrets; empty: Value
}

const (
	// MaxPushConcurrency, MaxPushTimeout and MaxPushRecords bound the requests of one Subscription:
	// what they hold in memory, and how long a broker waits for them.
	MaxPushConcurrency = 64
	MaxPushTimeout     = 5 * time.Minute
	MaxPushRecords     = 1000
	// maxPushBytes is the largest batch, and maxPushWait the longest wait for one.
	maxPushBytes = 4 << 20
	maxPushWait  = time.Minute
	// maxPushHeaders and maxPushHeader bound the headers of a request: servers take 8 KiB or more.
	maxPushHeaders = 16
	maxPushHeader  = 1024
	// maxPushFile is the longest key of a Secret of Kubernetes.
	maxPushFile = 253
)

// valid returns why it can't be, or "".
func (p *Push) valid() string {
	if p == nil {
		return ""
	}
	u, err := url.Parse(p.URL)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || len(p.URL) > maxURL:
		return fmt.Sprintf("push to %.100q (write an http:// or https:// URL of at most %d bytes)", p.URL, maxURL)
	case u.User != nil:
		return "a user or a password in the URL of push, which everybody can read in etcd (leave it out)"
	case u.Fragment != "":
		return "a fragment in the URL of push, which is never sent (leave out what follows #)"
	case p.Concurrency < 0 || p.Concurrency > MaxPushConcurrency:
		return fmt.Sprintf("push with concurrency %d (write 1 to %d)", p.Concurrency, MaxPushConcurrency)
	case p.Timeout != 0 && (p.Timeout < 100*time.Millisecond || p.Timeout > MaxPushTimeout):
		return fmt.Sprintf("push with timeout %s (write 100ms to %s)", p.Timeout, MaxPushTimeout)
	case len(p.Headers) > maxPushHeaders:
		return fmt.Sprintf("push with %d headers (use at most %d)", len(p.Headers), maxPushHeaders)
	}
	if b := p.Batch; b != nil {
		switch {
		case p.Format != CloudEventsStructured:
			return "push of batches in another format than CloudEventsStructured (write that format, or leave batch out)"
		case b.MaxRecords < 1 || b.MaxRecords > MaxPushRecords:
			return fmt.Sprintf("push of batches of %d records (write 1 to %d)", b.MaxRecords, MaxPushRecords)
		case b.MaxBytes < 0 || b.MaxBytes > maxPushBytes:
			return fmt.Sprintf("push of batches of %d bytes (write at most %d)", b.MaxBytes, maxPushBytes)
		case b.MaxWait < 0 || b.MaxWait > maxPushWait:
			return fmt.Sprintf("push that waits %s for a batch (write at most %s)", b.MaxWait, maxPushWait)
		}
	}
	for _, h := range p.Headers {
		if why := h.valid(); why != "" {
			return why
		}
	}
	if t := p.TLS; t != nil {
		switch {
		case u.Scheme != "https":
			return "tls of push to an http:// URL (write https://, or leave tls out)"
		case t.CA != "" && !validFile(t.CA):
			return fmt.Sprintf("CAs of push in a file %.100q (write a name of at most %d letters, digits, dots, - and _)", t.CA, maxPushFile)
		case (t.Certificate == "") != (t.Key == ""):
			return "a client certificate of push without its key, or a key without its certificate (write both, or leave both out)"
		case t.Certificate != "" && (!validFile(t.Certificate) || !validFile(t.Key)):
			return fmt.Sprintf("client certificate of push in the files %.100q and %.100q (write names of at most %d letters, digits, dots, - and _)", t.Certificate, t.Key, maxPushFile)
		case len(t.ServerName) > 253 || strings.ContainsFunc(t.ServerName, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
			return fmt.Sprintf("server name %.100q of push (write a host name)", t.ServerName)
		}
	}
	return choice("format of push", p.Format, CloudEventsBinary, CloudEventsStructured, RawPush)
}

// validFile reports whether a name is that of a file in a folder: it leads nowhere else.
func validFile(name string) bool {
	return len(name) <= maxPushFile && !strings.HasPrefix(name, ".") && !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_' || r == '.')
	})
}

// reservedHeaders are set by the broker itself, or say how the connection is used.
var reservedHeaders = []string{"Connection", "Content-Length", "Content-Type", "Expect", "Host", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

func (h *PushHeader) valid() string {
	name := http.CanonicalHeaderKey(h.Name)
	if h.Name == "" || len(h.Name)+len(h.Value) > maxPushHeader || strings.ContainsFunc(h.Name, func(r rune) bool {
		return !(r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '-' || r == '_')
	}) {
		return fmt.Sprintf("header %.64q of push (write letters, digits, - and _, with its value at most %d bytes)", h.Name, maxPushHeader)
	}
	if h.File != "" && (h.Value != "" || !validFile(h.File)) {
		return fmt.Sprintf("header %s of push with a value in file %.100q (write a name of at most %d letters, digits, dots, - and _, and no value)", h.Name, h.File, maxPushFile)
	}
	if strings.HasPrefix(name, "Ce-") {
		return fmt.Sprintf("header %s of push, which CloudEvents have for attributes (take another name)", h.Name)
	}
	for _, reserved := range reservedHeaders {
		if name == reserved {
			return fmt.Sprintf("header %s of push, which the broker sets itself (leave it out)", h.Name)
		}
	}
	if strings.ContainsFunc(h.Value, func(r rune) bool { return r < ' ' || r >= 0x7f }) {
		return fmt.Sprintf("header %s of push with a value that is not printable ASCII (encode it)", h.Name)
	}
	return ""
}

// Valid returns why it can't be, or "".
func (p *Push) Valid() string { return p.valid() }

// Allowed reports whether a request may have the header, besides those that the broker sets.
func (h *PushHeader) Allowed() bool { return h.valid() == "" }
