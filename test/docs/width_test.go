package docs

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// wide is the largest width of a line of prose, in characters. A tab counts as one.
const wide = 100

// TestProseWrapsAtAHundredColumns: paragraphs of the pages, and comments that have their lines to
// themselves. Tables, code and words that have no space can't be wrapped.
func TestProseWrapsAtAHundredColumns(t *testing.T) {
	listed, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "*.go", "*.md").Output()
	if err != nil {
		t.Fatal(err)
	}
	comment := regexp.MustCompile(`^\t*//[\t ]+\S+ `)
	for path := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		text, err := os.ReadFile("../../" + path)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(text), "// Code generated") || strings.Contains(path, "/zz_generated.") {
			continue
		}
		page, code := strings.HasSuffix(path, ".md"), false
		for i, line := range strings.Split(string(text), "\n") {
			trimmed := strings.TrimSpace(line)
			if page && strings.HasPrefix(trimmed, "```") {
				code = !code
			}
			prose := !page && comment.MatchString(line) && !strings.HasPrefix(trimmed, "// +") ||
				page && !code && strings.Contains(trimmed, " ") && !strings.HasPrefix(trimmed, "|")
			if prose && utf8.RuneCountInString(line) > wide {
				t.Errorf("%s:%d: a line of prose has more than %d columns", path, i+1, wide)
			}
		}
	}
}
