package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentedCommandsExist: every command on a page or in a help text exists, with the flags
// that are shown.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	shown := map[string]string{}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range regexp.MustCompile("(?ms)^```sh\n.*?^```").FindAllString(string(text), -1) {
			shown[page] += block + "\n"
		}
	}
	var examples func(*cobra.Command)
	examples = func(cmd *cobra.Command) {
		shown[cmd.CommandPath()] = cmd.Example
		for _, sub := range cmd.Commands() {
			examples(sub)
		}
	}
	examples(newRoot())
	lines := regexp.MustCompile(`(?m)^\s*(?:echo \S+ \| )?(?:bin/)?carillon ((?:[^\\\n#]|\\\n)+)`)
	filled := regexp.MustCompile(`\$\([^)]*\)`) // by the shell
	word := regexp.MustCompile(`'[^']*'|[^\s']+`)
	found := 0
	for where, text := range shown {
		for _, line := range lines.FindAllStringSubmatch(text, -1) {
			found++
			command, _, _ := strings.Cut(filled.ReplaceAllString(strings.ReplaceAll(line[1], "\\\n", " "), "1"), " | ")
			command, _, _ = strings.Cut(command, " > ")
			var args []string
			for _, arg := range word.FindAllString(strings.TrimSuffix(strings.TrimSpace(command), "&"), -1) {
				args = append(args, strings.Trim(arg, "'"))
			}
			cmd, rest, err := newRoot().Find(args)
			if err == nil {
				err = cmd.ParseFlags(rest)
			}
			if err == nil && cmd.Args != nil && cmd.Runnable() {
				err = cmd.ValidateArgs(cmd.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s shows carillon %s: %v", where, command, err)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d commands were found: has the way in which they are shown changed?", found)
	}
}
