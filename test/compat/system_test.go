package compat

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/crypto/bcrypt"

	"github.com/carillon-mq/carillon/broker"
	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/internal/testutil/brokers"
	"github.com/carillon-mq/carillon/test/peer"
)

// pages are the pages of a server by the name of their request, with some of their fields and an
// example of the fields' type. Tools read these.
var pages = map[string]map[string]any{
	"VARZ": {
		"server_id": "", "server_name": "", "version": "", "host": "", "port": 0.0, "max_connections": 0.0, "max_payload": 0.0, "start": "",
		"uptime": "", "mem": 0.0, "cores": 0.0, "connections": 0.0, "routes": 0.0, "in_msgs": 0.0, "out_bytes": 0.0, "slow_consumers": 0.0,
		"subscriptions": 0.0, "jetstream": map[string]any{}, "config_load_time": "",
	},
	"CONNZ":    {"server_id": "", "now": "", "num_connections": 0.0, "total": 0.0, "offset": 0.0, "limit": 0.0, "connections": []any{}},
	"SUBSZ":    {"server_id": "", "now": "", "num_subscriptions": 0.0, "total": 0.0, "limit": 0.0},
	"ROUTEZ":   {"server_id": "", "server_name": "", "num_routes": 0.0, "routes": []any{}},
	"ACCOUNTZ": {"server_id": "", "now": "", "accounts": []any{}},
	"JSZ": {
		"server_id": "", "now": "", "memory": 0.0, "storage": 0.0, "reserved_memory": 0.0, "reserved_storage": 0.0, "streams": 0.0,
		"consumers": 0.0, "messages": 0.0, "bytes": 0.0, "api": map[string]any{}, "config": map[string]any{},
	},
	"HEALTHZ": {"status": ""},
}

// checkPage fails if a field of a page is missing or has another type.
func checkPage(t *testing.T, name string, is map[string]any) {
	t.Helper()
	for field, like := range pages[name] {
		if got, want := fmt.Sprintf("%T", is[field]), fmt.Sprintf("%T", like); got != want {
			t.Errorf("%s: %s is a %s, want a %s: %v", name, field, got, want, is[field])
		}
	}
}

// answers collects the answers of all servers to a request.
func answers(t *testing.T, nc *nats.Conn, subject, payload string, servers int) (all []map[string]any) {
	t.Helper()
	inbox, err := nc.SubscribeSync(nats.NewInbox())
	testutil.Must(t, err)
	defer func() { testutil.Must(t, inbox.Unsubscribe()) }()
	testutil.Must(t, nc.PublishRequest(subject, inbox.Subject, []byte(payload)))
	for range servers {
		m, err := inbox.NextMsg(patience)
		if err != nil {
			t.Fatalf("%s: %d answers, then %v", subject, len(all), err)
		}
		var is map[string]any
		testutil.Must(t, json.Unmarshal(m.Data, &is))
		all = append(all, is)
	}
	if m, err := inbox.NextMsg(50 * time.Millisecond); !errors.Is(err, nats.ErrTimeout) {
		t.Errorf("%s: one answer too many: %s", subject, m.Data)
	}
	return all
}

// TestToolsSeeEveryServer: each server answers the requests of `nats server list|info|report` with
// nats-server's fields, and so does its HTTP port.
func TestToolsSeeEveryServer(t *testing.T) {
	t.Run("three brokers", func(t *testing.T) {
		members := startBrokers(t, 3)
		nc := join(t, members[1])
		seeEveryServer(t, nc, 3)
	})
	path := os.Getenv("CARILLON_NATS_SERVER")
	if path == "" {
		return
	}
	t.Run("nats-server", func(t *testing.T) {
		config := filepath.Join(t.TempDir(), "server.conf")
		testutil.Must(t, os.WriteFile(config, fmt.Appendf(nil, `
			jetstream { store_dir: %q }
			accounts { $SYS { users = [{user: sys, password: sys}] }, A { jetstream: enabled, users = [{user: a, password: a}] } }
		`, t.TempDir()), 0o600))
		server := peer.Start(t, path, "-c", config)
		nc, err := nats.Connect(server.URL(), nats.UserInfo("sys", "sys"))
		testutil.Must(t, err)
		t.Cleanup(nc.Close)
		seeEveryServer(t, nc, 1)
	})
}

func seeEveryServer(t *testing.T, nc *nats.Conn, servers int) {
	testutil.Eventually(t, "all servers linked", func() error {
		inbox, err := nc.SubscribeSync(nats.NewInbox())
		if err != nil {
			return err
		}
		defer func() { _ = inbox.Unsubscribe() }()
		if err := nc.PublishRequest("$SYS.REQ.SERVER.PING", inbox.Subject, nil); err != nil {
			return err
		}
		for n := range servers {
			if _, err := inbox.NextMsg(soon); err != nil {
				return fmt.Errorf("%d answers: %w", n, err)
			}
		}
		return nil
	})
	ids := map[string]string{} // by name
	for _, subject := range []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.STATSZ"} {
		for _, is := range answers(t, nc, subject, "", servers) {
			name, id := at(is, "server", "name").(string), at(is, "server", "id").(string)
			ids[name] = id
			equal(t, "JetStream", at(is, "server", "jetstream"), any(true))
			for _, field := range []string{"mem", "cores", "connections", "subscriptions", "slow_consumers", "active_servers"} {
				if _, ok := at(is, "statsz", field).(float64); !ok {
					t.Errorf("%s of %s: %v", field, name, at(is, "statsz"))
				}
			}
		}
	}
	equal(t, "servers", len(ids), servers)
	for page := range pages {
		for _, is := range answers(t, nc, "$SYS.REQ.SERVER.PING."+page, "", servers) {
			data, _ := is["data"].(map[string]any)
			checkPage(t, page, data)
		}
	}
	for name, id := range ids {
		is := answers(t, nc, "$SYS.REQ.SERVER."+id+".VARZ", "", 1)[0]
		equal(t, "server", at(is, "server", "name"), any(name))
		equal(t, "server of the page", at(is, "data", "server_id"), any(id))
		is = answers(t, nc, "$SYS.REQ.SERVER.PING.VARZ", `{"server_name":"`+name+`","exact_match":true}`, 1)[0]
		equal(t, "server by name", at(is, "server", "id"), any(id))
	}
	var conns []any
	for _, is := range answers(t, nc, "$SYS.REQ.SERVER.PING.CONNZ", `{"sort":"cid","limit":1}`, servers) {
		conns = append(conns, at(is, "data", "connections").([]any)...)
	}
	if len(conns) == 0 {
		t.Fatal("no connections")
	}
	one := conns[0].(map[string]any)
	for field, like := range map[string]any{"cid": 0.0, "kind": "", "ip": "", "port": 0.0, "uptime": "", "idle": "", "pending_bytes": 0.0, "subscriptions": 0.0, "lang": "", "version": ""} {
		if fmt.Sprintf("%T", one[field]) != fmt.Sprintf("%T", like) {
			t.Errorf("%s of a connection: %v", field, one[field])
		}
	}
}

// TestClientsKnowTheirAccount: every client may ask who it is.
func TestClientsKnowTheirAccount(t *testing.T) {
	js := (&site{urls: []string{startStandalone(t).url()}}).client(t)
	is := ask(t, js, "$SYS.REQ.USER.INFO", "")
	equal(t, "account", at(is, "data", "account"), any("$G"))
}

// TestToolsNeedPowerOverABroker: only operators see the others' connections, drain brokers and make
// Topics by Carillon's API. Who is told no is told so as by nats-server.
func TestToolsNeedPowerOverABroker(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	testutil.Must(t, err)
	text, err := json.Marshal(identity.Document{Users: []identity.User{
		{Name: "me", Passwords: []string{string(hash)}},
		{Name: "operator", Passwords: []string{string(hash)}, Roles: []identity.Role{identity.Operator}},
	}})
	testutil.Must(t, err)
	users := filepath.Join(t.TempDir(), "users.json")
	testutil.Must(t, os.WriteFile(users, text, 0o600))
	local, _ := brokers.Coordinator(t)
	m := runBroker(t, broker.Config{Name: "compat-0", Data: t.TempDir(), Endpoints: local.Endpoints(), Users: users})
	mine := []string{"$SYS.REQ.USER.INFO", "$CARILLON.API.TOPIC.LIST", "$JS.API.INFO"}
	theirs := []string{"$SYS.REQ.SERVER.PING", "$SYS.REQ.SERVER.PING.CONNZ", "$CARILLON.API.TOPIC.CREATE.a", "$CARILLON.API.BROKER.DRAIN.compat-0"}
	refused := make(chan error, 10)
	nc := join(t, m, nats.UserInfo("me", "secret"), nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { refused <- err }))
	for _, subject := range mine {
		_, err := nc.Request(subject, nil, patience)
		testutil.Must(t, err)
	}
	for _, subject := range theirs {
		testutil.Must(t, nc.PublishRequest(subject, "answer", nil))
		if err := <-refused; !errors.Is(err, nats.ErrPermissionViolation) || !strings.Contains(err.Error(), subject) {
			t.Errorf("%s: %v", subject, err)
		}
	}
	nc = join(t, m, nats.UserInfo("operator", "secret"))
	for _, subject := range append(mine, theirs[:2]...) {
		_, err := nc.Request(subject, nil, patience)
		testutil.Must(t, err)
	}
}

// TestPagesOverHTTP: the HTTP port has the same pages.
func TestPagesOverHTTP(t *testing.T) {
	local, _ := brokers.Coordinator(t)
	address := testutil.FreeAddress(t)
	m := runBroker(t, broker.Config{Name: "compat-0", Data: t.TempDir(), Endpoints: local.Endpoints(), HTTP: broker.Address{Listen: address}})
	s := &site{urls: []string{m.url()}}
	name := s.stream(t, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 << 20 })
	fill(t, s.client(t), name+".x", 3)
	for page, path := range map[string]string{
		"VARZ": "/varz", "CONNZ": "/connz", "SUBSZ": "/subsz", "ROUTEZ": "/routez", "ACCOUNTZ": "/accountz", "JSZ": "/jsz", "HEALTHZ": "/healthz",
	} {
		response, err := http.Get("http://" + address + path)
		testutil.Must(t, err)
		var is map[string]any
		testutil.Must(t, json.NewDecoder(response.Body).Decode(&is))
		testutil.Must(t, response.Body.Close())
		checkPage(t, page, is)
		if page == "JSZ" {
			equal(t, "streams", is["streams"], any(1.0))
			equal(t, "messages", is["messages"], any(3.0))
			equal(t, "reserved", is["reserved_storage"], any(float64(1<<20)))
		}
	}
}

// TestLeadersAreAnnounced: the election of a replicated stream's leader is an advisory.
func TestLeadersAreAnnounced(t *testing.T) {
	s := brokerSite(t, 3)
	js := s.client(t)
	sub, err := js.Conn().SubscribeSync("$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED.*")
	testutil.Must(t, err)
	settle(t, js.Conn(), s.client(t).Conn(), s.client(t).Conn(), s.client(t).Conn())
	s.stream(t, nil) // has no election that others could win
	name := s.stream(t, func(c *jetstream.StreamConfig) { c.Replicas = 3 })
	is := event(t, sub, "$JS.EVENT.ADVISORY.STREAM.LEADER_ELECTED."+name)
	equal(t, "type", is["type"], any("io.nats.jetstream.advisory.v1.stream_leader_elected"))
	stream, err := js.Stream(within(t), name)
	testutil.Must(t, err)
	equal(t, "leader", is["leader"], any(stream.CachedInfo().Cluster.Leader))
	equal(t, "replicas", len(is["replicas"].([]any)), 2)
}

// TestReplicasAreSeen: stream infos say how long ago the leader heard of the other replicas, as
// tools that check streams ask.
func TestReplicasAreSeen(t *testing.T) {
	s := brokerSite(t, 3)
	name := s.stream(t, func(c *jetstream.StreamConfig) { c.Replicas = 3 })
	js := s.client(t)
	fill(t, js, name+".x", 3)
	testutil.Eventually(t, "replicas that are seen", func() error {
		stream, err := js.Stream(within(t), name)
		testutil.Must(t, err)
		replicas := stream.CachedInfo().Cluster.Replicas
		if len(replicas) != 2 {
			return fmt.Errorf("%d replicas", len(replicas))
		}
		for _, r := range replicas {
			if r.Active <= 0 || r.Active > time.Second || !r.Current || r.Lag > 0 {
				return fmt.Errorf("%+v", r)
			}
		}
		return nil
	})
}
