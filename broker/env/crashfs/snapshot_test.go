package crashfs

import "testing"

func TestASnapshotHasTheVisibleContent(t *testing.T) {
	f := New()
	write(t, f, "file", "one", false)
	s := f.Snapshot()
	write(t, f, "file", "two", true)
	if got := outcomes(s, "file"); got["one"] != 200 {
		t.Errorf("a snapshot that lost power: %v", got)
	}
	if f.Used() != 3 || s.Used() != 3 {
		t.Errorf("%d and %d bytes are used", f.Used(), s.Used())
	}
}
