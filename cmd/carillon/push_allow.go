package main

import (
	"fmt"
	"net/netip"

	"github.com/spf13/pflag"
)

// pushAllow is the flag with the networks that Subscriptions may push to although their kind of
// address is refused: spec.push.allowedAddresses of a Broker.
type pushAllow []string

func (p *pushAllow) flags(f *pflag.FlagSet) {
	f.StringSliceVar((*[]string)(p), "push-allow", nil, "`NETWORKS` that Subscriptions may push to although loopback, link-local and this cluster's own addresses are refused, for example 127.0.0.0/8")
}

// prefixes returns the networks.
func (p pushAllow) prefixes() (all []netip.Prefix, err error) {
	for _, network := range p {
		prefix, err := netip.ParsePrefix(network)
		if err != nil {
			return nil, usageError{fmt.Errorf("--push-allow %q is not a network such as 10.1.2.3/32: %w", network, err)}
		}
		all = append(all, prefix.Masked())
	}
	return all, nil
}
