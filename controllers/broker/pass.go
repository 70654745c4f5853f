package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	appsv1ac "k8s.io/client-go/applyconfigurations/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/carillon-mq/carillon/api/v1alpha1"
	"github.com/carillon-mq/carillon/controllers/apply"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/observe"
	"github.com/carillon-mq/carillon/controllers/pki"
	"github.com/carillon-mq/carillon/controllers/plan"
	"github.com/carillon-mq/carillon/controllers/status"
)

// pass is one pass over one Broker, with its facts and results.
type pass struct {
	*Reconciler
	broker *v1alpha1.Broker

	// The settings in force, and the one that waits.
	image   string
	profile v1alpha1.Profile
	restart string
	waiting string

	// What was observed.
	coordinators, brokers observe.Set
	roots                 *pki.Roots
	trust                 []certificate                // the CAs, and what they signed
	certificates          []certificate                // of spec.tls and of pushes
	objects               []runtime.ApplyConfiguration // of spec.tls, but for its Secrets
	auth                  build.Auth
	etcd                  observe.Etcd
	root                  observe.Etcd // as coordination.RootUser; nil: etcd does not answer

	// The results.
	facts  plan.Facts
	action plan.Action
	stall  *plan.Action
}

// certificate is the wanted content of a Secret with certificates, or with what pushes need.
type certificate struct {
	name string
	data map[string][]byte
}

func (p *pass) run(ctx context.Context) error {
	p.decide()
	defer func() {
		for _, etcd := range []observe.Etcd{p.etcd, p.root} {
			if etcd != nil {
				_ = etcd.Close()
			}
		}
	}()
	if err := p.observe(ctx); err != nil {
		return err
	}
	if p.stall != nil {
		p.action = *p.stall
		return nil
	}
	settled, writeErr := p.write(ctx)
	if !settled {
		return writeErr
	}
	// An error with another object must not keep a broken pod from being repaired.
	return errors.Join(writeErr, p.proceed(ctx))
}

// proceed takes the next action, once both StatefulSets are as wanted.
func (p *pass) proceed(ctx context.Context) error {
	facts := p.facts
	p.action = plan.Next(facts)
	err := p.act(ctx)
	if err != nil && p.action.Kind == plan.RenewStatus {
		// A right that is missing must not keep the other set from being repaired.
		facts = facts.WithoutRenewal()
		p.action = plan.Next(facts)
		err = errors.Join(err, p.act(ctx))
	}
	if p.stall == nil {
		return err
	}
	// A volume that can't grow must not keep pods from being repaired and replaced.
	p.action = plan.Next(facts.WithoutGrowth())
	return errors.Join(err, p.act(ctx))
}

func (p *pass) outcome() status.Outcome {
	return status.Outcome{
		Facts: p.facts, Action: p.action, Stall: p.stall,
		Image: p.image, Profile: p.profile, Restart: p.restart, Waiting: p.waiting, Now: p.Now(),
	}
}

// decide chooses the image and the profile of the pods. With update OnRequest they are those of the
// status until the user requests a restart. The status is written after the objects, so a process
// that dies in between decides the same again.
func (p *pass) decide() {
	spec, was := &p.broker.Spec, &p.broker.Status
	p.image, p.profile, p.restart = p.Image, spec.Profile, build.RestartOf(p.broker.Annotations)
	if p.restart == "" {
		p.restart = was.Restart
	}
	if spec.Update != v1alpha1.UpdateOnRequest || was.Image == "" || p.restart != was.Restart {
		return
	}
	var waiting []string
	if p.image != was.Image {
		waiting = append(waiting, fmt.Sprintf("image %s becomes %s", was.Image, p.image))
	}
	if p.profile != was.Profile {
		waiting = append(waiting, fmt.Sprintf("profile %s becomes %s", was.Profile, p.profile))
	}
	p.image, p.profile, p.waiting = was.Image, was.Profile, strings.Join(waiting, ", ")
}

func (p *pass) observe(ctx context.Context) error {
	names, spec, now := build.NamesOf(p.broker), &p.broker.Spec, p.Now()
	held := spec.Update == v1alpha1.UpdateOnRequest
	var err error
	if p.coordinators, err = observe.FindSet(ctx, p.Client, p.broker, names.Coordinators(), build.ComponentCoordinator); err != nil {
		return err
	}
	if p.brokers, err = observe.FindSet(ctx, p.Client, p.broker, names.Brokers(), build.ComponentBroker); err != nil {
		return err
	}
	p.facts = plan.Facts{
		Coordinators: p.coordinators.Facts(names.Coordinators(), spec.Coordination.Managed.Storage.Size, held, now),
		Brokers:      p.brokers.Facts(names.Brokers(), spec.Storage.Size, held, now),
		WantBrokers:  *spec.Replicas,
	}
	if err := p.ensureCertificates(ctx, names, now); err != nil || p.stall != nil {
		return err
	}
	if err := p.ensureClientTLS(ctx, names, now); err != nil {
		return err
	}
	if err := p.ensurePush(ctx, names); err != nil {
		return err
	}
	p.auth, p.facts.AuthTrouble, err = observe.Auth(ctx, p.Live, p.broker, p.roots.Fingerprint)
	if err != nil {
		return err
	}
	p.observeUsers()
	if err := p.askEtcd(ctx, names, now); err != nil {
		return err
	}
	return p.observeShards(ctx)
}

// observeUsers reads what the pass over the users found. Brokers that nobody may connect to are
// not started: running ones go on with what they have until the users are in etcd.
func (p *pass) observeUsers() {
	if p.auth.Form != build.AuthUsers {
		return
	}
	p.facts.Users = p.Users.Of(client.ObjectKeyFromObject(p.broker), p.broker.UID)
	if users := p.facts.Users; !users.Written && p.broker.Status.Users == nil {
		p.facts.UsersTrouble = "the users are being written to etcd"
		if users.Invalid != "" {
			p.facts.UsersTrouble = "no users are in etcd: " + users.Invalid
		}
	}
}

func (p *pass) identity() string {
	return observe.Identity(p.broker.Namespace, p.broker.Name, string(p.broker.UID))
}

func (p *pass) cluster() build.Cluster {
	spec := &p.broker.Spec
	return build.Cluster{
		Broker:            p.broker,
		Image:             p.image,
		Profile:           p.profile,
		Restart:           p.restart,
		Replicas:          max(*spec.Replicas, p.brokers.Replicas()),
		Retiring:          p.facts.Retiring(),
		Disruptable:       plan.Disruptable(p.facts),
		BrokerVolume:      p.brokers.TemplateSize(spec.Storage.Size),
		CoordinatorVolume: p.coordinators.TemplateSize(spec.Coordination.Managed.Storage.Size),
		Auth:              p.auth,
		Trust:             p.roots.Trust(),
		SharedRoot:        p.sharedRoot(),
		PullSecrets:       p.PullSecrets,
	}
}

// write applies every object that differs. settled reports whether both StatefulSets were as
// wanted, which judging pods requires. A taken name is a fact for the plan, and no error.
//
// The CAs are written first, then what they signed. If one of these Secrets can't be written,
// nothing else is: no certificate may be of a CA that is not stored, and no pod may be made from a
// template that promises CAs that its Secrets lack.
func (p *pass) write(ctx context.Context) (settled bool, err error) {
	cluster := p.cluster()
	var objects []runtime.ApplyConfiguration
	for _, c := range slices.Concat(p.trust, p.certificates) {
		objects = append(objects, build.Secret(p.broker, c.name, c.data))
	}
	objects = append(objects, p.objects...)
	objects = append(objects, cluster.Coordinators()...)
	if _, missing := plan.MissingSecrets(p.facts); !missing && p.facts.UsersTrouble == "" {
		objects = append(objects, cluster.Brokers()...)
	}
	settled = true
	var errs []error
	for i, object := range objects {
		set, isSet := object.(*appsv1ac.StatefulSetApplyConfiguration)
		var seen client.Object
		if isSet {
			seen = p.madeFrom(*set.Name)
		}
		written, err := p.Writer.ApplyTo(ctx, p.broker, object, seen)
		var taken *apply.TakenError
		var leftover *apply.LeftoverError
		var changed *apply.ChangedError
		var unknown *apply.UnknownKindError
		if isSet && (err != nil || written != "") {
			settled = false
		}
		switch {
		case errors.As(err, &changed):
			p.action = plan.Action{Kind: plan.Wait, Reason: plan.Applying, Message: "looking again: " + err.Error()}
		case errors.As(err, &taken):
			p.facts.Taken = taken.Object
			return true, nil
		case errors.As(err, &leftover):
			p.facts.Leftovers = leftover.Object
			return true, nil
		case errors.As(err, &unknown):
			p.facts.TLSTrouble = plan.Trouble{Reason: plan.CertManagerMissing, Message: fmt.Sprintf(
				"spec.tls.issuerRef needs cert-manager, and the API server knows no %s of %s: install cert-manager, or write tls.secretName, or neither for the operator's own CA", unknown.Kind, unknown.Group)}
		case err != nil && i < len(p.trust):
			return false, err
		case err != nil:
			errs = append(errs, err)
		case written != "":
			p.action = plan.Action{Kind: plan.Wait, Reason: plan.Applying, Message: "applied " + written}
		}
	}
	return settled, errors.Join(errs...)
}

// madeFrom returns the StatefulSet whose claim template, which can't be changed, and number of pods
// the wanted one repeats; nil: none exists. If that set is deleted, its template must not come
// back: the next set would have to be deleted at once, and the garbage collector, which has not
// seen it adopt its pods, would delete them. If it was scaled down, a drained broker must not come
// back.
func (p *pass) madeFrom(name string) client.Object {
	for _, set := range []observe.Set{p.coordinators, p.brokers} {
		if set.Object != nil && set.Object.Name == name {
			return set.Object
		}
	}
	return nil
}

// size returns the wanted size of a set's volume claims.
func (p *pass) size(component string) resource.Quantity {
	if component == build.ComponentCoordinator {
		return p.broker.Spec.Coordination.Managed.Storage.Size
	}
	return p.broker.Spec.Storage.Size
}
