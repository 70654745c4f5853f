package env

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// The files of a TLS directory, as in a Kubernetes Secret of type kubernetes.io/tls.
const (
	CAFile   = "ca.crt"
	CertFile = "tls.crt"
	KeyFile  = "tls.key"
)

// maxTLSFile bounds the size of one file: a bundle of a hundred CAs is about 200 KiB.
const maxTLSFile = 1 << 20

// TLS is a broker's identity on the cluster's network, or towards clients. It checks its files (two
// or three stat calls) when a handshake begins, and reads them again if they changed, including the
// CA. So renewing a certificate needs no restart; nor does replacing a CA, while its bundle
// contains the old and the new one.
type TLS struct {
	dir     string
	clients clientRules

	mu       sync.Mutex
	current  *identity
	refused  [3]os.FileInfo // the set of files that was last found invalid, so that it is parsed once
	failures uint64
	lastErr  error
}

// clientRules are what a server asks of clients.
type clientRules struct {
	minVersion uint16
	verify     bool // a certificate that the CA signed; without it there need be no CA
}

// clusterRules are those of brokers among each other.
var clusterRules = clientRules{tls.VersionTLS13, true}

// identity is one valid reading of the files.
type identity struct {
	files  [3]os.FileInfo
	cert   tls.Certificate
	roots  *x509.CertPool
	server *tls.Config
}

// LoadTLS reads ca.crt, tls.crt and tls.key of dir.
func LoadTLS(dir string) (*TLS, error) {
	return loadTLS(dir, clusterRules)
}

// LoadServerTLS reads tls.crt and tls.key of dir for a server of any clients, and ca.crt if verify
// is set: then clients need a certificate that it signed. Server accepts TLS 1.2, too.
func LoadServerTLS(dir string, verify bool) (*TLS, error) {
	return loadTLS(dir, clientRules{tls.VersionTLS12, verify})
}

func loadTLS(dir string, clients clientRules) (*TLS, error) {
	t := &TLS{dir: dir, clients: clients}
	files, err := t.stat()
	if err != nil {
		return nil, err
	}
	if t.current, err = t.read(files); err != nil {
		return nil, err
	}
	return t, nil
}

// ParseTLS returns an identity from PEM text. It never changes.
func ParseTLS(ca, cert, key []byte) (*TLS, error) {
	t := &TLS{clients: clusterRules}
	var err error
	if t.current, err = t.parse([3][]byte{ca, cert, key}); err != nil {
		return nil, err
	}
	return t, nil
}

// Dir returns the directory of the files, or "" without files.
func (t *TLS) Dir() string { return t.dir }

// Name returns the common name in the present certificate, which is its holder's user of etcd.
func (t *TLS) Name() string { return t.fresh().cert.Leaf.Subject.CommonName }

// Server returns the configuration of a listener, for its whole lifetime. Unless LoadServerTLS says
// otherwise it accepts TLS 1.3 only, and requires of every client a certificate for client
// authentication that the CA signed.
//
// There are no session tickets, so every connection is checked against the current CA.
func (t *TLS) Server() *tls.Config {
	return &tls.Config{
		MinVersion: t.clients.minVersion,
		// Not used, since the callback below always answers. Without the callback a server would
		// still verify clients.
		ClientAuth:             tls.RequireAndVerifyClientCert,
		SessionTicketsDisabled: true,
		GetConfigForClient:     func(*tls.ClientHelloInfo) (*tls.Config, error) { return t.fresh().server, nil },
	}
}

// Client returns the configuration of one connection to serverName, the host name that the server's
// certificate must be for. Call it for each connection, since it contains the current CA. With an
// empty serverName the dialer must set it.
func (t *TLS) Client(serverName string) *tls.Config {
	id := t.fresh()
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		ServerName:   serverName,
		RootCAs:      id.roots,
		Certificates: []tls.Certificate{id.cert},
		// See parse.
		DynamicRecordSizingDisabled: true,
	}
}

// NotAfter returns when the certificate in use expires.
func (t *TLS) NotAfter() time.Time { return t.fresh().cert.Leaf.NotAfter }

// ReloadFailures returns how many changed sets of files were refused since the start, and the error
// of the last one; nil if the current files are in use.
func (t *TLS) ReloadFailures() (count uint64, last error) {
	t.fresh()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failures, t.lastErr
}

// fresh returns the identity of the files, or the last valid one.
func (t *TLS) fresh() *identity {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.dir == "" {
		return t.current
	}
	files, err := t.stat()
	if err == nil && sameFiles(files, t.current.files) {
		t.lastErr = nil
		return t.current
	}
	if t.lastErr != nil && sameFiles(files, t.refused) {
		return t.current
	}
	var next *identity
	if err == nil {
		next, err = t.read(files)
	}
	if err != nil {
		t.refused, t.lastErr = files, err
		t.failures++
		return t.current
	}
	t.current, t.lastErr = next, nil
	return next
}

// names returns the files that are read, "" for one that isn't.
func (t *TLS) names() [3]string {
	if !t.clients.verify {
		return [3]string{"", CertFile, KeyFile}
	}
	return [3]string{CAFile, CertFile, KeyFile}
}

// stat stats the files before they are read, so that a change during the read is detected by the
// next call.
func (t *TLS) stat() (files [3]os.FileInfo, err error) {
	for i, name := range t.names() {
		if name == "" {
			continue
		}
		info, statErr := os.Stat(filepath.Join(t.dir, name))
		if statErr != nil && err == nil {
			need := fmt.Sprintf("%s, %s and %s", CAFile, CertFile, KeyFile)
			if !t.clients.verify {
				need = fmt.Sprintf("%s and %s", CertFile, KeyFile)
			}
			err = fmt.Errorf("read TLS directory: %w (mount the Secret or directory that holds %s there)", statErr, need)
		}
		files[i] = info
	}
	return files, err
}

func sameFiles(a, b [3]os.FileInfo) bool {
	for i := range a {
		if a[i] == nil || b[i] == nil {
			if a[i] != b[i] {
				return false
			}
			continue
		}
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

func (t *TLS) read(files [3]os.FileInfo) (*identity, error) {
	var pem [3][]byte
	for i, name := range t.names() {
		if name == "" {
			continue
		}
		data, err := readBounded(filepath.Join(t.dir, name))
		if err != nil {
			return nil, err
		}
		pem[i] = data
	}
	id, err := t.parse(pem)
	if err != nil {
		return nil, err
	}
	id.files = files
	return id, nil
}

// parse returns the identity of a CA, a certificate and a key.
func (t *TLS) parse(pem [3][]byte) (*identity, error) {
	dir := t.dir
	id := &identity{roots: x509.NewCertPool()}
	if t.clients.verify && !id.roots.AppendCertsFromPEM(pem[0]) {
		return nil, fmt.Errorf("read %s: no certificate in it (it must hold the CA, PEM encoded)", filepath.Join(dir, CAFile))
	}
	var err error
	if id.cert, err = tls.X509KeyPair(pem[1], pem[2]); err != nil {
		return nil, fmt.Errorf("read %s and %s: %w (they must be a PEM certificate and the key it was made for)",
			filepath.Join(dir, CertFile), filepath.Join(dir, KeyFile), err)
	}
	if id.cert.Leaf == nil {
		return nil, fmt.Errorf("read %s: no leaf certificate in it", filepath.Join(dir, CertFile))
	}
	id.server = &tls.Config{
		MinVersion:             t.clients.minVersion,
		Certificates:           []tls.Certificate{id.cert},
		SessionTicketsDisabled: true,
		// Small first records help web pages; brokers send batches.
		DynamicRecordSizingDisabled: true,
	}
	if t.clients.verify {
		id.server.ClientAuth, id.server.ClientCAs = tls.RequireAndVerifyClientCert, id.roots
	}
	return id, nil
}

func readBounded(path string) ([]byte, error) {
	data, _, err := ReadFile(path, maxTLSFile+1)
	if irregular := (*IrregularError)(nil); errors.As(err, &irregular) {
		return nil, fmt.Errorf("read TLS file: %w", err)
	}
	if err != nil {
		return nil, fmt.Errorf("read TLS file: %w (make it readable for the user that runs this)", err)
	}
	if len(data) > maxTLSFile {
		return nil, fmt.Errorf("read TLS file %s: larger than %d bytes (it must hold certificates or a key only)", path, maxTLSFile)
	}
	return data, nil
}
