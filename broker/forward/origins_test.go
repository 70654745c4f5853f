package forward

import "testing"

// TestSilentSourcesAreForgotten: a silent source is deleted by the second Expire that finds it
// silent, unless it was heard of in between. What it had kept is below Since.
func TestSilentSourcesAreForgotten(t *testing.T) {
	o := Origins{Since: 5}
	for source := range uint64(1000) {
		from := o.Of(source+1, 1)
		from.Keep(Span{First: 1, Offset: source + 1, Count: 1}, 10)
	}
	o.Expire(100)
	if n := o.Sources(); n != 1000 {
		t.Fatalf("%d sources are left after one look, which may come right after the process was stopped for long", n)
	}
	o.Of(7, 1).Heard = 50 // it had arrived meanwhile, and is handled now
	o.Expire(100)
	if n := o.Sources(); n != 1 {
		t.Errorf("%d sources are left", n)
	}
	if _, _, ok := o.Of(7, 1).Find(1); !ok {
		t.Error("what came from the source that was heard of is forgotten")
	}
	if o.Since != 100 {
		t.Errorf("it says that it knows all since %d", o.Since)
	}
	if from := o.Of(8, 1); o.Knows(from, 99) || !o.Knows(from, 100) {
		t.Error("of a forgotten source it takes messages for new that may have been kept, or none")
	}
	o.Expire(100)
	o.Expire(100)
	if n := o.Sources(); n > 1 {
		t.Errorf("%d sources are left", n)
	}
}

// TestSourcesThatAreHeardOfStay: sources that are heard of are never deleted.
func TestSourcesThatAreHeardOfStay(t *testing.T) {
	var o Origins
	for now := int64(0); now < 1000; now += 10 {
		from := o.Of(1, 1)
		from.Heard = now
		o.Expire(now - 30)
		o.Expire(now - 30)
	}
	if o.Sources() != 1 {
		t.Error("it is forgotten")
	}
}
