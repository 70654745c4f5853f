package main

import "testing"

// TestDevThatIsKilledLeavesNoBroker: the system kills the brokers of a killed command.
func TestDevThatIsKilledLeavesNoBroker(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	dev, _ := startDevBrokers(t, 3, "--data", data)
	left := pids(t, data, 3)
	if err := dev.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dev.cmd.Wait()
	// The next one starts at once, and waits for them.
	next, _ := startDevBrokers(t, 3, "--data", data)
	for n, pid := range left {
		if alive(pid) {
			t.Errorf("broker %d of the former command is still there as process %d", n, pid)
		}
	}
	next.end()
}
