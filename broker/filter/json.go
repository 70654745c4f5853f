package filter

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// A payload is read in place. A position is an index into it; no position, -1, says that what is
// there is no JSON as far as it was read.

var (
	errNoJSON  = errors.New("the payload is no JSON")
	errTooMany = fmt.Errorf("the arrays and objects of the payload that are looked at have more than %d elements", maxElements)
)

// space returns the position of the first byte from i on that is no white space.
func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

// Constants of equalBytes.
const (
	eachByte = 0x0101010101010101
	topBits  = 0x8080808080808080
)

// equalBytes compares each byte of a word with c. The lowest bit that is set is the top one of the
// first byte that equals c. Higher ones may be wrong.
func equalBytes(word uint64, c byte) uint64 {
	x := word ^ eachByte*uint64(c)
	return (x - eachByte) &^ x & topBits
}

// textEnd returns the position of the quote that ends the string whose first byte is at i, and
// whether the string has escapes.
func textEnd(b []byte, i int) (end int, escaped bool) {
	for i+8 <= len(b) {
		word := binary.LittleEndian.Uint64(b[i:])
		m := equalBytes(word, '"') | equalBytes(word, '\\')
		if m == 0 {
			i += 8
			continue
		}
		if i += bits.TrailingZeros64(m) / 8; b[i] == '"' {
			return i, escaped
		}
		escaped = true
		i += 2
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i, escaped
		case '\\':
			escaped = true
			i++
		}
	}
	return -1, false
}

// skip returns the position behind the value at i. Of arrays and objects it reads brackets and
// strings only.
func skip(b []byte, i int) int {
	if i >= len(b) {
		return -1
	}
	switch b[i] {
	case '"':
		end, _ := textEnd(b, i+1)
		return max(end, -2) + 1
	case '{', '[':
		return skipNested(b, i)
	}
	start := i
	for i < len(b) && !ends[b[i]] {
		i++
	}
	if i == start {
		return -1
	}
	return i
}

// ends are the bytes that end a number or a word.
var ends = [256]bool{
	',': true, '}': true, ']': true, ':': true, '"': true, '{': true, '[': true,
	' ': true, '\n': true, '\t': true, '\r': true,
}

// bracketBits are those in which brackets differ. Few other bytes differ from them in no others.
const bracketBits = ('{' ^ '}') | ('{' ^ '[')

// skipNested returns the position behind the array or object at i.
func skipNested(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		if i+8 <= len(b) {
			word := binary.LittleEndian.Uint64(b[i:])
			m := equalBytes(word, '"') | equalBytes(word|eachByte*bracketBits, '{'|bracketBits)
			if m == 0 {
				i += 7
				continue
			}
			i += bits.TrailingZeros64(m) / 8
		}
		switch b[i] {
		case '{', '[':
			if depth++; depth > maxDepth {
				return -1
			}
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			if i, _ = textEnd(b, i+1); i < 0 {
				return -1
			}
		}
	}
	return -1
}

// member is the place of a name and its value in an object.
type member struct {
	name    []byte // without quotes
	escaped bool   // name has escapes
	value   int    // position
}

// is reports whether a member has a name.
func (m *member) is(name string) bool {
	if m.escaped {
		return canBe(m.name, name) && string(unescaped(m.name)) == name
	}
	return string(m.name) == name
}

// canBe reports whether a member's name with escapes is short enough for a name: an escape has six
// bytes at most.
func canBe(escaped []byte, name string) bool { return len(escaped) <= 6*len(name) }

// firstMember returns the first member of the object at i. The object is empty if m.value is 0; it
// is no object, or broken, if that is -1.
func firstMember(b []byte, i int) (m member) {
	if i = space(b, i+1); i < len(b) && b[i] == '}' {
		return member{}
	}
	return memberAt(b, i)
}

// nextMember returns the member behind the value that ends at i, as firstMember does.
func nextMember(b []byte, i int) (m member) {
	i = space(b, i)
	switch {
	case i < len(b) && b[i] == '}':
		return member{}
	case i < len(b) && b[i] == ',':
		return memberAt(b, space(b, i+1))
	}
	return member{value: -1}
}

func memberAt(b []byte, i int) (m member) {
	if i >= len(b) || b[i] != '"' {
		return member{value: -1}
	}
	end, escaped := textEnd(b, i+1)
	if end < 0 {
		return member{value: -1}
	}
	colon := space(b, end+1)
	if colon >= len(b) || b[colon] != ':' {
		return member{value: -1}
	}
	return member{b[i+1 : end], escaped, space(b, colon+1)}
}

// number parses the number at i. Numbers that no float64 holds are infinite.
func number(b []byte, i int) (n float64, ok bool) {
	if n, ok = small(b, i); ok {
		return n, true
	}
	end := skip(b, i)
	if end < 0 {
		return 0, false
	}
	word := b[i:end]
	if !isNumeral(word) {
		return 0, false
	}
	n, err := strconv.ParseFloat(unsafe.String(&word[0], len(word)), 64)
	return n, err == nil || math.IsInf(n, 0)
}

// isNumeral reports whether a word is a number as JSON writes it.
func isNumeral(word []byte) bool {
	if len(word) > 0 && word[0] == '-' {
		word = word[1:]
	}
	whole := decimals(word)
	if whole == 0 || whole > 1 && word[0] == '0' {
		return false
	}
	if word = word[whole:]; len(word) > 0 && word[0] == '.' {
		fraction := decimals(word[1:])
		if fraction == 0 {
			return false
		}
		word = word[1+fraction:]
	}
	if len(word) == 0 {
		return true
	}
	if word[0] != 'e' && word[0] != 'E' {
		return false
	}
	if word = word[1:]; len(word) > 0 && (word[0] == '+' || word[0] == '-') {
		word = word[1:]
	}
	return len(word) > 0 && decimals(word) == len(word)
}

// decimals returns how many digits a word begins with.
func decimals(word []byte) (n int) {
	for n < len(word) && word[n] >= '0' && word[n] <= '9' {
		n++
	}
	return n
}

// small parses the number at i if it has up to 15 digits, with or without a point, and no exponent.
// Its digits and the power of ten are exact, so one division rounds as strconv does (Clinger,
// 1990).
func small(b []byte, i int) (n float64, ok bool) {
	negative := i < len(b) && b[i] == '-'
	if negative {
		i++
	}
	begin, point, digits := i, -1, uint64(0)
	for ; i < len(b); i++ {
		c := b[i]
		if d := c - '0'; d <= 9 {
			digits = digits*10 + uint64(d)
			continue
		}
		if c != '.' || point >= 0 {
			break
		}
		point = i
	}
	if i < len(b) && !ends[b[i]] || i-begin > 16 || i-begin == 16 && point < 0 {
		return 0, false
	}
	whole, fraction := i-begin, 0
	if point >= 0 {
		whole, fraction = point-begin, i-point-1
	}
	if whole == 0 || whole > 1 && b[begin] == '0' || point >= 0 && fraction == 0 {
		return 0, false
	}
	n = float64(digits)
	if fraction > 0 {
		n /= powers[fraction]
	}
	if negative {
		n = -n
	}
	return n, true
}

var powers = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// text returns the string whose quote is at i. If it has escapes, its bytes are copied.
func text(b []byte, i int) (s []byte, ok bool) {
	end, escaped := textEnd(b, i+1)
	if end < 0 {
		return nil, false
	}
	if s = b[i+1 : end]; escaped {
		s = unescaped(s)
	}
	return s, true
}

// unescaped returns a copy of a string with its escapes resolved. An escape that JSON does not know
// stands for itself.
func unescaped(s []byte) []byte {
	out := make([]byte, 0, len(s))
	for len(s) > 0 {
		i := bytes.IndexByte(s, '\\')
		if i < 0 || i+1 == len(s) {
			return append(out, s...)
		}
		out = append(out, s[:i]...)
		c, rest := s[i+1], s[i+2:]
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			var r rune
			if r, rest = unit(rest); r >= 0 {
				out, s = utf8.AppendRune(out, r), rest
				continue
			}
		case '"', '\\', '/':
		default:
			out = append(out, '\\')
		}
		out, s = append(out, c), rest
	}
	return out
}

// unit reads the digits of one or two \u escapes. r is -1 if there are none.
func unit(s []byte) (r rune, rest []byte) {
	if r = digits(s); r < 0 {
		return -1, s
	}
	rest = s[4:]
	if utf16.IsSurrogate(r) {
		if len(rest) >= 6 && rest[0] == '\\' && rest[1] == 'u' {
			if both := utf16.DecodeRune(r, digits(rest[2:])); both != utf8.RuneError {
				return both, rest[6:]
			}
		}
		r = utf8.RuneError
	}
	return r, rest
}

// digits returns the number of four hexadecimal digits, or -1.
func digits(s []byte) rune {
	if len(s) < 4 {
		return -1
	}
	n, err := strconv.ParseUint(string(s[:4]), 16, 32)
	if err != nil || s[0] == '+' || s[0] == '-' {
		return -1
	}
	return rune(n)
}

// scalar reports whether the value at i is a string, a number or a word of JSON.
func scalar(b []byte, i int) bool {
	switch b[i] {
	case '"':
		end, _ := textEnd(b, i+1)
		return end >= 0
	case 't', 'f', 'n':
		w := word(b, i)
		return w == "true" || w == "false" || w == "null"
	}
	_, ok := number(b, i)
	return ok
}
