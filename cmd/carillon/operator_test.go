package main

import (
	"strings"
	"testing"
)

func TestOperatorRefusesAWrongCommandLine(t *testing.T) {
	for _, c := range []struct {
		own  string // POD_NAMESPACE
		args string
		want string
	}{
		{"carillon", "", "--image is required"},
		{"carillon", "--image a extra", "unknown command"},
		{"carillon", "--image a --watch-namespaces a,*", "give it alone"},
		{"carillon", "--image a --watch-namespaces a,,b", "a name is empty"},
		{"", "--image a --leader-elect=false", "--watch-namespaces is required where"},
		{"", "--image a --watch-namespaces *", "--leader-elect needs the operator's namespace"},
		{"carillon", "--image a --log-level loud", "choose debug, info, warn or error"},
	} {
		t.Setenv("POD_NAMESPACE", c.own)
		cmd := newRoot()
		cmd.SetArgs(append([]string{"operator"}, strings.Fields(c.args)...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("operator %s with POD_NAMESPACE %q: %v, want %q", c.args, c.own, err, c.want)
		}
	}
}

func TestWatchedNamespaces(t *testing.T) {
	for _, c := range []struct {
		asked []string
		own   string
		want  string
	}{
		{nil, "carillon", "carillon"},
		{[]string{"a", "b"}, "carillon", "a b"},
		{[]string{"*"}, "", ""}, // all of them
	} {
		if got, err := watched(c.asked, c.own); err != nil || strings.Join(got, " ") != c.want {
			t.Errorf("watched(%q, %q) is %q, %v; want %q", c.asked, c.own, got, err, c.want)
		}
	}
}

// TestTheDomainOfTheClusterComesFromThePodsResolver: a node's file has none.
func TestTheDomainOfTheClusterComesFromThePodsResolver(t *testing.T) {
	for text, want := range map[string]string{
		"search messaging.svc.cluster.local svc.cluster.local cluster.local\nnameserver 10.0.0.10\noptions ndots:5\n": "cluster.local",
		"nameserver 10.0.0.10\nsearch a.svc.corp.example. svc.corp.example. corp.example.\n":                          "corp.example",
		"search example.org\nnameserver 192.0.2.1\n":                                                                  "",
		"search\n\n": "",
		"":           "",
	} {
		if got := clusterDomain(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
