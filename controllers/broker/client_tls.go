package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// ensureClientTLS computes the wanted content of the objects of spec.tls, without writing it: the
// certificate for clients, or the Certificate from which cert-manager makes one, and the ConfigMap
// with the CAs that clients trust. That stays as it is while its source can't be used.
func (p *pass) ensureClientTLS(ctx context.Context, names build.Names, now time.Time) error {
	source, trouble, err := observe.ClientTLS(ctx, p.Live, p.broker)
	if err != nil {
		return err
	}
	p.facts.TLSTrouble, p.facts.ClientCertificates = trouble, source.Certificates
	spec, bundle := p.broker.Spec.TLS, source.Bundle
	if spec == nil {
		return nil
	}
	if spec.IssuerRef != nil {
		p.objects = append(p.objects, build.ClientCertificate(p.broker, p.ClusterDomain))
	}
	if spec.IssuerRef == nil && spec.SecretName == "" {
		authority, err := p.ensureClientCertificate(ctx, names, now)
		if authority == nil {
			return err
		}
		bundle = authority.Bundle()
	} else if trouble.Message != "" {
		return nil
	}
	p.objects = append(p.objects, build.ClientCA(p.broker, bundle))
	return nil
}

// ensureClientCertificate makes and renews the operator's own certificate for clients. Its CA is
// another one than that of the links between brokers and of etcd, since nothing that clients trust,
// or that could sign for them, may join the cluster. It returns nil if the CA can't be used.
func (p *pass) ensureClientCertificate(ctx context.Context, names build.Names, now time.Time) (*pki.Authority, error) {
	data := map[string]map[string][]byte{}
	for _, name := range []string{names.ClientSigner(), names.ClientTLS()} {
		found, err := observe.Secret(ctx, p.Client, p.Live, p.broker.Namespace, name)
		if err != nil {
			return nil, err
		}
		data[name] = found
	}
	authority, signer, err := pki.EnsureAuthority(names.ClientCA()+"."+p.broker.Namespace, data[names.ClientSigner()], now, rand.Reader)
	if err != nil {
		p.facts.TLSTrouble = plan.Trouble{Reason: plan.TLSSecretUnusable, Message: fmt.Sprintf(
			"Secret %s: %v; clients then need the new CA from ConfigMap %s", names.ClientSigner(), err, names.ClientCA())}
		return nil, nil
	}
	leaf, err := authority.EnsureLeaf(build.ClientLeaf(p.broker, p.ClusterDomain), data[names.ClientTLS()], now, rand.Reader)
	if err != nil {
		return nil, err
	}
	p.certificates = append(p.certificates, certificate{names.ClientSigner(), signer}, certificate{names.ClientTLS(), leaf})
	return authority, nil
}
