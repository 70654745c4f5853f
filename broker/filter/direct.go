package filter

import (
	"bytes"
	"cmp"
	"time"

	"cel.dev/cel-go/common/ast"
	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/types"

	"github.com/carillon-mq/carillon/broker/protocol"
)

// node judges a part of an expression.
type node interface {
	judge(s *state) value
}

// state is what is known of the record that is judged.
type state struct {
	record *Record
	pass   pass
	passed bool   // pass has looked at the payload
	values []seen // nil: each slot is looked at once
	work   work
}

// seen is what is known of a slot's value, so that none is read twice.
type seen struct {
	known bool // value is
	asked bool // there is
	value value
	there bool // there is such a value, and it is JSON
}

func newState(p *paths) *state {
	s := &state{pass: pass{paths: p, slots: make([]slot, p.count)}}
	if p.shared {
		s.values = make([]seen, p.count)
	}
	return s
}

func (s *state) begin(r *Record, done work) { s.record, s.passed, s.work = r, false, done }

func (s *state) end() {
	s.record, s.pass.b = nil, nil
	clear(s.values)
}

// slot returns what was found of a path.
func (s *state) slot(n int) slot {
	s.look()
	return s.pass.slots[n]
}

// look makes sure that the pass was made.
func (s *state) look() {
	if !s.passed {
		s.passed = true
		s.pass.run(s.record.Data)
	}
}

// value is what a node says. The zero value is an error.
type value struct {
	kind   kind
	truth  bool
	number float64
	time   int64
	text   []byte
}

type kind uint8

const (
	isError kind = iota
	isBool
	isNumber
	isText
	isTime
	isNull
	isOther // an array or an object
)

func truth(t bool) value { return value{kind: isBool, truth: t} }

// direct returns a node for an expression, if it has one of the usual forms, or nil.
func direct(e ast.Expr) (node, *paths) {
	d := &directs{paths: newPaths()}
	if n := d.condition(e); n != nil {
		return n, d.paths
	}
	return nil, d.paths
}

// directValue is the same for an expression whose value is asked for.
func directValue(e ast.Expr) (node, *paths) {
	d := &directs{paths: newPaths()}
	if n := d.operand(e); n != nil {
		return n, d.paths
	}
	d.paths = newPaths()
	return d.condition(e), d.paths
}

// isQuick reports whether a node of the whole expression only compares, and looks for no pattern.
func isQuick(n node) bool {
	switch n := n.(type) {
	case nil:
		return false
	case *junction:
		for _, of := range n.of {
			if !isQuick(of) {
				return false
			}
		}
	case *not:
		return isQuick(n.of)
	case *match:
		return n.function == "startsWith" || n.function == "endsWith"
	}
	return true
}

// directs makes the nodes of one expression.
type directs struct{ paths *paths }

// condition returns the node of a condition, or nil.
func (d *directs) condition(e ast.Expr) node {
	switch e.Kind() {
	case ast.SelectKind:
		if e.AsSelect().IsTestOnly() {
			return d.has(e)
		}
		return d.path(e) // a bool of the payload
	case ast.CallKind:
		return d.call(e.AsCall())
	}
	return nil
}

func (d *directs) call(c ast.CallExpr) node {
	args := c.Args()
	switch name := c.FunctionName(); name {
	case operators.LogicalAnd, operators.LogicalOr:
		all := junction{ends: name == operators.LogicalOr}
		for _, a := range args {
			n := d.condition(a)
			if n == nil {
				return nil
			}
			all.of = append(all.of, n)
		}
		return &all
	case operators.LogicalNot:
		if n := d.condition(args[0]); n != nil {
			return &not{n}
		}
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return d.comparison(name, args[0], args[1])
	case operators.In:
		return d.in(args[0], args[1])
	case operators.Index:
		return nil // json["flag"] is not usual
	case "startsWith", "endsWith", "contains", "matches":
		if c.IsMemberFunction() {
			return d.match(name, c.Target(), args[0])
		}
	}
	return nil
}

// operand returns the node of what is compared, or nil.
func (d *directs) operand(e ast.Expr) node {
	switch e.Kind() {
	case ast.IdentKind:
		switch e.AsIdent() {
		case subjectName:
			return subjectOf{}
		case timeName:
			return timeOf{}
		}
	case ast.SelectKind:
		if !e.AsSelect().IsTestOnly() {
			return d.path(e)
		}
	case ast.CallKind:
		if e.AsCall().FunctionName() == operators.Index {
			return d.path(e)
		}
	}
	return nil
}

// constant returns the value of a literal, and of a timestamp.
func constant(e ast.Expr) (v value, ok bool) {
	switch e.Kind() {
	case ast.LiteralKind:
		return literal(e)
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != "timestamp" || len(c.Args()) != 1 || c.IsMemberFunction() || c.Args()[0].Kind() != ast.LiteralKind {
			return value{}, false
		}
		s, ok := c.Args()[0].AsLiteral().(types.String)
		if !ok {
			return value{}, false
		}
		t, err := time.Parse(time.RFC3339, string(s))
		if err != nil || t.Year() < 1700 || t.Year() > 2200 { // beyond what an int64 of ns holds
			return value{}, false
		}
		return value{kind: isTime, time: t.UnixNano()}, true
	}
	return value{}, false
}

func literal(e ast.Expr) (v value, ok bool) {
	const exact = 1 << 53 // up to here a float64 has each integer
	switch l := e.AsLiteral().(type) {
	case types.Bool:
		return truth(bool(l)), true
	case types.Double:
		return value{kind: isNumber, number: float64(l)}, true
	case types.Int:
		return value{kind: isNumber, number: float64(l)}, l > -exact && l < exact
	case types.Uint:
		return value{kind: isNumber, number: float64(l)}, l < exact
	case types.String:
		return value{kind: isText, text: []byte(l)}, true
	case types.Null:
		return value{kind: isNull}, true
	}
	return value{}, false
}

// path returns the node of a value of the payload or of a header, or nil.
func (d *directs) path(e ast.Expr) node {
	root, names, ok := pathOf(e)
	switch {
	case !ok:
	case root == headersName && len(names) == 1:
		return headerOf{names[0]}
	case root == attributesName && len(names) == 1:
		return attributeOf{names[0]}
	case root == jsonName:
		if n, ok := d.paths.add(names); ok {
			return jsonOf{n}
		}
	}
	return nil
}

// pathOf returns the variable and the names of x.a.b or x["a"]["b"].
func pathOf(e ast.Expr) (root string, names []string, ok bool) {
	switch e.Kind() {
	case ast.IdentKind:
		return e.AsIdent(), nil, true
	case ast.SelectKind:
		s := e.AsSelect()
		root, names, ok = pathOf(s.Operand())
		return root, append(names, s.FieldName()), ok
	case ast.CallKind:
		c := e.AsCall()
		if c.FunctionName() != operators.Index || c.Args()[1].Kind() != ast.LiteralKind {
			return "", nil, false
		}
		name, isText := c.Args()[1].AsLiteral().(types.String)
		root, names, ok = pathOf(c.Args()[0])
		return root, append(names, string(name)), ok && isText
	}
	return "", nil, false
}

func (d *directs) has(e ast.Expr) node {
	switch n := d.path(e).(type) {
	case jsonOf:
		return hasJSON(n)
	case headerOf:
		return hasHeader(n)
	case attributeOf:
		return hasAttribute(n)
	}
	return nil
}

// comparison returns the node of a comparison of something with a constant, on either side.
func (d *directs) comparison(operator string, left, right ast.Expr) node {
	c := &comparison{is: relations[operator]}
	var ok bool
	if c.with, ok = constant(right); ok {
		c.of = d.operand(left)
	} else if c.with, ok = constant(left); ok {
		c.of, c.is = d.operand(right), c.is.turned()
	}
	if c.of == nil || c.with.kind == isBool && c.is > notEqual {
		return nil
	}
	return c
}

// relation is what a comparison asks of a value and its constant.
type relation uint8

const (
	equal relation = iota
	notEqual
	less
	lessOrEqual
	greater
	greaterOrEqual
)

var relations = map[string]relation{
	operators.Equals: equal, operators.NotEquals: notEqual,
	operators.Less: less, operators.LessEquals: lessOrEqual,
	operators.Greater: greater, operators.GreaterEquals: greaterOrEqual,
}

// turned returns the relation that says the same with its sides exchanged.
func (r relation) turned() relation {
	switch r {
	case less:
		return greater
	case lessOrEqual:
		return greaterOrEqual
	case greater:
		return less
	case greaterOrEqual:
		return lessOrEqual
	}
	return r
}

// holds reports whether it holds of a value that is below the constant, the same, or neither.
func (r relation) holds(below, same bool) bool {
	switch r {
	case equal:
		return same
	case notEqual:
		return !same
	case less:
		return below
	case lessOrEqual:
		return below || same
	case greater:
		return !below && !same
	}
	return !below
}

// in returns the node of "x in [constants]", "name in headers" or "constant in attributes.name".
func (d *directs) in(left, right ast.Expr) node {
	if right.Kind() == ast.IdentKind && left.Kind() == ast.LiteralKind {
		name, ok := left.AsLiteral().(types.String)
		switch {
		case ok && right.AsIdent() == headersName:
			return hasHeader{string(name)}
		case ok && right.AsIdent() == attributesName:
			return hasAttribute{string(name)}
		}
	}
	if list, ok := d.path(right).(attributeOf); ok {
		if v, ok := constant(left); ok {
			return &element{list.name, v}
		}
		return nil
	}
	if right.Kind() != ast.ListKind || len(right.AsList().OptionalIndices()) > 0 {
		return nil
	}
	m := &membership{of: d.operand(left), texts: map[string]struct{}{}}
	if m.of == nil {
		return nil
	}
	for _, e := range right.AsList().Elements() {
		v, ok := constant(e)
		if !ok {
			return nil
		}
		if v.kind == isText {
			m.texts[string(v.text)] = struct{}{}
		} else {
			m.others = append(m.others, v)
		}
	}
	return m
}

func (d *directs) match(function string, target, arg ast.Expr) node {
	if arg.Kind() != ast.LiteralKind {
		return nil
	}
	s, ok := arg.AsLiteral().(types.String)
	of := d.operand(target)
	if !ok || of == nil {
		return nil
	}
	if function != "matches" {
		return &match{of: of, function: function, text: []byte(s)}
	}
	pattern, err := newPattern(string(s))
	if err != nil {
		return nil
	}
	return &match{of: of, function: function, pattern: pattern}
}

// The nodes of values.
type (
	subjectOf struct{}
	timeOf    struct{}
	headerOf  struct{ name string }
	jsonOf    struct{ slot int }
)

func (subjectOf) judge(s *state) value { return value{kind: isText, text: s.record.Subject} }
func (timeOf) judge(s *state) value    { return value{kind: isTime, time: s.record.Time} }

func (n headerOf) judge(s *state) value {
	v, ok := protocol.Header(s.record.Header).Get(n.name)
	if !ok {
		return value{}
	}
	return value{kind: isText, text: v}
}

func (n jsonOf) judge(s *state) value {
	if s.values == nil {
		return n.read(s)
	}
	v := &s.values[n.slot]
	if !v.known {
		v.known, v.value = true, n.read(s)
	}
	return v.value
}

func (n jsonOf) read(s *state) (v value) {
	at := s.slot(n.slot)
	b, i := s.record.Data, at.value
	if at.state != found || i >= len(b) {
		return value{}
	}
	switch b[i] {
	case '"':
		if t, ok := text(b, i); ok {
			return value{kind: isText, text: t}
		}
	case '{':
		return value{kind: isOther}
	case '[':
		if v, _ := (&payload{b: b}).valueAt(i, 1); !types.IsError(v) { // seldom
			return value{kind: isOther}
		}
	case 't', 'f', 'n':
		switch word(b, i) {
		case "true":
			return truth(true)
		case "false":
			return truth(false)
		case "null":
			return value{kind: isNull}
		}
	default:
		if n, ok := number(b, i); ok {
			return value{kind: isNumber, number: n}
		}
	}
	return value{}
}

// readable reports whether read returns a value. An object may be broken.
func (n jsonOf) readable(s *state) bool {
	b, i := s.record.Data, s.slot(n.slot).value
	if i < len(b) && b[i] == '"' { // without its escapes
		return scalar(b, i)
	}
	return n.judge(s).kind != isError
}

// The nodes of conditions.
type (
	junction struct {
		of       []node
		ends     bool // the value of one of them that decides: true for "or"
		watching int  // how many of them watch the pass over the payload
	}
	not        struct{ of node }
	hasJSON    struct{ slot int }
	hasHeader  struct{ name string }
	comparison struct {
		is      relation
		of      node
		with    value
		watches bool // it is made in the pass over the payload
	}
	membership struct {
		of     node
		texts  map[string]struct{}
		others []value
	}
	match struct {
		of       node
		function string
		text     []byte
		pattern  pattern
	}
)

// judge implements node. An error counts only if no other condition decides.
func (n *junction) judge(s *state) value {
	result := truth(!n.ends)
	for _, c := range n.of {
		switch v := c.judge(s); {
		case v.kind != isBool:
			result = value{}
		case v.truth == n.ends:
			return v
		}
	}
	return result
}

// verdict judges a record by the node of a whole condition.
func (s *state) verdict(root node) Verdict {
	if n, ok := root.(*junction); ok && n.watching > 0 && n.watching == len(n.of) {
		switch s.look(); {
		case s.pass.decided:
			return verdictOf(truth(n.ends))
		case s.pass.passed == n.watching:
			return verdictOf(truth(!n.ends))
		}
	}
	return verdictOf(root.judge(s))
}

func verdictOf(v value) Verdict {
	switch {
	case v.kind != isBool:
		return Failed
	case v.truth:
		return Yes
	}
	return No
}

func (n *not) judge(s *state) value {
	v := n.of.judge(s)
	if v.kind != isBool {
		return value{}
	}
	return truth(!v.truth)
}

func (n hasJSON) judge(s *state) value {
	switch s.slot(n.slot).state {
	case found:
		if s.values == nil {
			if jsonOf(n).readable(s) {
				return truth(true)
			}
			return value{}
		}
		v := &s.values[n.slot]
		if !v.asked {
			v.asked, v.there = true, jsonOf(n).readable(s)
		}
		if v.there {
			return truth(true)
		}
	case missing:
		return truth(false)
	}
	return value{}
}

func (n hasHeader) judge(s *state) value {
	_, ok := protocol.Header(s.record.Header).Get(n.name)
	return truth(ok)
}

func (n *comparison) judge(s *state) value {
	if n.watches {
		if of, ok := n.of.(jsonOf); ok {
			if was := s.slot(of.slot).outcome; was != unknown {
				return truth(was == isTrue)
			}
		}
	}
	v := n.of.judge(s)
	if v.kind == isError {
		return value{}
	}
	if n.is <= notEqual {
		return truth(v.equals(&n.with) == (n.is == equal))
	}
	order, ok := v.compare(&n.with)
	if !ok {
		return value{}
	}
	return truth(n.is.holds(order < 0, order == 0))
}

// equals reports whether two values are equal. Those of different kinds are not.
func (v *value) equals(w *value) bool {
	if v.kind != w.kind {
		return false
	}
	switch v.kind {
	case isBool:
		return v.truth == w.truth
	case isNumber:
		return v.number == w.number
	case isText:
		return string(v.text) == string(w.text)
	case isTime:
		return v.time == w.time
	}
	return v.kind == isNull
}

// compare returns the order of two values. ok is false if they have none.
func (v *value) compare(w *value) (order int, ok bool) {
	if v.kind != w.kind {
		return 0, false
	}
	switch v.kind {
	case isNumber:
		return cmp.Compare(v.number, w.number), v.number == v.number && w.number == w.number
	case isText:
		return bytes.Compare(v.text, w.text), true
	case isTime:
		return cmp.Compare(v.time, w.time), true
	}
	return 0, false
}

func (n *membership) judge(s *state) value {
	v := n.of.judge(s)
	switch v.kind {
	case isError:
		return value{}
	case isText:
		_, ok := n.texts[string(v.text)]
		return truth(ok)
	}
	for i := range n.others {
		if v.equals(&n.others[i]) {
			return truth(true)
		}
	}
	return truth(false)
}

func (n *match) judge(s *state) value {
	v := n.of.judge(s)
	if v.kind != isText {
		return value{}
	}
	switch n.function {
	case "startsWith":
		return truth(bytes.HasPrefix(v.text, n.text))
	case "endsWith":
		return truth(bytes.HasSuffix(v.text, n.text))
	case "contains":
		if !s.work.scan(len(v.text)) {
			return value{}
		}
		return truth(bytes.Contains(v.text, n.text))
	}
	if !s.work.scan(len(v.text) * n.pattern.size) {
		return value{}
	}
	return truth(n.pattern.Match(v.text))
}
