package layout

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// arrow is a use, in one file of a package, of a name that another file of it declares: a type, a
// constant, a function, a method or a field. Calls through interfaces and function values have
// none.
type arrow struct {
	from, to, name string
	at             token.Position
}

// arrows returns the arrows between the files of a package.
func arrows(fset *token.FileSet, files []*ast.File, of types.Importer) (all []arrow, err error) {
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	p, err := (&types.Config{Importer: of}).Check("p", fset, files, info)
	if err != nil {
		return nil, err
	}
	file := func(pos token.Pos) string { return filepath.Base(fset.Position(pos).Filename) }
	for id, object := range info.Uses {
		if object.Pkg() == p && file(object.Pos()) != file(id.Pos()) {
			all = append(all, arrow{file(id.Pos()), file(object.Pos()), object.Name(), fset.Position(id.Pos())})
		}
	}
	return all, nil
}

// against returns the arrows that do not run from a file to one that is listed before it.
func against(order []string, all []arrow) (wrong []string) {
	for _, a := range all {
		if slices.Index(order, a.to) > slices.Index(order, a.from) {
			wrong = append(wrong, fmt.Sprintf("%s:%d uses %s of %s, which is listed after it", a.from, a.at.Line, a.name, a.to))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// parsed returns the files of a package, without tests.
func parsed(t *testing.T, fset *token.FileSet, dir string) (files []*ast.File) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	return files
}

// exported returns an importer of the compiled dependencies of a package.
func exported(t *testing.T, fset *token.FileSet, path string) types.Importer {
	t.Helper()
	out, err := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", path).Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	files := map[string]string{}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		files[p.ImportPath] = p.Export
	}
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
}

var listedFile = regexp.MustCompile(`(?m)^//\t(\w+\.go)\s`)

// TestFilesOfTopicUseOnlyEarlierOnes: each file of broker/topic uses only files that doc.go lists
// before it.
func TestFilesOfTopicUseOnlyEarlierOnes(t *testing.T) {
	const dir = "../../broker/topic/"
	doc, err := os.ReadFile(dir + "doc.go")
	if err != nil {
		t.Fatal(err)
	}
	order := []string{"doc.go"}
	for _, m := range listedFile.FindAllStringSubmatch(string(doc), -1) {
		order = append(order, m[1])
	}
	fset := token.NewFileSet()
	files := parsed(t, fset, dir)
	for _, f := range files {
		if name := filepath.Base(fset.Position(f.Pos()).Filename); !slices.Contains(order, name) {
			t.Errorf("%s is not listed in doc.go of broker/topic", name)
		}
	}
	if len(files) != len(order) {
		t.Errorf("broker/topic has %d files, and its doc.go lists %d", len(files), len(order))
	}
	all, err := arrows(fset, files, exported(t, fset, module+"/broker/topic"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) == 0 {
		t.Error("no arrows were found")
	}
	for _, why := range against(order, all) {
		t.Error(why)
	}
}

// TestTheOrderOfFilesIsChecked: each kind of an arrow is found, and only one against the order is
// wrong.
func TestTheOrderOfFilesIsChecked(t *testing.T) {
	fset := token.NewFileSet()
	var files []*ast.File
	for name, text := range map[string]string{
		"low.go":  "package p\ntype T struct{ field int }\nfunc (t *T) low() int { return t.high() + limit + f() }\n",
		"high.go": "package p\nconst limit = 1\nfunc f() int { return 2 }\nfunc (t *T) high() int { return t.field }\n",
	} {
		f, err := parser.ParseFile(fset, name, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	all, err := arrows(fset, files, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"low.go:3 uses f of high.go, which is listed after it",
		"low.go:3 uses high of high.go, which is listed after it",
		"low.go:3 uses limit of high.go, which is listed after it",
	}
	if got := against([]string{"low.go", "high.go"}, all); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	want = []string{"high.go:4 uses T of low.go, which is listed after it", "high.go:4 uses field of low.go, which is listed after it"}
	if got := against([]string{"high.go", "low.go"}, all); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
