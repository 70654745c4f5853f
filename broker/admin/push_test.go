package admin

import (
	"testing"

	"github.com/carillon-mq/carillon/broker/coordination"
)

func TestClientsDoNotSeeWhatHeadersAreSent(t *testing.T) {
	spec := coordination.SubscriptionSpec{Push: &coordination.Push{URL: "http://a", Headers: []coordination.PushHeader{{Name: "X-Tenant", Value: "9"}}}}
	shown := subscriptionDefaults(spec)
	if p := shown.Push; p.URL != "http://a" || p.Format != coordination.CloudEventsBinary || p.Headers[0].Name != "X-Tenant" || p.Headers[0].Value != "" {
		t.Errorf("clients see %+v", p)
	}
	if spec.Push.Headers[0].Value != "9" || spec.Push.Format != "" {
		t.Errorf("the spec is %+v now", spec.Push)
	}
}
