package main

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/broker/session"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// devTLSDir has the certificate of the brokers, and devAuthorityDir in it the CA's key.
const (
	devTLSDir       = "tls"
	devAuthorityDir = "authority"
)

// makeTLS makes a CA and a certificate for the names of this machine, or renews those that are
// there.
func (o *devOptions) makeTLS() error {
	if !o.tls {
		return nil
	}
	o.tlsDir = filepath.Join(o.data, devTLSDir)
	if err := o.renewTLS(time.Now()); err != nil {
		return fmt.Errorf("make certificates: %w", err)
	}
	return nil
}

func (o *devOptions) renewTLS(now time.Time) error {
	kept := filepath.Join(o.tlsDir, devAuthorityDir)
	had, err := readFiles(kept)
	if err != nil {
		return err
	}
	authority, data, err := pki.EnsureAuthority("carillon dev CA", had, now, rand.Reader)
	if err != nil {
		return fmt.Errorf("the CA in %s: %w (delete that folder to have a new one made, which clients then need)", kept, cmp.Or(errors.Unwrap(err), err))
	}
	if err := writeFiles(kept, data); err != nil {
		return err
	}
	// Its name differs from the CA's: OpenSSL would take it for one that signed itself.
	leaf := pki.Leaf{Name: "carillon dev", DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}}
	if name, err := os.Hostname(); err == nil && name != "localhost" {
		leaf.DNSNames = append(leaf.DNSNames, name)
	}
	for _, listen := range []string{o.listen, o.web} {
		host, _, _ := net.SplitHostPort(listen)
		ip := net.ParseIP(host)
		if ip != nil && !ip.IsUnspecified() && !ip.IsLoopback() && !slices.ContainsFunc(leaf.IPs, ip.Equal) {
			leaf.IPs = append(leaf.IPs, ip)
		}
	}
	if had, err = readFiles(o.tlsDir); err != nil {
		return err
	}
	if data, err = authority.EnsureLeaf(leaf, had, now, rand.Reader); err != nil {
		return err
	}
	return writeFiles(o.tlsDir, data)
}

// readFiles returns the files of a folder, none if it is not there.
func readFiles(dir string) (map[string][]byte, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files := make(map[string][]byte)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			continue
		}
		if files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			return nil, err
		}
	}
	return files, nil
}

// writeFiles writes a new folder completely or not at all, and otherwise each file of it, for this
// user only.
func writeFiles(dir string, files map[string][]byte) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o700); err != nil {
		return err
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		next, err := os.MkdirTemp(parent, ".new-*") // with mode 0700
		if err != nil {
			return err
		}
		if err = writeFiles(next, files); err == nil {
			err = os.Rename(next, dir)
		}
		if err != nil {
			return errors.Join(err, os.RemoveAll(next))
		}
		return nil
	}
	for name, data := range files {
		path := filepath.Join(dir, name)
		next, err := os.CreateTemp(parent, ".new-*") // with mode 0600
		if err != nil {
			return err
		}
		_, err = next.Write(data)
		if err = errors.Join(err, next.Close()); err == nil {
			err = os.Rename(next.Name(), path)
		}
		if err != nil {
			return errors.Join(err, os.Remove(next.Name()))
		}
	}
	return nil
}

// clientTLS returns the TLS of the single broker.
func (o *devOptions) clientTLS() (is broker.ClientTLS, err error) {
	if !o.tls {
		return is, nil
	}
	is.First = session.FirstNo
	is.Files, err = env.LoadServerTLS(o.tlsDir, false)
	return is, err
}

// url returns the URL for clients.
func (o *devOptions) url(address string) string {
	if o.tls {
		return "tls://" + address
	}
	return "nats://" + address
}

// announceWebSocket prints the addresses for WebSocket, if there are any.
func (o *devOptions) announceWebSocket(addresses ...string) {
	scheme := "ws://"
	if o.tls {
		scheme = "wss://"
	}
	var urls []string
	for _, address := range addresses {
		if address != "" {
			urls = append(urls, scheme+address)
		}
	}
	if len(urls) > 0 {
		fmt.Fprintf(o.out, "websocket: %s\n", strings.Join(urls, ","))
	}
}

// trust is what the command line needs in addition to the URL.
func (o *devOptions) trust() string {
	if !o.tls {
		return ""
	}
	return " --tls-ca " + filepath.Join(o.tlsDir, env.CAFile)
}
