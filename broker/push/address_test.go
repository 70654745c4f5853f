package push

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"
)

func TestWhereNothingIsPushedTo(t *testing.T) {
	now := time.Now()
	hosts := map[string]string{"api": "10.96.0.1", "etcd-0": "10.1.0.5"}
	lookedUp := 0
	a := &addresses{
		allowed: []netip.Prefix{netip.MustParsePrefix("127.1.0.0/16"), netip.MustParsePrefix("10.1.0.6/32")},
		control: func() []string { return []string{"10.96.0.1", "etcd-0", "10.1.0.6"} },
		resolve: func(_ context.Context, host string) ([]netip.Addr, error) {
			lookedUp++
			if hosts[host] == "" {
				return nil, errors.New("no such host")
			}
			return []netip.Addr{netip.MustParseAddr(hosts[host])}, nil
		},
		now: func() time.Time { return now },
	}
	judge := func(address string, refused bool) {
		t.Helper()
		err := a.judge(t.Context(), netip.MustParseAddr(address))
		var is *AddressError
		if errors.As(err, &is) != refused {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{
		"127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1%eth0", "0.0.0.0", "0.1.2.3", "::", "224.0.0.1", "ff02::1",
		"255.255.255.255", "64:ff9b::7f00:1", "::127.0.0.1", "2002:7f00:1::", "64:ff9b::a9fe:a9fe", "10.96.0.1", "::ffff:10.96.0.1", "10.1.0.5",
		"64:ff9b::a60:1", "2002:a01:5::1", "::a60:1", "::ffff:0:7f00:1", "64:ff9b:1::7f00:1", "2001:0:1::1", "fd00:ec2::254", "168.63.129.16", "100.100.100.200",
		"64:ff9b::a83f:8110",
	} {
		judge(address, true)
	}
	for _, address := range []string{"10.1.0.7", "93.184.216.34", "2606:2800:220:1::1", "127.1.2.3", "10.1.0.6", "192.168.0.1", "64:ff9b::808:808", "2002:808:808::1"} {
		judge(address, false)
	}
	if lookedUp != 1 {
		t.Errorf("names were looked up %d times", lookedUp)
	}
	// A pod is found again at its new address. The last address of a pod that is gone stays refused.
	hosts["etcd-0"], now = "10.1.0.9", now.Add(lookUpTime)
	judge("10.1.0.9", true)
	hosts["etcd-0"], now = "", now.Add(lookUpTime)
	judge("10.1.0.9", true)
	hosts["etcd-0"], now = "10.1.0.10", now.Add(lookUpAgain)
	judge("10.1.0.10", true)
}

// TestNothingIsPushedToBeforeNamesAreKnown: a broker that can't look up names yet knows none of its
// own cluster's addresses.
func TestNothingIsPushedToBeforeNamesAreKnown(t *testing.T) {
	now, down := time.Now(), true
	a := &addresses{
		control: func() []string { return []string{"10.96.0.1", "etcd-0"} },
		resolve: func(context.Context, string) ([]netip.Addr, error) {
			if down {
				return nil, errors.New("no name server")
			}
			return []netip.Addr{netip.MustParseAddr("10.1.0.5")}, nil
		},
		now: func() time.Time { return now },
	}
	at := netip.MustParseAddr("93.184.216.34")
	if a.judge(t.Context(), at) == nil {
		t.Error("it is permitted")
	}
	down, now = false, now.Add(lookUpAgain)
	if err := a.judge(t.Context(), at); err != nil {
		t.Error(err)
	}
	down, now = true, now.Add(lookUpTime)
	if err := a.judge(t.Context(), at); err != nil {
		t.Error(err)
	}
}
