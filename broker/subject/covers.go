package subject

// Covers reports whether a matches every subject that b matches. Both are valid patterns or
// subjects.
func Covers[S ~string | ~[]byte](a, b S) bool {
	for {
		p, arest, amore := cut(a)
		q, brest, bmore := cut(b)
		switch {
		case len(p) == 0 || len(q) == 0:
			return false
		case is(p, '>') && !amore:
			return true
		case is(q, '>') && !bmore, !is(p, '*') && (is(q, '*') || string(p) != string(q)):
			return false
		case !amore || !bmore:
			return !amore && !bmore
		}
		a, b = arest, brest
	}
}
