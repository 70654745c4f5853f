// Vulndb makes a database for govulncheck from the reports in the module golang.org/x/vulndb, so
// that known vulnerabilities are looked up in a pinned state, and through the module proxy only.
//
//	vulndb VERSION DIR
//
// The layout of DIR is that of https://go.dev/doc/security/vuln/database#api.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// report is the part of an OSV report that the index has.
type report struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Ranges []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected"`
}

// indexed is a report in the index of a module.
type indexed struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Fixed    string    `json:"fixed,omitempty"`
}

type module struct {
	Path  string    `json:"path"`
	Vulns []indexed `json:"vulns"`
}

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vulndb VERSION DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

func run(version, to string) error {
	out, err := exec.Command("go", "mod", "download", "-json", "golang.org/x/vulndb@"+version).Output()
	var from struct{ Dir, Error string }
	if errors.Join(err, json.Unmarshal(out, &from)) != nil || from.Error != "" {
		return fmt.Errorf("download golang.org/x/vulndb@%s: %s %w", version, from.Error, err)
	}
	files, err := filepath.Glob(filepath.Join(from.Dir, "data", "osv", "*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no reports in %s", from.Dir)
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(to, dir), 0o755); err != nil {
			return err
		}
	}
	modules := map[string]*module{}
	for _, file := range files {
		if err := add(modules, file, to); err != nil {
			return fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
	}
	// govulncheck reads db.json first, so it completes the database.
	return errors.Join(
		write(filepath.Join(to, "index", "modules.json"), slices.SortedFunc(maps.Values(modules), func(a, b *module) int { return strings.Compare(a.Path, b.Path) })),
		write(filepath.Join(to, "index", "db.json"), map[string]time.Time{"modified": time.Unix(0, 0).UTC()}),
	)
}

// add copies a report, and notes it in the index of each module that it is about.
func add(modules map[string]*module, file, to string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "ID", r.ID+".json"), text, 0o644); err != nil {
		return err
	}
	for _, affected := range r.Affected {
		m := modules[affected.Package.Name]
		if m == nil {
			m = &module{Path: affected.Package.Name}
			modules[m.Path] = m
		}
		is := indexed{ID: r.ID, Modified: r.Modified}
		for _, within := range affected.Ranges {
			for _, event := range within.Events {
				if event.Fixed != "" {
					is.Fixed = event.Fixed // the last one is the newest
				}
			}
		}
		m.Vulns = append(m.Vulns, is)
	}
	return nil
}

func write(file string, what any) error {
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}
