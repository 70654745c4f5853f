package subject

import "bytes"

// Valid reports whether s can be published to. Tokens must not be empty, nor contain blanks or
// control characters, nor be a wildcard.
func Valid(s []byte) bool { return valid(s, false) }

// ValidPattern reports whether s can be subscribed to.
func ValidPattern(s []byte) bool { return valid(s, true) }

func valid(s []byte, pattern bool) bool {
	for len(s) > 0 {
		token, rest, more := bytes.Cut(s, dot)
		switch {
		case len(token) == 0, more && len(rest) == 0:
			return false
		case len(token) == 1 && token[0] == '*' && !pattern:
			return false
		case len(token) == 1 && token[0] == '>' && (!pattern || more):
			return false
		}
		for _, b := range token {
			if b <= ' ' || b == 0x7f {
				return false
			}
		}
		if !more {
			return true
		}
		s = rest
	}
	return false
}

// Matches reports whether the pattern matches the literal subject.
func Matches(pattern, subject []byte) bool {
	for {
		p, prest, pmore := bytes.Cut(pattern, dot)
		s, srest, smore := bytes.Cut(subject, dot)
		switch {
		case len(s) == 0:
			return false
		case len(p) == 1 && p[0] == '>' && !pmore:
			return !emptyToken(subject)
		case len(p) == 1 && p[0] == '*', bytes.Equal(p, s):
		default:
			return false
		}
		if !pmore || !smore {
			return !pmore && !smore
		}
		pattern, subject = prest, srest
	}
}

// HasWildcards reports whether a token of s is a wildcard. A message may have such a subject, if
// its publisher is not held to Valid.
func HasWildcards(s []byte) bool {
	for more := true; more; {
		var token []byte
		token, s, more = bytes.Cut(s, dot)
		if len(token) == 1 && (token[0] == '*' || token[0] == '>' && !more) {
			return true
		}
	}
	return false
}

func emptyToken(s []byte) bool {
	return len(s) == 0 || s[0] == '.' || s[len(s)-1] == '.' || bytes.Contains(s, []byte(".."))
}

var dot = []byte{'.'}
