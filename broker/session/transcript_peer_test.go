package session_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/identity"
	"github.com/carillon-mq/carillon/internal/testutil"
	"github.com/carillon-mq/carillon/test/peer"
)

// startNATS runs the nats-server at path with the options of a transcript until the test ends.
func startNATS(t *testing.T, path string, options map[string]string) runningServer {
	t.Helper()
	config := "server_name: transcripts\nlame_duck_duration: 31s\nlame_duck_grace_period: 1ms\n"
	var authorization []string
	for name, value := range options {
		switch name {
		case "users":
			authorization = append(authorization, "users: "+natsUsers(t, value))
		case "user", "password", "token":
			authorization = append(authorization, name+": "+value)
		case "auth_timeout":
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			authorization = append(authorization, fmt.Sprintf("timeout: %v", d.Seconds()))
		case "max_payload", "max_connections", "ping_interval", "ping_max":
			config += name + ": " + value + "\n"
		default:
			t.Fatalf("transcript: server option %s is not known", name)
		}
	}
	if len(authorization) > 0 {
		config += "authorization { " + strings.Join(authorization, ", ") + " }\n"
	}
	configFile := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	server := peer.Start(t, path, "-c", configFile)
	return runningServer{
		address:  server.Address,
		lameDuck: func() error { return server.Signal(syscall.SIGUSR2) },
	}
}

// natsUsers returns the users of a file as nats-server's configuration has them.
func natsUsers(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "users", name+".json"))
	testutil.Must(t, err)
	doc, err := identity.Parse(text)
	testutil.Must(t, err)
	var users []map[string]any
	for _, u := range doc.Users {
		is := map[string]any{"user": u.Name, "password": u.Passwords[0]}
		if p := u.Permissions; p != nil {
			permissions := map[string]any{}
			if p.Publish != nil {
				permissions["publish"] = p.Publish
			}
			if p.Subscribe != nil {
				permissions["subscribe"] = p.Subscribe
			}
			if p.AllowResponses != nil {
				permissions["allow_responses"] = map[string]any{"max": p.AllowResponses.Max, "expires": "1m"}
			}
			is["permissions"] = permissions
		}
		users = append(users, is)
	}
	var out strings.Builder
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false) // nats-server knows no such escapes
	testutil.Must(t, e.Encode(users))
	return out.String()
}
