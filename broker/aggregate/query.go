package aggregate

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/cespare/xxhash/v2"

	"github.com/carillon-mq/carillon/broker/filter"
)

// Options are what is asked for.
type Options struct {
	// Functions is what is computed of each window and key: "count(), sum(json.total) as total".
	Functions string
	// By are the expressions of the key: "json.region, headers.Shop as shop". Empty: one key.
	By string
	// Window is the length of a window. 0: one window holds all records, or there are sessions.
	Window time.Duration
	// Slide is the distance of the beginnings of two windows. 0: Window.
	Slide time.Duration
	// Session is the time without a record that ends a session of a key. 0: there are no sessions.
	Session time.Duration
	// Time is the expression of a record's time: a time, a text as RFC 3339 has it, or a number of
	// seconds since 1970. Empty: when it was stored.
	Time string
	// Attributes: expressions may name attributes of the record's subject.
	Attributes bool
}

// expression compiles an expression.
func (o *Options) expression(text string) (*filter.Expression, error) {
	if o.Attributes {
		return filter.CompileStoredExpression(text)
	}
	return filter.CompileExpression(text)
}

// Query is compiled Options. Goroutines may share it.
type Query struct {
	options     Options
	fingerprint uint64
	expressions []*filter.Expression
	cells       []cellOf
	columns     []column
	keys        []column
	at          *filter.Expression // nil: when it was stored
}

// cellOf is a cell of each window, and the expression whose values it takes; -1: there is none.
type cellOf struct {
	kind cellKind
	of   int
}

// column is a result, or a part of the key.
type column struct {
	name     string
	function string
	part     float64 // of a quantile
	index    int     // of the cell, or the expression
}

// Error says why a text is no list of functions, or of keys.
type Error struct {
	What string // "aggregate", "by" or "time"
	Text string
	Err  error
}

func (e *Error) Error() string {
	text := e.Text
	if len(text) > maxName {
		text = strings.ToValidUTF8(text[:maxName], "") + "…"
	}
	return fmt.Sprintf("%s %q: %v", e.What, text, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Compile compiles what is asked for. The error is an *Error, or about the windows.
func Compile(o Options) (*Query, error) {
	if err := o.windows(); err != nil {
		return nil, err
	}
	q := &Query{options: o}
	if err := q.functions(o.Functions); err != nil {
		return nil, &Error{"aggregate", o.Functions, err}
	}
	if err := q.by(o.By); err != nil {
		return nil, &Error{"by", o.By, err}
	}
	if o.Time != "" {
		at, err := o.expression(o.Time)
		if err != nil {
			return nil, &Error{"time", o.Time, errors.Unwrap(err)}
		}
		q.at = at
	}
	q.fingerprint = xxhash.Sum64String(fmt.Sprintf("%q", []any{o.Functions, o.By, o.Window, o.Slide, o.Session, o.Time}))
	return q, nil
}

// windows checks the windows, and completes them.
func (o *Options) windows() error {
	for name, d := range map[string]time.Duration{"window": o.Window, "slide": o.Slide, "session": o.Session} {
		if d != 0 && (d < minWindow || d > maxWindow) {
			return fmt.Errorf("a %s of %s (use %s to %s)", name, d, minWindow, maxWindow)
		}
	}
	switch {
	case o.Session > 0 && (o.Window > 0 || o.Slide > 0):
		return errors.New("sessions have no window and no slide: choose one")
	case o.Slide > 0 && o.Window == 0:
		return errors.New("a slide without a window: say how long a window is")
	case o.Slide > o.Window:
		return fmt.Errorf("a slide of %s is longer than the window of %s: records between two windows would be in none", o.Slide, o.Window)
	case o.Window > 0 && o.Slide > 0 && (o.Window+o.Slide-1)/o.Slide > maxOverlap:
		return fmt.Errorf("each record would be in %d windows, and the bound is %d: use a longer slide", (o.Window+o.Slide-1)/o.Slide, maxOverlap)
	}
	if o.Slide == 0 {
		o.Slide = o.Window
	}
	return nil
}

// NamesAttributes reports whether an expression looks at attributes.
func (q *Query) NamesAttributes() bool {
	return q.at != nil && q.at.NamesAttributes() || slices.ContainsFunc(q.expressions, (*filter.Expression).NamesAttributes)
}

// Keys returns the names of the parts of the key.
func (q *Query) Keys() []string { return names(q.keys) }

// Columns returns the names of the results.
func (q *Query) Columns() []string { return names(q.columns) }

// Windowed reports whether there are windows or sessions.
func (q *Query) Windowed() bool { return q.options.Window > 0 || q.options.Session > 0 }

func names(columns []column) (all []string) {
	for _, c := range columns {
		all = append(all, c.name)
	}
	return all
}

// Why returns why a record has no time, key, or value of an expression, or nil if it has all.
func (q *Query) Why(r *filter.Record) error {
	if q.at != nil {
		if err := q.at.Why(r); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(q.at.String()), err)
		}
		if _, ok := q.time(r); !ok {
			return fmt.Errorf("%s: it is no time of the years 1771 to 2169", strings.TrimSpace(q.at.String()))
		}
	}
	for _, e := range q.expressions {
		if err := e.Why(r); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(e.String()), err)
		}
	}
	for _, c := range q.cells {
		if c.of < 0 {
			continue
		}
		e := q.expressions[c.of]
		if v := e.Value(r); v.Kind != filter.Null && !c.kind.new().add(&v) {
			return fmt.Errorf("%s: it is no number that the function takes, or a text of more than %d bytes", strings.TrimSpace(e.String()), maxExtreme)
		}
	}
	return nil
}

// time returns the time of a record.
func (q *Query) time(r *filter.Record) (at int64, ok bool) {
	if q.at == nil {
		at = r.Time
		return at, -maxTime <= at && at <= maxTime
	}
	switch v := q.at.Value(r); v.Kind {
	case filter.Time:
		at, ok = v.Time, true
	case filter.Text:
		t, err := time.Parse(time.RFC3339, string(v.Text))
		at, ok = t.UnixNano(), err == nil && 1700 < t.Year() && t.Year() < 2200 // beyond, UnixNano is undefined
	case filter.Number:
		seconds := math.Floor(v.Number)
		if ok = math.Abs(seconds) <= float64(maxTime/1e9); ok {
			at = int64(seconds)*1e9 + int64((v.Number-seconds)*1e9)
		}
	}
	return at, ok && -maxTime <= at && at <= maxTime
}

// functions compiles a list of functions.
func (q *Query) functions(text string) error {
	items, err := split(text)
	if err != nil {
		return err
	}
	if len(items) > maxColumns {
		return fmt.Errorf("%d functions, and the bound is %d", len(items), maxColumns)
	}
	for _, i := range items {
		if err := q.function(i); err != nil {
			return err
		}
	}
	return distinctNames(q.columns)
}

// cellKinds are the cells of functions. Those of quantiles have a p and a number.
var cellKinds = map[string]cellKind{
	"count": countCell, "sum": sumCell, "mean": sumCell, "min": extremesCell, "max": extremesCell, "median": quantilesCell, "distinct": distinctCell,
}

var quantileName = regexp.MustCompile(`^p([0-9]{1,2}(\.[0-9]{1,6})?)$`)

func (q *Query) function(i item) error {
	open := strings.IndexByte(i.text, '(')
	if open < 0 || !strings.HasSuffix(i.text, ")") {
		return fmt.Errorf("column %d: %q is no function of an expression (write one such as sum(json.total))", i.column, i.text)
	}
	name := strings.TrimRightFunc(i.text[:open], unicode.IsSpace)
	c := column{name: i.name, function: name}
	kind, ok := cellKinds[name]
	if part := quantileName.FindStringSubmatch(name); part != nil {
		percent, err := strconv.ParseFloat(part[1], 64)
		ok, kind = err == nil && percent > 0, quantilesCell
		c.function, c.part = "quantile", percent/100
	} else if name == "median" {
		c.function, c.part = "quantile", 0.5
	}
	if !ok {
		return fmt.Errorf("column %d: there is no function %q (use count, sum, mean, min, max, distinct, median, or a quantile such as p99 or p99.9)", i.column, name)
	}
	of := -1
	if argument := i.text[open+1 : len(i.text)-1]; strings.TrimSpace(argument) != "" {
		var err error
		if of, err = q.expression(padding(i.before+i.text[:open+1]) + argument); err != nil {
			return err
		}
	} else if name != "count" {
		return fmt.Errorf("column %d: %s of what? (write one such as %s(json.total))", i.column, name, name)
	}
	c.index = q.cell(kind, of)
	q.columns = append(q.columns, c)
	return nil
}

// cell returns the index of a cell. Functions of the same values share it.
func (q *Query) cell(kind cellKind, of int) int {
	for i, c := range q.cells {
		if c == (cellOf{kind, of}) {
			return i
		}
	}
	q.cells = append(q.cells, cellOf{kind, of})
	return len(q.cells) - 1
}

// expression compiles an expression, unless there is one with the same text, and returns its index.
func (q *Query) expression(text string) (int, error) {
	for i, e := range q.expressions {
		if strings.TrimSpace(e.String()) == strings.TrimSpace(text) {
			return i, nil
		}
	}
	e, err := q.options.expression(text)
	if err != nil {
		return 0, errors.Unwrap(err)
	}
	q.expressions = append(q.expressions, e)
	return len(q.expressions) - 1, nil
}

// by compiles a list of keys.
func (q *Query) by(text string) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	items, err := split(text)
	if err != nil {
		return err
	}
	if len(items) > maxKeys {
		return fmt.Errorf("%d keys, and the bound is %d", len(items), maxKeys)
	}
	for _, i := range items {
		of, err := q.expression(padding(i.before) + i.text)
		if err != nil {
			return err
		}
		q.keys = append(q.keys, column{name: i.name, index: of})
	}
	return distinctNames(append(append([]column(nil), q.columns...), q.keys...))
}

// distinctNames returns an error if two columns have the same name, or one that is taken.
func distinctNames(columns []column) error {
	seen := map[string]bool{"start": true, "end": true}
	for _, c := range columns {
		if seen[c.name] {
			return fmt.Errorf("two columns would be named %q (name one with: … as NAME)", c.name)
		}
		seen[c.name] = true
	}
	return nil
}

// item is an element of a list.
type item struct {
	text   string // without its name
	name   string // that it is given, or the text
	before string // what stands before it
	column int
}

var named = regexp.MustCompile(`^(?s)(.*[^\s])\s+as\s+([A-Za-z_][A-Za-z0-9_]*)$`)

// split splits a list at its commas, except within brackets and strings.
func split(text string) (items []item, err error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("it has %d bytes, and the bound is %d", len(text), maxText)
	}
	begin, depth := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ',' && depth == 0:
			one, err := newItem(text, begin, i)
			if err != nil {
				return nil, err
			}
			items = append(items, one)
			begin = i + 1
		case strings.IndexByte("([{", text[i]) >= 0:
			depth++
		case strings.IndexByte(")]}", text[i]) >= 0:
			if depth--; depth < 0 {
				return nil, fmt.Errorf("column %d: a bracket closes that was not opened", columnOf(text, i))
			}
		case text[i] == '"' || text[i] == '\'':
			raw := i > 0 && (text[i-1] == 'r' || text[i-1] == 'R')
			end := stringEnd(text, i, raw)
			if end < 0 {
				return nil, fmt.Errorf("column %d: the string does not end", columnOf(text, i))
			}
			i = end
		}
	}
	if depth > 0 {
		return nil, fmt.Errorf("column %d: a bracket is not closed", columnOf(text, len(text)))
	}
	return items, nil
}

// stringEnd returns the index of the last byte of a string, or -1.
func stringEnd(text string, i int, raw bool) int {
	quote := text[i : i+1]
	if three := strings.Repeat(quote, 3); strings.HasPrefix(text[i:], three) {
		quote = three
	}
	for i += len(quote); i < len(text); i++ {
		switch {
		case text[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(text[i:], quote):
			return i + len(quote) - 1
		}
	}
	return -1
}

func newItem(text string, begin, end int) (item, error) {
	part := text[begin:end]
	trimmed := strings.TrimSpace(part)
	begin += strings.Index(part, trimmed)
	i := item{text: trimmed, name: trimmed, before: text[:begin], column: columnOf(text, begin)}
	if trimmed == "" {
		return i, fmt.Errorf("column %d: something is missing", i.column)
	}
	if n := named.FindStringSubmatch(trimmed); n != nil {
		i.text, i.name = n[1], n[2]
	}
	if len(i.name) > maxName {
		return i, fmt.Errorf("column %d: its name would have %d bytes, and the bound is %d (name it with: … as NAME)", i.column, len(i.name), maxName)
	}
	return i, nil
}

// columnOf returns the column of a byte, as errors of expressions count it.
func columnOf(text string, i int) int { return utf8.RuneCountInString(text[:i]) + 1 }

// padding returns as many spaces as a text has characters: an expression behind it has errors
// whose column is that of the whole text.
func padding(text string) string {
	return strings.Map(func(c rune) rune {
		if c == '\n' {
			return c
		}
		return ' '
	}, text)
}
