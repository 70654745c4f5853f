package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestOperationsExplainsEveryName: docs/operations.md explains every metric, reason and condition.
func TestOperationsExplainsEveryName(t *testing.T) {
	page := pages(t)["docs/operations.md"]
	for _, c := range []struct{ what, files, pattern, prefix string }{
		{"metric", "broker/metrics/*.go", `describe\("([a-z_]+)"`, "carillon_"},
		{"reason", "controllers/plan/action.go", `Reason = "([A-Za-z]+)"`, ""},
		{"reason", "controllers/status/conditions.go", `Reason[A-Za-z]+ = "([A-Za-z]+)"`, ""},
		{"condition", "api/v1alpha1/conditions.go", `Condition[A-Za-z]+ = "([A-Za-z]+)"`, ""},
	} {
		files, err := filepath.Glob(filepath.Join(root, c.files))
		if err != nil || len(files) == 0 {
			t.Fatalf("no %s (%v)", c.files, err)
		}
		found := 0
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, match := range regexp.MustCompile(c.pattern).FindAllStringSubmatch(string(text), -1) {
				found++
				name := c.prefix + match[1]
				if !strings.Contains(page, "`"+name+"`") && !strings.Contains(page, "`"+name+"{") {
					t.Errorf("docs/operations.md does not explain the %s %s", c.what, name)
				}
			}
		}
		if found == 0 {
			t.Errorf("no %s found in %s: has it moved?", c.what, c.files)
		}
	}
}
