package layout

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// topicLines is how long broker/topic may be without tests, so that a reader holds it in the head.
// What grows beyond it has a noun that can be a room of its own.
const topicLines = 5000

func TestTopicStaysSmall(t *testing.T) {
	files, err := filepath.Glob("../../broker/topic/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("no files of broker/topic were found: %v", err)
	}
	lines := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines += bytes.Count(text, []byte("\n"))
	}
	if lines >= topicLines {
		t.Errorf("broker/topic has %d lines without tests; move a noun out of it, so that it has fewer than %d", lines, topicLines)
	}
}
