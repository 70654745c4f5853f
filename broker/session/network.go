package session

import "net/netip"

// Network returns on whose account a client's IP address counts where addresses take turns: of
// IPv6, a host has a network of 64 bits for itself.
func Network(address string) string {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return address
	}
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		return ip.String()
	}
	return netip.PrefixFrom(ip, 64).Masked().String()
}
