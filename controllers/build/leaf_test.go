package build

import (
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// TestOnlyBrokersHaveCertificatesForTheirRoutes: brokers open links for a certificate that is for
// the host at which the peer is registered. All brokers' is, and the coordinators' is not.
func TestOnlyBrokersHaveCertificatesForTheirRoutes(t *testing.T) {
	c := clusterOf(t, `{}`)
	authority, _, err := pki.EnsureAuthority("main-ca", nil, time.Now(), rand.Reader)
	testutil.Must(t, err)
	issue := func(leaf pki.Leaf) *x509.Certificate {
		t.Helper()
		data, err := authority.EnsureLeaf(leaf, nil, time.Now(), rand.Reader)
		testutil.Must(t, err)
		block, _ := pem.Decode(data["tls.crt"])
		cert, err := x509.ParseCertificate(block.Bytes)
		testutil.Must(t, err)
		return cert
	}
	broker, coordinator, operator := issue(BrokerLeaf(c.Broker)), issue(CoordinatorLeaf(c.Broker)), issue(pki.Leaf{Name: FieldOwner})
	if etcd := issue(BrokerEtcdLeaf(c.Broker)); len(etcd.DNSNames) > 0 || etcd.Subject.CommonName != "main-broker" {
		t.Errorf("brokers' certificate for etcd is for %v, in the name of %s", etcd.DNSNames, etcd.Subject.CommonName)
	}
	route := ""
	for _, arg := range c.BrokerSet().Spec.Template.Spec.Containers[0].Args {
		if value, ok := strings.CutPrefix(arg, "--route-advertise="); ok {
			route = value
		}
	}
	for _, pod := range []string{"main-0", "main-12"} {
		host, _, err := net.SplitHostPort(strings.ReplaceAll(route, "$(POD_NAME)", pod))
		testutil.Must(t, err)
		testutil.Must(t, broker.VerifyHostname(host))
		if coordinator.VerifyHostname(host) == nil || operator.VerifyHostname(host) == nil {
			t.Errorf("the certificate of coordinators or of the operator is for %s", host)
		}
	}
}
