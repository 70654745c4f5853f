package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports of our own choice are below those that systems give to outgoing connections, so that none
// of these has the port of a broker that is about to be started again.
const (
	lowestPort, highestPort = 10000, 30000
	portTries               = 200
)

const loopback = "127.0.0.1"

// devPorts finds ports, and holds them until all are found so that no two are the same.
type devPorts struct{ held []net.Listener }

// checkPorts says what is wrong with n consecutive addresses from this one on. Port 0 is n of our choice.
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

// consecutive are n addresses from this one on.
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
	return all, nil
}

// free are n consecutive addresses that nobody listens on.
func (p *devPorts) free(host string, n int) (all []string, err error) {
	for range portTries {
		if all, err = p.hold(host, lowestPort+rand.IntN(highestPort-lowestPort-n), n); err == nil {
			return all, nil
		}
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

// release lets go of all but the first so many.
func (p *devPorts) release(but int) error {
	var failed error
	for _, ln := range p.held[but:] {
		failed = errors.Join(failed, ln.Close())
	}
	p.held = p.held[:but]
	return failed
}

// reachable is an address under which this machine reaches who listens there.
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
