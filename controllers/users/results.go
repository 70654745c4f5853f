package users

import (
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"github.com/carillon-mq/carillon/controllers/plan"
)

// Results has the last result for each Broker. The zero value is ready for use.
type Results struct {
	mu   sync.Mutex
	last map[types.NamespacedName]result
}

type result struct {
	uid   types.UID
	users plan.Users
}

// Of returns the result of a Broker; the zero value: not known.
func (r *Results) Of(broker types.NamespacedName, uid types.UID) plan.Users {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last := r.last[broker]; last.uid == uid {
		return last.users
	}
	return plan.Users{}
}

// set remembers a result, and reports whether it is news.
func (r *Results) set(broker types.NamespacedName, uid types.UID, users plan.Users) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[types.NamespacedName]result{}
	}
	now := result{uid, users}
	news := r.last[broker] != now
	r.last[broker] = now
	return news
}

func (r *Results) forget(broker types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.last, broker)
}

// maxNamed is how many wrong Secrets a condition names.
const maxNamed = 10

// invalid describes what is wrong; empty: nothing.
func (d *Decision) invalid() string {
	var words []string
	if d.Trouble != "" {
		words = append(words, d.Trouble)
	}
	for i, m := range d.Mistakes {
		if i == maxNamed {
			words = append(words, fmt.Sprintf("and %d more", len(d.Mistakes)-maxNamed))
			break
		}
		why := m.Why
		if len(why) > 300 {
			why = strings.ToValidUTF8(why[:300], "") + "..."
		}
		words = append(words, fmt.Sprintf("Secret %s: %s", m.Secret, why))
	}
	return strings.Join(words, "; ")
}
