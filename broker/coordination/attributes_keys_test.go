package coordination

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strconv"
	"strings"
	"testing"
)

// TestTheStatesKeysAreBehindThoseOfAttributes: the watch of the State begins behind the attributes,
// so a key before them would never reach it. It looks at each key that this package names.
func TestTheStatesKeysAreBehindThoseOfAttributes(t *testing.T) {
	c := &Client{prefix: "/carillon/default/main/"}
	a := &Attributes{c: c}
	if first, last := a.prefix(), a.key("~"); first >= c.stateFrom() || last >= c.stateFrom() {
		t.Errorf("the State begins with %q, and attributes are from %q to %q", c.stateFrom(), first, last)
	}
	names := keyNames(t)
	for _, known := range []string{"attributes/subjects/", "brokers/", "topics/", "shards/", "generation", "controller"} {
		if names[known] == "" {
			t.Errorf("the key %q was not found in the source: this test reads it wrongly", known)
		}
	}
	for name, at := range names {
		if c.prefix+name < c.stateFrom() && !strings.HasPrefix(name, "attributes/") {
			t.Errorf("%s: the State lacks the key %q, since it is before %q", at, name, c.stateFrom())
		}
	}
}

// keyNames returns the texts that this package appends to a client's prefix, and where.
func keyNames(t *testing.T) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	names, files := map[string]string{}, token.NewFileSet()
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, entry.Name(), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			sum, ok := n.(*ast.BinaryExpr)
			if !ok || sum.Op != token.ADD {
				return true
			}
			prefix, ok := sum.X.(*ast.SelectorExpr)
			if !ok || prefix.Sel.Name != "prefix" {
				return true
			}
			at := files.Position(sum.Pos()).String()
			text, ok := sum.Y.(*ast.BasicLit)
			if !ok {
				t.Errorf("%s: a key whose name is no literal", at)
				return true
			}
			name, err := strconv.Unquote(text.Value)
			if err != nil {
				t.Fatal(err)
			}
			if name != "b" { // stateFrom itself
				names[name] = at
			}
			return true
		})
	}
	return names
}
