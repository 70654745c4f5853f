// Package testca creates certificates for tests, in files as an operator would mount them.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates.
type CA struct {
	PEM []byte

	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New returns a CA with a new key.
func New(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{PEM: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), cert: cert, key: key}
}

// Options are the differences from a certificate for localhost that this CA signed and that is
// valid for an hour.
type Options struct {
	NotAfter time.Time
	Subject  string   // the common name instead of "node"
	Names    []string // DNS names instead of localhost and 127.0.0.1
	IPs      []net.IP // additional addresses
	Trust    []*CA    // content of ca.crt; nil: the signer
}

// Issue replaces ca.crt, tls.crt and tls.key of dir, each by a rename, as the kubelet does.
func (ca *CA) Issue(t testing.TB, dir string, options ...Options) *x509.Certificate {
	t.Helper()
	o := Options{}
	if len(options) > 0 {
		o = options[0]
	}
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "node"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if !o.NotAfter.IsZero() {
		template.NotAfter = o.NotAfter
	}
	if o.Subject != "" {
		template.Subject.CommonName = o.Subject
	}
	if o.Names != nil {
		template.DNSNames, template.IPAddresses = o.Names, nil
	}
	template.IPAddresses = append(template.IPAddresses, o.IPs...)
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, &key.PublicKey, ca.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	var bundle []byte
	for _, trusted := range o.Trust {
		bundle = append(bundle, trusted.PEM...)
	}
	if o.Trust == nil {
		bundle = ca.PEM
	}
	Replace(t, dir, "ca.crt", bundle)
	Replace(t, dir, "tls.crt", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	Replace(t, dir, "tls.key", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
	return cert
}

// Replace replaces a file by a rename.
func Replace(t testing.TB, dir, name string, data []byte) {
	t.Helper()
	temporary := filepath.Join(dir, name+".new")
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}
