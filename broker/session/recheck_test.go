package session

import (
	"context"
	"testing"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/broker/limits"
	"github.com/carillon-mq/carillon/internal/testutil"
)

// everybody has nobody that changes.
type everybody struct{}

func (everybody) Nonce() bool { return false }
func (everybody) Again(is *identity.Identity, _ *identity.Credential) *identity.Identity {
	return is
}
func (everybody) Authenticate(context.Context, *Credentials) (*identity.Identity, *identity.Credential, error) {
	return identity.Single("ann"), nil, nil
}

// TestRecheckWaitsForMessagesUnderWay: a message that was checked by a right that is lost now is
// matched when Recheck returns (S9), although its publisher has no subscriptions to lose.
func TestRecheckWaitsForMessagesUnderWay(t *testing.T) {
	profile, err := limits.ForProfile(limits.DefaultProfile)
	testutil.Must(t, err)
	h := NewHub(Config{Profile: profile, Auth: everybody{}})
	defer h.Close()
	b := h.newBatch()
	b.begin() // a publisher is checked here
	done := make(chan struct{})
	go func() {
		h.Recheck()
		close(done)
	}()
	testutil.EventuallyTrue(t, "it waits or returns", func() bool {
		select {
		case <-done:
			t.Fatal("it returned while the publisher was between the check and the match")
		default:
		}
		if h.lock.TryRLock() { // false once a writer waits
			h.lock.RUnlock()
			return false
		}
		return true
	})
	b.end()
	<-done
}
