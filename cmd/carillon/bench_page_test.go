package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestBenchWritesAPage: the report of a run against a Carillon broker, as one HTML file.
func TestBenchWritesAPage(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	_, found := runBench(t, "bench request --name main --server "+dev.url+" --pairs 2 --warmup 0s --duration 200ms --report "+path)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<!DOCTYPE html>", "request 2 pairs", "Percentiles of latency", "Latency over time", "at " + strings.Replace(dev.url, "localhost", "127.0.0.1", 1)} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if len(found.Results[0].Measured[0].Runs[0].OverTime) == 0 {
		t.Error("the JSON report has no latency over time")
	}
	onlyFile(t, dir, "report.html")
	dev.stop()
}

// TestAFailedBenchLeavesThePageAlone: an earlier one stays, and nothing is left beside it.
func TestAFailedBenchLeavesThePageAlone(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "report.html")
	if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), strings.Fields("bench request --server 127.0.0.1:1 --wait 10ms --report "+path)); code != exitFailure {
		t.Errorf("exit code %d", code)
	}
	p, err := beginFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.finish(func(io.Writer) error { return errors.New("the disk is full") }); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("the error is %v", err)
	}
	p.abandon()
	if text, err := os.ReadFile(path); err != nil || string(text) != "before" {
		t.Errorf("%q, %v", text, err)
	}
	onlyFile(t, dir, "report.html")
}

func onlyFile(t *testing.T, dir, name string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != name {
			t.Errorf("%s is left", e.Name())
		}
	}
}
