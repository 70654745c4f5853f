package attribute

import "testing"

// TestUnorderedJSONIsTheSameSet: it is read as what it was made of, and takes no memory of its own.
func TestUnorderedJSONIsTheSameSet(t *testing.T) {
	of := Set{"a": String("x\"\\\n"), "b": Number(-1.5), "c": Bool(true), "d": List(String("1"), Number(2))}
	for _, s := range []Set{{}, {"one": Number(1)}, of} {
		text := s.AppendUnordered([]byte("before"))
		got, err := SetFromJSON(text[len("before"):])
		if err != nil || !got.Equal(s) {
			t.Errorf("%s is read as %v, %v", text, got, err)
		}
	}
	b := make([]byte, 0, 1024)
	if n := testing.AllocsPerRun(100, func() { b = of.AppendUnordered(b[:0]) }); n > 0 {
		t.Errorf("it allocates %v times", n)
	}
}
