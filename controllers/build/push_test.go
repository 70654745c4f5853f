package build

import (
	"maps"
	"slices"
	"testing"
)

func TestALargeValueTakesNoneAway(t *testing.T) {
	of := func(kib int) []byte { return make([]byte, kib<<10) }
	values := map[string][]byte{"a_k": of(600), "b_k": of(200), "c_k": of(250), "d_k": of(250), "e_k": of(4)}
	files := []string{"a_k", "b_k", "c_k", "d_k", "e_k"}
	got := func(was map[string][]byte) []string { return slices.Sorted(maps.Keys(PushData(files, values, was))) }
	if all := got(nil); !slices.Equal(all, []string{"b_k", "c_k", "d_k", "e_k"}) {
		t.Errorf("beside a value that is too large there are %q", all)
	}
	values["a_k"] = of(100)
	if all := got(map[string][]byte{"c_k": of(250), "d_k": of(250), "e_k": of(4), "b_k": of(1)}); !slices.Equal(all, []string{"b_k", "c_k", "d_k", "e_k"}) {
		t.Errorf("after a new value there are %q", all)
	}
	values["b_k"] = of(256)
	values["e_k"] = of(250)
	if all := got(map[string][]byte{"b_k": of(1), "c_k": of(250), "d_k": of(250), "e_k": of(250)}); !slices.Equal(all, []string{"c_k", "d_k", "e_k"}) {
		t.Errorf("after a value that grew there are %q", all)
	}
}
