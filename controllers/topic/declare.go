package topic

import (
	"context"
	"errors"
	"fmt"

	"github.com/carillon-mq/carillon/broker/coordination"
	"github.com/carillon-mq/carillon/controllers/build"
	"github.com/carillon-mq/carillon/controllers/plan"
)

// declare sets the attributes that the manifest declares of subjects of its Topic, once there is
// one, and sets the fact of why it could not. Most manifests declare none: then etcd is asked once
// in this process whether an earlier one did.
func (p *pass) declare(ctx context.Context) {
	f := &p.facts
	if f.Found == nil || f.Found.Deleting || !plan.SameManifest(f.Found.Owner, f.Self) {
		return
	}
	want, parsed := build.Attributes(p.topic, f.Found.Spec.Subjects)
	err := parsed
	none := fmt.Sprint(p.mirror.Broker, f.Found.ID, p.mirror.State().Generation)
	if err == nil {
		if len(want) == 0 && p.isUndeclared(none) {
			return
		}
		if err = p.mirror.Keys.DeclareAttributes(ctx, f.Name, want); err == nil {
			p.setUndeclared(none, len(want) == 0)
		}
	}
	var invalid *coordination.InvalidError
	switch {
	case err == nil:
	case parsed != nil, errors.As(err, &invalid):
		f.AttributesRefused = err.Error()
	default:
		f.AttributesRefused = "etcd did not answer, or refused, and is asked again: " + plan.Cause(err)
	}
}

// isUndeclared reports whether it is known that no attributes are declared. of is a Topic of a
// Broker, in a generation of its etcd: a restored one may have some again.
func (r *Reconciler) isUndeclared(of string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.undeclared[of]
}

// maxUndeclared bounds what is known of that. Beyond it, etcd is asked again.
const maxUndeclared = 20_000

func (r *Reconciler) setUndeclared(of string, is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !is {
		delete(r.undeclared, of)
		return
	}
	if r.undeclared == nil || len(r.undeclared) >= maxUndeclared {
		r.undeclared = map[string]bool{}
	}
	r.undeclared[of] = true
}
