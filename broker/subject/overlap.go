package subject

// Overlap says whether any subject matches both patterns. Each is a valid pattern or subject.
func Overlap[S ~string | ~[]byte](a, b S) bool { return walk(a, b, true) }

// Covers says whether pattern matches every subject that other matches. Each is a valid pattern or subject.
func Covers[S ~string | ~[]byte](pattern, other S) bool { return walk(pattern, other, false) }

// walk compares token by token until one of them stands for all the rest. A wildcard of a
// answers for what b has there; one of b does so only if either may.
func walk[S ~string | ~[]byte](a, b S, either bool) bool {
	for {
		p, arest, amore := cut(a)
		q, brest, bmore := cut(b)
		switch {
		case len(p) == 0 || len(q) == 0:
			return false
		case is(p, '>') && !amore:
			return true
		case is(q, '>') && !bmore:
			return either
		case !is(p, '*') && !(either && is(q, '*')) && string(p) != string(q):
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
