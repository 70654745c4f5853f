package session_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/test/peer"
)

// startNATS runs the nats-server at path with the options of a transcript until the test ends.
func startNATS(t *testing.T, path string, options map[string]string) runningServer {
	t.Helper()
	config := "server_name: transcripts\nlame_duck_duration: 31s\nlame_duck_grace_period: 1ms\n"
	var authorization []string
	for name, value := range options {
		switch name {
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
