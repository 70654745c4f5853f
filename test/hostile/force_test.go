//go:build e2e && linux

package hostile

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// attackLimit is longer than any attack.
	attackLimit = 10 * time.Minute
	// pause comes before a refused client tries again. The attacker's share of the CPU bounds it
	// anyway; without it refusals alone would use it up.
	pause = 10 * time.Millisecond
)

// force is an attacker at work.
type force struct {
	target
	ctx context.Context

	sent, refused atomic.Int64
	mu            sync.Mutex
	why           string // the last refusal
}

// attacked is what the attacker reports when it has ended.
type attacked struct {
	Sent, Refused int64
	Why           string // the last refusal
}

// assault is the attacker's process. It answers true when it attacks, and with what it did when it
// reads a line.
func assault(t target, a attack, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithTimeout(context.Background(), attackLimit)
	defer cancel()
	f := &force{target: t, ctx: ctx}
	reports := json.NewEncoder(out)
	if a.prepare != nil {
		if err := a.prepare(f); err != nil {
			return fmt.Errorf("prepare the attack %s: %w", a.name, err)
		}
	}
	if err := reports.Encode(true); err != nil {
		return err
	}
	go func() {
		_, _ = bufio.NewReader(in).ReadString('\n')
		_ = reports.Encode(attacked{f.sent.Load(), f.refused.Load(), f.reason()})
		cancel()
	}()
	if err := a.run(f); err != nil {
		fmt.Fprintln(os.Stderr, "hostile: the attack", a.name, "ends early:", err)
	}
	<-ctx.Done()
	return nil
}

func (f *force) reason() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.why
}

// fails counts a refusal, or a lost connection.
func (f *force) fails(err error) {
	if f.ctx.Err() != nil || err == nil {
		return
	}
	f.refused.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.why = err.Error()
}

// each has n goroutines do the same again and again.
func (f *force) each(n int, work func(i int) error) error {
	var running sync.WaitGroup
	for i := range n {
		running.Go(func() {
			for f.ctx.Err() == nil {
				if err := work(i); err != nil {
					f.fails(err)
					time.Sleep(pause)
				}
			}
		})
	}
	running.Wait()
	return nil
}

// wire is a raw connection to a server. It is closed when the attack ends.
type wire struct {
	net.Conn
	*bufio.Reader
	info string // the server's first line
	free func() bool
}

func (w *wire) Read(p []byte) (int, error) { return w.Reader.Read(p) }

func (w *wire) Close() error {
	w.free()
	return w.Conn.Close()
}

// dial opens a connection without saying anything.
func (f *force) dial(address string) (*wire, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	conn, err := d.DialContext(f.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{Conn: conn, Reader: bufio.NewReader(conn), free: context.AfterFunc(f.ctx, func() { _ = conn.Close() })}, nil
}

// open opens a connection of the NATS protocol, with TLS if the target has it, up to CONNECT.
func (f *force) open() (*wire, error) {
	w, err := f.dial(f.Clients[0])
	if err != nil {
		return nil, err
	}
	if w.info, err = w.line(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	if f.CA != "" {
		pem, err := os.ReadFile(f.CA)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		secure := tls.Client(w.Conn, &tls.Config{RootCAs: roots, ServerName: "localhost"})
		if err == nil {
			err = secure.HandshakeContext(f.ctx)
		}
		if err != nil {
			return nil, errors.Join(err, w.Close())
		}
		w.Conn, w.Reader = secure, bufio.NewReader(secure)
	}
	return w, nil
}

// login opens a connection and has CONNECT confirmed.
func (f *force) login() (*wire, error) { return f.loginAs("attacker", users["attacker"]) }

func (f *force) loginAs(user, password string) (*wire, error) {
	w, err := f.open()
	if err != nil {
		return nil, err
	}
	who := ""
	if f.Users {
		who = fmt.Sprintf(`,"user":%q,"pass":%q`, user, password)
	}
	if _, err = fmt.Fprintf(w.Conn, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true,\"no_responders\":true,\"protocol\":1%s}\r\n", who); err == nil {
		err = w.ping()
	}
	if err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// line reads a line. An -ERR is an error.
func (w *wire) line() (string, error) {
	line, err := w.ReadString('\n')
	line = strings.TrimSpace(line)
	if err == nil && strings.HasPrefix(line, "-ERR") {
		err = errors.New(line)
	}
	return line, err
}

// ping waits until the server has taken everything.
func (w *wire) ping() error {
	if _, err := io.WriteString(w.Conn, "PING\r\n"); err != nil {
		return err
	}
	for {
		if line, err := w.line(); err != nil || line == "PONG" {
			return err
		}
	}
}

// drain reads until the connection ends, and returns what the server said last of an error.
func (w *wire) drain() error {
	buffer, tail := make([]byte, 16<<10), ""
	for {
		n, err := w.Read(buffer)
		if n > 0 {
			tail = string(buffer[max(0, n-128):n])
		}
		if err != nil {
			if _, why, found := strings.Cut(tail, "-ERR"); found {
				err = errors.New("-ERR" + strings.TrimSpace(why))
			}
			return err
		}
	}
}

// listen reads answers until the connection ends, and counts refusals.
func (f *force) listen(w *wire) {
	for {
		line, err := w.line()
		if strings.Contains(line, `"error":`) || strings.HasPrefix(line, "NATS/1.0 ") {
			f.fails(errors.New(line[:min(len(line), 200)]))
		}
		if err != nil {
			f.fails(err)
			return
		}
	}
}

// flood writes the text again and again, and counts it as that many, until the connection ends.
func (f *force) flood(w *wire, text []byte, count int64) error {
	for {
		if _, err := w.Conn.Write(text); err != nil {
			return err
		}
		f.sent.Add(count)
	}
}

// client connects with nats.go, to the first broker.
func (f *force) client() (*nats.Conn, error) { return f.target.connect("attacker", f.Clients[0]) }
