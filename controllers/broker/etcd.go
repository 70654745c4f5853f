package broker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
)

// operatorLeafLife is the life of the operator's own certificates, which are made for one pass and
// not stored.
const operatorLeafLife = time.Hour

// askEtcd opens etcd and asks about its members, its keys and its users.
func (p *pass) askEtcd(ctx context.Context, names build.Names, now time.Time) (err error) {
	if p.etcd, err = p.openEtcd(names, build.FieldOwner, now); err != nil {
		return err
	}
	p.facts.Etcd = observe.AskEtcd(ctx, p.etcd, p.identity(), &p.facts.Coordinators)
	if !p.facts.Etcd.Answered {
		return nil
	}
	if p.root, err = p.openEtcd(names, coordination.RootUser, now); err != nil {
		return err
	}
	p.facts.Access = observe.AskAccess(ctx, p.root, build.EtcdAccess(p.broker))
	// Pods of an image that waits to be replaced may be of an earlier version.
	p.facts.Access.Understood = p.image == p.Image
	if trouble := p.facts.Access.Trouble; trouble != "" {
		log.FromContext(ctx).Info("The users of etcd are not known; asking again in the next pass", "reason", trouble)
	}
	return nil
}

// openEtcd opens etcd as a user of it.
func (p *pass) openEtcd(names build.Names, user string, now time.Time) (observe.Etcd, error) {
	leaf, err := p.roots.Of(pki.Etcd).EnsureLeaf(pki.Leaf{Name: user, Life: operatorLeafLife}, nil, now, rand.Reader)
	if err != nil {
		return nil, err
	}
	endpoints := names.EtcdEndpoints(p.broker.Spec.Coordination.Managed.Replicas)
	etcd, err := p.OpenEtcd(names.Cluster(), endpoints, leaf["ca.crt"], leaf["tls.crt"], leaf["tls.key"])
	if err != nil {
		return nil, fmt.Errorf("opening etcd of Broker %s: %w", p.broker.Name, err)
	}
	return etcd, nil
}

// grantAccess and enableAccess act as the user root, whose answer the plan is made from.
func (p *pass) grantAccess(ctx context.Context) error {
	if p.root == nil {
		return errNotAsked
	}
	return p.root.GrantAccess(ctx, build.EtcdAccess(p.broker))
}

func (p *pass) enableAccess(ctx context.Context) error {
	if p.root == nil {
		return errNotAsked
	}
	return p.root.EnableAccess(ctx, build.EtcdAccess(p.broker))
}

var errNotAsked = errors.New("changing the users of etcd: etcd was not asked about them")
