package broker

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// ensureCertificates computes the wanted content of the Secrets, without writing it.
func (p *pass) ensureCertificates(ctx context.Context, names build.Names, now time.Time) error {
	roots, ca, err := p.ensureRoots(ctx, names, now)
	if err != nil || p.stall != nil {
		return err
	}
	p.roots = roots
	p.trust = []certificate{{names.CA(), ca}}
	type wanted struct {
		secret string
		kind   pki.Kind
		leaf   pki.Leaf
	}
	leaves := []wanted{
		{names.CoordinatorTLS(), pki.Etcd, build.CoordinatorLeaf(p.broker)},
		{names.CoordinatorPeerTLS(), pki.Peer, build.CoordinatorLeaf(p.broker)},
		{names.BrokerTLS(), pki.Link, build.BrokerLeaf(p.broker)},
		{names.BrokerEtcdTLS(), pki.Etcd, build.BrokerEtcdLeaf(p.broker)},
	}
	if roots.Phase() == pki.Shared {
		// Pods of this image know one folder, whose certificate is for everything.
		leaves = []wanted{leaves[0], leaves[2]}
	}
	signedFor := time.Duration(1<<63 - 1)
	for _, l := range leaves {
		found, err := observe.Secret(ctx, p.Client, p.Live, p.broker.Namespace, l.secret)
		if err != nil {
			return err
		}
		data, err := roots.Of(l.kind).EnsureLeaf(l.leaf, found, now, rand.Reader)
		if err != nil {
			return err
		}
		signedFor = min(signedFor, pki.LeafAge(data, now))
		if mark := found[build.KeyBootstrapped]; l.secret == names.CoordinatorTLS() && len(mark) > 0 {
			data = bootstrapped(data)
			p.facts.Bootstrapped = true
		}
		p.trust = append(p.trust, certificate{l.secret, data})
	}
	p.facts.Roots = plan.Roots{Announced: roots.Phase() == pki.Announced && p.image == p.Image, Signing: roots.Phase() == pki.Signing, SignedFor: signedFor}
	return nil
}

// ensureRoots computes the CAs. Pods of an image that waits to be replaced may be of an earlier
// version, which knows one CA only: the change to several begins with the next image.
func (p *pass) ensureRoots(ctx context.Context, names build.Names, now time.Time) (*pki.Roots, map[string][]byte, error) {
	name, separate := names.CA()+"."+p.broker.Namespace, p.image == p.Image
	found, err := observe.Secret(ctx, p.Client, p.Live, p.broker.Namespace, names.CA())
	if err != nil {
		return nil, nil, err
	}
	if p.hasEarlierPods() {
		found = pki.Retreat(found)
	}
	roots, wanted, err := pki.EnsureRoots(name, found, separate, now, rand.Reader)
	if err == nil && pki.Begins(found, wanted) {
		// The cached Secret may be old, and CAs that it lacks may have signed certificates already.
		// So new CAs are made only after a read from the API server.
		if found, err = observe.Secret(ctx, p.Live, p.Live, p.broker.Namespace, names.CA()); err != nil {
			return nil, nil, err
		}
		roots, wanted, err = pki.EnsureRoots(name, found, separate, now, rand.Reader)
	}
	if err != nil {
		p.stall = &plan.Action{Kind: plan.Stall, Reason: plan.CertificatesSpoilt, Message: fmt.Sprintf(
			"Secret %s: %v; new CAs cut all connections inside the cluster until every pod has restarted", names.CA(), err)}
		return nil, nil, nil
	}
	return roots, wanted, nil
}

// hasEarlierPods reports whether pods of an earlier version run, which trust one CA only. Where the
// CAs of the kinds sign already, an operator of that version was back in the meantime.
func (p *pass) hasEarlierPods() bool {
	for _, set := range []observe.Set{p.coordinators, p.brokers} {
		if slices.ContainsFunc(set.Pods, func(pod corev1.Pod) bool { return build.HasSharedRoot(&pod) }) {
			return true
		}
	}
	return false
}

// sharedRoot reports whether new pods have one folder of certificates, as an earlier version knows.
// In the phase Announced those do for every version, and the image that waits to be replaced may be
// of any.
func (p *pass) sharedRoot() bool {
	phase := p.roots.Phase()
	return phase == pki.Shared || phase == pki.Announced && p.image != p.Image
}

// bootstrapped adds the marker that the coordinators' cluster has existed.
func bootstrapped(data map[string][]byte) map[string][]byte {
	marked := maps.Clone(data)
	marked[build.KeyBootstrapped] = []byte("true")
	return marked
}

// changeRoots takes the next step to a CA for each kind of connections. It is one write.
func (p *pass) changeRoots(ctx context.Context) error {
	name := build.NamesOf(p.broker).CA()
	_, err := p.Writer.Apply(ctx, p.broker, build.Secret(p.broker, name, pki.Advance(p.trust[0].data)))
	return err
}
