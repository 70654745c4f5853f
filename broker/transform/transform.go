package transform

import (
	"bytes"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/carillon-mq/carillon/broker/subject"
)

const (
	// MaxDestination is the longest destination, in bytes: many times what applications use. It
	// bounds what one message costs.
	MaxDestination = 1024
	// MaxSubject is the longest result, in bytes: as long as the line of a publish may be.
	MaxSubject = 4096
)

// Transform maps the subjects that match its source. It never changes.
type Transform struct {
	source []byte
	parts  []part
	// rest is the number of source tokens before >, whose tokens end the result; -1: there is no >.
	rest int
}

// part is one token of a destination, which may become several.
type part struct {
	literal string
	apply   func(dst []byte, tokens [][]byte) []byte // nil: literal
	random  bool                                     // another one each time
	many    bool                                     // may be several tokens
}

// Error reports a destination that can't be used. Its texts are those of nats-server.
type Error struct{ Token, Why string }

func (e *Error) Error() string {
	why := "invalid mapping destination: " + e.Why
	if e.Token == "" {
		return why
	}
	return why + " in " + e.Token
}

// The reasons of an Error.
const (
	badSubject  = "invalid transform"
	badFunction = "unknown function"
	badIndex    = "wildcard index out of range"
	badArgument = "function argument is invalid or in the wrong format"
	fewer       = "not enough arguments passed to the function"
	more        = "too many arguments passed to the function"
)

// ErrSubject reports a source or destination that is no subject, or the two don't fit together.
var ErrSubject = errors.New("invalid subject")

// New returns the Transform of a source, whose default is >, to a destination. It returns nil
// without a destination: nothing is mapped.
func New(source, destination string) (*Transform, error) {
	if destination == "" {
		return nil, nil
	}
	if source == "" {
		source = ">"
	}
	if len(destination) > MaxDestination {
		return nil, fmt.Errorf("a destination has at most %d bytes", MaxDestination)
	}
	if !subject.ValidPattern([]byte(source)) {
		return nil, ErrSubject
	}
	t := &Transform{source: []byte(source), rest: -1}
	var wildcards []int // positions of the source's *
	tokens := strings.Split(source, ".")
	for i, token := range tokens {
		if token == "*" {
			wildcards = append(wildcards, i)
		}
	}
	if tokens[len(tokens)-1] == ">" {
		t.rest = len(tokens) - 1
	}
	to := strings.Split(destination, ".")
	open := to[len(to)-1] == ">"
	if open {
		to = to[:len(to)-1]
	}
	for _, token := range to {
		p, err := parse(token, wildcards)
		if err != nil {
			return nil, err
		}
		t.parts = append(t.parts, p)
	}
	if open != (t.rest >= 0) {
		return nil, ErrSubject
	}
	return t, nil
}

// Random reports whether a subject has not always the same result.
func (t *Transform) Random() bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.random })
}

// Pattern returns a pattern that all results match.
func (t *Transform) Pattern() string {
	var all []string
	for i := range t.parts {
		p := &t.parts[i]
		switch {
		case p.apply == nil:
			all = append(all, p.literal)
		case p.many:
			return strings.Join(append(all, ">"), ".")
		default:
			all = append(all, "*")
		}
	}
	if t.rest >= 0 {
		all = append(all, ">")
	}
	return strings.Join(all, ".")
}

// Apply appends the result for a subject to dst. It returns false if the subject does not match the
// source, or if its result could not be published to.
func (t *Transform) Apply(dst, name []byte) ([]byte, bool) {
	if !subject.Matches(t.source, name) {
		return dst, false
	}
	var room [32][]byte
	tokens := split(room[:0], name)
	begin := len(dst)
	for i := range t.parts {
		if i > 0 {
			dst = append(dst, '.')
		}
		if p := &t.parts[i]; p.apply != nil {
			dst = p.apply(dst, tokens)
		} else {
			dst = append(dst, p.literal...)
		}
	}
	if t.rest >= 0 {
		for _, token := range tokens[t.rest:] {
			if len(dst) > begin {
				dst = append(dst, '.')
			}
			dst = append(dst, token...)
		}
	}
	if len(dst)-begin > MaxSubject || !subject.Valid(dst[begin:]) {
		return dst[:begin], false
	}
	return dst, true
}

func split(tokens [][]byte, name []byte) [][]byte {
	for {
		token, rest, more := bytes.Cut(name, []byte{'.'})
		tokens = append(tokens, token)
		if !more {
			return tokens
		}
		name = rest
	}
}

// parse returns a token of a destination. wildcards are the positions of the source's wildcards.
func parse(token string, wildcards []int) (part, error) {
	name, args, isCall := call(token)
	switch {
	case !isCall && (token == "" || token == ">"):
		return part{}, &Error{token, badSubject}
	case !isCall && strings.ContainsAny(token, "\t\n\f\r "):
		return part{}, &Error{"", badSubject}
	case !isCall && token == "*":
		return part{}, ErrSubject
	case !isCall:
		index, err := strconv.Atoi(strings.TrimPrefix(token, "$"))
		if err != nil || token[0] != '$' {
			return part{literal: token}, nil
		}
		return one(token, wildcards, index, appendToken)
	}
	switch name {
	case "wildcard":
		return wildcard(token, args, wildcards)
	case "partition":
		return partition(token, args, wildcards)
	case "random":
		return random(token, args)
	case "split":
		p, err := splitAt(token, args, wildcards)
		p.many = true
		return p, err
	}
	if f, ok := sized[name]; ok {
		p, err := withSize(token, args, wildcards, f)
		p.many = name != "left" && name != "right"
		return p, err
	}
	return part{}, &Error{token, badFunction}
}

// call returns the function, in lower case, and the arguments of a token {{function(arguments)}}.
func call(token string) (name string, args []string, ok bool) {
	inner, ok := strings.CutPrefix(token, "{{")
	if !ok || len(token) <= 4 {
		return "", nil, false
	}
	if inner, ok = strings.CutSuffix(inner, "}}"); !ok {
		return "", nil, false
	}
	inner = strings.TrimSpace(inner)
	name, list, found := strings.Cut(inner, "(")
	if list, ok = strings.CutSuffix(list, ")"); !found || !ok {
		return "", nil, true
	}
	for i, arg := range strings.Split(list, ",") {
		if i > 0 {
			arg = strings.TrimLeft(arg, " \t")
		}
		args = append(args, arg)
	}
	return strings.ToLower(strings.TrimSpace(name)), args, true
}

// number returns an argument that is a number.
func number(token, arg string) (int, error) {
	n, err := strconv.ParseInt(strings.Trim(arg, " "), 10, 32)
	if err != nil {
		return 0, &Error{token, badArgument}
	}
	return int(n), nil
}

// one returns the part that f makes of the token of a wildcard.
func one(token string, wildcards []int, index int, f func(dst, token []byte) []byte) (part, error) {
	at, err := position(token, wildcards, index)
	if err != nil {
		return part{}, err
	}
	return part{apply: func(dst []byte, tokens [][]byte) []byte { return f(dst, tokens[at]) }}, nil
}

// position returns where the source has the wildcard of an index, which counts from 1.
func position(token string, wildcards []int, index int) (int, error) {
	switch {
	case len(wildcards) == 0:
		return 0, &Error{token, badIndex}
	case index < 1 || index > len(wildcards):
		return 0, &Error{fmt.Sprintf("%s: [%d]", token, index), badIndex}
	}
	return wildcards[index-1], nil
}

func appendToken(dst, token []byte) []byte { return append(dst, token...) }

func wildcard(token string, args []string, wildcards []int) (part, error) {
	switch {
	case len(args) == 1 && args[0] == "":
		return part{}, &Error{token, fewer}
	case len(args) > 1:
		return part{}, &Error{token, more}
	}
	index, err := number(token, args[0])
	if err != nil {
		return part{}, err
	}
	return one(token, wildcards, index, appendToken)
}

func partition(token string, args []string, wildcards []int) (part, error) {
	count, err := number(token, args[0])
	if err != nil {
		return part{}, err
	}
	if count < 0 {
		return part{}, &Error{token, badArgument}
	}
	var at []int
	for _, arg := range args[1:] {
		index, err := number(token, arg)
		if err != nil {
			return part{}, err
		}
		i, err := position(token, wildcards, index)
		if err != nil {
			return part{}, err
		}
		at = append(at, i)
	}
	return part{apply: func(dst []byte, tokens [][]byte) []byte {
		hash := fnv.New32a()
		for i, name := range tokens {
			switch {
			case at == nil && i > 0:
				_, _ = hash.Write([]byte{'.'})
				fallthrough
			case at == nil:
				_, _ = hash.Write(name)
			}
		}
		for _, i := range at {
			_, _ = hash.Write(tokens[i])
		}
		return strconv.AppendUint(dst, uint64(hash.Sum32()%uint32(max(count, 1))), 10)
	}}, nil
}

func random(token string, args []string) (part, error) {
	if len(args) != 1 {
		return part{}, &Error{token, fewer}
	}
	count, err := number(token, args[0])
	if err != nil {
		return part{}, err
	}
	if count < 0 {
		return part{}, &Error{token, badArgument}
	}
	return part{random: true, apply: func(dst []byte, _ [][]byte) []byte {
		return strconv.AppendInt(dst, rand.Int64N(int64(max(count, 1))), 10)
	}}, nil
}

func splitAt(token string, args []string, wildcards []int) (part, error) {
	switch {
	case len(args) < 2:
		return part{}, &Error{token, fewer}
	case len(args) > 2:
		return part{}, &Error{token, more}
	}
	index, err := number(token, args[0])
	if err != nil {
		return part{}, err
	}
	separator := []byte(args[1])
	if len(separator) == 0 || bytes.ContainsAny(separator, " ") {
		return part{}, &Error{token, badArgument}
	}
	return one(token, wildcards, index, func(dst, of []byte) []byte {
		first := true
		for piece := range bytes.SplitSeq(of, separator) {
			if len(piece) > 0 {
				dst = appendPiece(dst, piece, &first)
			}
		}
		return dst
	})
}

// sized are the functions of a token and a number of bytes. A token that is not longer stays.
var sized = map[string]func(dst, of []byte, size int) []byte{
	"left":           func(dst, of []byte, size int) []byte { return append(dst, of[:size]...) },
	"right":          func(dst, of []byte, size int) []byte { return append(dst, of[len(of)-size:]...) },
	"splitfromleft":  func(dst, of []byte, size int) []byte { return appendTwo(dst, of, size) },
	"splitfromright": func(dst, of []byte, size int) []byte { return appendTwo(dst, of, len(of)-size) },
	"slicefromleft": func(dst, of []byte, size int) []byte {
		first := true
		for piece := range slices.Chunk(of, size) {
			dst = appendPiece(dst, piece, &first)
		}
		return dst
	},
	"slicefromright": func(dst, of []byte, size int) []byte {
		first := true
		if short := len(of) % size; short > 0 {
			dst, of = appendPiece(dst, of[:short], &first), of[short:]
		}
		for piece := range slices.Chunk(of, size) {
			dst = appendPiece(dst, piece, &first)
		}
		return dst
	},
}

func appendTwo(dst, of []byte, at int) []byte {
	return append(append(append(dst, of[:at]...), '.'), of[at:]...)
}

func appendPiece(dst, piece []byte, first *bool) []byte {
	if !*first {
		dst = append(dst, '.')
	}
	*first = false
	return append(dst, piece...)
}

func withSize(token string, args []string, wildcards []int, f func(dst, of []byte, size int) []byte) (part, error) {
	switch {
	case len(args) < 2:
		return part{}, &Error{token, fewer}
	case len(args) > 2:
		return part{}, &Error{token, more}
	}
	index, err := number(token, args[0])
	if err != nil {
		return part{}, err
	}
	size, err := number(token, args[1])
	if err != nil {
		return part{}, err
	}
	return one(token, wildcards, index, func(dst, of []byte) []byte {
		if size <= 0 || size >= len(of) {
			return append(dst, of...)
		}
		return f(dst, of, size)
	})
}
