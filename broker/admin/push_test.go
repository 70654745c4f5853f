package admin

import (
	"strings"
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

func TestAPushNeedsBrokersThatDoAllOfIt(t *testing.T) {
	state := func(features ...coordination.Feature) *coordination.State {
		return &coordination.State{Brokers: []coordination.Broker{
			{Name: "main-0", Features: coordination.Features()}, {Name: "main-1", Features: coordination.MakeFeatureSet(features...)},
		}}
	}
	plain := &coordination.Push{URL: "https://a", TLS: &coordination.PushTLS{ServerName: "b"}}
	known := &coordination.Push{URL: "https://a", TLS: &coordination.PushTLS{Certificate: "me_tls.crt", Key: "me_tls.key"}}
	for what, c := range map[string]struct {
		state *coordination.State
		push  *coordination.Push
		wants string
	}{
		"neither":             {state(), plain, "main-1 is of a version that does not push"},
		"push":                {state(coordination.FeaturePush), plain, ""},
		"no certificate":      {state(coordination.FeaturePush), known, "main-1 is of a version that gives no client certificates"},
		"push, a certificate": {state(coordination.FeaturePush, coordination.FeaturePushCertificates), known, ""},
	} {
		switch err := pushUnsupported(c.state, c.push); {
		case c.wants == "" && err != nil, c.wants != "" && (err == nil || !strings.Contains(err.Text, c.wants)):
			t.Errorf("%s: %v, want %q", what, err, c.wants)
		}
	}
}
