//go:build e2e && linux

package hostile

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// messageSize is that of large messages, below the largest that both servers take.
const messageSize = maxPayload - 1024

// partOfAMessage has 150 clients send all of a large message but its last byte.
func partOfAMessage(connected bool) func(*force) error {
	chunk := bytes.Repeat([]byte("x"), 64<<10)
	return func(f *force) error {
		return f.each(150, func(int) error {
			open := f.open
			if connected {
				open = f.login
			}
			w, err := open()
			if err != nil {
				return err
			}
			defer w.Close()
			if _, err := fmt.Fprintf(w.Conn, "PUB hostile %d\r\n", messageSize); err != nil {
				return err
			}
			for left := messageSize - 1; left > 0; left -= len(chunk) {
				if _, err := w.Conn.Write(chunk[:min(left, len(chunk))]); err != nil {
					return fmt.Errorf("%w: %w", err, w.drain())
				}
			}
			f.sent.Add(1)
			return w.drain()
		})
	}
}

// largeMessages has 64 clients publish the largest messages to one subscriber.
func largeMessages(f *force) error {
	text := fmt.Appendf(nil, "PUB hostile.large %d\r\n%s\r\n", messageSize, strings.Repeat("x", messageSize))
	return f.each(65, func(i int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		if i == 0 {
			if _, err := io.WriteString(w.Conn, "SUB hostile.large 1\r\n"); err != nil {
				return err
			}
			return w.drain()
		}
		go func() { _ = w.drain() }()
		return f.flood(w, text, 1)
	})
}

// manyTokens has ten clients subscribe to 300 patterns each, of as many tokens as a line has room
// for.
func manyTokens(f *force) error {
	rest := strings.Repeat(".a", 1990)
	return f.each(10, func(i int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		go func() {
			for n := range 300 {
				if _, err := fmt.Fprintf(w.Conn, "SUB %d-%d%s %d\r\n", i, n, rest, n+1); err != nil {
					return
				}
				f.sent.Add(1)
			}
		}()
		return w.drain()
	})
}

// queueGroups has a client join 60,000 queue groups of one pattern, leave them, and begin again.
func queueGroups(f *force) error {
	return f.each(1, func(int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		for _, form := range []string{"SUB hostile.queue group-%[1]d %[1]d\r\n", "UNSUB %d\r\n"} {
			for n := range 60_000 {
				if _, err := fmt.Fprintf(w.Conn, form, n+1); err != nil {
					return err
				}
				if f.sent.Add(1); n%1000 == 0 {
					if err := w.ping(); err != nil {
						return err
					}
				}
			}
		}
		return nil
	})
}

// interestChurn has four clients make and end subscriptions with wildcards, so that nothing that
// was matched stays cached.
func interestChurn(f *force) error {
	return f.each(4, func(i int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		go func() { _ = w.drain() }()
		var text strings.Builder
		for n := range 1000 {
			fmt.Fprintf(&text, "SUB hostile.*.%d.%d.> %d\r\nUNSUB %d\r\n", i, n, n+1, n+1)
		}
		return f.flood(w, []byte(text.String()), 1000)
	})
}

// subscribed opens n connections that subscribe to the subject, and then reads from them, or not.
// It returns when all have subscribed once.
func (f *force) subscribed(n int, subject string, reads bool) {
	var first sync.WaitGroup
	first.Add(n)
	for range n {
		go func() {
			once := sync.OnceFunc(first.Done)
			defer once()
			_ = f.each(1, func(int) error {
				w, err := f.login()
				if err != nil {
					return err
				}
				defer w.Close()
				if _, err := fmt.Fprintf(w.Conn, "SUB %s 1\r\n", subject); err != nil {
					return err
				}
				if err := w.ping(); err != nil {
					return err
				}
				once()
				if !reads {
					// The kernel says that the broker has closed only to who writes.
					for f.ctx.Err() == nil && err == nil {
						time.Sleep(time.Second)
						_, err = io.WriteString(w.Conn, "PONG\r\n")
					}
					return err
				}
				return w.drain()
			})
		}()
	}
	first.Wait()
}

// publishes floods a subject with messages from one connection.
func (f *force) publishes(subject string, size int) error {
	text := bytes.Repeat(fmt.Appendf(nil, "PUB %s %d\r\n%s\r\n", subject, size, strings.Repeat("x", size)), 100)
	return f.each(1, func(int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		go func() { _ = w.drain() }()
		return f.flood(w, text, 100)
	})
}

// fanOut floods 500 subscribers, who read, with small messages.
func fanOut(f *force) error {
	f.subscribed(500, "hostile.fan", true)
	return f.publishes("hostile.fan", 16)
}

// silentSubscribers floods 100 subscribers who never read.
func silentSubscribers(f *force) error {
	f.subscribed(100, "hostile.silent", false)
	return f.publishes("hostile.silent", 1024)
}

// pings has 20 clients send PING without end, and not read the answers.
func pings(f *force) error {
	text := bytes.Repeat([]byte("PING\r\n"), 1000)
	return f.each(20, func(int) error {
		w, err := f.login()
		if err != nil {
			return err
		}
		defer w.Close()
		return f.flood(w, text, 1000)
	})
}
