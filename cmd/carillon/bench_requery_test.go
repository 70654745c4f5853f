package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/carillon-mq/carillon/internal/testutil"
)

// noAttributes checks that no subject has attributes.
func noAttributes(t *testing.T, url string) {
	t.Helper()
	nc, err := nats.Connect(url, nats.Timeout(testutil.Patience))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	m, err := nc.Request("$CARILLON.API.ATTRIBUTES.LIST", nil, testutil.Patience)
	if err != nil || !strings.Contains(string(m.Data), `"subjects":[]`) {
		t.Errorf("%s, %v", m.Data, err)
	}
}

// TestBenchRequery: a Carillon broker tells every query of every change, the command for the middle
// runs, and nothing is left.
func TestBenchRequery(t *testing.T) {
	dev := startDev(t, "--data", t.TempDir())
	struck := filepath.Join(t.TempDir(), "struck")
	table, found := runBench(t,
		"bench requery --server "+dev.url+" --sessions 3 --queries 25 --publishers 20 --changes 30 --interval 1ms,3ms"+
			" --drain-timeout 60s --midway touch${IFS}"+struck)
	m := found.Results[0].Measured[0]
	f, d := m.Requery, m.Deliveries
	// 2.5 keys: each arrival is told to 2 or 3 queries, and each change to twice as many.
	if d.Expected < 20*2+30*4 || d.Received != d.Expected ||
		d.Lost+d.Duplicated+d.Unexpected != 0 || m.Median.Count != d.Expected {
		t.Errorf("%+v", d)
	}
	if f == nil || f.Answered != 50 || f.Answer.P99 <= 0 || f.OpenNS <= 0 || m.Median.P50 <= 0 ||
		m.Runs[0].Published != 50 {
		t.Errorf("%+v %+v", f, m.Median)
	}
	if _, err := os.Stat(struck); err != nil {
		t.Error(err)
	}
	if !strings.Contains(table,
		"requery: 25 live queries on 3 connections, each matches 10 % of the publishers") ||
		!strings.Contains(table, "50 changes were acknowledged") {
		t.Errorf("the table is\n%s", table)
	}
	noAttributes(t, dev.url)
	dev.stop()
}

// TestBenchRequeryWithoutALeader: of three coordinators the one that leads is killed, and every
// notice still comes, and comes once.
func TestBenchRequeryWithoutALeader(t *testing.T) {
	t.Setenv(asCarillon, "1") // its processes are this test's program
	_, found := runBench(t,
		"bench requery --start --kill-leader --data "+t.TempDir()+" --sessions 3 --queries 25"+
			" --publishers 20 --changes 30 --interval 10ms,20ms --connect-timeout 60s --drain-timeout 60s")
	m := found.Results[0].Measured[0]
	if d := m.Deliveries; d.Expected == 0 || d.Received != d.Expected ||
		d.Lost+d.Duplicated+d.Unexpected != 0 {
		t.Errorf("%+v", d)
	}
	// Those that were due meanwhile have waited for another leader.
	if f := m.Runs[0].Requery; f == nil || f.Answered != 50 || f.StruckNS <= 0 {
		t.Errorf("%+v", f)
	}
}
