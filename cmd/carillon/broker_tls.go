package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/broker/session"
)

// The values of --client-tls.
const (
	tlsRequired = "required"
	tlsOptional = "optional"
)

// clientTLS are the flags about TLS of clients.
type clientTLS struct {
	dir, mode, first string
	verify           bool
}

func (c *clientTLS) flags(f *pflag.FlagSet) {
	f.StringVar(&c.dir, "client-tls-dir", "", "folder with tls.crt and tls.key for clients; read again when they change. Empty: plaintext")
	f.StringVar(&c.mode, "client-tls", tlsRequired, "with --client-tls-dir, whether clients must use TLS: required or optional")
	f.StringVar(&c.first, "client-tls-first", string(session.FirstNo), "whether the handshake comes before INFO: no, yes (for clients that are configured so), auto (for both, but others wait 50ms), or another wait such as 300ms")
	f.BoolVar(&c.verify, "client-tls-verify", false, "require of clients a certificate that ca.crt in --client-tls-dir signed")
}

// load reads the files. Without --client-tls-dir it returns the zero value.
func (c *clientTLS) load() (is broker.ClientTLS, err error) {
	optional := c.mode == tlsOptional
	first, wait := parseFirst(c.first)
	switch {
	case !optional && c.mode != tlsRequired:
		return is, usageError{fmt.Errorf("--client-tls %q: choose %s or %s", c.mode, tlsRequired, tlsOptional)}
	case first != session.FirstNo && first != session.FirstYes && first != session.FirstAuto:
		return is, usageError{fmt.Errorf("--client-tls-first %q: choose no, yes, auto, or a wait of at most %v", c.first, limits.HandshakeTimeout)}
	case c.dir == "" && (optional || c.verify || first != session.FirstNo):
		return is, usageError{errors.New("--client-tls, --client-tls-first and --client-tls-verify need --client-tls-dir, the folder with the certificate")}
	case optional && c.verify:
		return is, usageError{errors.New("--client-tls-verify with --client-tls optional: a plaintext client has no certificate; choose one")}
	case optional && first == session.FirstYes:
		return is, usageError{errors.New("--client-tls-first yes with --client-tls optional: a plaintext client waits for INFO; choose auto")}
	case c.dir == "":
		return is, nil
	}
	if is.Files, err = env.LoadServerTLS(c.dir, c.verify); err != nil {
		return is, err
	}
	is.Optional, is.First, is.FirstWait, is.Verify = optional, first, wait, c.verify
	return is, nil
}

// parseFirst returns what --client-tls-first says. A duration is FirstAuto with that wait.
func parseFirst(text string) (session.First, time.Duration) {
	if wait, err := time.ParseDuration(text); err == nil && wait > 0 && wait <= limits.HandshakeTimeout {
		return session.FirstAuto, wait
	}
	return session.First(text), 0
}
