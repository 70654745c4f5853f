package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Chosen ports are below those of outgoing connections, so that no connection takes the port of a
// broker that is about to be restarted.
const (
	lowestPort, highestPort = 10000, 30000
	portTries               = 200
)

const loopback = "127.0.0.1"

// devPorts finds free ports, and listens on them until all are found, so that no two are the same.
// A restarted broker needs its port, so no other `carillon dev` may choose it: the UDP port of the
// same number, which no broker uses, is locked until unlock is called.
type devPorts struct {
	held  []net.Listener
	locks []net.PacketConn
}

// checkPorts checks n consecutive addresses from this one on. Port 0 means that free ones are
// chosen.
func checkPorts(flag, from string, n int) (host string, first int, err error) {
	host, port, err := net.SplitHostPort(from)
	if err != nil {
		return "", 0, usageError{fmt.Errorf("--%s %q is not host:port: %w", flag, from, err)}
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number+uint64(n)-1 > 65535 {
		return "", 0, usageError{fmt.Errorf("--%s %q: want the number of a port that has %d more after it", flag, from, n-1)}
	}
	return host, int(number), nil
}

// consecutive returns n addresses from this one on.
func (p *devPorts) consecutive(flag, from string, n int) ([]string, error) {
	host, first, err := checkPorts(flag, from, n)
	if err != nil {
		return nil, err
	}
	if first == 0 {
		return p.free(host, n)
	}
	all, err := p.hold(host, first, n)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w (is another broker running here?)", flag, err)
	}
	// Another program may use the UDP ports of numbers that the user chose.
	for i := range n {
		_ = p.lock(first + i)
	}
	return all, nil
}

// free returns n consecutive addresses on which nobody listens.
func (p *devPorts) free(host string, n int) (all []string, err error) {
	for range portTries {
		first, held := lowestPort+rand.IntN(highestPort-lowestPort-n), len(p.held)
		if all, err = p.hold(host, first, n); err != nil {
			continue
		}
		for i := range n {
			if err == nil {
				err = p.lock(first + i)
			}
		}
		if err == nil {
			return all, nil
		}
		err = errors.Join(err, p.release(held))
	}
	return nil, fmt.Errorf("find %d free ports: %w", n, err)
}

func (p *devPorts) hold(host string, first, n int) (all []string, err error) {
	before := len(p.held)
	for i := range n {
		address := net.JoinHostPort(host, strconv.Itoa(first+i))
		ln, err := net.Listen("tcp", address)
		if err != nil {
			return nil, errors.Join(err, p.release(before))
		}
		p.held = append(p.held, ln)
		all = append(all, address)
	}
	return all, nil
}

// lock locks a port against other processes that choose ports. It ends with this process.
func (p *devPorts) lock(port int) error {
	lock, err := net.ListenPacket("udp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err == nil {
		p.locks = append(p.locks, lock)
	}
	return err
}

// unlock ends all locks.
func (p *devPorts) unlock() {
	for _, lock := range p.locks {
		_ = lock.Close()
	}
	p.locks = nil
}

// release closes all listeners but the first ones.
func (p *devPorts) release(but int) error {
	var failed error
	for _, ln := range p.held[but:] {
		failed = errors.Join(failed, ln.Close())
	}
	p.held = p.held[:but]
	return failed
}

// reachable returns an address by which this machine reaches a listener.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = loopback
	}
	return net.JoinHostPort(host, port)
}
