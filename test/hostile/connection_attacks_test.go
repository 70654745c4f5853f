//go:build e2e && linux

package hostile

import (
	"fmt"
	"io"
	"time"
)

// connections has 32 clients connect and go, as fast as they can.
func connections(f *force) error {
	return f.each(32, func(int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		f.sent.Add(1)
		return w.Close()
	})
}

// wrongPasswords has 64 clients try passwords, which the server compares by bcrypt.
func wrongPasswords(f *force) error {
	return f.each(64, func(i int) error {
		f.sent.Add(1)
		w, err := f.loginAs("bystander", fmt.Sprint("guess-", i, "-", f.sent.Load()))
		if err != nil {
			return err
		}
		return w.Close()
	})
}

// slow has n clients send a beginning, and then a byte each half second.
func (f *force) slow(n int, open func() (*wire, error), beginning string, drop byte) error {
	return f.each(n, func(int) error {
		w, err := open()
		if err != nil {
			return err
		}
		defer w.Close()
		if _, err := io.WriteString(w.Conn, beginning); err != nil {
			return err
		}
		f.sent.Add(1)
		for f.ctx.Err() == nil {
			if _, err := w.Conn.Write([]byte{drop}); err != nil {
				return fmt.Errorf("%w: %w", err, w.drain())
			}
			time.Sleep(500 * time.Millisecond)
		}
		return nil
	})
}

// slowClients: 1,000 of them never finish CONNECT.
func slowClients(f *force) error {
	return f.slow(1000, f.open, `CONNECT {"name":"`, 'x')
}

// slowHTTP: 1,000 clients never finish a header of the monitoring port.
func slowHTTP(f *force) error {
	return f.slow(1000, func() (*wire, error) { return f.dial(f.HTTP[0]) }, "GET /varz HTTP/1.1\r\nHost: hostile\r\nX: ", 'x')
}

// slowWebSockets: half of 1,000 clients never finish the upgrade, and the others a frame.
func slowWebSockets(f *force) error {
	open := func() (*wire, error) { return f.dial(f.WebSockets[0]) }
	const upgrade = "GET / HTTP/1.1\r\nHost: hostile\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	go func() {
		// A masked frame that announces 4 MiB.
		_ = f.slow(500, open, upgrade+"\r\n\x82\xff\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00", 'x')
	}()
	return f.slow(500, open, upgrade+"X: ", 'x')
}

// idleLinks holds 300 connections to each port for links, and says nothing.
func idleLinks(f *force) error {
	return f.each(300*len(f.Routes), func(i int) error {
		w, err := f.dial(f.Routes[i%len(f.Routes)])
		if err != nil {
			return err
		}
		defer w.Close()
		f.sent.Add(1)
		return w.drain()
	})
}
