package subject

import "bytes"

// Valid says whether s may be published to: tokens are not empty, and hold no blanks, control
// characters or wildcards standing alone.
func Valid(s []byte) bool { return valid(s, false) }

// ValidPattern says whether s may be subscribed to.
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

// Matches says whether the literal subject is one of those that pattern stands for.
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

func emptyToken(s []byte) bool {
	return len(s) == 0 || s[0] == '.' || s[len(s)-1] == '.' || bytes.Contains(s, []byte(".."))
}

var dot = []byte{'.'}
