package subject

import "testing"

// TestCoversAgreesWithEnumeration: over all patterns of up to three tokens, and the subjects that
// tell them apart.
func TestCoversAgreesWithEnumeration(t *testing.T) {
	var patterns, subjects []string
	var grow func(prefix string, depth int, tokens []string, add func(string))
	grow = func(prefix string, depth int, tokens []string, add func(string)) {
		for _, token := range tokens {
			add(prefix + token)
			if depth > 1 && token != ">" {
				grow(prefix+token+".", depth-1, tokens, add)
			}
		}
	}
	grow("", 3, []string{"a", "b", "*", ">"}, func(s string) { patterns = append(patterns, s) })
	grow("", 4, []string{"a", "b", "c"}, func(s string) { subjects = append(subjects, s) })
	covered := 0
	for _, a := range patterns {
		for _, b := range patterns {
			want := true
			for _, s := range subjects {
				if Matches([]byte(b), []byte(s)) && !Matches([]byte(a), []byte(s)) {
					want = false
					break
				}
			}
			if want {
				covered++
			}
			if got := Covers(a, b); got != want {
				t.Errorf("%s covers %s: %v, want %v", a, b, got, want)
			}
		}
	}
	if covered < len(patterns) || Covers("", "a") || Covers("a", "") {
		t.Errorf("%d of %d are covered", covered, len(patterns))
	}
}
