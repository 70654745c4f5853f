package observe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// ClientSource is what was read for spec.tls.
type ClientSource struct {
	// Bundle is the CAs that came with the certificate; nil: none.
	Bundle       []byte
	Certificates plan.ClientCertificates
}

// ClientTLS reads the Secrets that spec.tls names, and the one that cert-manager fills. If a pod
// could not start with them, trouble has the reason and what to do.
func ClientTLS(ctx context.Context, live client.Reader, broker *v1alpha1.Broker) (source ClientSource, trouble plan.Trouble, err error) {
	source.Certificates.Known = true
	spec := broker.Spec.TLS
	if spec == nil {
		return source, plan.Trouble{}, nil
	}
	if spec.SecretName != "" || spec.IssuerRef != nil {
		if source, trouble, err = serverCertificate(ctx, live, broker); err != nil || trouble.Message != "" {
			return source, trouble, err
		}
	}
	if spec.ClientCertificates == nil {
		return source, plan.Trouble{}, nil
	}
	ref := spec.ClientCertificates.CASecretRef
	what := fmt.Sprintf("Secret %s, which spec.tls.clientCertificates.caSecretRef names,", ref.Name)
	secret, err := get(ctx, live, broker.Namespace, ref.Name)
	switch {
	case err != nil:
		return ClientSource{}, plan.Trouble{}, err
	case secret == nil:
		trouble = unusable("%s does not exist: make it with the CAs of the clients' certificates in the key %s", what, ref.Key)
	case len(secret.Data[ref.Key]) == 0:
		trouble = unusable("%s lacks the key %s: put the CAs of the clients' certificates there, PEM encoded", what, ref.Key)
	case !certificates(secret.Data[ref.Key]):
		trouble = unusable("%s has no certificate in the key %s: put the CAs of the clients' certificates there, PEM encoded", what, ref.Key)
	default:
		source.Certificates.All = append(source.Certificates.All, clientCAs(secret.Data[ref.Key], ref)...)
	}
	return source, trouble, nil
}

// chain returns the certificate that clients see, and the CAs that are sent with it.
func chain(pair *tls.Certificate, what, renew string) []plan.ClientCertificate {
	all := []plan.ClientCertificate{{What: "the certificate in " + what, Means: "clients refuse it",
		Renew: renew, NotBefore: pair.Leaf.NotBefore, NotAfter: pair.Leaf.NotAfter}}
	for _, der := range pair.Certificate[1:min(len(pair.Certificate), maxJudged)] {
		if c, err := x509.ParseCertificate(der); err == nil { // what clients can't read they pass over
			all = append(all, plan.ClientCertificate{What: fmt.Sprintf("the CA %s in tls.crt of %s", shown(c), what),
				Means: "clients that need it refuse the certificate", Renew: renew, NotBefore: c.NotBefore, NotAfter: c.NotAfter})
		}
	}
	return all
}

// clientCAs returns the CAs of clients' certificates, but for those that have a successor of the
// same name: they are left there until all clients have other certificates.
func clientCAs(bundle []byte, ref v1alpha1.SecretKeyReference) (all []plan.ClientCertificate) {
	var found []*x509.Certificate
	latest := map[string]time.Time{} // by subject
	for len(found) < maxJudged {
		var block *pem.Block
		if block, bundle = pem.Decode(bundle); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 || err != nil {
			continue // brokers pass over it, too
		}
		if slices.ContainsFunc(found, c.Equal) {
			continue
		}
		found = append(found, c)
		if name := string(c.RawSubject); c.NotAfter.After(latest[name]) {
			latest[name] = c.NotAfter
		}
	}
	for _, c := range found {
		if c.NotAfter.Before(latest[string(c.RawSubject)]) {
			continue
		}
		all = append(all, plan.ClientCertificate{
			What:  fmt.Sprintf("the CA %s in %s of Secret %s, which spec.tls.clientCertificates.caSecretRef names,", shown(c), ref.Key, ref.Name),
			Means: "clients with its certificates are refused", Renew: "put its successor there, or remove it if no client needs it",
			NotBefore: c.NotBefore, NotAfter: c.NotAfter})
	}
	return all
}

// shown returns the name of a CA for a message. Others wrote it.
func shown(c *x509.Certificate) string {
	name := strings.ToValidUTF8(c.Subject.String(), "?")
	if len(name) > maxShown {
		name = strings.ToValidUTF8(name[:maxShown], "") + "…"
	}
	return strconv.Quote(name)
}

const (
	// maxJudged is how many certificates of a chain, or of a bundle, are judged: a Secret has 1 MiB,
	// and is read each minute.
	maxJudged = 200
	// maxShown is how much of a CA's name is in a message.
	maxShown = 100
)

// serverCertificate reads the certificate that the operator does not make itself.
func serverCertificate(ctx context.Context, live client.Reader, broker *v1alpha1.Broker) (source ClientSource, trouble plan.Trouble, err error) {
	names, name := build.NamesOf(broker), build.ClientSecret(broker)
	what := fmt.Sprintf("Secret %s, which spec.tls.secretName names,", name)
	renew := "put another one, with the CAs between and its key, into tls.crt and tls.key"
	issued := broker.Spec.TLS.IssuerRef != nil
	if issued {
		renew = fmt.Sprintf("kubectl describe certificate.cert-manager.io %s says why it is not renewed", names.ClientTLS())
		what = fmt.Sprintf("Secret %s of Certificate %s", name, names.ClientTLS())
	}
	secret, err := get(ctx, live, broker.Namespace, name)
	if err != nil {
		return ClientSource{}, plan.Trouble{}, err
	}
	source.Certificates.Known = true
	if secret == nil && issued {
		return source, plan.Trouble{Reason: plan.CertificatePending, Message: fmt.Sprintf(
			"cert-manager has not made %s yet; if this lasts, kubectl describe certificate.cert-manager.io %s says why", what, names.ClientTLS())}, nil
	}
	if secret == nil {
		return source, unusable("%s does not exist: make it with the keys tls.crt and tls.key, as kubectl create secret tls does", what), nil
	}
	if secret.Labels[build.LabelManagedBy] == build.ManagedBy {
		return source, unusable("%s is one of the operator's own: name a Secret of yours", what), nil
	}
	for _, key := range []string{build.KeyCert, build.KeyKey} {
		if len(secret.Data[key]) == 0 {
			return source, unusable("%s lacks the key %s: it needs tls.crt and tls.key, as kubectl create secret tls makes them", what, key), nil
		}
	}
	pair, err := tls.X509KeyPair(secret.Data[build.KeyCert], secret.Data[build.KeyKey])
	if err != nil {
		return source, unusable("%s is no certificate with its key (%v): put a PEM certificate into tls.crt and the key that it was made for into tls.key", what, err), nil
	}
	source.Certificates.All = chain(&pair, what, renew)
	if ca := secret.Data[build.KeyCA]; certificates(ca) {
		source.Bundle = ca
	}
	return source, plan.Trouble{}, nil
}

// get reads a Secret that is not ours; nil: it does not exist.
func get(ctx context.Context, live client.Reader, namespace, name string) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("getting Secret %s for spec.tls: %w", name, err)
	}
	return secret, nil
}

func unusable(format string, args ...any) plan.Trouble {
	return plan.Trouble{Reason: plan.TLSSecretUnusable, Message: fmt.Sprintf(format, args...)}
}

// certificates reports whether text has a certificate, PEM encoded.
func certificates(text []byte) bool { return x509.NewCertPool().AppendCertsFromPEM(text) }
