package main

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/spf13/pflag"
)

// tlsFlags are the files with which a client uses TLS.
type tlsFlags struct {
	ca, cert, key string
	first         bool
}

func (t *tlsFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&t.ca, "tls-ca", "", "`file` with the CA of the server's certificate, if this machine does not trust it (env CARILLON_TLS_CA); TLS is required then")
	f.StringVar(&t.cert, "tls-cert", "", "`file` with the certificate to present, if the server requires one (env CARILLON_TLS_CERT)")
	f.StringVar(&t.key, "tls-key", "", "`file` with its key (env CARILLON_TLS_KEY)")
	f.BoolVar(&t.first, "tls-first", false, "begin with the handshake, for servers that say nothing in plaintext; TLS is required then")
}

// config returns nil if there are no files. A server that requires TLS gets it all the same.
func (t *tlsFlags) config() (*tls.Config, error) {
	ca := t.authority()
	cert, key := cmp.Or(t.cert, os.Getenv("CARILLON_TLS_CERT")), cmp.Or(t.key, os.Getenv("CARILLON_TLS_KEY"))
	if (cert == "") != (key == "") {
		return nil, usageError{errors.New("a certificate and its key go together: give --tls-cert and --tls-key")}
	}
	if ca == "" && cert == "" {
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("--tls-ca: %w", err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("--tls-ca: no certificate in %s (it must hold the CA, PEM encoded)", ca)
		}
	}
	if cert != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("--tls-cert and --tls-key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

func (t *tlsFlags) authority() string { return cmp.Or(t.ca, os.Getenv("CARILLON_TLS_CA")) }

// explain says what to do about an error of TLS, or returns nil.
func (t *tlsFlags) explain(err error) error {
	var host x509.HostnameError
	switch unknown := (x509.UnknownAuthorityError{}); {
	case errors.As(err, &unknown) && t.authority() != "":
		return fmt.Errorf("connect: the CA in %s did not sign the server's certificate; give --tls-ca the file of the one that did", t.authority())
	case errors.As(err, &unknown):
		return errors.New("connect: this machine does not trust the CA of the server's certificate; give its file with --tls-ca")
	case errors.As(err, &host):
		return fmt.Errorf("connect: %w; give --server a name that it is for", host)
	case errors.Is(err, nats.ErrSecureConnWanted):
		return errors.New("connect: the server has no TLS; start it with a certificate, or leave out tls://, --tls-ca, --tls-cert and CARILLON_TLS_CA")
	case strings.Contains(err.Error(), "tls: certificate required"), strings.Contains(err.Error(), "tls: bad certificate"),
		strings.Contains(err.Error(), "tls: unknown certificate authority"):
		return errors.New("connect: the server requires a certificate that its CA signed; give --tls-cert and --tls-key")
	case strings.Contains(err.Error(), "remote error: tls: expired certificate"):
		return errors.New("connect: the certificate of --tls-cert has expired, or is not valid yet")
	}
	return nil
}
