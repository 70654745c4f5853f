package coordination

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestBrokersAnnounceTheirFeaturesToEachOther(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open()
	seen := etcd.open().follow(t)
	a, b := broker("a"), broker("b")
	a.Features, b.Features = MakeFeatureSet("sparse", "barrier"), MakeFeatureSet("barrier")
	c.join(t, a)
	c.join(t, b)
	c.join(t, broker("c")) // of a version without features
	want := map[string]FeatureSet{"pod-a": a.Features, "pod-b": b.Features, "pod-c": ""}
	for _, is := range seen.wait("pod-a pod-b pod-c ") {
		if is.Features != want[is.Name] {
			t.Errorf("%s announces %q, want %q", is.Name, is.Features, want[is.Name])
		}
	}
}

func TestAPartOfAFeatureNameIsNotAFeature(t *testing.T) {
	if MakeFeatureSet("barrier").Has("barr") || MakeFeatureSet("barrier").Has("") || FeatureSet("").Has("") {
		t.Error("a part of a name is taken for a feature")
	}
	if MakeFeatureSet("b", "a", "b") != MakeFeatureSet("a", "b") {
		t.Error("equal sets are not equal")
	}
}

// TestARegistrationWithFeaturesIsReadByEarlierVersions: version 018b7c1, whose struct this is,
// decodes a registration with features and a port for WebSocket.
func TestARegistrationWithFeaturesIsReadByEarlierVersions(t *testing.T) {
	b := broker("a")
	b.Features, b.WebSocket = Features(), "a:9222"
	data, err := b.encode()
	if err != nil {
		t.Fatal(err)
	}
	var earlier struct {
		V                                        int
		Name, Client, Route, HTTP, Zone, Version string
		Since                                    int64
	}
	if err := json.Unmarshal(data, &earlier); err != nil || earlier.V != 1 || earlier.Name != "pod-a" || earlier.Client != "a:4222" {
		t.Errorf("read as %+v: %v", earlier, err)
	}
	again, err := decodeBroker("a", 7, data)
	if b.Incarnation = 7; err != nil || again != b {
		t.Errorf("read as %+v: %v; want %+v", again, err, b)
	}
	bare, err := broker("a").encode()
	if err != nil || strings.Contains(string(bare), "features") || strings.Contains(string(bare), "websocket") {
		t.Errorf("without features it is %s: %v", bare, err)
	}
}

func TestFeaturesBeyondTheirBoundsAreRefused(t *testing.T) {
	many := `["` + strings.Repeat(`a","`, maxFeatures) + `b"]`
	for _, bad := range []string{many, `["UPPER"]`, `[""]`, `["with space"]`, `["` + strings.Repeat("a", maxFeature+1) + `"]`, `"barrier"`} {
		var s FeatureSet
		if err := json.Unmarshal([]byte(bad), &s); err == nil || s != "" {
			t.Errorf("%.60s is taken as %q: %v", bad, s, err)
		}
	}
}

// TestAFeatureOfAllBrokers: of those that are registered.
func TestAFeatureOfAllBrokers(t *testing.T) {
	s := &State{Brokers: []Broker{{ID: "a", Features: Features()}, {ID: "b", Features: MakeFeatureSet(FeatureClock)}}}
	if !s.AllHave(FeatureClock) || s.AllHave(FeatureRemovals) {
		t.Errorf("brokers with %v and %v", s.Brokers[0].Features, s.Brokers[1].Features)
	}
}
