package query

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/carillon-mq/carillon/broker/attribute"
)

// TranslateCQBS returns a condition of CQBS as a CEL expression, or an error with its column:
//
//		condition  = conjunction { "or" conjunction }
//		conjunction = negation { "and" negation }
//		negation   = { "not" } primary
//		primary    = "(" condition ")" | "has" key | key operator value
//		operator   = "=" | "!=" | "like"
//		value      = 'text' | "text" | number | "true" | "false"
//
//	 1. Words are in lower or upper case. A slash in a key is a dot: Location/Room is Location.Room.
//	 2. In a text a backslash makes a quote or a backslash literal. In the pattern of like, % is any
//	    text, _ is any character, and a backslash before them makes them literal.
//	 3. A comparison with a missing attribute is neither true nor false, as with NULL in SQL, and so
//	    is its negation.
func TranslateCQBS(text string) (string, error) {
	if len(text) > maxText {
		return "", fmt.Errorf("it has %d bytes, and the bound is %d", len(text), maxText)
	}
	if !utf8.ValidString(text) {
		return "", errors.New("it is not UTF-8 (encode it)")
	}
	c := &cqbs{text: text}
	c.next()
	if c.err == nil && c.token.kind == endToken {
		return "", errors.New(`it is empty (write a condition, such as Room = "410")`)
	}
	c.disjunction(0)
	if c.err == nil && c.token.kind != endToken {
		c.fail("is not expected here (join conditions by and, or)")
	}
	if c.err != nil {
		return "", c.err
	}
	return c.out.String(), nil
}

type tokenKind uint8

const (
	endToken tokenKind = iota
	wordToken
	textToken
	numberToken
	signToken
)

// token is a word, a text without its quotes and escapes, a number, or a sign.
type token struct {
	kind tokenKind
	text string
	at   int // of its first byte
}

// cqbs is a parser with one token of lookahead. After an error there is none.
type cqbs struct {
	text  string
	at    int // behind the token
	token token
	out   strings.Builder
	err   error
}

// is reports whether the token is a word of the language.
func (c *cqbs) is(word string) bool {
	return c.token.kind == wordToken && strings.EqualFold(c.token.text, word)
}

func (c *cqbs) sign(sign string) bool { return c.token.kind == signToken && c.token.text == sign }

// fail notes the first error: the token, and what is wrong with it.
func (c *cqbs) fail(what string) {
	name := "the end"
	if c.token.kind != endToken {
		name = strconv.Quote(c.text[c.token.at:c.at])
	}
	c.failAt(c.token.at, name+" "+what)
}

func (c *cqbs) failAt(at int, what string) {
	if c.err == nil {
		c.err = fmt.Errorf("column %d: %s", utf8.RuneCountInString(c.text[:at])+1, what)
	}
	c.token, c.at = token{at: len(c.text)}, len(c.text)
}

// next reads the next token.
func (c *cqbs) next() {
	for c.at < len(c.text) && strings.IndexByte(" \t\r\n", c.text[c.at]) >= 0 {
		c.at++
	}
	at := c.at
	if at == len(c.text) {
		c.token = token{at: at}
		return
	}
	switch b := c.text[at]; {
	case b == '\'' || b == '"':
		c.quoted(b)
	case b >= '0' && b <= '9' || b == '-':
		c.take(numberToken, func(b byte) bool { return inWord(b) || b == '+' })
	case inWord(b):
		c.take(wordToken, inWord)
	case strings.HasPrefix(c.text[at:], "!="):
		c.at += 2
		c.token = token{signToken, "!=", at}
	case b == '(' || b == ')' || b == '=':
		c.at++
		c.token = token{signToken, c.text[at:c.at], at}
	default:
		_, size := utf8.DecodeRuneInString(c.text[at:])
		c.failAt(at, strconv.Quote(c.text[at:at+size])+" is no word and no sign (texts have quotes)")
	}
}

func inWord(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || strings.IndexByte("_.-/", b) >= 0
}

func (c *cqbs) take(kind tokenKind, in func(byte) bool) {
	at := c.at
	for c.at++; c.at < len(c.text) && in(c.text[c.at]); c.at++ {
	}
	c.token = token{kind, c.text[at:c.at], at}
}

// quoted reads a text. A backslash before anything but a quote or a backslash stays.
func (c *cqbs) quoted(quote byte) {
	at := c.at
	var s []byte
	for c.at++; c.at < len(c.text); c.at++ {
		switch b := c.text[c.at]; {
		case b == quote:
			c.at++
			c.token = token{textToken, string(s), at}
			return
		case b == '\\' && c.at+1 < len(c.text) && strings.IndexByte(`'"\`, c.text[c.at+1]) >= 0:
			c.at++
			s = append(s, c.text[c.at])
		default:
			s = append(s, b)
		}
	}
	c.failAt(at, "the text that begins here has no end")
}

func (c *cqbs) disjunction(depth int) {
	for c.conjunction(depth); c.is("or"); c.conjunction(depth) {
		c.out.WriteString(" || ")
		c.next()
	}
}

func (c *cqbs) conjunction(depth int) {
	for c.negation(depth); c.is("and"); c.negation(depth) {
		c.out.WriteString(" && ")
		c.next()
	}
}

func (c *cqbs) negation(depth int) {
	if depth > maxNesting {
		c.fail(fmt.Sprintf("is nested deeper than %d levels", maxNesting))
	}
	switch {
	case c.is("not"):
		c.next()
		c.out.WriteString("!(")
		c.negation(depth + 1)
		c.out.WriteByte(')')
	case c.sign("("):
		c.next()
		c.out.WriteByte('(')
		c.disjunction(depth + 1)
		if !c.sign(")") {
			c.fail("is not expected here (close the parenthesis)")
		}
		c.next()
		c.out.WriteByte(')')
	case c.is("has"):
		c.next()
		c.out.WriteString(c.key() + " in attributes")
	default:
		c.comparison()
	}
}

// key reads a key, and returns the attribute's name as a literal.
func (c *cqbs) key() string {
	name := strings.ReplaceAll(c.token.text, "/", ".")
	for _, word := range []string{"and", "or", "not", "has", "like"} {
		if c.is(word) {
			c.fail("is a word of the language, and not a key")
		}
	}
	if c.token.kind != wordToken || !attribute.ValidName(name) {
		c.fail("is not the name of an attribute")
	}
	c.next()
	return strconv.Quote(name)
}

func (c *cqbs) comparison() {
	key := "attributes[" + c.key() + "]"
	switch {
	case c.sign("="):
		c.next()
		c.out.WriteString(key + " == " + c.value())
	case c.sign("!="):
		c.next()
		c.out.WriteString(key + " != " + c.value())
	case c.is("like"):
		c.next()
		if c.token.kind != textToken {
			c.fail("is not a pattern (write a text with quotes)")
		}
		c.out.WriteString(key + like(c.token.text))
		c.next()
	default:
		c.fail("is not expected here (compare the key by =, != or like)")
	}
}

// value reads what a key is compared with, and returns it as a literal.
func (c *cqbs) value() (literal string) {
	switch {
	case c.token.kind == textToken:
		literal = strconv.Quote(c.token.text)
	case c.is("true") || c.is("false"):
		literal = strings.ToLower(c.token.text)
	case c.token.kind == numberToken:
		n, err := strconv.ParseFloat(c.token.text, 64)
		if err != nil {
			c.fail("is not a number")
		}
		literal = strconv.FormatFloat(n, 'e', -1, 64)
	default:
		c.fail("is not a value (write a text with quotes, a number, true or false)")
	}
	c.next()
	return literal
}

// like returns what an attribute has to fulfil, as it follows the attribute.
func like(pattern string) string {
	var pieces []string // texts between the %
	var piece strings.Builder
	var expression strings.Builder
	single := false // there is a _
	for i := 0; i < len(pattern); i++ {
		b := pattern[i]
		switch {
		case b == '\\' && i+1 < len(pattern) && (pattern[i+1] == '%' || pattern[i+1] == '_'):
			i++
			b = pattern[i]
		case b == '%':
			expression.WriteString(regexp.QuoteMeta(piece.String()) + ".*")
			pieces = append(pieces, piece.String())
			piece.Reset()
			continue
		case b == '_':
			expression.WriteString(regexp.QuoteMeta(piece.String()) + ".")
			piece.Reset()
			single = true
			continue
		}
		piece.WriteByte(b)
	}
	expression.WriteString(regexp.QuoteMeta(piece.String()))
	pieces = append(pieces, piece.String())
	switch n := len(pieces); {
	case single:
	case n == 1:
		return " == " + strconv.Quote(pieces[0])
	case n == 2 && pieces[1] == "":
		return ".startsWith(" + strconv.Quote(pieces[0]) + ")"
	case n == 2 && pieces[0] == "":
		return ".endsWith(" + strconv.Quote(pieces[1]) + ")"
	case n == 3 && pieces[0] == "" && pieces[2] == "":
		return ".contains(" + strconv.Quote(pieces[1]) + ")"
	}
	return ".matches(" + strconv.Quote("^(?s:"+expression.String()+")$") + ")"
}
