package session_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startNATS runs the nats-server at path with the options of a transcript until the test ends.
func startNATS(t *testing.T, path string, options map[string]string) runningServer {
	t.Helper()
	dir := t.TempDir()
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
	configFile, logFile := filepath.Join(dir, "nats.conf"), filepath.Join(dir, "nats.log")
	if err := os.WriteFile(configFile, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	address := freeAddress(t)
	_, port, _ := net.SplitHostPort(address)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, path, "-a", "127.0.0.1", "-p", port, "-c", configFile, "-l", logFile)
	if err := cmd.Start(); err != nil {
		cancel()
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.DialTimeout("tcp", address, patience)
		if err == nil {
			conn.Close()
			break
		}
		if time.Now().After(deadline) {
			log, _ := os.ReadFile(logFile)
			t.Fatalf("nats-server did not start: %v\n%s", err, log)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return runningServer{
		address:  address,
		lameDuck: func() error { return cmd.Process.Signal(syscall.SIGUSR2) },
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
