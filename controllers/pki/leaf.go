package pki

import (
	"bytes"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"net"
	"slices"
	"time"
)

// LeafLife is the default life of a certificate: short, so that a stolen key is not good for long,
// and long enough for an operator that is away for a month.
const LeafLife = 90 * 24 * time.Hour

// Leaf describes a wanted certificate. It serves both ends of a connection.
type Leaf struct {
	Name     string
	DNSNames []string
	IPs      []net.IP
	Life     time.Duration // 0: LeafLife
}

// EnsureLeaf returns the data of a Secret with ca.crt, tls.crt and tls.key for leaf. It keeps those
// in data that are still good.
func (a *Authority) EnsureLeaf(leaf Leaf, data map[string][]byte, now time.Time, random io.Reader) (map[string][]byte, error) {
	bundle := a.Bundle()
	current, err := decodePair(data[keyCert], data[keyKey])
	if err == nil && a.good(leaf, current.cert, now) {
		if bytes.Equal(bundle, data[keyBundle]) {
			return data, nil
		}
		return map[string][]byte{keyBundle: bundle, keyCert: data[keyCert], keyKey: data[keyKey]}, nil
	}
	life := leaf.Life
	if life == 0 {
		life = LeafLife
	}
	notAfter := now.Add(life)
	if end := a.signer.cert.NotAfter; notAfter.After(end) {
		notAfter = end
	}
	issued, err := newPair(&x509.Certificate{
		Subject:               pkix.Name{CommonName: leaf.Name, Organization: []string{"Carillon"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              notAfter,
		DNSNames:              leaf.DNSNames,
		IPAddresses:           leaf.IPs,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}, &a.signer, random)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{keyBundle: bundle, keyCert: encodeCert(issued.cert), keyKey: encodeKey(issued.key)}, nil
}

// good reports whether cert is as leaf describes, signed by the present CA, and not due for
// renewal.
func (a *Authority) good(leaf Leaf, cert *x509.Certificate, now time.Time) bool {
	return !due(cert, now) &&
		!now.Before(cert.NotBefore) &&
		cert.CheckSignatureFrom(a.signer.cert) == nil &&
		cert.Subject.CommonName == leaf.Name &&
		slices.Equal(cert.DNSNames, leaf.DNSNames) &&
		slices.EqualFunc(cert.IPAddresses, leaf.IPs, net.IP.Equal)
}

// LeafDue returns when EnsureLeaf will renew the certificate in data; the zero time if there is
// none.
func LeafDue(data map[string][]byte) time.Time {
	certs, err := decodeCerts(data[keyCert])
	if err != nil {
		return time.Time{}
	}
	return renewal(certs[0])
}
