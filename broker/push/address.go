package push

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// addresses decides which addresses may be connected to. The decision is made about the address of
// each connection, after names were resolved, so a name that changes its address is no way around.
//
//  1. An address that the Broker allows may be connected to, whatever it is.
//  2. Loopback, link-local, unspecified and multicast addresses may not, since they are those of
//     the broker's own pod and node.
//  3. The addresses of the API server, of the coordinators and of this cluster's brokers may not.
//     If none of their names was ever found, no address may.
//  4. An IPv6 address that leads to an IPv4 address is judged as that one, too.
type addresses struct {
	allowed []netip.Prefix
	control func() []string // hosts of 3: names or addresses
	resolve func(ctx context.Context, host string) ([]netip.Addr, error)
	now     func() time.Time

	mu    sync.Mutex
	known map[netip.Addr]bool // of 3
	found bool                // a name of 3 was found once, or there are only addresses
	until time.Time           // when known is looked up again
	asked string              // the hosts that known is of
}

// AddressError says that a URL leads where a broker does not connect to.
type AddressError struct {
	Address netip.Addr
	Why     string
}

func (e *AddressError) Error() string {
	return fmt.Sprintf("address %s is %s, and brokers push to no such address unless spec.push.allowedAddresses of the Broker has it", e.Address, e.Why)
}

// permit is the Control of a net.Dialer.
func (a *addresses) permit(ctx context.Context, network, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("address %q: %w", address, err)
	}
	return a.judge(ctx, at.Addr())
}

// judge returns an *AddressError if an address may not be connected to.
func (a *addresses) judge(ctx context.Context, at netip.Addr) error {
	at = at.Unmap().WithZone("")
	for _, p := range a.allowed {
		if p.Contains(at) {
			return nil
		}
	}
	if why := special(at); why != "" {
		return &AddressError{at, why}
	}
	own, known := a.controls(ctx, at)
	switch {
	case own:
		return &AddressError{at, "one of this cluster's own: the API server, a coordinator or a broker"}
	case !known:
		return &AddressError{at, "perhaps one of this cluster's own, whose names can't be looked up yet"}
	}
	if inner, ok := embedded(at); ok {
		var refused *AddressError
		if err := a.judge(ctx, inner); errors.As(err, &refused) {
			return &AddressError{at, "the way to " + inner.String() + ", " + refused.Why}
		}
	}
	return nil
}

// special returns what an address is that belongs to no host of its own, or "". It is pure.
func special(at netip.Addr) string {
	switch {
	case at.IsLoopback():
		return "a loopback address"
	case at.IsLinkLocalUnicast():
		return "a link-local address"
	case at.IsUnspecified(), at.Is4() && at.As4()[0] == 0:
		return "no address of a host"
	case at.IsMulticast(), at == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "a multicast address"
	}
	for _, p := range specials {
		if p.in.Contains(at) {
			return p.why
		}
	}
	return ""
}

// specials are addresses that are special and don't look so.
var specials = []struct {
	in  netip.Prefix
	why string
}{
	{netip.MustParsePrefix("168.63.129.16/32"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("100.100.100.200/32"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("fd00:ec2::254/128"), "the metadata service of a cloud"},
	{netip.MustParsePrefix("2001::/32"), "a Teredo address, which hides another one"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "a local NAT64 address, which hides another one"},
}

// embedded returns the IPv4 address that an IPv6 address leads to: by NAT64, 6to4, or as an
// IPv4-compatible or IPv4-translated one.
func embedded(at netip.Addr) (netip.Addr, bool) {
	if !at.Is6() {
		return at, false
	}
	b := at.As16()
	four := func(i int) (netip.Addr, bool) { return netip.AddrFrom4([4]byte(b[i : i+4])), true }
	switch {
	case netip.MustParsePrefix("64:ff9b::/96").Contains(at), netip.MustParsePrefix("::/96").Contains(at),
		netip.MustParsePrefix("::ffff:0:0:0/96").Contains(at):
		return four(12)
	case netip.MustParsePrefix("2002::/16").Contains(at):
		return four(2)
	}
	return at, false
}

// controls reports whether an address is one of rule 3. Names that can't be resolved now have the
// addresses that they had. known is false until something was found at all: nothing is known of at
// then.
func (a *addresses) controls(ctx context.Context, at netip.Addr) (is, known bool) {
	hosts := a.control()
	asked := fmt.Sprint(hosts)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.now().Before(a.until) && asked == a.asked {
		return a.known[at], a.found
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	all := map[netip.Addr]bool{}
	names := 0
	missed := false
	for _, host := range hosts {
		if ip, err := netip.ParseAddr(host); err == nil {
			all[ip.Unmap().WithZone("")] = true
			continue
		}
		names++
		found, err := a.resolve(ctx, host)
		missed = missed || err != nil
		a.found = a.found || err == nil
		for _, ip := range found {
			all[ip.Unmap().WithZone("")] = true
		}
	}
	if missed {
		for ip := range a.known {
			all[ip] = true
		}
	}
	a.found = a.found || names == 0
	a.known, a.asked, a.until = all, asked, a.now().Add(lookUpTime)
	if missed {
		a.until = a.now().Add(lookUpAgain)
	}
	return all[at], a.found
}

// lookUp resolves a name.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
}
