package coordination

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/internal/testutil"
)

func TestEtcdHasOneOwner(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	etcd := startEtcd(t)
	c := etcd.open()
	if owner, err := c.Owner(ctx); owner != "" || err != nil {
		t.Fatalf("owner of nothing is %q, %v", owner, err)
	}
	for range 2 { // claiming again changes nothing
		if err := c.ClaimOwner(ctx, "default/main/uid-1"); err != nil {
			t.Fatal(err)
		}
	}
	err := etcd.open().ClaimOwner(ctx, "default/main/uid-2")
	conflict := (*ConflictError)(nil)
	if !errors.As(err, &conflict) || conflict.Owner != "default/main/uid-1" || !strings.Contains(err.Error(), "uid-1") {
		t.Fatalf("the second owner got %v, want a conflict that names the first", err)
	}
	if owner, err := c.Owner(ctx); owner != "default/main/uid-1" || err != nil {
		t.Fatalf("owner is %q, %v", owner, err)
	}
	if err := c.ClaimOwner(ctx, ""); err == nil {
		t.Error("an empty identity was accepted")
	}
	// A value of a later version must not be overwritten.
	if _, err := c.etcd.Put(ctx, c.ownerKey(), `{"v":2,"identity":"x"}`); err != nil {
		t.Fatal(err)
	}
	if err := c.ClaimOwner(ctx, "default/main/uid-1"); err == nil || !strings.Contains(err.Error(), "version 2") {
		t.Errorf("a later version's owner was overruled: %v", err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	etcd := startEtcd(t)
	c := etcd.open(etcd.Endpoint(), "unix:///nowhere")
	var h Health
	testutil.EventuallyTrue(t, "the endpoint answers within the bound of one request", func() bool {
		h = c.Health(context.Background())
		return h.Err == nil && h.Endpoints[0].Err == nil
	})
	if h.Err != nil || h.Leader != "only" || len(h.Members) != 1 || h.Members[0].Name != "only" || h.Members[0].Learner {
		t.Errorf("health is %+v", h)
	}
	if h.Endpoints[0].Err != nil || h.Endpoints[1].Err == nil {
		t.Errorf("endpoints are %+v; want the first reachable and the second not", h.Endpoints)
	}
	if e := h.Endpoints[0]; !e.Leads || e.Size == 0 || e.Quota == 0 || e.Version == "" {
		t.Errorf("the endpoint says %+v", e)
	}
	if len(h.NoSpace)+len(h.Corrupt) != 0 {
		t.Errorf("alarms %v %v", h.NoSpace, h.Corrupt)
	}

	etcd.Stop()
	began := time.Now()
	h = c.Health(context.Background())
	if h.Err == nil || h.Endpoints[0].Err == nil || h.Endpoints[1].Err == nil || h.Leader != "" {
		t.Errorf("health of a stopped etcd is %+v", h)
	}
	if took := time.Since(began); took > 5*healthTimeout {
		t.Errorf("it took %v", took)
	}
}

func TestMembersJoinAsLearners(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	c := startEtcd(t).open()
	added, err := c.AddLearner(ctx, "http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	if members, err := c.Members(ctx); err != nil || len(members) != 2 || !members[0].Learner || members[0].ID != added.ID {
		t.Fatalf("members are %+v, %v", members, err)
	}
	for range 2 { // removing again is no error
		if err := c.RemoveMember(ctx, added.ID); err != nil {
			t.Fatal(err)
		}
	}
	if members, err := c.Members(ctx); err != nil || len(members) != 1 {
		t.Fatalf("members are %+v, %v", members, err)
	}
}

func TestInvalidConfigurationsAreRefused(t *testing.T) {
	t.Parallel()
	good := Config{Endpoints: []string{"http://localhost:2379", "http://127.0.0.1:2379"}, Cluster: "a/b"}
	c, err := Open(good)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closing a client that never connected: %v", err)
	}
	for name, spoil := range map[string]func(*Config){
		"no endpoint":          func(c *Config) { c.Endpoints = nil },
		"no scheme":            func(c *Config) { c.Endpoints = []string{"localhost:2379"} },
		"no port":              func(c *Config) { c.Endpoints = []string{"http://localhost"} },
		"path":                 func(c *Config) { c.Endpoints = []string{"http://localhost:2379/v3"} },
		"https, no TLS":        func(c *Config) { c.Endpoints = []string{"https://localhost:2379"} },
		"no namespace":         func(c *Config) { c.Cluster = "main" },
		"too many parts":       func(c *Config) { c.Cluster = "a/b/c" },
		"fraction of a second": func(c *Config) { c.LeaseTTL = 1500 * time.Millisecond },
	} {
		cfg := good
		spoil(&cfg)
		if c, err := Open(cfg); err == nil {
			c.Close()
			t.Errorf("%s: it was accepted", name)
		}
	}
}
