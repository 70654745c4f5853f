package subject

// Overlap reports whether some subject matches both a and b, which are valid patterns or subjects.
func Overlap[S ~string | ~[]byte](a, b S) bool {
	for {
		p, arest, amore := cut(a)
		q, brest, bmore := cut(b)
		switch {
		case len(p) == 0 || len(q) == 0:
			return false
		case is(p, '>') && !amore, is(q, '>') && !bmore:
			return true
		case !is(p, '*') && !is(q, '*') && string(p) != string(q):
			return false
		case !amore || !bmore:
			return !amore && !bmore
		}
		a, b = arest, brest
	}
}

func cut[S ~string | ~[]byte](s S) (token, rest S, more bool) {
	for i := range len(s) {
		if s[i] == '.' {
			return s[:i], s[i+1:], true
		}
	}
	return s, s[len(s):], false
}

func is[S ~string | ~[]byte](token S, wildcard byte) bool {
	return len(token) == 1 && token[0] == wildcard
}
