package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// sourceFile finds a Go file, and the function in it that follows, if one does: "ack.go  Name:" or
// "ack.go: Name".
var sourceFile = regexp.MustCompile(`((?:[a-z0-9]+/)+[a-z_0-9]+\.go)(?: {2,}(?:\w+\.)?(\w+):|: (\w+))?`)

// TestArchitectureNamesFilesAndFunctions: the Go files that docs/architecture.md names exist, and
// have the functions that it names with them.
func TestArchitectureNamesFilesAndFunctions(t *testing.T) {
	functions := 0
	for _, found := range sourceFile.FindAllStringSubmatch(pages(t)["docs/architecture.md"], -1) {
		path, function := found[1], found[2]+found[3]
		if !strings.HasPrefix(path, "broker/") {
			path = "broker/" + path
		}
		text, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Errorf("docs/architecture.md names %s: %v", found[1], err)
			continue
		}
		if function == "" {
			continue
		}
		functions++
		if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + function + `\(`).Match(text) {
			t.Errorf("docs/architecture.md names %s in %s, which has no such function", function, path)
		}
	}
	if functions < 8 {
		t.Errorf("docs/architecture.md names %d functions with their files; the way from a publish to its ack had more", functions)
	}
}
