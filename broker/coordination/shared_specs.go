package coordination

import (
	"encoding/json"
	"runtime"
	"sync"
	"weak"
)

// sharedSpecs are the specs of the Subscriptions that are in use, by their encoding. Equal ones are
// one in memory: of thousands of Subscriptions that an application makes, most differ in their name
// only, and each broker knows all of them. A spec goes when nothing uses it. Safe for concurrent
// use.
type sharedSpecs struct {
	mu    sync.Mutex
	specs map[string]weak.Pointer[SubscriptionSpec]
}

func newSharedSpecs() *sharedSpecs {
	return &sharedSpecs{specs: map[string]weak.Pointer[SubscriptionSpec]{}}
}

// decode returns the spec of an encoding, which must not be changed. why says why there can't be
// such a spec.
func (x *sharedSpecs) decode(encoded json.RawMessage) (spec *SubscriptionSpec, why string, err error) {
	if spec := x.find(encoded); spec != nil {
		return spec, "", nil
	}
	spec = new(SubscriptionSpec)
	if len(encoded) > 0 {
		if err := json.Unmarshal(encoded, spec); err != nil {
			return nil, "", err
		}
	}
	if why := spec.valid(); why != "" {
		return nil, why, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if other := x.specs[string(encoded)].Value(); other != nil {
		return other, "", nil
	}
	key := string(encoded)
	x.specs[key] = weak.Make(spec)
	runtime.AddCleanup(spec, x.forget, key)
	return spec, "", nil
}

func (x *sharedSpecs) find(encoded json.RawMessage) *SubscriptionSpec {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.specs[string(encoded)].Value()
}

// forget removes a spec that was freed, unless there is an equal one again.
func (x *sharedSpecs) forget(key string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.specs[key].Value() == nil {
		delete(x.specs, key)
	}
}
