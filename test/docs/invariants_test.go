package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestInvariantsHaveTheirTests: the architecture page has a row for each invariant of replication
// and of senders, and the tests and mutations in it exist.
func TestInvariantsHaveTheirTests(t *testing.T) {
	var want []string
	for _, dir := range []string{"broker/replica", "broker/sender"} {
		for _, m := range regexp.MustCompile(`(?m)^//\t([RF]\d+)  ?\S`).FindAllStringSubmatch(source(t, dir+"/doc.go"), -1) {
			want = append(want, m[1])
		}
	}
	want = slices.DeleteFunc(want, func(name string) bool { return name == "R8" }) // not in use
	tests := source(t, "broker/*/*_test.go")
	mutations := source(t, "test/world/*.go")
	page := pages(t)["docs/architecture.md"]
	var got []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([RF]\d+) \| .* \| (.*) \|$`).FindAllStringSubmatch(page, -1) {
		got = append(got, row[1])
		proofs := 0
		for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[2], -1) {
			if proofs++; !strings.Contains(tests, "func "+m[1]+"(") {
				t.Errorf("%s: there is no %s in broker/", row[1], m[1])
			}
		}
		for _, m := range regexp.MustCompile(`the mutations (\w+)`).FindAllStringSubmatch(row[2], -1) {
			if proofs++; !strings.Contains(mutations, `Name: "`+m[1]+`: `) {
				t.Errorf("%s: test/world has no mutation %s", row[1], m[1])
			}
		}
		if proofs == 0 {
			t.Errorf("%s has no test", row[1])
		}
	}
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("the page lists %q, and the packages have %q", got, want)
	}
}

// source returns the text of the files that match a pattern.
func source(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(root, pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %d files, %v", pattern, len(names), err)
	}
	var all strings.Builder
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
