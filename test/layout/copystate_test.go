package layout

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// copyRules say where broker/topic may write what it knows of a copy, and act on it: a copy is
// judged by copystate.Apply alone.
var copyRules = []rule{
	{"copyOf.state", write, []string{"apply"}},
	{"copyOf.follows", write, []string{"apply"}},
	{"copyOf.doubted", write, []string{"apply"}},
	{"copyOf.grave", write, []string{"apply"}},
	{"Shard.own", write, nil},
	{"copystate.Apply", use, []string{"apply"}},
	{"copystate.State{}", use, nil},
	// step and cannotOpen carry actions out; entryChanged logs what became of one.
	{"replica.Vouch", use, []string{"step"}},
	{"replica.Withdraw", use, []string{"step", "cannotOpen", "entryChanged"}},
	{"replica.Resign", use, []string{"step", "cannotOpen", "entryChanged"}},
	{"Service.lead", use, []string{"step"}},
	{"Service.follow", use, []string{"step"}},
	{"Service.repair", use, []string{"step"}},
	{"Service.setAside", use, []string{"step"}},
}

// copyFields are the fields of the types that stand for a copy, and of those that are kept or live
// beside its state: the spec in the manifest, and a leader. None but state, and what apply derives
// from it, says anything about the copy. ShardLeader.damage is the reason of a doubt, for people.
var copyFields = map[string]string{
	"copyOf": "state reached epoch follows doubted grave events entry",
	"logs":   "parts",
	"repair": "done offers unwanted",
	"Shard": "topic number name view cleared leading trouble out waiters State backoff logs origins ids following " +
		"followed repair mended high rest own tried copying opened fault known removing unremoved",
	"ShardLeader": "service topic shard data state damage begun inherited epoch durability leading safe high readable visible " +
		"failed over ending announced acks ahead confirms watchers removing index Reader retention republish " +
		"specMu mu closed end lastTime lastID lastKnown marked ids origins sources subjects appends totals",
}

// access is what a rule restricts.
type access int

const (
	write access = iota // of a field: assigning it, taking its address, or a method other than Load
	use                 // any mention
)

// rule restricts an access to some functions. Its name is TYPE.FIELD, TYPE.METHOD, PACKAGE.NAME, or
// PACKAGE.TYPE{} for a composite literal.
type rule struct {
	name   string
	access access
	by     []string
}

// breaches returns the accesses that the rules forbid, and the names of rules that restrict
// nothing.
func breaches(fset *token.FileSet, files []*ast.File, info *types.Info, rules []rule) (wrong, idle []string) {
	seen := map[string]bool{}
	note := func(at ast.Node, in, name string, a access) {
		for _, r := range rules {
			if r.name != name || r.access != a {
				continue
			}
			seen[name] = true
			if !slices.Contains(r.by, in) {
				p := fset.Position(at.Pos())
				wrong = append(wrong, fmt.Sprintf("%s:%d: %s is not for %s", filepath.Base(p.Filename), p.Line, name, in))
			}
		}
	}
	for _, file := range files {
		for _, d := range file.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			in := f.Name.Name
			writes := func(e ast.Expr) {
				for at := e; ; {
					if s, ok := ast.Unparen(at).(*ast.SelectorExpr); ok {
						note(e, in, named(info, s), write)
					}
					switch index := ast.Unparen(at).(type) {
					case *ast.IndexExpr:
						at = index.X
						continue
					}
					break
				}
			}
			ast.Inspect(f.Body, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.AssignStmt:
					for _, left := range n.Lhs {
						writes(left)
					}
				case *ast.IncDecStmt:
					writes(n.X)
				case *ast.UnaryExpr:
					if n.Op == token.AND {
						writes(n.X)
					}
				case *ast.CompositeLit:
					if t, ok := info.TypeOf(n).(*types.Named); ok && t.Obj().Pkg() != nil {
						note(n, in, t.Obj().Pkg().Name()+"."+t.Obj().Name()+"{}", use)
					}
				case *ast.SelectorExpr:
					if inner, ok := ast.Unparen(n.X).(*ast.SelectorExpr); ok && changes(info, n) {
						writes(inner)
					}
					note(n, in, named(info, n), use)
				}
				return true
			})
		}
	}
	for _, r := range rules {
		if !seen[r.name] && len(r.by) > 0 {
			idle = append(idle, r.name)
		}
	}
	slices.Sort(wrong)
	return slices.Compact(wrong), idle
}

// changes reports whether a selector is a method, other than Load, of an atomic value.
func changes(info *types.Info, s *ast.SelectorExpr) bool {
	f, ok := info.Uses[s.Sel].(*types.Func)
	if !ok || f.Signature().Recv() == nil || f.Name() == "Load" {
		return false
	}
	_, pointer := f.Signature().Recv().Type().(*types.Pointer)
	return pointer
}

// named returns TYPE.FIELD or TYPE.METHOD of a selector, or PACKAGE.NAME.
func named(info *types.Info, s *ast.SelectorExpr) string {
	selected, ok := info.Selections[s]
	if !ok {
		if o := info.Uses[s.Sel]; o != nil && o.Pkg() != nil {
			return o.Pkg().Name() + "." + o.Name()
		}
		return ""
	}
	t := selected.Recv()
	if p, ok := t.(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := t.(*types.Named); ok {
		return n.Obj().Name() + "." + s.Sel.Name
	}
	return ""
}

// fieldsOf returns the names of a struct's fields.
func fieldsOf(p *types.Package, name string) (fields []string) {
	o := p.Scope().Lookup(name)
	if o == nil {
		return nil
	}
	s, ok := o.Type().Underlying().(*types.Struct)
	for i := 0; ok && i < s.NumFields(); i++ {
		fields = append(fields, s.Field(i).Name())
	}
	return fields
}

// TestOnlyCopystateJudgesACopy: package copystate alone judges a copy: only Service.apply changes
// what is known of one, only what copystate decided is carried out, and no other field says
// anything about a copy.
func TestOnlyCopystateJudgesACopy(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		if from != "broker/topic" && slices.Contains(p.Imports, module+"/broker/copystate") {
			t.Errorf("%s imports broker/copystate; broker/topic keeps the states of copies", from)
		}
	}
	fset := token.NewFileSet()
	files := parsed(t, fset, "../../broker/topic")
	info := newInfo()
	p, err := (&types.Config{Importer: exported(t, fset, module+"/broker/topic")}).Check(module+"/broker/topic", fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	wrong, idle := breaches(fset, files, info, copyRules)
	for _, why := range wrong {
		t.Error(why)
	}
	for _, name := range idle {
		t.Errorf("the rule for %s restricts nothing: has it another name?", name)
	}
	for name, want := range copyFields {
		if got := strings.Join(fieldsOf(p, name), " "); got != want {
			t.Errorf("the fields of %s are\n%s, want\n%s\nWhat says something about a copy belongs into copystate.State. List any other field here.", name, got, want)
		}
	}
	state, err := exported(t, fset, module+"/broker/topic").Import(module + "/broker/copystate")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range fieldsOf(state, "State") {
		if token.IsExported(field) {
			t.Errorf("copystate.State.%s can be set from outside", field)
		}
	}
}

func newInfo() *types.Info {
	return &types.Info{Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{}}
}

// TestWritersOfAFieldAreFound: each way to write a field is found, and reading it is allowed.
func TestWritersOfAFieldAreFound(t *testing.T) {
	const text = `package p
type flag struct{}
func (*flag) Store(bool) {}
func (*flag) Load() bool { return false }
type copyOf struct { state int; list [2]int; grave flag }
type shard struct { own copyOf }
func (p *shard) apply() { p.own.state = 1; p.own.grave.Store(true) }
func (p *shard) reads() bool { return p.own.state == 1 && p.own.grave.Load() }
func (p *shard) assigns() { p.own.state, p.own.list[0] = 2, 3 }
func (p *shard) counts() { p.own.state++ }
func (p *shard) lends() *int { return &p.own.state }
func (p *shard) stores() { p.own.grave.Store(false) }
func (p *shard) passes() func(bool) { return p.own.grave.Store }
func (p *shard) replaces() { p.own = copyOf{} }
func decides(p *shard) { p.apply() }
`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", text, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	info := newInfo()
	if _, err := (&types.Config{}).Check("p", fset, []*ast.File{f}, info); err != nil {
		t.Fatal(err)
	}
	wrong, idle := breaches(fset, []*ast.File{f}, info, []rule{
		{"copyOf.state", write, []string{"apply"}}, {"copyOf.grave", write, []string{"apply"}}, {"copyOf.list", write, []string{"apply"}},
		{"shard.own", write, nil}, {"p.copyOf{}", use, nil}, {"shard.apply", use, []string{"step"}}, {"shard.gone", use, []string{"apply"}},
	})
	want := []string{
		"p.go:10: copyOf.state is not for counts", "p.go:11: copyOf.state is not for lends", "p.go:12: copyOf.grave is not for stores",
		"p.go:13: copyOf.grave is not for passes", "p.go:14: p.copyOf{} is not for replaces", "p.go:14: shard.own is not for replaces",
		"p.go:15: shard.apply is not for decides", "p.go:9: copyOf.list is not for assigns", "p.go:9: copyOf.state is not for assigns",
	}
	if !slices.Equal(wrong, want) || !slices.Equal(idle, []string{"shard.gone"}) {
		t.Errorf("found %q, and idle %q", wrong, idle)
	}
}
