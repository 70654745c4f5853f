package build

import (
	"net"
	"slices"

	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// Keys of the Secrets with certificates of clients' TLS, and files in the pods.
const (
	KeyCA   = "ca.crt"
	KeyCert = "tls.crt"
	KeyKey  = "tls.key"
)

const (
	clientTLSVolume = "client-tls"
	clientTLSDir    = "/etc/carillon/client-tls"
)

// ClientTLS is the Secret with the certificate for clients that the operator makes, and the
// Certificate that it makes for cert-manager.
func (n Names) ClientTLS() string { return n.name + "-client-tls" }

// ClientIssued is the Secret that cert-manager fills. It is another one than ClientTLS, so that an
// issuer can be named, and removed again, without two writers of one Secret.
func (n Names) ClientIssued() string { return n.name + "-client-issued" }

// ClientSigner is the Secret with the CA for clients and its key, which only the operator reads.
// Its name can't be that of a Secret of another Broker, such as NAME-client.
func (n Names) ClientSigner() string { return n.name + "-client-signer" }

// ClientCA is the ConfigMap with the CAs that clients trust.
func (n Names) ClientCA() string { return n.name + "-client-ca" }

// ClientSecret returns the name of the Secret with the certificate for clients of a Broker with
// spec.tls.
func ClientSecret(broker *v1alpha1.Broker) string {
	spec, n := broker.Spec.TLS, NamesOf(broker)
	switch {
	case spec.SecretName != "":
		return spec.SecretName
	case spec.IssuerRef != nil:
		return n.ClientIssued()
	}
	return n.ClientTLS()
}

// ClientLeaf describes the certificate for clients: for the names of the client Service, of every
// pod, also further ones, and of a forwarded port, and for spec.tls.extraNames. domain is that of
// the cluster, or empty.
func ClientLeaf(broker *v1alpha1.Broker, domain string) pki.Leaf {
	n := NamesOf(broker)
	service, pods := n.Brokers()+"."+n.namespace+".svc", "*."+n.BrokersService()+"."+n.namespace+".svc"
	leaf := pki.Leaf{
		Name:     n.ClientTLS(),
		DNSNames: []string{n.Brokers(), n.Brokers() + "." + n.namespace, service, pods},
		IPs:      []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if domain != "" {
		leaf.DNSNames = append(leaf.DNSNames, service+"."+domain, pods+"."+domain)
	}
	leaf.DNSNames = append(leaf.DNSNames, "localhost")
	for _, name := range broker.Spec.TLS.ExtraNames {
		ip := net.ParseIP(name)
		switch {
		case ip != nil && !slices.ContainsFunc(leaf.IPs, ip.Equal):
			leaf.IPs = append(leaf.IPs, ip)
		case ip == nil && !slices.Contains(leaf.DNSNames, name):
			leaf.DNSNames = append(leaf.DNSNames, name)
		}
	}
	return leaf
}

// ClientCA returns the ConfigMap with the CAs that clients trust, PEM encoded; without the key if
// they are not known.
func ClientCA(broker *v1alpha1.Broker, bundle []byte) *corev1ac.ConfigMapApplyConfiguration {
	n := NamesOf(broker)
	config := corev1ac.ConfigMap(n.ClientCA(), n.namespace).
		WithLabels(n.labels("")).
		WithOwnerReferences(owner(broker))
	if len(bundle) > 0 {
		config.WithData(map[string]string{KeyCA: string(bundle)})
	}
	return config
}

// Fields is an object of a kind that Kubernetes itself does not have.
type Fields map[string]any

// IsApplyConfiguration makes Fields a runtime.ApplyConfiguration.
func (Fields) IsApplyConfiguration() {}

// ClientCertificate returns the Certificate by which cert-manager fills the Secret ClientIssued.
func ClientCertificate(broker *v1alpha1.Broker, domain string) Fields {
	n, leaf, issuer := NamesOf(broker), ClientLeaf(broker, domain), broker.Spec.TLS.IssuerRef
	addresses := make([]string, len(leaf.IPs))
	for i, ip := range leaf.IPs {
		addresses[i] = ip.String()
	}
	return Fields{
		"apiVersion": "cert-manager.io/v1",
		"kind":       "Certificate",
		"metadata": map[string]any{
			"name": n.ClientTLS(), "namespace": n.namespace,
			"labels":          n.labels(""),
			"ownerReferences": []any{owner(broker)},
		},
		"spec": map[string]any{
			"secretName":  n.ClientIssued(),
			"dnsNames":    leaf.DNSNames,
			"ipAddresses": addresses,
			"issuerRef":   map[string]any{"name": issuer.Name, "kind": issuer.Kind, "group": issuer.Group},
			"privateKey":  map[string]any{"algorithm": "ECDSA", "size": 256, "rotationPolicy": "Always"},
			"usages":      []any{"digital signature", "server auth"},
		},
	}
}

// clientArgs are the brokers' flags for spec.tls.
func clientArgs(spec *v1alpha1.ClientTLSSpec) []string {
	args := []string{"--client-tls-dir=" + clientTLSDir}
	if spec.Mode == v1alpha1.TLSOptional {
		args = append(args, "--client-tls=optional")
	} else {
		args = append(args, "--client-tls=required")
	}
	switch spec.Handshake {
	case v1alpha1.HandshakeFirst:
		args = append(args, "--client-tls-first=yes")
	case v1alpha1.HandshakeEither:
		args = append(args, "--client-tls-first=auto")
	}
	if spec.ClientCertificates != nil {
		args = append(args, "--client-tls-verify")
	}
	return args
}

// clientFiles returns the files of spec.tls in the pods: the certificate and its key of one Secret,
// and the CAs of clients' certificates of another. What the Secrets hold is not in it, so a renewal
// changes no pod: the kubelet writes the new files, and the brokers read them.
func clientFiles(broker *v1alpha1.Broker) *corev1ac.ProjectedVolumeSourceApplyConfiguration {
	files := corev1ac.ProjectedVolumeSource().WithDefaultMode(0o440).WithSources(
		secretFiles(ClientSecret(broker), corev1ac.KeyToPath().WithKey(KeyCert).WithPath(KeyCert), corev1ac.KeyToPath().WithKey(KeyKey).WithPath(KeyKey)))
	if c := broker.Spec.TLS.ClientCertificates; c != nil {
		files.WithSources(secretFiles(c.CASecretRef.Name, corev1ac.KeyToPath().WithKey(c.CASecretRef.Key).WithPath(KeyCA)))
	}
	return files
}

func secretFiles(name string, items ...*corev1ac.KeyToPathApplyConfiguration) *corev1ac.VolumeProjectionApplyConfiguration {
	return corev1ac.VolumeProjection().WithSecret(corev1ac.SecretProjection().WithName(name).WithItems(items...))
}
