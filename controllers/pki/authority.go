package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"time"
)

const (
	// authorityLife is the life of a CA. It is long, since all processes must follow each renewal.
	authorityLife = 10 * 365 * 24 * time.Hour
	// overlap is how long a new CA is trusted before it signs. Coordinators must restart to trust
	// it: a month is enough for a person whose Broker waits to be told when to restart.
	overlap = 30 * 24 * time.Hour
	// backdate is how far certificates are dated back, for clocks that are behind ours.
	backdate = 5 * time.Minute
)

// Keys of the Secret that holds an authority.
const (
	keyBundle   = "ca.crt"   // all trusted CAs
	keyCert     = "tls.crt"  // the CA that signs
	keyKey      = "tls.key"  // its key
	keyNextCert = "next.crt" // the next CA, trusted and not signing yet
	keyNextKey  = "next.key"
)

// Authority is a CA of one Broker: that of its processes, or that of its certificate for clients.
type Authority struct {
	bundle []*x509.Certificate
	signer pair
	next   *pair
}

type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// EnsureAuthority returns the authority in data, renewed if due, and the data to store. Empty data
// creates a new authority. Unreadable data is an error and never replaced, since every certificate
// in use depends on it.
func EnsureAuthority(name string, data map[string][]byte, now time.Time, random io.Reader) (*Authority, map[string][]byte, error) {
	authority := &Authority{}
	if len(data) == 0 {
		signer, err := newAuthorityPair(name, now, random)
		if err != nil {
			return nil, nil, err
		}
		authority.signer, authority.bundle = signer, []*x509.Certificate{signer.cert}
		return authority, authority.data(), nil
	}
	if err := authority.read(data); err != nil {
		return nil, nil, fmt.Errorf("reading the CA: %w (restore the Secret; or delete it to have a new CA made)", err)
	}
	changed := authority.dropEnded(now)
	switch {
	case authority.next != nil && !now.Before(authority.next.cert.NotBefore.Add(backdate+overlap)):
		authority.signer, authority.next = *authority.next, nil
		changed = true
	case authority.next == nil && due(authority.signer.cert, now):
		next, err := newAuthorityPair(name, now, random)
		if err != nil {
			return nil, nil, err
		}
		authority.next = &next
		authority.bundle = append(authority.bundle, next.cert)
		changed = true
	}
	if !changed {
		return authority, data, nil
	}
	return authority, authority.data(), nil
}

// Bundle returns all trusted CAs, PEM encoded.
func (a *Authority) Bundle() []byte {
	var bundle bytes.Buffer
	for _, cert := range a.bundle {
		bundle.Write(encodeCert(cert))
	}
	return bundle.Bytes()
}

// Trust returns an identifier of the trusted CAs, which changes when one is added or expires.
func (a *Authority) Trust() string {
	sum := sha256.Sum256(a.Bundle())
	return hex.EncodeToString(sum[:8])
}

// Fingerprint returns a keyed hash of parts: without the CA's key nobody can test guesses. It
// changes with the parts, and when another CA signs.
func (a *Authority) Fingerprint(parts ...[]byte) string {
	mac := hmac.New(sha256.New, encodeKey(a.signer.key))
	for _, part := range parts {
		// Each part is hashed by itself, so that moving bytes between parts changes the result.
		sum := sha256.Sum256(part)
		mac.Write(sum[:])
	}
	return hex.EncodeToString(mac.Sum(nil)[:8])
}

func (a *Authority) dropEnded(now time.Time) bool {
	kept := a.bundle[:0:0]
	for _, cert := range a.bundle {
		if now.Before(cert.NotAfter) || cert.Equal(a.signer.cert) {
			kept = append(kept, cert)
		}
	}
	changed := len(kept) != len(a.bundle)
	a.bundle = kept
	return changed
}

func (a *Authority) read(data map[string][]byte) (err error) {
	if a.bundle, err = decodeCerts(data[keyBundle]); err != nil {
		return fmt.Errorf("%s: %w", keyBundle, err)
	}
	if a.signer, err = decodePair(data[keyCert], data[keyKey]); err != nil {
		return fmt.Errorf("%s and %s: %w", keyCert, keyKey, err)
	}
	if len(data[keyNextCert]) == 0 {
		return nil
	}
	next, err := decodePair(data[keyNextCert], data[keyNextKey])
	if err != nil {
		return fmt.Errorf("%s and %s: %w", keyNextCert, keyNextKey, err)
	}
	a.next = &next
	return nil
}

func (a *Authority) data() map[string][]byte {
	data := map[string][]byte{keyBundle: a.Bundle(), keyCert: encodeCert(a.signer.cert), keyKey: encodeKey(a.signer.key)}
	if a.next != nil {
		data[keyNextCert], data[keyNextKey] = encodeCert(a.next.cert), encodeKey(a.next.key)
	}
	return data
}

func newAuthorityPair(name string, now time.Time, random io.Reader) (pair, error) {
	return newPair(&x509.Certificate{
		Subject:               pkix.Name{CommonName: name, Organization: []string{"Carillon"}},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil, random)
}

// newPair returns a key and a certificate for it, signed by parent, or self-signed without one.
func newPair(template *x509.Certificate, parent *pair, random io.Reader) (pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), random)
	if err != nil {
		return pair{}, fmt.Errorf("making a key: %w", err)
	}
	serial := make([]byte, 16)
	if _, err := io.ReadFull(random, serial); err != nil {
		return pair{}, fmt.Errorf("making a serial number: %w", err)
	}
	serial[0] &= 0x7f // positive
	template.SerialNumber = new(big.Int).SetBytes(serial)
	signer := pair{cert: template, key: key}
	if parent != nil {
		signer = *parent
	}
	der, err := x509.CreateCertificate(random, template, signer.cert, &key.PublicKey, signer.key)
	if err != nil {
		return pair{}, fmt.Errorf("signing a certificate: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("reading back a certificate: %w", err)
	}
	return pair{cert: cert, key: key}, nil
}

// renewal returns when two thirds of a certificate's life have passed.
func renewal(cert *x509.Certificate) time.Time {
	return cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) / 3 * 2)
}

func due(cert *x509.Certificate, now time.Time) bool { return !now.Before(renewal(cert)) }

func encodeCert(cert *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
}

func encodeKey(key *ecdsa.PrivateKey) []byte {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		// Unreachable: x509 knows our kind of key, P-256.
		return nil
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func decodeCerts(data []byte) ([]*x509.Certificate, error) {
	var certs []*x509.Certificate
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("no PEM certificate in it")
	}
	return certs, nil
}

func decodePair(certData, keyData []byte) (pair, error) {
	certs, err := decodeCerts(certData)
	if err != nil {
		return pair{}, err
	}
	block, _ := pem.Decode(keyData)
	if block == nil {
		return pair{}, errors.New("no PEM key in it")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return pair{}, err
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !key.PublicKey.Equal(certs[0].PublicKey) {
		return pair{}, errors.New("the key is not the certificate's")
	}
	return pair{cert: certs[0], key: key}, nil
}
