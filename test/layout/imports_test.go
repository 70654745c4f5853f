// Package layout holds the tree to docs/architecture.md: which package may import which.
package layout

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/carillon-mq/carillon"

// rooms are the packages below broker/ in the order of docs/architecture.md, section Packages: each
// may import those before it.
var rooms = sync.OnceValue(func() (names []string) {
	page, err := os.ReadFile("../../docs/architecture.md")
	if err != nil {
		return nil
	}
	_, text, _ := strings.Cut(string(page), "\n## Packages\n")
	_, text, _ = strings.Cut(text, "\nbroker/ ")
	for _, line := range strings.Split(text, "\n")[1:] {
		listed := regexp.MustCompile(`^  ((?:[a-z]+/ ?)+) `).FindStringSubmatch(line)
		if listed == nil {
			break
		}
		for _, name := range strings.Fields(listed[1]) {
			names = append(names, strings.TrimSuffix(name, "/"))
		}
	}
	return names
})

type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []pkg
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

// trouble says what is wrong with one import, or nothing. Both paths are within the module.
func trouble(from, to string) string {
	room := func(path string) int {
		name, inside := strings.CutPrefix(path, "broker/")
		if !inside {
			return -1
		}
		name, _, _ = strings.Cut(name, "/")
		return slices.Index(rooms(), name)
	}
	within := func(path, top string) bool { return path == top || strings.HasPrefix(path, top+"/") }
	top, _, _ := strings.Cut(from, "/")
	switch {
	case top == "api" && !within(to, "api"):
		return "api imports nothing of ours"
	case top == "controllers" && !within(to, "controllers") && !within(to, "api") && to != "broker/coordination" && to != "broker/identity" && to != "broker/env" && (from != "controllers/alerting" || to != "client"):
		return "controllers use api, broker/coordination and broker/identity, and nothing else of broker; alerting reads as any client does"
	case (top == "bench" || top == "client") && !within(to, top):
		return top + " is a client program: it uses nothing of ours"
	case top == "coordinator" && !within(to, "coordinator") && to != "broker/env" && to != "broker/coordination":
		return "coordinator uses broker/env and broker/coordination only"
	case top != "broker":
		return ""
	case from == "broker":
		if !within(to, "broker") {
			return "broker is below everything else"
		}
		return ""
	case room(from) < 0:
		return "this room of broker is not in the list; see docs/architecture.md"
	case !within(to, "broker") || to == "broker":
		return "a room of broker imports nothing above it"
	case room(to) > room(from):
		return "a room of broker imports only those before it"
	}
	return ""
}

func TestImportsRunAsDrawn(t *testing.T) {
	var there []string
	entries, err := os.ReadDir("../../broker")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			there = append(there, e.Name())
		}
	}
	for _, name := range there {
		doc, err := os.ReadFile("../../broker/" + name + "/doc.go")
		if err != nil || !strings.Contains(string(doc), "process") {
			t.Errorf("broker/%s has no doc.go that says what the end of a process means there: %v", name, err)
		}
	}
	if listed := slices.Sorted(slices.Values(rooms())); !slices.Equal(listed, there) {
		t.Errorf("docs/architecture.md lists the packages\n%v\nand broker has\n%v", listed, there)
	}
	seen := 0
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, to := range p.Imports {
			to, ours := strings.CutPrefix(to, module+"/")
			if !ours {
				continue
			}
			seen++
			if why := trouble(from, to); why != "" {
				t.Errorf("%s imports %s: %s", from, to, why)
			}
		}
	}
	if seen == 0 {
		t.Error("no imports were looked at")
	}
}

func TestOnlyCoordinationKnowsEtcd(t *testing.T) {
	const client = "go.etcd.io/etcd/client/v3"
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		if from != "broker/coordination" && (slices.Contains(p.Imports, client) || slices.Contains(p.Imports, client+"/concurrency")) {
			t.Errorf("%s imports the etcd client; broker/coordination is the one door to it", from)
		}
	}
}

// TestForbiddenImportsAreFound proves the rule with imports that it must refuse.
func TestForbiddenImportsAreFound(t *testing.T) {
	for _, c := range [][2]string{
		{"broker/session", "broker/route"}, {"broker/subject", "broker"}, {"broker/log", "coordinator"}, {"api/v1alpha1", "broker/env"},
		{"controllers/plan", "broker/session"}, {"bench", "broker/protocol"}, {"broker/cellar", "broker/env"}, {"coordinator", "broker/session"},
	} {
		if trouble(c[0], c[1]) == "" {
			t.Errorf("%s may import %s", c[0], c[1])
		}
	}
	for _, c := range [][2]string{{"broker/route", "broker/session"}, {"broker", "broker/route"}, {"cmd/carillon", "broker"}, {"controllers/build", "api/v1alpha1"}} {
		if why := trouble(c[0], c[1]); why != "" {
			t.Errorf("%s may not import %s: %s", c[0], c[1], why)
		}
	}
}
