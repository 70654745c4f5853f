package build

import (
	"slices"
	"testing"
)

// TestTheCertificateIsForTheNamesThatClientsUse: those of the Service and of every pod, and the
// user's own, each once.
func TestTheCertificateIsForTheNamesThatClientsUse(t *testing.T) {
	broker := clusterOf(t, `{tls: {extraNames: [broker.example.org, 192.0.2.7, localhost, 127.0.0.1, "2001:db8::1"]}}`).Broker
	leaf := ClientLeaf(broker, "cluster.local")
	names := []string{
		"main", "main.default", "main.default.svc", "*.main-brokers.default.svc", "main.default.svc.cluster.local",
		"*.main-brokers.default.svc.cluster.local", "localhost", "broker.example.org",
	}
	if !slices.Equal(leaf.DNSNames, names) {
		t.Errorf("its names are %q, want %q", leaf.DNSNames, names)
	}
	var addresses []string
	for _, ip := range leaf.IPs {
		addresses = append(addresses, ip.String())
	}
	if want := []string{"127.0.0.1", "::1", "192.0.2.7", "2001:db8::1"}; !slices.Equal(addresses, want) {
		t.Errorf("its addresses are %q, want %q", addresses, want)
	}
	if unknown := ClientLeaf(broker, "").DNSNames; slices.Contains(unknown, "main.default.svc.") || len(unknown) != len(names)-2 {
		t.Errorf("without the cluster's domain its names are %q", unknown)
	}
}

// TestFlagsOfTLSAreThoseOfTheBroker: the pairs are those that `carillon broker` takes.
func TestFlagsOfTLSAreThoseOfTheBroker(t *testing.T) {
	const dir = "--client-tls-dir=/etc/carillon/client-tls"
	for spec, want := range map[string][]string{
		`{}`:                                  {dir, "--client-tls=required"},
		`{mode: Required}`:                    {dir, "--client-tls=required"},
		`{mode: Optional}`:                    {dir, "--client-tls=optional"},
		`{mode: Optional, handshake: Either}`: {dir, "--client-tls=optional", "--client-tls-first=auto"},
		`{handshake: First}`:                  {dir, "--client-tls=required", "--client-tls-first=yes"},
		`{handshake: AfterInfo}`:              {dir, "--client-tls=required"},
		`{clientCertificates: {caSecretRef: {name: a, key: b}}}`:         {dir, "--client-tls=required", "--client-tls-verify"},
		`{secretName: theirs, mode: Optional, handshake: AfterInfo}`:     {dir, "--client-tls=optional"},
		`{issuerRef: {name: a, kind: Issuer, group: g}, mode: Required}`: {dir, "--client-tls=required"},
	} {
		if got := clientArgs(clusterOf(t, "tls: "+spec).Broker.Spec.TLS); !slices.Equal(got, want) {
			t.Errorf("%s becomes %q, want %q", spec, got, want)
		}
	}
}

// TestAnotherSecretIsADifferenceAndItsContentIsNot: the pods follow the names of Secrets; what they
// hold is not in the template.
func TestAnotherSecretIsADifferenceAndItsContentIsNot(t *testing.T) {
	pod, template := podOf(t, clusterOf(t, `{tls: {secretName: a}}`))
	if got := Differences(pod, template); got != "its template has changed" {
		t.Errorf("a pod differs from its own template: %s", got)
	}
	for spec, want := range map[string]string{
		`{tls: {secretName: b}}`: "Secrets of clients' TLS a (tls.crt, tls.key) become b (tls.crt, tls.key)",
		`{tls: {}}`:              "Secrets of clients' TLS a (tls.crt, tls.key) become main-client-tls (tls.crt, tls.key)",
		`{tls: {secretName: a, clientCertificates: {caSecretRef: {name: c, key: ca}}}}`: "flag --client-tls-verify is new, Secrets of clients' TLS a (tls.crt, tls.key) become a (tls.crt, tls.key) and c (ca)",
		`{}`:                                     "flag --client-tls goes, flag --client-tls-dir goes",
		`{tls: {secretName: a, mode: Optional}}`: "client-tls required becomes optional",
	} {
		_, template := podOf(t, clusterOf(t, spec))
		if got := Differences(pod, template); got != want {
			t.Errorf("%s: %q, want %q", spec, got, want)
		}
	}
}

// TestTheEndpointSaysWhetherClientsMustUseTLS: clients that read it need to know nothing else.
func TestTheEndpointSaysWhetherClientsMustUseTLS(t *testing.T) {
	for spec, want := range map[string]string{
		`{}`:                      "nats://main.default.svc:4222",
		`{tls: {mode: Optional}}`: "nats://main.default.svc:4222",
		`{tls: {mode: Required}}`: "tls://main.default.svc:4222",
		`{tls: {}}`:               "tls://main.default.svc:4222",
	} {
		if got := Endpoint(clusterOf(t, spec).Broker); got != want {
			t.Errorf("%s: %s, want %s", spec, got, want)
		}
	}
}

// TestNamesOfTwoBrokersNeverMeet: a Broker may be called main-client, beside main.
func TestNamesOfTwoBrokersNeverMeet(t *testing.T) {
	secrets := func(name string) []string {
		broker := clusterOf(t, `{}`).Broker
		broker.Name = name
		n := NamesOf(broker)
		return []string{n.CA(), n.BrokerTLS(), n.BrokerEtcdTLS(), n.CoordinatorTLS(), n.CoordinatorPeerTLS(), n.Push(), n.ClientTLS(), n.ClientIssued(), n.ClientSigner()}
	}
	ours := secrets("main")
	for _, other := range []string{"main-client", "main-client-tls", "main-broker", "main-broker-etcd", "main-coordinator", "main-coordinator-peer", "main-broker-tls", "main-ca", "main-push"} {
		for _, name := range secrets(other) {
			if slices.Contains(ours, name) {
				t.Errorf("Secret %s is that of Broker main and of Broker %s", name, other)
			}
		}
	}
}
