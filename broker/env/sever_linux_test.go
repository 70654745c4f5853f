package env_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/carillon-mq/carillon/broker/env"
	"github.com/carillon-mq/carillon/internal/testutil"
)

const severing = "CARILLON_TEST_SEVER"

// TestMain runs the test binary as the process whose sockets are shut down.
func TestMain(m *testing.M) {
	if os.Getenv(severing) == "" {
		os.Exit(m.Run())
	}
	if err := sever(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// sever listens, prints its address, accepts one connection, and shuts down all sockets while
// another goroutine is in a call on that connection. It runs until its standard input ends.
func sever() error {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(ln.Addr())
	conn, err := ln.Accept()
	if err != nil {
		return err
	}
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	hang, hangs := make(chan struct{}), make(chan struct{})
	go func() { _ = raw.Control(func(uintptr) { close(hangs); <-hang }) }()
	<-hangs
	env.SeverSockets()
	fmt.Println("severed")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// TestSocketsOfALivingProcessAreSevered: a process that does not exit loses its listener and its
// connections, including one that a hung goroutine keeps open.
func TestSocketsOfALivingProcessAreSevered(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env, cmd.Stderr = append(os.Environ(), severing+"=1"), os.Stderr
	alive, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	address, err := lines.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimSpace(address))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if said, err := lines.ReadString('\n'); err != nil || said != "severed\n" {
		t.Fatalf("the child said %q: %v", said, err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(testutil.Patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection to the process ends with %v, want %v", err, io.EOF)
	}
	if again, err := net.Dial("tcp", strings.TrimSpace(address)); err == nil {
		t.Error("the process still takes connections")
		_ = again.Close()
	}
	if err := alive.Close(); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the process did not live to the end: %v", err)
	}
}
